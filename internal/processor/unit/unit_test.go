package unit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
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
		cells := New(instancetest.Idle(t.Context(), nil, instance.Options{MinLeases: least})).leaseRanges(partitions)
		if len(cells) < max(3, least) || len(cells) > max(3, least)+2 {
			t.Errorf("%d cells for %d leases of 3 partitions", len(cells), least)
		}
	}
}

// While a lease is splitting, or a listing has a hole, the number of leases is about to change.
func TestNoCutIsPlannedWhileLeasesAreReplaced(t *testing.T) {
	var leases []feed.Record
	for _, r := range feed.FullRange().Cut(3) {
		leases = append(leases, feed.Record{Kind: feed.KindLease, Range: r})
	}
	if !isTiled(leases) {
		t.Errorf("leases %v do not tile the key space", leases)
	}
	splitting := slices.Clone(leases)
	splitting[1].State = feed.StateSplitting
	for what, leases := range map[string][]feed.Record{
		"splitting": splitting, "without the first": leases[1:], "without the last": leases[:2],
		"with a hole": {leases[0], leases[2]}, "none": nil,
	} {
		if isTiled(leases) {
			t.Errorf("%s: leases %v tile the key space", what, leases)
		}
	}
}

// Only a lease at work is cut, by its owner: behind a fence the parts would begin while an earlier owner may work.
func TestOnlyALeaseAtWorkIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			what string
			edit func(*feed.Record)
			want int
		}{
			{"at work", func(*feed.Record) {}, 1},
			{"behind a fence", func(l *feed.Record) { l.Fence = time.Now().Add(time.Minute) }, 0},
			{"of another owner", func(l *feed.Record) { l.Epoch = "other" }, 0},
			{"of version 0", func(l *feed.Record) { l.Version = 0 }, 0},
		} {
			u := New(instancetest.Idle(t.Context(), nil, instance.Options{}))
			lease := feed.Record{
				Kind: feed.KindLease, Version: 1, Range: feed.FullRange(), Owner: u.in.Me.Instance,
				Epoch: u.in.Me.Epoch,
			}
			c.edit(&lease)
			held := u.in.Hold(lease)
			u.in.Claims.Claim(lease.Range)
			u.in.Claims.Begin(held)
			u.balancer.planned = time.Now()
			got := u.balancer.cutLeases(situation{leases: []feed.Record{lease}, least: 2})
			if got != c.want || (held.Ending().Into == 2) != (c.want == 1) {
				t.Errorf("a lease %s: %d are cut, %+v, want %d", c.what, got, held.Ending(), c.want)
			}
			held.Lose(feed.ErrLeaseLost)
		}
	})
}

// An overlap is reported when a later listing has it, too.
func TestAnOverlapIsReportedWhenItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := New(instancetest.Idle(t.Context(), nil, instance.Options{}))
		told := func(ids ...string) (n int) {
			var found []overlap
			for _, id := range ids {
				found = append(found, overlap{id: id})
			}
			return len(u.balancer.lastingOverlaps(found))
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
		free := feed.Record{
			Kind: feed.KindLease, ID: "l", Version: 1, Token: "-FF", Range: feed.FullRange(),
			Position: feed.At(`"1"`),
		}
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

// A free lease may be taken when the last owner must have stopped, and not before.
func TestAFreeLeaseBehindAFenceIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := New(instancetest.Idle(t.Context(), nil, instance.Options{}))
		now := time.Now()
		u.in.View.Heard([]feed.Record{{
			Kind: feed.KindLease, ID: "l", Version: 1, Token: "-FF", Range: feed.FullRange(),
			Position: feed.At(`"1"`), Fence: now.Add(time.Minute),
		}}, now)
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

// An instance knows that a unit is shared before it works on a lease: until then the position of a lease would pass
// keys set aside, which another kind of processor would skip.
func TestAnInstanceKnowsThatAUnitIsSharedBeforeItsFirstLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		half := feed.FullRange().Cut(2)
		s := stock{}
		for i, owner := range []string{"", "net"} {
			s.records = append(s.records, feed.Record{
				Kind: feed.KindLease, ID: half[i].String(), Version: 1, Token: half[i].String(), Range: half[i],
				Position: feed.At(`"1"`), Owner: owner, Updated: time.Now(),
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

// A unit whose creation was interrupted begins where its first lease does, whose position was read before it was
// written.
func TestAUnitThatWasInterruptedBeganBeforeItsFirstLeaseWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := New(instancetest.Idle(t.Context(), nil, instance.Options{}))
		now := time.Now()
		var leases []feed.Record
		for i, r := range feed.FullRange().Cut(2) {
			leases = append(leases, feed.Record{
				Kind: feed.KindLease, ID: r.String(), Version: 1, Token: r.String(),
				Range: r, Position: feed.At(`"1"`), Updated: now.Add(-time.Duration(i+1) * time.Hour),
			})
		}
		u.in.View.Heard(leases, now)
		if at, most := u.beganAt(), now.Add(-2*time.Hour-createTime); at.After(most) {
			t.Errorf("the unit began at %v, want %v at most, before its first create was sent", at, most)
		}
	})
}

// made is a lease as this processor makes it.
func made(r feed.Range, maker *hold, updated time.Time) feed.Record {
	l := feed.Record{
		Kind: feed.KindLease, ID: r.String(), Version: 1, Token: r.String(), Range: r, Position: feed.At(`"1"`),
		Timestamp: instance.Timestamp(), Updated: updated,
	}
	records.SetGeneration(&l, 0)
	records.SetProperty(&l, notes.DueProperty, notes.Due{By: maker.endOfLock(), Sent: l.Timestamp}.String())
	return l
}

// holding is the lock, as it was written at a time.
func holding(at time.Time) *hold {
	h := &hold{maker: "m"}
	h.lock.Store(&feed.Record{Kind: feed.KindLock, ID: "lock", Updated: at})
	return h
}

// Of leases overlapping before the unit begins, those nobody has taken go, also behind a narrow one which stays.
func TestALeaseBehindOneThatWasTakenIsUntangled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &deletions{}
		u := New(instancetest.Idle(t.Context(), s, instance.Options{}))
		quarter := feed.FullRange().Cut(4)
		for _, r := range append(quarter[1:3:3], feed.FullRange()) {
			l := made(r, holding(time.Now()), time.Now())
			if r == quarter[1] {
				l.Expiration = time.Minute // somebody has worked on it
			}
			u.in.View.Put(l)
		}
		if err := u.removeOverlapping(t.Context()); err != nil ||
			!slices.Equal(s.tokens, []string{quarter[2].String()}) {
			t.Errorf("removed %v, %v, want %s", s.tokens, err, quarter[2])
		}
	})
}

// deletions is a lease store that notes what is deleted.
type deletions struct {
	feed.LeaseStore
	tokens []string
}

func (s *deletions) Delete(_ context.Context, l feed.Record) error {
	s.tokens = append(s.tokens, l.Token)
	return nil
}

// desk serves requests, and notes by their tokens which it has been given and which it has been left.
type desk struct{ accepted, asked []string }

func (d *desk) Accept(request feed.Record) { d.accepted = append(d.accepted, request.Token) }

func (d *desk) Withdraw(asked map[string]bool) { d.asked = slices.Sorted(maps.Keys(asked)) }

// A request of a caller who has died is withdrawn when its time is over, though the store still has it.
func TestARequestWhoseTimeIsOverIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := New(instancetest.Idle(t.Context(), nil, instance.Options{}))
		held, d := u.in.Hold(feed.Record{Kind: feed.KindLease, Token: "-FF", Range: feed.FullRange()}), &desk{}
		held.Requests = d
		defer held.Lose(nil)
		u.in.Claims.Claim(held.Lease.Range)
		u.in.Claims.Begin(held)
		now := time.Now()
		q := notes.Request{Action: notes.Retry, EPK: "10", Key: `["oslo"]`, Letter: "1.0"}
		u.in.View.Heard([]feed.Record{{
			Kind: feed.KindRequest, ID: "q", Token: q.Token(), Properties: q.Properties(nil),
			TTL: time.Minute, Updated: now,
		}}, now)
		u.serveRequests(t.Context())
		if one := []string{q.Token()}; !slices.Equal(d.accepted, one) || !slices.Equal(d.asked, one) {
			t.Fatalf("accepted %v, asked are %v, want the request", d.accepted, d.asked)
		}
		time.Sleep(2 * time.Minute)
		if u.serveRequests(t.Context()); len(d.accepted) != 1 || len(d.asked) != 0 {
			t.Errorf("accepted %v, and asked are %v when its time is over, want none", d.accepted, d.asked)
		}
	})
}

// slow is a lease store whose next update takes a time, and each later one is not answered.
type slow struct {
	feed.LeaseStore
	takes time.Duration
	asked int
}

func (s *slow) Update(ctx context.Context, l feed.Record) (feed.Record, error) {
	if s.asked++; s.asked > 1 {
		<-ctx.Done()
		return l, context.Cause(ctx)
	}
	time.Sleep(s.takes)
	return l, nil
}

// The lock is trusted from before the request to renew it is sent: the store may have stamped it long before it
// answers.
func TestTheLockIsTrustedFromBeforeItsRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := New(instancetest.Idle(t.Context(), &slow{takes: createTime / 2}, instance.Options{}))
		begun := time.Now()
		ctx, lose := context.WithCancelCause(t.Context())
		u.renewLock(ctx, lose, holding(begun), begun)
		if took, want := time.Since(begun), lockBeat+createTime; took != want ||
			!errors.Is(context.Cause(ctx), errLockLost) {
			t.Errorf("trusted for %v, want %v; ended with %v", took, want, context.Cause(ctx))
		}
	})
}

// hearsay is a lease store of some records whose updates are not answered.
type hearsay struct{ stock }

func (hearsay) Update(_ context.Context, l feed.Record) (feed.Record, error) {
	return l, errors.New("no answer")
}

// The write to make a late lease one of the unit may still arrive if it was not answered, so the lock is left to
// expire.
func TestAnAdoptionThatIsNotAnsweredMayStillArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := made(feed.FullRange(), holding(time.Now()), time.Now().Add(time.Hour))
		u := New(instancetest.Idle(t.Context(), hearsay{stock{records: []feed.Record{late}}}, instance.Options{}))
		m := maker{unit: u, in: u.in, hold: holding(time.Now().Add(time.Hour))}
		if _, err := m.adoptExisting(t.Context(), made(feed.FullRange(), m.hold, time.Time{})); err == nil ||
			!m.hold.unanswered.Load() {
			t.Errorf("got %v; may arrive %v, want that it may", err, m.hold.unanswered.Load())
		}
	})
}

// A late child which becomes a lease of the unit continues where its parent was, with the keys set aside by the parent,
// and belongs to nobody.
func TestALateChildIsAdoptedWithWhatItKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		child := made(feed.FullRange(), holding(time.Now()), time.Now().Add(time.Hour))
		child.Owner, child.Epoch, child.Expiration, child.Position = "b", "e", time.Minute, feed.At(`"7"`)
		records.SetProperty(&child, notes.AsideProperty, "keys")
		records.SetProperty(&child, notes.TermProperty, notes.PlainNumber(7))
		if !records.IsLate(child) {
			t.Fatal("the child is not late")
		}
		u := New(instancetest.Idle(t.Context(), stock{records: []feed.Record{child}}, instance.Options{}))
		m := maker{unit: u, in: u.in, hold: holding(time.Now().Add(time.Hour))}
		got, err := m.adoptExisting(t.Context(), made(feed.FullRange(), m.hold, time.Time{}))
		if err != nil || !records.IsUntouched(got) || records.IsLate(got) || got.State != feed.StateLive ||
			got.Position != child.Position || got.Properties[notes.AsideProperty] != "keys" ||
			records.TermOf(got) != 7 {
			t.Errorf("adopted %+v, %v", got, err)
		}
	})
}

// A lease for a hole is made when the owner of the lost lease cannot trust it any more, by the owner's expiration or
// ours.
func TestAGapIsRepairedWhenTheOwnerOfTheLostLeaseHasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := New(instancetest.Idle(t.Context(), nil, instance.Options{}))
		half, ours := feed.FullRange().Cut(2), u.in.Options.Expiration
		for _, theirs := range []time.Duration{0, ours / 2, 3 * ours} {
			u.balancer.tiled = []feed.Record{
				{Range: half[0], Expiration: theirs},
				{Range: half[1], Expiration: time.Hour},
			}
			if got, want := u.balancer.untilRepair(gap{of: half[0], since: time.Now()}),
				max(ours, theirs)+records.ClockGrain; got != want {
				t.Errorf("waits for %v after an owner with an expiration of %v, want %v", got, theirs, want)
			}
		}
	})
}

// What is left of a gap is as old as the gap. What was not in a gap before is new.
func TestAPartOfAGapIsAsOldAsTheGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, parts := New(instancetest.Idle(t.Context(), nil, instance.Options{})), feed.FullRange().Cut(4)
		half, begun := feed.Range{Min: parts[0].Min, Max: parts[1].Max}, time.Now()
		u.balancer.seeGaps([]feed.Range{half})
		u.balancer.gaps[0].told = true
		time.Sleep(time.Minute)
		u.balancer.seeGaps([]feed.Range{parts[1], parts[3]})
		for i, want := range []gap{{parts[1], begun, true}, {parts[3], begun.Add(time.Minute), false}} {
			if got := u.balancer.gaps[i]; got != want {
				t.Errorf("gap %d is %+v, want %+v", i, got, want)
			}
		}
		if time.Sleep(u.in.Options.Expiration); !u.balancer.isRepairDue() {
			t.Error("the first gap is not repaired when it is due")
		}
		u.balancer.seeGaps([]feed.Range{half})
		for i, want := range []gap{{parts[1], begun, true}, {of: parts[0], since: time.Now()}} {
			if got := u.balancer.gaps[i]; got != want {
				t.Errorf("gap %d, which is wider than before, is %+v, want %+v", i, got, want)
			}
		}
	})
}

// archive is a lease store that keeps the last update, and never deletes.
type archive struct {
	feed.LeaseStore
	last    feed.Record
	updates int
}

func (*archive) Delete(context.Context, feed.Record) error { return feed.ErrForbidden }

func (s *archive) Update(_ context.Context, l feed.Record) (feed.Record, error) {
	s.updates++
	l.Updated = time.Now()
	s.last = l
	return l, nil
}

// Without the right to delete, a late lease is written once, without its maker, and not after each listing.
func TestALateLeaseIsRetiredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &archive{}
		u, half := New(instancetest.Idle(t.Context(), s, instance.Options{})), feed.FullRange().Cut(2)[0]
		late := made(half, holding(time.Now()), time.Now().Add(time.Hour))
		late.Owner, late.Epoch = "maker", "e1"
		u.in.View.Put(late)
		u.in.View.Put(made(feed.FullRange(), holding(time.Now()), time.Now()))
		time.Sleep(2 * time.Hour)
		for range 3 {
			u.dropLate(t.Context())
			if s.updates != 1 || s.last.ID != late.ID || s.last.State != feed.StateRetired || !s.last.Free() {
				t.Fatalf("%d writes, the last of %s, which is %v, want one of %s", s.updates, s.last.ID, s.last.State,
					late.ID)
			}
			u.in.View.Put(s.last) // as a listing shows it
			time.Sleep(time.Minute)
		}
	})
}

// Leases are renewed apart: an instance has been silent for as long as the oldest of the leases taken.
func TestATakeOverSaysTheLongestSilence(t *testing.T) {
	now := time.Now()
	var taken takeovers
	for _, l := range []struct {
		token, owner string
		silent       time.Duration
	}{
		{"80-C0", "b", 70 * time.Second},
		{"-40", "b", 90 * time.Second},
		{"C0-FF", "c", 61 * time.Second},
		{"40-80", "b", 80 * time.Second},
	} {
		taken.add(feed.Record{Kind: feed.KindLease, Token: l.token, Owner: l.owner, Updated: now.Add(-l.silent)}, now)
	}
	want := "[{b [-40 40-80 80-C0] 1m30s} {c [C0-FF] 1m1s}]"
	if got := fmt.Sprint(taken.takeAll()); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if left := taken.takeAll(); len(left) != 0 {
		t.Errorf("%v are told twice", left)
	}
}

// A limit of one lease is a limit, and what older versions take for granted is no property of a presence.
func TestALimitOfOneLeaseIsShown(t *testing.T) {
	one := notes.PlainNumber(1)
	for _, c := range []struct {
		o    instance.Options
		want map[string]string
		most int
	}{
		{instance.Options{}, map[string]string{}, 0},
		{instance.Options{Weight: 1, MinLeases: 1}, map[string]string{}, 0},
		{instance.Options{MaxLeases: 1}, map[string]string{notes.MostProperty: one}, 1},
		{
			instance.Options{MaxLeases: 1, MinLeases: 2, Weight: 2},
			map[string]string{
				notes.MostProperty: one, notes.LeastProperty: notes.PlainNumber(2),
				notes.WeightProperty: notes.PlainNumber(2),
			},
			1,
		},
	} {
		if got := sharing(instancetest.Idle(t.Context(), nil, c.o)); !maps.Equal(got, c.want) {
			t.Errorf("%d leases at most, %d at least, weight %d: properties %v, want %v", c.o.MaxLeases, c.o.MinLeases,
				c.o.Weight, got, c.want)
		}
		u := New(instancetest.Idle(t.Context(), nil, c.o))
		if got := u.balancer.situation().capacity[u.in.Me].Most; got != c.most {
			t.Errorf("the plan has a limit of %d leases, want %d", got, c.most)
		}
	}
}
