package docstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Check verifies every invariant of the store. Each document has its version in a log that its partition reads, and
// each version has its document, mark or successor. The indexes by id, expiry and unique key agree with the
// documents. LSNs and times are in order, ranges tile the key space, and counts are right. Check reads everything, in
// a single state, while the store is in use. If there are violations, the error is [ErrCorrupt].
func (db *DB) Check() error {
	found, err := db.CheckAll(life{db.stop}, nil)
	if errors.Is(err, context.Canceled) { // this context ends only when the store is closed
		return ErrClosed
	}
	if err != nil {
		return err
	}
	if len(found) > 0 {
		var errs []error
		for _, v := range found {
			errs = append(errs, errors.New(v.String()))
		}
		return fmt.Errorf("check store %s: %w: %w", db.dir, ErrCorrupt, errors.Join(errs...))
	}
	return nil
}

// Violation is an invariant that does not hold.
type Violation struct {
	Container string `json:"container"`
	Text      string `json:"text"`
}

// String returns the violation on a single line for an operator.
func (v Violation) String() string { return fmt.Sprintf("container %q: %s", v.Container, v.Text) }

// CheckAll is [DB.Check] with a context. CheckAll returns a list of at most 20 violations. If progress is not nil,
// CheckAll passes the number of records read so far to progress. Writers do not wait for the check, but the space of
// data deleted meanwhile is freed only when the check ends.
func (db *DB) CheckAll(ctx context.Context, progress func(records int64)) (found []Violation, err error) {
	if err := db.closed(); err != nil {
		return nil, err
	}
	k := &checker{db: db, ctx: ctx, progress: progress, view: db.eng.View()}
	defer func() { err = errors.Join(err, k.view.Close()) }()
	err = k.eachKey([]byte{tableContainer}, []byte{tableContainer + 1}, func(key, value []byte) error {
		num, _, err := splitKey(key)
		if err != nil {
			return err
		}
		l, _, err := decodeLayout(value)
		if err != nil {
			return err
		}
		return k.checkContainer(num, l)
	})
	if err == nil {
		err = k.refuseStrays()
	}
	if err != nil {
		return k.found, fmt.Errorf("check store %s: %w", db.dir, err)
	}
	return k.found, k.countRecords(0)
}

const checkStep = 4096 // records between two checks of the context and calls of progress

// countRecords counts records. Every checkStep records countRecords returns the reason if the check must end; a test
// for each record would cost more than the reading.
func (k *checker) countRecords(n int64) error {
	k.records += n
	if n > 0 && k.records%checkStep != 0 {
		return nil
	}
	if k.progress != nil {
		k.progress(k.records)
	}
	if err := k.db.closed(); err != nil {
		return err
	}
	return context.Cause(k.ctx)
}

// refuseStrays refuses keys of missing containers, because a new container with such a number would inherit the keys.
func (k *checker) refuseStrays() error {
	for _, table := range []byte(dataTables) {
		err := k.eachKey([]byte{table}, []byte{table + 1}, func(key, _ []byte) error {
			if num, _, err := splitKey(key); err != nil || !slices.Contains(k.known, num) {
				return fmt.Errorf("%w: it belongs to no container", ErrCorrupt)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
