package changefeed_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// hanging is a lease store whose updates hang, of the records that which tells and as
// long as it is on, until their context ends.
func (w *world) hanging(on *atomic.Bool, hung *atomic.Int64, which func(feed.Record) bool) *hookedStore {
	return &hookedStore{Leases: w.leases, update: func(ctx context.Context, l feed.Record) (feed.Record, error) {
		if on.Load() && which(l) {
			hung.Add(1)
			<-ctx.Done()
			return l, context.Cause(ctx)
		}
		return w.leases.Update(ctx, l)
	}}
}

func every(feed.Record) bool { return true }

// Many leases are being taken, and the lease store hangs, when the processor stops.
func TestAStopWhileManyLeasesAreBeingTakenIsBounded(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		setup := w.run("setup", &tally{}, changefeed.Options{MinLeases: 120})
		time.Sleep(time.Minute)
		setup.stop(t)
		time.Sleep(3 * time.Minute)
		var on atomic.Bool
		var hung atomic.Int64
		on.Store(true)
		const drain = 10 * time.Second
		p := w.runWith(w.orders, w.hanging(&on, &hung, every), "a", &tally{}, changefeed.Options{Drain: drain})
		time.Sleep(5 * time.Second)
		if hung.Load() < 10 {
			t.Errorf("%d leases are being taken, want several at a time", hung.Load())
		}
		if took := p.took(t); took > 3*drain {
			t.Errorf("Run returned %v after its context ended, with a Drain of %v", took, drain)
		}
	})
}

// A batch is done as the processor stops, and the lease store hangs.
func TestAStopIsBoundedWhileTheLeaseStoreHangs(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var on atomic.Bool
		var hung atomic.Int64
		h := feed.HandlerFunc(func(context.Context, *feed.Batch) error { time.Sleep(2 * time.Second); return nil })
		const drain = 5 * time.Second
		p := w.runWith(w.orders, w.hanging(&on, &hung, every), "a", h, changefeed.Options{
			Start: feed.FromBeginning(), Drain: drain, Expiration: 10 * time.Minute,
		})
		time.Sleep(20 * time.Second)
		on.Store(true)
		w.put("oslo", "1", 1)
		time.Sleep(time.Second)
		if took := p.took(t); took > 4*drain {
			t.Errorf("Run returned %v after its context ended, with a Drain of %v", took, drain)
		}
		if hung.Load() == 0 {
			t.Error("nothing hung")
		}
	})
}

// A request that is slow when the processor stops must not keep the workers going.
func TestNothingNewIsHandedOutAfterTheEnd(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var on atomic.Bool
		var hung atomic.Int64
		presence := func(l feed.Record) bool { return l.Kind == feed.KindHost }
		var last time.Time
		h := feed.HandlerFunc(func(context.Context, *feed.Batch) error { last = time.Now(); return nil })
		p := w.runWith(w.orders, w.hanging(&on, &hung, presence), "a", h,
			changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(5 * time.Second)
		w.put("oslo", "x", 0)
		time.Sleep(time.Second)
		on.Store(true)
		ended := time.Now()
		p.cancel()
		for n := range 20 {
			time.Sleep(time.Second)
			w.put("oslo", "x", n)
		}
		p.stop(t)
		if last.IsZero() || hung.Load() == 0 {
			t.Errorf("last batch %v, %d requests hung: the test shows nothing", last, hung.Load())
		}
		if late := last.Sub(ended); late > 0 {
			t.Errorf("the last new batch was handed out %v after ctx had ended", late)
		}
	})
}

// longest is how many times Options.Drain Run may take to return: what the documentation
// of Run says.
const longest = 4

// hang has one call of a source or a store hang, while it is on, until its context ends.
type hang struct {
	call string
	pass atomic.Int64 // so many go through first
	on   atomic.Bool
	hung atomic.Int64
}

func (h *hang) at(ctx context.Context, call string) error {
	if call != h.call || !h.on.Load() || h.pass.Add(-1) >= 0 {
		return nil
	}
	h.hung.Add(1)
	<-ctx.Done()
	return context.Cause(ctx)
}

type hungSource struct {
	*hang
	*hookedSource
}

func (s hungSource) Partitions(ctx context.Context) ([]feed.Partition, error) {
	if err := s.at(ctx, "Partitions"); err != nil {
		return nil, err
	}
	return s.hookedSource.Partitions(ctx)
}

func (w *world) hungSource(h *hang) feed.Source {
	return hungSource{h, &hookedSource{
		Container: w.orders,
		read: func(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
			if err := h.at(ctx, "Read"); err != nil {
				return feed.Page{}, err
			}
			return w.orders.Read(ctx, r, from, o)
		},
	}}
}

// hungStore tells the records of a call apart: "Create lease", "Update host".
func (w *world) hungStore(h *hang) *hookedStore {
	return &hookedStore{
		Leases: w.leases,
		list: func(ctx context.Context) ([]feed.Record, time.Time, error) {
			if err := h.at(ctx, "List"); err != nil {
				return nil, time.Time{}, err
			}
			return w.leases.List(ctx)
		},
		create: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if err := h.at(ctx, "Create "+string(l.Kind)); err != nil {
				return l, err
			}
			return w.leases.Create(ctx, l)
		},
		update: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if err := h.at(ctx, "Update "+string(l.Kind)); err != nil {
				return l, err
			}
			return w.leases.Update(ctx, l)
		},
		delete: func(ctx context.Context, l feed.Record) error {
			if err := h.at(ctx, "Delete "+string(l.Kind)); err != nil {
				return err
			}
			return w.leases.Delete(ctx, l)
		},
		follow: func(ctx context.Context, cursor string) ([]feed.Record, string, time.Time, error) {
			if err := h.at(ctx, "Follow"); err != nil {
				return nil, "", time.Time{}, err
			}
			return w.leases.Follow(ctx, cursor)
		},
	}
}

// Whatever the processor is about when it is stopped, and whichever call hangs there, Run
// returns in time and begins nothing more.
func TestRunReturnsInTimeWhateverHangs(t *testing.T) {
	for _, c := range []struct {
		phase string
		calls []string
	}{
		{"bootstrap", []string{
			"List", "Partitions", "Read", "Create lock", "Create lease", "Create info",
			"Delete lock",
		}},
		{"take", []string{"List", "Update lease", "Follow", "Create host", "Read"}},
		{"work", []string{"List", "Update lease", "Update host", "Follow", "Read"}},
		{"split", []string{"List", "Partitions", "Create lease", "Update lease", "Delete lease"}},
		{"split, later", []string{"List", "Partitions", "Create lease", "Update lease"}},
		{"hole", []string{"List", "Partitions", "Create lock", "Create lease", "Delete lock"}},
		{"gift", []string{"List", "Update lease", "Update host"}},
		{"reset", []string{"List", "Update lease", "Update request"}},
		{"invalid reset", []string{"Update request"}},
	} {
		for _, call := range c.calls {
			t.Run(c.phase+", "+call, func(t *testing.T) {
				inWorld(t, 2, func(t *testing.T, w *world) { w.stopsIn(c.phase, &hang{call: call}) })
			})
		}
	}
}

func (w *world) stopsIn(phase string, h *hang) {
	const drain = 3 * time.Second
	var ended atomic.Bool
	o := changefeed.Options{
		Drain: drain, Start: feed.FromBeginning(),
		Hooks: changefeed.Hooks{Acquired: func(_ context.Context, l feed.Lease) {
			if ended.Load() && phase != "gift" {
				w.t.Errorf("work on lease %s was begun after the end", l.Token)
			}
		}},
	}
	var other *process
	switch phase {
	case "bootstrap":
		o.Start = feed.FromNow()
		h.on.Store(true)
	case "take":
		w.run("setup", &tally{}, o).rest(w.t)
		h.on.Store(true)
	case "gift":
		other = w.run("other", &tally{}, o)
		time.Sleep(time.Minute)
	}
	p := w.runWith(w.hungSource(h), w.hungStore(h), "a", &tally{}, o)
	switch phase {
	case "work":
		time.Sleep(time.Minute)
		h.on.Store(true)
		w.fill(10)
		time.Sleep(25 * time.Second)
	case "reset", "invalid reset":
		time.Sleep(time.Minute)
		h.on.Store(true)
		to := feed.At(`"0"`)
		if phase == "invalid reset" {
			to = feed.Position{}
		}
		w.asksFor(w.records(feed.KindLease)[0].Range, to)
	case "split, later":
		h.pass.Store(1)
		fallthrough
	case "split":
		time.Sleep(time.Minute)
		h.on.Store(true)
		w.split(0)
	case "hole":
		time.Sleep(time.Minute)
		h.on.Store(h.call != "List")
		if err := w.leases.Delete(w.t.Context(), w.records(feed.KindLease)[0]); err != nil {
			w.t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		h.on.Store(true)
	case "gift": // until the other one has given a lease away
		w.until(time.Minute, "given", func() bool { return w.owners()["a"] > 0 })
		h.on.Store(true)
	}
	time.Sleep(3 * time.Second)
	ended.Store(true)
	if took := p.took(w.t); took > longest*drain {
		w.t.Errorf("Run returned %v after its context had ended, with a Drain of %v", took, drain)
	}
	if h.hung.Load() == 0 {
		w.t.Errorf("no %s hung: the test shows nothing", h.call)
	}
	if other != nil {
		other.stop(w.t)
	}
}

func (o *opened) opens() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, event := range o.events {
		if event == "open" {
			n++
		}
	}
	return n
}

// A split that is stopped half-way makes no further lease, and calls no handler for the
// one that was on its way; the next instance finishes it.
func TestASplitMakesNoFurtherLeaseWhenStopped(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		store := &hookedStore{Leases: w.leases}
		var creates atomic.Int64
		store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease {
				creates.Add(1)
				time.Sleep(2 * time.Second)
			}
			return w.leases.Create(ctx, l)
		}
		h := &opened{}
		p := w.runWith(w.orders, store, "a", h, changefeed.Options{Start: feed.FromBeginning()})
		w.fill(20)
		time.Sleep(time.Minute)
		opens := h.opens()
		creates.Store(0)
		w.split(0)
		w.until(time.Minute, "creating", func() bool { return creates.Load() > 0 })
		if took := p.took(t); took > 5*time.Second || creates.Load() != 1 || h.opens() != opens {
			t.Errorf("stopped after %v, with %d leases made and %d opened", took, creates.Load(), h.opens()-opens)
		}
		for _, l := range w.records(feed.KindLease) {
			if !l.Free() {
				t.Errorf("lease %s is still owned by %s", l.Token, l.Owner)
			}
		}
		w.fill(20)
		y := &tally{}
		b := w.run("b", y, changefeed.Options{})
		time.Sleep(time.Minute)
		if items, again := y.items(); items != 20 || again != 0 || w.pending() != 0 {
			t.Errorf("%d items, %d again, %d pending", items, again, w.pending())
		}
		w.tiles()
		b.stop(t)
	})
}

// A child that was at work when the split of its parent was stopped half-way keeps its range, though the partitions
// merge again before somebody finishes the split: nothing comes again.
func TestASplitThatIsStoppedTakesNoChildBack(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var creates atomic.Int64
		store := &hookedStore{Leases: w.leases, create: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease && creates.Add(1) == 3 { // after that of the unit, and the first child
				time.Sleep(10 * time.Second)
			}
			return w.leases.Create(ctx, l)
		}}
		var still atomic.Bool
		source := &hookedSource{Container: w.orders, read: func(ctx context.Context, r feed.Range, from feed.Position,
			o feed.ReadOptions,
		) (feed.Page, error) {
			for still.Load() {
				time.Sleep(time.Millisecond)
			}
			return w.orders.Read(ctx, r, from, o)
		}}
		y := &tally{}
		a := w.runWith(source, store, "a", y, changefeed.Options{Start: feed.FromBeginning()})
		w.fill(40)
		time.Sleep(time.Minute)
		still.Store(true)
		w.split(0)
		w.split(0) // so that a third child is to be made
		w.fill(40)
		still.Store(false)
		w.until(time.Minute, "creating", func() bool { return creates.Load() == 3 })
		time.Sleep(3 * time.Second)
		if _, handled := y.items(); handled == 0 || handled == 40 {
			t.Fatalf("%d of 40 changes handled by the first child: the test shows nothing", handled)
		}
		a.stop(t)
		w.merge(0)
		w.merge(0)
		b := w.run("b", y, changefeed.Options{})
		time.Sleep(5 * time.Minute)
		if items, again := y.items(); items != 40 || again != 40 || w.pending() != 0 ||
			b.errs.find(feed.ErrOverlap) != nil {
			t.Errorf("%d items, %d again, %d pending, want both versions of 40; reported %v", items, again, w.pending(),
				first(b.errs.all()))
		}
		y.ordered(t)
		w.tiles()
		b.stop(t)
	})
}

// rest stops an instance after a while, and lets its presence run out.
func (p *process) rest(t *testing.T) {
	t.Helper()
	time.Sleep(time.Minute)
	p.stop(t)
	time.Sleep(3 * time.Minute)
}

// reluctant is a handler that takes all the time it has to return, to open and to close.
type reluctant struct {
	drain time.Duration
	deaf  bool
}

func (h *reluctant) Handle(ctx context.Context, _ *feed.Batch) error {
	<-ctx.Done()
	h.linger(ctx)
	return context.Cause(ctx)
}

func (h *reluctant) linger(ctx context.Context) {
	if h.deaf {
		time.Sleep(time.Hour)
	}
	time.Sleep(h.drain - time.Millisecond)
}

func (h *reluctant) Close(ctx context.Context, _ feed.Lease, _ feed.Reason) error {
	h.linger(ctx)
	return nil
}

// A handler that takes its time, and a store that hangs when the lease is to be released:
// the longest that Run can take.
func TestRunReturnsInTimeWithAReluctantHandler(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			const drain = 5 * time.Second
			h := &hang{call: "Update lease"}
			w.fill(1)
			p := w.runWith(w.orders, w.hungStore(h), "a", &reluctant{drain: drain, deaf: deaf}, changefeed.Options{
				Start: feed.FromBeginning(), Drain: drain, Expiration: time.Hour, Renew: 10 * time.Minute,
			})
			time.Sleep(10 * time.Second)
			h.on.Store(true)
			took := p.took(t)
			if most := longest * drain; took > most || !deaf && took < most-drain/10 {
				t.Errorf("deaf %v: Run returned %v after its context had ended, want %v at most, and no less with a "+
					"handler that uses it all", deaf, took, most)
			}
			time.Sleep(2 * time.Hour) // the deaf handler returns
		})
	}
}
