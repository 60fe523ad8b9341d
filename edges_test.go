package changefeed

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// idle is a run that does nothing by itself.
func idle(o Options) *run {
	o.Instance = "a"
	return (&Processor{opts: o.withDefaults()}).newRun(context.Background())
}

// A lease is its owner's to the end of the last second that its record may mean.
func TestALeaseIsItsOwnersToItsLastMoment(t *testing.T) {
	written := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct{ own, others time.Duration }{{time.Minute, time.Minute}, {2 * time.Minute, time.Minute}, {0, 2 * time.Minute}} {
		l := feed.Record{Kind: feed.KindLease, Owner: "b", Epoch: "e", Updated: written, Expiration: c.own}
		last := written.Add(max(c.own, c.others) + time.Second) // stores may keep whole seconds
		if isExpired(l, last, c.others) || !isExpired(l, last.Add(time.Nanosecond), c.others) || !takeableAt(l, c.others).Equal(last) {
			t.Errorf("a lease for %v, judged by %v, is to be taken from %v on, want after %v", c.own, c.others, takeableAt(l, c.others), last)
		}
	}
}

// A store, or a proxy before it, may ask for a pause of hours: nobody is asked for as long.
func TestPausesThatAreAskedForAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := idle(Options{Hooks: Hooks{Error: func(*feed.Error) {}}})
		calls, begun := 0, time.Now()
		err := r.paced(t.Context(), r.balancer.rng, "", func() error {
			if calls++; calls < 4 {
				return &feed.ThrottledError{After: 5 * time.Hour}
			}
			return nil
		})
		if took := time.Since(begun); err != nil || took < 3*r.opts.RetryMax || took > 4*r.opts.RetryMax {
			t.Errorf("%v after %v, want three pauses of about %v", err, took, r.opts.RetryMax)
		}
	})
}

// What goes wrong at the end is told; that the end has come is not.
func TestErrorsAtTheEndAreTold(t *testing.T) {
	var told []error
	r := idle(Options{Hooks: Hooks{Error: func(err *feed.Error) { told = append(told, err.Err) }}})
	ended, end := context.WithCancelCause(t.Context())
	stop, away := errors.New("stop"), errors.New("away")
	end(stop)
	r.report(ended, feed.OriginSource, "", stop)
	r.report(ended, feed.OriginSource, "", away)
	r.report(t.Context(), feed.OriginSource, "", context.Canceled)
	if !slices.Equal(told, []error{away, context.Canceled}) {
		t.Errorf("told %v", told)
	}
}

// A lease is renewed before it is trusted no longer.
func TestARenewalComesBeforeTheTrustEnds(t *testing.T) {
	for renew, ok := range map[time.Duration]bool{54*time.Second - 1: true, 54 * time.Second: false, time.Minute: false} {
		o := Options{Instance: "a", Renew: renew, Expiration: time.Minute}.withDefaults()
		if err := o.validate(); (err == nil) != ok {
			t.Errorf("Renew %v with an Expiration of a minute: %v", renew, err)
		}
	}
}

// The position before a page keeps the time from which it was read.
func TestThePositionBeforeAPageKeepsItsStart(t *testing.T) {
	from := feed.Position{Start: feed.FromTime(time.Unix(1, 0))}
	change := func(lsn int64) feed.Change { return feed.Change{LSN: lsn} }
	for _, c := range []struct{ page, want feed.Position }{
		{feed.Position{Token: `"9"`}, feed.Position{Token: `"6"`, Start: from.Start}},
		{feed.Position{Token: `"10"`}, from}, // a token of another kind: only the start is known
	} {
		if got := startOfPage((feed.Page{Changes: []feed.Change{change(7), change(9)}, Next: c.page}), from); got != c.want {
			t.Errorf("the position before the changes 7 and 9 with the token %s after them is %+v, want %+v", c.page.Token, got, c.want)
		}
	}
}

// A lease without a start is not worked on, whether somebody holds it or not, unless its unit
// has one.
func TestALeaseWithoutAStartIsNotWorkedOn(t *testing.T) {
	v := newView(nil, nil)
	half := feed.FullRange().Cut(2)
	for i, owner := range []string{"", "net"} {
		v.put(feed.Record{Kind: feed.KindLease, ID: "unit.." + half[i].String(), Version: 1, Token: half[i].String(), Range: half[i], Owner: owner})
	}
	if good, bad := v.placed(); len(good) != 0 || len(bad) != 2 || !errors.Is(bad[1].Err, feed.ErrNoStart) {
		t.Errorf("worked on %v, not on %v", good, bad)
	}
	v.put(feed.Record{ID: "unit.info", Kind: feed.KindInfo, Properties: map[string]string{notes.OriginProperty: "beginning"}})
	if good, bad := v.placed(); len(good) != 2 || len(bad) != 0 {
		t.Errorf("worked on %v, not on %v, though the unit has a start", good, bad)
	}
}

// Tokens of version 0 leases are compared as numbers.
func TestPositionsAreComparedAsNumbers(t *testing.T) {
	ordered := []feed.Position{{}, feed.At(`"9"`), feed.At(`"10"`), feed.At(`"99"`), feed.At(`"100"`)}
	for i, a := range ordered {
		for j, b := range ordered {
			if got := isBefore(a, b); got != (i < j) {
				t.Errorf("%v before %v: %v", a, b, got)
			}
		}
	}
}

// There are at least as many leases as were asked for, and they tile the key space.
func TestTheGridHasAtLeastMinLeases(t *testing.T) {
	var partitions []feed.Partition
	for _, r := range feed.FullRange().Cut(3) {
		partitions = append(partitions, feed.Partition{Range: r})
	}
	for _, least := range []int{0, 1, 3, 4, 7, 100} {
		cells := idle(Options{MinLeases: least}).grid(partitions)
		if len(cells) < max(3, least) || len(cells) > max(3, least)+2 {
			t.Errorf("%d cells for %d leases of 3 partitions", len(cells), least)
		}
	}
}

// A hole or an overlap is told when a later listing has it, too.
func TestAFlawIsToldWhenItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := idle(Options{})
		told := func(ids ...string) (n int) {
			var found []flaw
			for _, id := range ids {
				found = append(found, flaw{id: id})
			}
			return len(r.balancer.lasting(found))
		}
		if n := told("a"); n != 0 {
			t.Errorf("%d are told at once", n)
		}
		time.Sleep(r.opts.Acquire)
		if n := told("a", "b"); n != 1 {
			t.Errorf("%d are told at the second listing, want a", n)
		}
		told("b") // a has passed
		time.Sleep(r.opts.Acquire)
		if n := told("a", "b"); n != 1 {
			t.Errorf("%d are told at the fourth listing, want b", n)
		}
	})
}

// What waits to be taken waits since it was first seen so.
func TestALeaseIsOverdueSinceItWasFirstFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := idle(Options{})
		free := feed.Record{Kind: feed.KindLease, ID: "l", Version: 1, Token: "-FF", Range: feed.FullRange(), Position: feed.At(`"1"`)}
		r.view.put(free)
		begun := time.Now()
		for range 5 {
			s := r.balancer.situation()
			r.balancer.waiting.See(ids(s.pick(s.plan.Waiting)))
			time.Sleep(r.opts.Acquire)
		}
		if waits := r.balancer.waiting.For("l"); waits != time.Since(begun) || !r.balancer.isOverdue(free) {
			t.Errorf("free for %v, overdue %v, want for %v", waits, r.balancer.isOverdue(free), time.Since(begun))
		}
		r.opts.Drain = time.Hour // an owner may take this long before it gives
		if r.balancer.isOverdue(free) {
			t.Error("overdue before an owner can have drained")
		}
	})
}

// A lease that is free may be taken when the last owner must have stopped, and not before.
func TestAFreeLeaseBehindAFenceIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := idle(Options{})
		now := time.Now()
		r.view.heard([]feed.Record{{Kind: feed.KindLease, ID: "l", Version: 1, Token: "-FF", Range: feed.FullRange(), Position: feed.At(`"1"`), Fence: now.Add(time.Minute)}}, now)
		if p := r.balancer.situation().plan; len(p.Take) != 0 {
			t.Errorf("took %v", p.Take)
		}
		time.Sleep(2 * time.Minute)
		if p := r.balancer.situation().plan; len(p.Take) != 1 {
			t.Errorf("took %v after the fence, want the lease", p.Take)
		}
	})
}

// The oldest of several backlogs is that of the lease.
func TestALagIsAsOldAsItsOldestPart(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	var l Lag
	for _, b := range []feed.Backlog{{}, {Items: 2, Oldest: at(20)}, {}, {Items: 3, Oldest: at(10)}, {Items: 1, Oldest: at(30)}} {
		l.add(b)
	}
	if l.Pending != 6 || !l.Oldest.Equal(at(10)) || l.Age(at(15)) != 5*time.Second || l.Age(at(5)) != 0 {
		t.Errorf("%d pending since %v", l.Pending, l.Oldest)
	}
}

// shelf is a lease store that notes what is deleted and what is freed.
type shelf struct {
	feed.LeaseStore
	deleted, freed int
}

func (s *shelf) Update(_ context.Context, l feed.Record) (feed.Record, error) {
	if l.Free() {
		s.freed++
	}
	return l, nil
}

func (s *shelf) Delete(context.Context, feed.Record) error {
	s.deleted++
	return nil
}

// A lease goes if others cover it when it is to go; that they did so before is not enough.
func TestALeaseThatIsNoLongerCoveredIsFreed(t *testing.T) {
	for _, covered := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := &shelf{}
			r := idle(Options{})
			r.store = patientStore{s}
			late := made(feed.FullRange(), 1, 1)
			late.Owner, late.Epoch = r.me.Instance, r.me.Epoch
			if covered {
				for _, half := range feed.FullRange().Cut(2) {
					r.view.put(made(half, 5, 1))
				}
			}
			w := newWorker(r, late, time.Now())
			var keeping sync.WaitGroup
			keeping.Go(w.keeper.keep)
			w.yield()
			w.lose(feed.ErrLeaseLost)
			keeping.Wait()
			if (s.deleted == 1) != covered || (s.freed == 1) == covered {
				t.Errorf("covered %v: %d leases deleted, %d freed", covered, s.deleted, s.freed)
			}
		})
	}
}
