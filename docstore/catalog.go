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

// Containers are made, changed and dropped in the committer, as writes are: no write is
// checked against one layout and applied to another. Keys begin with the container's
// number, which counts up and is used once, so a container that is made again under an
// old id shares no key with the one before, and the keys of that one may be removed in
// the background.

// CreateContainer adds a container. The error is [feed.ErrConflict] when the id
// is taken, [feed.ErrNotFound] when the database does not exist, and
// [feed.ErrBadRequest] when the specification is refused.
func (db *DB) CreateContainer(ctx context.Context, spec ContainerSpec) (*Container, error) {
	// The layout is made here and only named in the committer, because all writers wait
	// for the committer.
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

// storeLayout writes the container's record. Once the group is safe on the disk, readers see
// the layout, and then runs, if not nil: a layout that readers saw earlier could be
// lost again.
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

// ReplaceContainer changes DefaultTTL, Retention and Meta of a container; the other
// fields of spec only name the container. A shorter retention soon forgets older versions. A
// retention where there was none keeps versions from now on: those superseded before
// are gone already.
func (db *DB) ReplaceContainer(ctx context.Context, spec ContainerSpec) (*Container, error) {
	if err := spec.check(); err != nil {
		return nil, fmt.Errorf("replace container %q: %w", spec.ID, err)
	}
	return db.UpdateContainer(ctx, spec.name(), func(old *ContainerSpec) error {
		*old = spec
		return nil
	})
}

// UpdateContainer is [DB.ReplaceContainer] with the specification that change makes of
// the present specification; no other change comes in between, so a condition on the old
// value holds. When change fails, nothing is changed. Be quick there, because all writers
// wait.
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

// DeleteContainer removes the container with this name and all its documents. Readers
// and waiters of the container get [feed.ErrNotFound]. The disk's room comes back
// later.
func (db *DB) DeleteContainer(ctx context.Context, name string) error {
	c, err := db.Container(name)
	if err != nil {
		return fmt.Errorf("delete container: %w", err)
	}
	err = db.committer.runAlone(ctx, func(g *group) error {
		// What must be undone if the group is refused is not begun.
		if err := g.needRoom(engine.GivesBack); err != nil {
			return err
		}
		// Callers may hold c beyond its removal from the map: they are refused by this
		// flag, and of two deletes the second is.
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
