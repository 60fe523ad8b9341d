package changefeed_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// The instances share the leases by their weights, and again when an instance with another weight comes or goes.
func TestInstancesShareLeasesByWeight(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		a := w.run("a", y, changefeed.Options{MinLeases: 12})
		b := w.run("b", y, changefeed.Options{Weight: 3})
		shares := func(want map[string]int) {
			t.Helper()
			time.Sleep(time.Minute)
			if got := w.owners(); !maps.Equal(got, want) {
				t.Errorf("leases of each owner are %v, want %v", got, want)
			}
		}
		shares(map[string]int{"a": 3, "b": 9})
		c := w.run("c", y, changefeed.Options{Weight: 2})
		shares(map[string]int{"a": 2, "b": 6, "c": 4})
		b.stop(t)
		shares(map[string]int{"a": 4, "c": 8})
		a.stop(t)
		c.stop(t)
	})
}

// The leases are shared by their loads: the owner of the busy lease has few others. Then they rest.
func TestInstancesShareLeasesByLoad(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var moves atomic.Int64
		o := changefeed.Options{MinLeases: 9, ShareByLoad: true, Hooks: changefeed.Hooks{
			Acquired: func(context.Context, feed.Lease) { moves.Add(1) },
		}}
		y := &tally{}
		a, b := w.run("a", y, o), w.run("b", y, o)
		ctx, stop := context.WithCancel(t.Context())
		var writing sync.WaitGroup
		writing.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				w.put("busy", "item", n)
				w.put(fmt.Sprint("city-", n%50), "item", n)
				time.Sleep(time.Duration(100+n%7*30) * time.Millisecond)
			}
		})
		time.Sleep(5 * time.Minute)
		busy := 0
		for _, n := range w.owners() {
			busy = max(busy, n)
		}
		if owners := w.owners(); len(owners) != 2 || busy < 6 {
			t.Errorf("leases of each owner are %v, want 6 or more of one", owners)
		}
		moves.Store(0)
		// virtual time: the loads are measured, and leases would move if they differed enough
		time.Sleep(time.Duration(detector.Rounds(20, 2)) * time.Minute)
		if n := moves.Load(); n > 1 {
			t.Errorf("%d leases have moved, though the loads are steady", n)
		}
		stop()
		writing.Wait()
		a.stop(t)
		b.stop(t)
		y.ordered(t)
	})
}

// Loads cost no writes: an idle lease is written as often as without them.
func TestLoadsCostNoWrites(t *testing.T) {
	var writes [2]int
	for n, byLoad := range []bool{false, true} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			var done atomic.Int64
			o := changefeed.Options{ShareByLoad: byLoad, Hooks: changefeed.Hooks{
				StoreDone: func(context.Context, feed.StoreDone) { done.Add(1) },
			}}
			a := w.run("a", &tally{}, o)
			time.Sleep(10 * time.Minute)
			writes[n] = int(done.Load())
			if load := w.records(feed.KindLease)[0].Properties[notes.LoadProperty]; (load != "") != byLoad {
				t.Errorf("the lease has load %q, byLoad %v", load, byLoad)
			}
			a.stop(t)
		})
	}
	if writes[1] > writes[0]+2 || writes[0] == 0 {
		t.Errorf("%d writes without loads, %d with", writes[0], writes[1])
	}
}

// A presence record whose numbers no instance writes shares the leases like one without numbers, and cuts no lease.
func TestNumbersThatNoInstanceWritesDoNotCount(t *testing.T) {
	for _, property := range []string{notes.WeightProperty, notes.LeastProperty, notes.MostProperty} {
		inWorld(t, 4, func(t *testing.T, w *world) {
			for name, number := range map[string]int64{"x": math.MaxInt64, "y": math.MaxInt64, "z": 1} {
				_, err := w.leases.Create(t.Context(), feed.Record{
					Kind: feed.KindHost, Version: 1, Token: name, Owner: name, Epoch: "e", Expiration: 5 * time.Minute,
					Properties: map[string]string{property: notes.PlainNumber(number)},
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			p := w.run("a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
			time.Sleep(time.Minute)
			if all := w.ranges(); len(all) != 4 || len(w.owners()) == 0 {
				t.Errorf("%s: the leases are %v of %v, want 4 with owners", property, all, w.owners())
			}
			p.stop(t)
		})
	}
}
