package changefeed_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
)

// balanced waits until the unit's leases are shared evenly among n owners and tells how
// long that took; it gives up after a while.
func (w *world) balanced(n int) time.Duration {
	w.t.Helper()
	start := time.Now()
	for time.Since(start) < 10*time.Minute {
		owners := w.owners()
		free := owners[""]
		low, high := 1<<30, 0
		for _, held := range owners {
			low, high = min(low, held), max(high, held)
		}
		if free == 0 && len(owners) == n && high-low <= 1 {
			return time.Since(start)
		}
		if time.Since(start) < 5*time.Second {
			time.Sleep(100 * time.Millisecond)
		} else {
			time.Sleep(time.Second) // looking at all leases is what takes time here
		}
	}
	w.t.Fatalf("not balanced among %d after %v: %v", n, time.Since(start), w.owners())
	return 0
}

// 7: 100 leases, 1 to 2 instances, and 1000 leases, 4 to 6: within 2 rounds, and no
// batch comes twice.
func TestAcceptance7PlannedMovesAreQuickAndRepeatNothing(t *testing.T) {
	for _, c := range []struct{ leases, before, after int }{{100, 1, 2}, {1000, 4, 6}} {
		t.Run(fmt.Sprintf("%d leases %d to %d", c.leases, c.before, c.after), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				y := &tally{before: func(ctx context.Context, _ *changefeed.Batch) error {
					time.Sleep(20 * time.Millisecond)
					return nil
				}}
				o := changefeed.Options{MinLeases: c.leases, Start: changefeed.FromBeginning()}
				var fleet []*process
				for n := range c.before {
					fleet = append(fleet, w.run(fmt.Sprint("host-", n), y, o))
				}
				w.balanced(c.before)
				ctx, stopWriting := context.WithCancel(t.Context())
				var writing sync.WaitGroup
				written := 0
				writing.Go(func() {
					for ctx.Err() == nil {
						w.put(fmt.Sprint("city-", written), "item", 1)
						written++
						time.Sleep(10 * time.Millisecond)
					}
				})
				for n := c.before; n < c.after; n++ {
					fleet = append(fleet, w.run(fmt.Sprint("host-", n), y, o))
				}
				if took := w.balanced(c.after); took > 2*13*time.Second {
					t.Errorf("balanced after %v, want at most two rounds of 13 s", took)
				} else {
					t.Logf("balanced after %v", took)
				}
				stopWriting()
				writing.Wait()
				time.Sleep(10 * time.Second)
				if items, again := y.items(); items != written || again != 0 {
					t.Errorf("got %d items of %d, %d again", items, written, again)
				}
				for _, p := range fleet {
					p.stop(t)
				}
			})
		})
	}
}

// Without a feed of the lease container the newcomer is seen by listing.
func TestPlannedMovesTakeTwoRoundsWithoutFollowing(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var stops []func()
		start := func(name string) {
			p, err := changefeed.New(w.orders, struct{ changefeed.LeaseStore }{w.leases}, &tally{},
				changefeed.Options{Instance: name, MinLeases: 100})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- p.Run(ctx) }()
			stops = append(stops, func() { cancel(); <-done })
		}
		start("a")
		w.balanced(1)
		time.Sleep(3 * time.Second)
		start("b")
		if took := w.balanced(2); took > 30*time.Second {
			t.Errorf("balanced after %v, want at most 30 s", took)
		}
		for _, stop := range stops {
			stop()
		}
	})
}

// 8: crash with 300 leases on 4 hosts: all owned again one round after expiry.
func TestAcceptance8LeasesOfACrashedHostAreOwnedOneRoundAfterExpiry(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var fleet []*process
		for n := range 4 {
			fleet = append(fleet, w.run(fmt.Sprint("host-", n), &tally{}, changefeed.Options{MinLeases: 300}))
		}
		w.balanced(4)
		time.Sleep(time.Minute)
		fleet[3].kill(t)
		var lastWrite time.Time
		for _, l := range w.records(changefeed.KindLease) {
			if l.Owner == "host-3" && l.Updated.After(lastWrite) {
				lastWrite = l.Updated
			}
		}
		w.balanced(3)
		const expiry, round = time.Minute, 14300 * time.Millisecond // 13 s and a tenth
		if took := time.Since(lastWrite); took > expiry+round+2*time.Second {
			t.Errorf("all owned %v after the last renewal, want one round after the expiry of 60 s", took)
		} else {
			t.Logf("all owned %v after the last renewal", took)
		}
		for _, p := range fleet[:3] {
			p.stop(t)
		}
	})
}

// counted counts the requests to a lease store.
type counted struct {
	*docstore.Leases
	requests *atomic.Int64
}

func (s counted) List(ctx context.Context) ([]changefeed.Lease, time.Time, error) {
	s.requests.Add(1)
	return s.Leases.List(ctx)
}

func (s counted) Create(ctx context.Context, l changefeed.Lease) (changefeed.Lease, error) {
	s.requests.Add(1)
	return s.Leases.Create(ctx, l)
}

func (s counted) Update(ctx context.Context, l changefeed.Lease) (changefeed.Lease, error) {
	s.requests.Add(1)
	return s.Leases.Update(ctx, l)
}

func (s counted) Follow(ctx context.Context, cursor string) ([]changefeed.Lease, string, time.Time, error) {
	s.requests.Add(1)
	return s.Leases.Follow(ctx, cursor)
}

// 12: idle hour with 100 leases: count lease-store operations.
func TestAcceptance12AnIdleLeaseCostsLittle(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var requests atomic.Int64
		var stops []func()
		for n := range 3 {
			p, err := changefeed.New(w.orders, counted{w.leases, &requests}, &tally{},
				changefeed.Options{Instance: fmt.Sprint("host-", n), MinLeases: 100})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- p.Run(ctx) }()
			stops = append(stops, func() { cancel(); <-done })
		}
		w.balanced(3)
		time.Sleep(time.Minute)
		requests.Store(0)
		idle := time.Hour
		if raceDetector {
			idle /= 6
		}
		time.Sleep(idle)
		perLeaseMinute := float64(requests.Load()) / 100 / idle.Minutes()
		t.Logf("%.2f requests per idle lease-minute", perLeaseMinute)
		if perLeaseMinute > 4 {
			t.Errorf("%.2f requests per idle lease-minute, want at most 4", perLeaseMinute)
		}
		for _, stop := range stops {
			stop()
		}
	})
}

func TestAStoppedInstanceFreesItsLeasesAtOnce(t *testing.T) {
	inWorld(t, 6, func(t *testing.T, w *world) {
		a := w.run("a", &tally{}, changefeed.Options{})
		b := w.run("b", &tally{}, changefeed.Options{})
		w.balanced(2)
		start := time.Now()
		a.stop(t)
		w.balanced(1)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("the other instance had all leases after %v", took)
		}
		b.stop(t)
		if n := w.owners()[""]; n != 6 {
			t.Errorf("%d leases are free after both stopped, want 6", n)
		}
		time.Sleep(3 * time.Minute)
		if hosts := w.records(changefeed.KindHost); len(hosts) != 0 {
			t.Errorf("presence records left: %v", hosts)
		}
	})
}
