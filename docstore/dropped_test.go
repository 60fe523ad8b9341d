package docstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/changefeed/feed"
)

// askedOnce is a context that calls a hook when it is first asked whether it has ended, as a split does while it
// counts.
type askedOnce struct {
	context.Context
	once sync.Once
	hook func()
}

func (c *askedOnce) Err() error {
	c.once.Do(c.hook)
	return c.Context.Err()
}

// queueBehind has the committer busy, queues calls one after the other, lets time pass, and returns their errors in
// this order.
func queueBehind(t *testing.T, db *DB, d time.Duration, calls ...func() error) []error {
	t.Helper()
	release := db.Hold()
	errs := make([]error, len(calls))
	var work sync.WaitGroup
	for i, call := range calls {
		work.Go(func() { errs[i] = call() })
		synctest.Wait()
	}
	time.Sleep(d)
	release()
	work.Wait()
	return errs
}

// An operation on a container that is deleted at the same moment does not bring the container back: not now, and not
// when the store is opened again.
func TestAContainerThatIsDeletedStaysDeleted(t *testing.T) {
	drop := func(db *DB) func() error {
		return func() error { return db.DeleteContainer(context.Background(), "c") }
	}
	put := func(t *testing.T, c *Container, n int) {
		t.Helper()
		for i := range n {
			if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"1","pk":"a","n":%d}`, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		spec ContainerSpec
		play func(t *testing.T, db *DB, c *Container)
	}{
		"updated": {ContainerSpec{}, func(t *testing.T, db *DB, _ *Container) {
			errs := queueBehind(t, db, 0, drop(db), func() error {
				_, err := db.UpdateContainer(context.Background(), "c", func(s *ContainerSpec) error {
					s.DefaultTTL = new(60)
					return nil
				})
				return err
			})
			if errs[0] != nil || !errors.Is(errs[1], feed.ErrNotFound) {
				t.Errorf("delete: %v; update: %v", errs[0], errs[1])
			}
		}},
		"swept of versions": {ContainerSpec{Retention: time.Second}, func(t *testing.T, db *DB, c *Container) {
			put(t, c, 2)
			if errs := queueBehind(t, db, 3*time.Second, drop(db)); errs[0] != nil {
				t.Error(errs[0])
			}
		}},
		"swept of the expired": {ContainerSpec{DefaultTTL: new(1)}, func(t *testing.T, db *DB, c *Container) {
			put(t, c, 1)
			if errs := queueBehind(t, db, 3*time.Second, drop(db)); errs[0] != nil {
				t.Error(errs[0])
			}
		}},
		"swept of an empty log": {ContainerSpec{Ranges: 1}, func(t *testing.T, db *DB, c *Container) {
			if _, err := c.Split(t.Context(), "0"); err != nil {
				t.Fatal(err)
			}
			if errs := queueBehind(t, db, 3*time.Second, drop(db)); errs[0] != nil {
				t.Error(errs[0])
			}
		}},
		"split": {ContainerSpec{}, func(t *testing.T, db *DB, c *Container) {
			_, err := c.Split(&askedOnce{Context: t.Context(), hook: func() {
				if err := drop(db)(); err != nil {
					t.Error(err)
				}
			}}, "0")
			if !errors.Is(err, feed.ErrNotFound) {
				t.Errorf("split: %v", err)
			}
		}},
		"merged": {ContainerSpec{Ranges: 2}, func(t *testing.T, db *DB, c *Container) {
			err := drop(db)()
			if _, mergeErr := c.Merge(t.Context(), "0", "1"); err != nil || !errors.Is(mergeErr, feed.ErrNotFound) {
				t.Errorf("delete: %v; merge: %v", err, mergeErr)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := vfs.NewMem()
				db, err := Open("store", Options{fs: disk})
				if err != nil {
					t.Fatal(err)
				}
				c.spec.ID, c.spec.Paths = "c", []string{"/pk"}
				made, err := db.CreateContainer(t.Context(), c.spec)
				if err != nil {
					t.Fatal(err)
				}
				c.play(t, db, made)
				time.Sleep(5 * time.Second)
				if err := errors.Join(db.Check(), db.Close()); err != nil {
					t.Error(err)
				}
				if db, err = Open("store", Options{fs: disk}); err != nil {
					t.Fatal(err)
				}
				if _, err := db.Container("c"); !errors.Is(err, feed.ErrNotFound) {
					t.Errorf("after a restart: %v, want that the container is not there", err)
				}
				if err := errors.Join(db.Check(), db.Close()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
