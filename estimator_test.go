package changefeed_test

import (
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// polled is a source without its optional abilities, as Azure is one.
type polled struct{ feed.Source }

// Before the first run nothing is known, which is not the same as nothing to do.
func TestAUnitThatHasNotBegunHasNoLags(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(5)
		if lags, err := changefeed.Estimate(t.Context(), w.orders, w.leases); len(lags) != 0 || err != nil {
			t.Errorf("%d lags, %v, want none", len(lags), err)
		}
	})
}

// A child may split before its parent is gone: what neither its own children nor those of its parent have is owed once.
func TestWhatASplitWithinASplitHasLeftIsPendingOnce(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(40)
		for r, state := range map[feed.Range]feed.State{
			feed.FullRange():           feed.StateSplitting,
			feed.FullRange().Cut(2)[0]: feed.StateSplitting,
			feed.FullRange().Cut(4)[0]: feed.StateLive,
		} {
			if _, err := w.leases.Create(t.Context(), feed.Record{
				Kind: feed.KindLease, Version: 1, Token: r.String(), Range: r, State: state,
				Position: feed.Position{Start: feed.FromBeginning()},
			}); err != nil {
				t.Fatal(err)
			}
		}
		lags, err := changefeed.Estimate(t.Context(), w.orders, w.leases)
		if err != nil || len(lags) != 3 {
			t.Fatalf("%+v, %v, want three lags", lags, err)
		}
		var sum int64
		for _, l := range lags {
			if sum += l.Pending; l.Err != nil || l.Pending == 0 {
				t.Errorf("lease %s: %d pending, %v, want some", l.Lease.Token, l.Pending, l.Err)
			}
		}
		if sum != 40 {
			t.Errorf("%d pending, want 40", sum)
		}
		if all := w.measure(new(changefeed.Estimator), w.orders).Total; all.Pending != 40 || !all.Exact || all.Shared {
			t.Errorf("the unit has %d pending, exact %t, shared %t, want 40", all.Pending, all.Exact, all.Shared)
		}
	})
}

// A lag of several parts is a bound if one of them is, whichever comes last.
func TestALagIsSharedIfAPartOfItIs(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(3000)
		quarter := feed.FullRange().Cut(4)
		for r, state := range map[feed.Range]feed.State{
			feed.FullRange(): feed.StateSplitting,
			quarter[1]:       feed.StateLive,
		} {
			if _, err := w.leases.Create(t.Context(), feed.Record{
				Kind: feed.KindLease, Version: 1, Token: r.String(), Range: r, State: state,
				Position: feed.Position{Start: feed.FromBeginning()},
			}); err != nil {
				t.Fatal(err)
			}
		}
		w.splitAt(0, quarter[2].Min) // so that the second part has a partition of its own
		lags, err := changefeed.Estimate(t.Context(), polled{w.orders}, w.leases)
		if err != nil || len(lags) != 2 {
			t.Fatalf("%+v, %v, want two lags", lags, err)
		}
		for _, l := range lags {
			if l.Err != nil || l.Exact || !l.Shared {
				t.Errorf("lease %s: exact %v, shared %v, %v, want a bound", l.Lease.Token, l.Exact, l.Shared, l.Err)
			}
		}
	})
}

// Leases that share a partition have one distance between them: what it says of each is
// a bound, and while there is little to do they are counted.
func TestTheEstimateOfLeasesThatShareAPartitionIsHonest(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p := w.run("a", feed.HandlerFunc(failing), changefeed.Options{MinLeases: 4})
		time.Sleep(time.Minute)
		p.stop(t)
		estimates := func() (exact, distant map[string]changefeed.Lag) {
			exact, distant = map[string]changefeed.Lag{}, map[string]changefeed.Lag{}
			for to, source := range map[*map[string]changefeed.Lag]feed.Source{
				&exact:   w.orders,
				&distant: polled{w.orders},
			} {
				lags, err := changefeed.Estimate(t.Context(), source, w.leases)
				if err != nil || len(lags) != 4 {
					t.Fatalf("%d lags, %v, want 4", len(lags), err)
				}
				for _, l := range lags {
					(*to)[l.Lease.Token] = l
				}
			}
			return exact, distant
		}
		exact, distant := estimates()
		for token, got := range distant {
			if !got.Exact || got.Pending != 0 || !exact[token].Exact {
				t.Errorf("lease %s with nothing to do: %+v", token, got)
			}
		}
		w.fill(200)
		exact, distant = estimates()
		for token, got := range distant {
			if want := exact[token]; !got.Exact || got.Shared || got.Pending != want.Pending ||
				!got.Oldest.Equal(want.Oldest) {
				t.Errorf("lease %s of 200 changes: %d, exact %v, shared %v, want %d, counted", token, got.Pending,
					got.Exact, got.Shared, want.Pending)
			}
		}
		w.fill(3000)
		exact, distant = estimates()
		var sum int64
		bounds := 0
		for token, got := range distant {
			want := exact[token]
			if sum += want.Pending; got.Shared == got.Exact || got.Pending < want.Pending ||
				got.Exact && got.Pending != want.Pending {
				t.Errorf("lease %s of 3,000 changes: %d, exact %v, shared %v, want %d or a bound above it", token,
					got.Pending, got.Exact, got.Shared, want.Pending)
			}
			if got.Shared {
				bounds++
			}
		}
		if sum != 3000 || bounds == 0 {
			t.Errorf("leases have %d changes, %d of them bounds: want 3000, and one bound at least", sum, bounds)
		}
	})
}
