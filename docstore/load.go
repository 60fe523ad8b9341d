package docstore

import (
	"crypto/rand"
	"errors"
	"fmt"
)

// loader reads the data that stays in memory while a store is open. A loader reads with [engine.Engine.Find] and
// cursors over the tables of loadedTables, whose blocks have been verified.
type loader struct{ db *DB }

// readAll reads into memory the data that every request needs: databases, containers, counts. readAll reads the
// format first, because the records of another format would be misread. readAll raises the format last, because if
// the load fails, the previous version must still be able to open the store.
func (ld loader) readAll() error {
	format, found, err := ld.db.eng.Format()
	switch {
	case err != nil:
		return err
	case !found:
		err = ld.makeStore()
	default:
		ld.db.rid, _, err = ld.db.eng.Find(metaKey("rid"))
	}
	if err != nil {
		return err
	}
	next, _, err := ld.db.eng.Find(metaKey("next"))
	if err != nil {
		return err
	}
	if len(next) > 0 {
		if ld.db.nextCont, err = splitNumber(next); err != nil {
			return fmt.Errorf("%w: number of the next container: %w", ErrCorrupt, err)
		}
	}
	if err := ld.readDatabases(); err != nil {
		return err
	}
	if err := errors.Join(ld.readRetention(), ld.readContainers()); err != nil {
		return err
	}
	isOld := found && format != formatVersion
	if ld.db.ordered = !isOld; !isOld || ld.db.rest {
		return ld.readHashed()
	}
	if err := ld.orderAll(); err != nil {
		return err
	}
	ld.db.ordered = true
	// A program of an older version would write versions without tallies, and without their order.
	return ld.db.eng.SetFormat(formatVersion)
}

// readHashed reads whether numbers of resource ids may be hashes.
func (ld loader) readHashed() (err error) {
	_, ld.db.hashed, err = ld.db.eng.Find(metaKey("hashed"))
	return err
}

// makeStore creates a new store.
func (ld loader) makeStore() error {
	ld.db.rid = make([]byte, 4)
	if _, err := rand.Read(ld.db.rid); err != nil {
		return err
	}
	ld.db.rid[3] &= 0x7f
	w := ld.db.eng.NewBatch(0)
	w.Set(metaKey("format"), []byte(formatVersion))
	w.Set(metaKey("rid"), ld.db.rid)
	return w.Commit()
}

// readContainers reads the records of all containers.
func (ld loader) readContainers() error {
	all := map[string]*Container{}
	ld.db.containers.Store(&all)
	return ld.eachRecord(tableContainer, func(key, value []byte) error {
		num, _, err := splitKey(key)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		l, rid, err := decodeLayout(value)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		c := newContainer(ld.db, num, rid)
		c.tallies.on = l.tallied
		c.layout.Store(l)
		if err := ld.readContainer(c); err != nil {
			return fmt.Errorf("load container %q: %w", l.spec.ID, err)
		}
		all[l.spec.name()] = c
		return nil
	})
}

// eachRecord calls visit for the records of a table, until an error.
func (ld loader) eachRecord(table byte, visit func(key, value []byte) error) (err error) {
	c, err := ld.db.eng.Cursor([]byte{table}, []byte{table + 1})
	if err != nil {
		return err
	}
	defer c.CloseInto(&err, "close cursor")
	for ok := c.First(); ok; ok = c.Next() {
		value, err := c.Value()
		if err == nil {
			err = visit(c.Key(), value)
		}
		if err != nil {
			return err
		}
	}
	return c.Err()
}

// readContainer reads head, counts and low-water marks of a container.
func (ld loader) readContainer(c *Container) error {
	l := c.layout.Load()
	head, err := ld.readNumbers(headKey(c.num), 2)
	if err != nil {
		return err
	}
	c.lsn = head[0]
	c.clock.recordCommit(head[1])
	c.newestTime.Store(head[1])
	c.head.Store(head[0])
	for _, part := range l.parts {
		n, err := ld.readNumbers(countKey(c.num, part.num), 2)
		if err != nil {
			return err
		}
		part.docs.Store(n[0])
		part.newest.Store(n[1])
	}
	c.alarm.setAlarm(1) // documents may have expired while the store was closed
	for num, log := range l.logs {
		low, err := ld.readNumbers(lowKey(c.num, num), 1)
		if err != nil {
			return err
		}
		log.low.Store(low[0])
		log.saved.Store(low[0])
	}
	return nil
}

// readNumbers reads a record of n numbers. If the record is absent, all numbers are zero: a container that was never
// written to has no record.
func (ld loader) readNumbers(key []byte, n int) ([]int64, error) {
	value, found, err := ld.db.eng.Find(key)
	numbers := make([]int64, n)
	if err != nil || !found {
		return numbers, err
	}
	if err := decodeNumbers(value, numbers); err != nil {
		return nil, fmt.Errorf("%w: record of %s: %w", ErrCorrupt, describeKey(key, unnamed), err)
	}
	return numbers, nil
}
