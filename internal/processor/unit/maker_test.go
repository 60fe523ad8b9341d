package unit

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/instance/instancetest"
	"github.com/millrace/changefeed/internal/processor/records"
)

// shelf is a lease store that keeps what is created, and whose clock is ahead of ours.
type shelf struct {
	feed.LeaseStore
	ahead time.Duration

	mu      sync.Mutex
	created []feed.Record
}

func (s *shelf) now() time.Time { return time.Now().Add(s.ahead) }

func (s *shelf) List(context.Context) ([]feed.Record, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.created), s.now(), nil
}

func (s *shelf) Create(_ context.Context, l feed.Record) (feed.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.ID, l.Updated = string(l.Kind)+l.Token, s.now()
	s.created = append(s.created, l)
	return l, nil
}

func (*shelf) Delete(context.Context, feed.Record) error { return nil }

// beginning is a source with one partition, whose only position is its beginning.
type beginning struct{ instancetest.Counted }

func (beginning) Read(context.Context, feed.Range, feed.Position, feed.ReadOptions) (feed.Page, error) {
	return feed.Page{Next: feed.At(`"0"`)}, nil
}

func (beginning) Partitions(context.Context) ([]feed.Partition, error) {
	return []feed.Partition{{ID: "0", Range: feed.FullRange()}}, nil
}

// The owner of a lease in place of a lost one has a higher number than any owner before: a store comparing the numbers
// refuses lower ones. Nor does that owner begin while an owner before may work. The leases of a new unit had no owner.
func TestALeaseForALostOneHasAHigherTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, trust := range []time.Duration{3 * time.Minute, 0} { // the instance's own expiration is a minute
			s := &shelf{ahead: time.Hour}
			in := instancetest.Idle(t.Context(), s, instance.Options{})
			in.Source = beginning{}
			in.View.Heard(nil, s.now())
			m := maker{New(in), in, holding(s.now()), feed.FromBeginning(), trust}
			if err := m.createLease(t.Context(), feed.FullRange()); err != nil {
				t.Fatal(err)
			}
			want, fence := int64(0), time.Time{}
			if trust > 0 {
				want, fence = s.now().UnixMilli(), s.now().Add(trust+records.ClockGrain)
			}
			leases, _ := in.View.Leases()
			if len(leases) != 1 || records.TermOf(leases[0]) != want || !leases[0].Fence.Equal(fence) {
				t.Errorf("made %+v, want one with the number %d, fenced until %v", leases, want, fence)
			}
		}
	})
}

// Of several leases that are made anew, each is fenced for as long as any owner of the lost ones trusts its lease:
// nobody knows which parts the owners have made of them.
func TestEveryLeaseForALostOneIsFencedForTheLongestTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		in := instancetest.Idle(t.Context(), s, instance.Options{})
		in.Source = beginning{}
		u, half, trust := New(in), feed.FullRange().Cut(2), 3*in.Options.Expiration
		u.balancer.tiled = []feed.Record{{Range: half[0]}, {Range: half[1], Expiration: trust}}
		u.balancer.repair(t.Context(), half, feed.FromBeginning())
		leases, _ := in.View.Leases()
		for _, l := range leases {
			if got := time.Until(l.Fence); got != trust+records.ClockGrain {
				t.Errorf("lease %s is fenced for %v, want %v", l.Token, got, trust+records.ClockGrain)
			}
		}
		if len(leases) != 2 {
			t.Errorf("made %d leases, want 2", len(leases))
		}
	})
}

// A listing with a gap does not change what is known of the owner of the lost lease: how long it trusts the lease.
func TestAListingWithAGapForgetsNoOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := instancetest.Idle(t.Context(), nil, instance.Options{})
		u, trust := New(in), 3*in.Options.Expiration
		var leases []feed.Record
		for _, r := range feed.FullRange().Cut(2) {
			leases = append(leases, feed.Record{
				Kind: feed.KindLease, ID: r.String(), Version: 1, Token: r.String(), Range: r, Position: feed.At(`"1"`),
				Owner: "b", Epoch: "e", Expiration: trust, Updated: time.Now(),
			})
		}
		in.View.Heard(leases, time.Now())
		u.balancer.checkCover(t.Context())
		in.View.Drop(leases[0].ID)
		for range 2 {
			u.balancer.checkCover(t.Context())
			if len(u.balancer.gaps) != 1 {
				t.Fatalf("gaps are %+v, want one", u.balancer.gaps)
			}
			if got := u.balancer.untilRepair(u.balancer.gaps[0]); got != trust+records.ClockGrain {
				t.Errorf("waits for %v, want %v", got, trust+records.ClockGrain)
			}
		}
	})
}

// A late lease that is adopted in place of a lost one is fenced like one that is made for it.
func TestAnAdoptedLeaseIsFencedLikeANewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, earlier := range []time.Duration{0, time.Minute, time.Hour} {
			late := made(feed.FullRange(), holding(time.Now()), time.Now().Add(time.Hour))
			want := time.Now().Add(max(earlier, 10*time.Minute))
			if earlier > 0 {
				late.Fence = time.Now().Add(earlier)
			}
			in := instancetest.Idle(t.Context(), stock{records: []feed.Record{late}}, instance.Options{})
			m := maker{unit: New(in), in: in, hold: holding(time.Now().Add(time.Hour))}
			lease := made(feed.FullRange(), m.hold, time.Time{})
			lease.Fence = time.Now().Add(10 * time.Minute)
			if got, err := m.adoptExisting(t.Context(), lease); err != nil || !got.Fence.Equal(want) {
				t.Errorf("fenced until %v, want %v; %v", got.Fence, want, err)
			}
		}
	})
}

// The hook hears of a pause that has ended and begun again between two rounds, though one person asked for both for the
// same reason. The times are those of the store.
func TestEachPauseIsToldByTheClockOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := instancetest.Idle(t.Context(), nil, instance.Options{})
		var told []feed.Pause
		in.Hooks.Paused = func(_ context.Context, p feed.Pause) { told = append(told, p) }
		u, c := New(in), notes.Control{Action: notes.Pause, Max: "FF", By: "ada", Why: "INC-1"}
		round := func(since time.Time) {
			request := feed.Record{
				Kind: feed.KindRequest, ID: "pause", Token: c.Token(), Properties: c.Properties(nil), Updated: since,
			}
			in.View.Heard([]feed.Record{request}, since)
			u.balancer.comparePauses()
		}
		first := time.Now().Add(time.Hour) // the clock of the store is ahead
		second := first.Add(time.Minute)
		round(first)
		round(second)
		want := []feed.Pause{
			{Range: feed.FullRange(), By: "ada", Reason: "INC-1", Since: first},
			{Range: feed.FullRange(), By: "ada", Reason: "INC-1", Since: first, Ended: second},
			{Range: feed.FullRange(), By: "ada", Reason: "INC-1", Since: second},
		}
		if !slices.Equal(told, want) {
			t.Errorf("told of %+v, want %+v", told, want)
		}
	})
}

// An owner that is fenced may be taken over before the end of its fence. The next one waits for that end, too, and for
// the owner that is taken over.
func TestAFenceOutlivesTheOwnerBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, now := New(instancetest.Idle(t.Context(), nil, instance.Options{})), time.Now()
		u.in.View.Heard(nil, now)
		trusted := u.in.Options.Expiration + records.ClockGrain
		for _, fence := range []time.Duration{time.Second, 10 * time.Minute} {
			seen := feed.Record{Owner: "b", Epoch: "e", Updated: now, Fence: now.Add(fence)}
			if got, want := u.balancer.fencedUntil(seen), now.Add(max(fence, trusted)); !got.Equal(want) {
				t.Errorf("fenced for %v behind a fence of %v, want %v", got.Sub(now), fence, want.Sub(now))
			}
		}
	})
}
