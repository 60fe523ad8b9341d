package unit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/instance/instancetest"
	"github.com/millrace/changefeed/internal/processor/records"
)

// There are at least as many leases as were asked for, and they tile the key space.
func TestTheGridHasAtLeastMinLeases(t *testing.T) {
	var partitions []feed.Partition
	for _, r := range feed.FullRange().Cut(3) {
		partitions = append(partitions, feed.Partition{Range: r})
	}
	for _, least := range []int{0, 1, 3, 4, 7, 100} {
		cells := New(instancetest.Idle(t.Context(), nil, instance.Options{MinLeases: least})).grid(partitions)
		if len(cells) < max(3, least) || len(cells) > max(3, least)+2 {
			t.Errorf("%d cells for %d leases of 3 partitions", len(cells), least)
		}
	}
}

// A hole or an overlap is told when a later listing has it, too.
func TestAFlawIsToldWhenItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := New(instancetest.Idle(t.Context(), nil, instance.Options{}))
		told := func(ids ...string) (n int) {
			var found []flaw
			for _, id := range ids {
				found = append(found, flaw{id: id})
			}
			return len(u.balancer.lasting(found))
		}
		if n := told("a"); n != 0 {
			t.Errorf("%d are told at once", n)
		}
		time.Sleep(u.in.Options.Acquire)
		if n := told("a", "b"); n != 1 {
			t.Errorf("%d are told at the second listing, want a", n)
		}
		told("b") // a has passed
		time.Sleep(u.in.Options.Acquire)
		if n := told("a", "b"); n != 1 {
			t.Errorf("%d are told at the fourth listing, want b", n)
		}
	})
}

// What waits to be taken waits since it was first seen so.
func TestALeaseIsOverdueSinceItWasFirstFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := New(instancetest.Idle(t.Context(), nil, instance.Options{}))
		free := feed.Record{Kind: feed.KindLease, ID: "l", Version: 1, Token: "-FF", Range: feed.FullRange(), Position: feed.At(`"1"`)}
		u.in.View.Put(free)
		begun := time.Now()
		for range 5 {
			s := u.balancer.situation()
			u.balancer.waiting.See(records.IDs(s.pick(s.plan.Waiting)))
			time.Sleep(u.in.Options.Acquire)
		}
		if waits := u.balancer.waiting.For("l"); waits != time.Since(begun) || !u.balancer.isOverdue(free) {
			t.Errorf("free for %v, overdue %v, want for %v", waits, u.balancer.isOverdue(free), time.Since(begun))
		}
		u.in.Options.Drain = time.Hour // an owner may take this long before it gives
		if u.balancer.isOverdue(free) {
			t.Error("overdue before an owner can have drained")
		}
	})
}

// A lease that is free may be taken when the last owner must have stopped, and not before.
func TestAFreeLeaseBehindAFenceIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := New(instancetest.Idle(t.Context(), nil, instance.Options{}))
		now := time.Now()
		u.in.View.Heard([]feed.Record{{Kind: feed.KindLease, ID: "l", Version: 1, Token: "-FF", Range: feed.FullRange(), Position: feed.At(`"1"`), Fence: now.Add(time.Minute)}}, now)
		if p := u.balancer.situation().plan; len(p.Take) != 0 {
			t.Errorf("took %v", p.Take)
		}
		time.Sleep(2 * time.Minute)
		if p := u.balancer.situation().plan; len(p.Take) != 1 {
			t.Errorf("took %v after the fence, want the lease", p.Take)
		}
	})
}

// stock is a lease store of some records.
type stock struct {
	feed.LeaseStore
	records []feed.Record
}

func (s stock) List(context.Context) ([]feed.Record, time.Time, error) {
	return s.records, time.Now(), nil
}

func (s stock) Update(_ context.Context, l feed.Record) (feed.Record, error) { return l, nil }

// An instance knows that a unit is shared before it works on a lease: until then the position of a lease would pass keys
// that are set aside, which another kind of processor would skip.
func TestAnInstanceKnowsThatAUnitIsSharedBeforeItsFirstLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		half := feed.FullRange().Cut(2)
		s := stock{}
		for i, owner := range []string{"", "net"} {
			s.records = append(s.records, feed.Record{
				Kind: feed.KindLease, ID: half[i].String(), Version: 1, Token: half[i].String(), Range: half[i], Position: feed.At(`"1"`), Owner: owner, Updated: time.Now(),
			})
		}
		in := instancetest.Idle(t.Context(), s, instance.Options{})
		begun := 0
		in.Begin = func(feed.Record, time.Time, bool) {
			if begun++; !in.Shared.Load() {
				t.Error("a lease is begun as if nobody else were there")
			}
		}
		New(in).balancer.round(t.Context())
		if begun != 1 {
			t.Errorf("%d leases were begun, want the free one", begun)
		}
	})
}
