package docstore_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// afterGlitch runs a test in virtual time on a container that has had one write while
// the clock was an hour fast; a clock that is set back by an hour looks the same. It runs
// it in the same process, and in one that has opened the store anew.
func afterGlitch(t *testing.T, test func(t *testing.T, c *docstore.Container)) {
	for name, restart := range map[string]bool{"in one process": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := docstore.Options{}.WithFS(docstore.NewMem())
				db, err := docstore.Open("db", o)
				if err != nil {
					t.Fatal(err)
				}
				c := container(t, db, docstore.ContainerSpec{
					Paths: []string{"/id"}, DefaultTTL: new(5),
					Retention: 10 * time.Second,
				})
				if err := db.Glitch(c, time.Hour); err != nil {
					t.Fatal(err)
				}
				if restart {
					if err := db.Close(); err != nil {
						t.Fatal(err)
					}
					if db, err = docstore.Open("db", o); err != nil {
						t.Fatal(err)
					}
					if c, err = db.Container("c"); err != nil {
						t.Fatal(err)
					}
				}
				test(t, c)
				if err := errors.Join(db.Check(), db.Close()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestItemsExpireAfterTheClockWasFast(t *testing.T) {
	afterGlitch(t, func(t *testing.T, c *docstore.Container) {
		it, err := c.Upsert(t.Context(), []byte(`{"id":"a"}`))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		if _, err := c.Item(t.Context(), it.Key, "a"); err != nil {
			t.Errorf("after 4 s: %v", err)
		}
		time.Sleep(3 * time.Second)
		if _, err := c.Item(t.Context(), it.Key, "a"); !errors.Is(err, feed.ErrNotFound) {
			t.Errorf("after 7 s: %v, want %v", err, feed.ErrNotFound)
		}
		if left, _ := drain(t, c, feed.FullRange(), feed.At("0"), feed.ReadOptions{}); len(left) > 0 {
			t.Errorf("after 7 s the feed has %s", ids(left))
		}
		time.Sleep(time.Second)
		if n := c.Count(); n != 0 {
			t.Errorf("after 8 s there are %d documents", n)
		}
		time.Sleep(20 * time.Second)
		versions := feed.ReadOptions{Mode: feed.AllVersionsAndDeletes}
		if _, err := c.Read(t.Context(), feed.FullRange(), feed.At("0"), versions); !errors.Is(err, feed.ErrTooOld) {
			t.Errorf("after 28 s with a retention of 10 s: %v, want %v", err, feed.ErrTooOld)
		}
	})
}

func TestLeasesExpireAfterTheClockWasFast(t *testing.T) {
	afterGlitch(t, func(t *testing.T, c *docstore.Container) {
		leases, err := docstore.NewLeases(t.Context(), c, "billing", c)
		if err != nil {
			t.Fatal(err)
		}
		made, err := leases.Create(t.Context(), feed.Record{Kind: feed.KindLease, Token: "0", Owner: "dead"})
		if err != nil {
			t.Fatal(err)
		}
		age := func() time.Duration {
			_, now, err := leases.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return now.Sub(made.Updated).Round(time.Second)
		}
		if got := age(); got != 0 {
			t.Errorf("a lease is %v old at once", got)
		}
		time.Sleep(time.Minute)
		if got := age(); got != time.Minute {
			t.Errorf("a lease is %v old after a minute", got)
		}
	})
}

// What expires is deleted soon after the machine's clock was set forward, though the
// sweeper sleeps by the monotonic one.
func TestItemsExpireAfterTheClockIsSetForward(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{DefaultTTL: new(3600)},
		func(t *testing.T, _ *docstore.DB, c *docstore.Container) {
			if _, err := c.Upsert(t.Context(), []byte(`{"id":"a","pk":"p"}`)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			c.StepClock(time.Hour)
			time.Sleep(61 * time.Second)
			if n := c.Count(); n != 0 {
				t.Errorf("a minute after an hour was skipped there are %d documents", n)
			}
		})
}

// TestAnIdleStoreSleeps does not end within the time of a test if an idle store has a timer
// that runs as often as once a second: ten years are 315 million of them.
func TestAnIdleStoreSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := docstore.Open("", docstore.Options{InMemory: true})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		c := container(t, db, docstore.ContainerSpec{Paths: []string{"/pk"}})
		const years = 10
		for range years {
			time.Sleep(365 * 24 * time.Hour)
			upsert(t, c, "a", "a", 1)
		}
	})
}
