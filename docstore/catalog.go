package docstore

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/millrace/changefeed/docstore/internal/engine"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/epk"
)

// The committer creates, changes and drops containers, as it carries out writes. So no write is checked against one
// layout and applied to another. Keys begin with the container's number. Numbers count up and are used once, so a
// container that is created again under an old id shares no key with the deleted container, whose keys may be removed
// in the background.

// CreateContainer adds a container. The error is [feed.ErrConflict] if the id is taken, [feed.ErrNotFound] if the
// database does not exist, and [feed.ErrBadRequest] if the specification is invalid.
func (db *DB) CreateContainer(ctx context.Context, spec ContainerSpec) (*Container, error) {
	// The layout is built here, and the committer only assigns the number, because all writers wait for the
	// committer.
	l, err := newLayout(spec)
	if err != nil {
		return nil, fmt.Errorf("create container %q: %w", spec.ID, err)
	}
	bounds := append(append([]string{epk.Min}, epk.Even(l.kind, l.spec.Ranges)...), epk.Max)
	for i := range bounds[1:] {
		l.addPartition(feed.Range{Min: bounds[i], Max: bounds[i+1]}, nil)
	}
	var c *Container
	err = db.committer.runAlone(ctx, func(g *group) (err error) {
		name := l.spec.name()
		if (*db.containers.Load())[name] != nil {
			return fmt.Errorf("it exists: %w", feed.ErrConflict)
		}
		database, ok := db.database(l.spec.Database)
		switch {
		case !ok && l.spec.Database != DefaultDatabase:
			return fmt.Errorf("database %q: %w", l.spec.Database, feed.ErrNotFound)
		case !ok:
			if database, err = g.newDatabase(DefaultDatabase, nil); err != nil {
				return err
			}
		}
		num := g.nextNumber()
		rid, err := containerRID(database, num)
		if err != nil {
			return err
		}
		c = newContainer(db, num, rid)
		c.tallies.on, l.tallied = true, true
		l.common, _ = db.Retention()
		l.adaptMarks(l.retention(), 0)
		l.renewETag(db)
		return g.storeLayout(c, l, func() {
			next := maps.Clone(*db.containers.Load())
			next[name] = c
			db.containers.Store(&next)
		})
	})
	if err != nil {
		return nil, fmt.Errorf("create container %q: %w", spec.ID, err)
	}
	return c, nil
}

// storeLayout writes the container's record. When the group is safe on the disk, storeLayout makes the layout visible
// to readers and calls then, if not nil. If readers saw the layout earlier, a power loss could take the layout back.
func (g *group) storeLayout(c *Container, l *layout, then func()) error {
	b, err := l.encode(c.rid)
	if err != nil {
		return err
	}
	g.set(containerKey(c.num), b)
	g.publish = append(g.publish, func() {
		c.layout.Store(l)
		if then != nil {
			then()
		}
	})
	return nil
}

// renewETag gives the specification a new ETag.
func (l *layout) renewETag(db *DB) {
	l.etag, l.changed = db.tags.tag(), time.Now().UnixMilli()
}

// ReplaceContainer changes DefaultTTL, Retention and Meta of a container; the other fields of spec only name the
// container. If you shorten the retention, older versions are removed soon. If you set a retention where there was
// none, versions are kept from now on; versions superseded earlier are already gone.
func (db *DB) ReplaceContainer(ctx context.Context, spec ContainerSpec) (*Container, error) {
	if err := spec.check(); err != nil {
		return nil, fmt.Errorf("replace container %q: %w", spec.ID, err)
	}
	return db.UpdateContainer(ctx, spec.name(), func(old *ContainerSpec) error {
		*old = spec
		return nil
	})
}

// UpdateContainer is [DB.ReplaceContainer] with a function: change receives a copy of the present specification to
// modify. No other change comes in between, so a condition on the old value holds. If change fails, nothing is
// changed. Keep change fast, because all writers wait.
func (db *DB) UpdateContainer(ctx context.Context, name string, change func(*ContainerSpec) error) (*Container, error) {
	c, err := db.Container(name)
	if err != nil {
		return nil, fmt.Errorf("replace container: %w", err)
	}
	err = db.committer.runAlone(ctx, func(g *group) error {
		l := c.layout.Load().clone()
		if c.dropped.Load() {
			return feed.ErrNotFound
		}
		spec := l.spec.clone()
		if err := change(&spec); err != nil {
			return err
		}
		spec = spec.clone()
		if err := spec.check(); err != nil {
			return err
		}
		before := l.retention()
		l.spec.DefaultTTL, l.spec.Retention, l.spec.Meta = spec.DefaultTTL, spec.Retention, spec.Meta
		l.adaptMarks(before, c.lsn)
		l.renewETag(db)
		return g.storeLayout(c, l, func() { c.alarm.setAlarm(1) })
	})
	if err != nil {
		return nil, fmt.Errorf("replace container %q: %w", c.ID(), err)
	}
	return c, nil
}

// DeleteContainer removes the container with this name and all its documents. Readers and waiters of the container
// get [feed.ErrNotFound]. The disk space is freed later.
func (db *DB) DeleteContainer(ctx context.Context, name string) error {
	c, err := db.Container(name)
	if err != nil {
		return fmt.Errorf("delete container: %w", err)
	}
	err = db.committer.runAlone(ctx, func(g *group) error {
		// This check comes first, because the steps below cannot be undone if the group is refused.
		if err := g.needRoom(engine.GivesBack); err != nil {
			return err
		}
		// Callers may hold c after its removal from the map. This flag refuses them, and refuses the second of two
		// deletes.
		if !c.dropped.CompareAndSwap(false, true) {
			return feed.ErrNotFound
		}
		for _, table := range []byte(dataTables) {
			from := tableKey(table, c.num, 0)
			g.ranges = append(g.ranges, [2][]byte{from, engine.After(from)})
		}
		g.drop(containerKey(c.num), 0)
		g.publish = append(g.publish, func() {
			next := maps.Clone(*db.containers.Load())
			delete(next, qualified(name))
			db.containers.Store(&next)
			c.wakeAll()
		})
		return nil
	})
	if err != nil {
		return fmt.Errorf("delete container %q: %w", name, err)
	}
	return nil
}
