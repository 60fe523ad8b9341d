package docstore

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/internal/epk"
)

// CreateContainer adds a container; [changefeed.ErrConflict] when its id is taken.
func (db *DB) CreateContainer(ctx context.Context, s ContainerSpec) (*Container, error) {
	l, err := newLayout(s)
	if err != nil {
		return nil, fmt.Errorf("create container %q: %w", s.ID, err)
	}
	bounds := append(append([]string{epk.Min}, epk.Even(l.kind, l.spec.Ranges)...), epk.Max)
	for i := range bounds[1:] {
		l.grow(changefeed.Range{Min: bounds[i], Max: bounds[i+1]}, nil)
	}
	var c *Container
	err = db.do(ctx, func(g *group) error {
		name := l.spec.name()
		if (*db.containers.Load())[name] != nil {
			return fmt.Errorf("it exists: %w", changefeed.ErrConflict)
		}
		d, ok := db.database(l.spec.Database)
		switch {
		case !ok && l.spec.Database != DefaultDatabase:
			return fmt.Errorf("database %q: %w", l.spec.Database, changefeed.ErrNotFound)
		case !ok:
			if d, err = g.newDatabase(DefaultDatabase, nil); err != nil {
				return err
			}
		}
		num := g.nextNumber()
		rid, err := containerRID(d, num)
		if err != nil {
			return err
		}
		c = newContainer(db, num, rid)
		l.common, _ = db.Retention()
		l.retain(l.retention(), 0)
		l.renew(db)
		return g.store(c, l, func() {
			next := maps.Clone(*db.containers.Load())
			next[name] = c
			db.containers.Store(&next)
		})
	})
	if err != nil {
		return nil, fmt.Errorf("create container %q: %w", s.ID, err)
	}
	return c, nil
}

// store writes the container's record. When the group is safe, the layout is the
// container's, and then runs.
func (g *group) store(c *Container, l *layout, then func()) error {
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

// renew gives the specification a new ETag.
func (l *layout) renew(db *DB) {
	l.etag, l.changed = db.tags.tag(), time.Now().UnixMilli()
}

// ReplaceContainer changes the default time to live, the retention and Meta of a
// container. A shorter retention forgets older versions soon; one that was off begins to keep
// versions now.
func (db *DB) ReplaceContainer(ctx context.Context, s ContainerSpec) (*Container, error) {
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("replace container %q: %w", s.ID, err)
	}
	return db.UpdateContainer(ctx, s.name(), func(old *ContainerSpec) error {
		*old = s
		return nil
	})
}

// UpdateContainer is ReplaceContainer by what change makes of the specification, which
// nobody else changes meanwhile. When change fails, nothing is changed. It must be
// quick, since all writers wait for it.
func (db *DB) UpdateContainer(ctx context.Context, name string, change func(*ContainerSpec) error) (*Container, error) {
	c, err := db.Container(name)
	if err != nil {
		return nil, fmt.Errorf("replace container: %w", err)
	}
	err = db.do(ctx, func(g *group) error {
		l := c.layout.Load().clone()
		if c.dropped.Load() {
			return changefeed.ErrNotFound
		}
		s := l.spec
		if err := change(&s); err != nil {
			return err
		}
		if err := s.check(); err != nil {
			return err
		}
		before := l.retention()
		l.spec.DefaultTTL, l.spec.Retention, l.spec.Meta = s.DefaultTTL, s.Retention, s.Meta
		l.retain(before, c.lsn)
		l.renew(db)
		return g.store(c, l, func() { c.due(1) })
	})
	if err != nil {
		return nil, fmt.Errorf("replace container %q: %w", c.ID(), err)
	}
	return c, nil
}

// DeleteContainer removes the container with this name, and everything in it.
func (db *DB) DeleteContainer(ctx context.Context, name string) error {
	c, err := db.Container(name)
	if err != nil {
		return fmt.Errorf("delete container: %w", err)
	}
	err = db.do(ctx, func(g *group) error {
		if !c.dropped.CompareAndSwap(false, true) {
			return changefeed.ErrNotFound
		}
		for _, table := range []byte(dataTables) {
			from := tableKey(table, c.num, 0)
			g.ranges = append(g.ranges, [2][]byte{from, after(from)})
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
