package admin

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/records"
)

// joining returns a half that is about to be joined with the other one.
func joining(t *testing.T, i int) feed.Record {
	t.Helper()
	l := half(t, i)
	records.MarkJoining(&l, feed.FullRange(), time.Now().Add(time.Minute))
	return l
}

// An action on leases that are replaced says what is done to them, and who goes on with that: without an instance
// nobody does, so it helps nobody to wait.
func TestAnActionOnReplacedLeasesSaysWhatToDo(t *testing.T) {
	splitting := half(t, 0)
	splitting.State = feed.StateSplitting
	whole := half(t, 0)
	whole.Token, whole.Range = feed.FullRange().String(), feed.FullRange()
	reset := func(u *Unit) error { _, err := u.Reset(t.Context(), All(), feed.FromBeginning()); return err }
	replay := func(u *Unit) error {
		_, err := u.ResetKey(t.Context(), feed.PartitionKey(`["a"]`), feed.FromBeginning())
		return err
	}
	snapshot := func(u *Unit) error { _, err := u.Snapshot(t.Context()); return err }
	for name, c := range map[string]struct {
		leases       []feed.Record
		do           func(*Unit) error
		is           error
		what         string
		idle, atWork string
	}{
		"reset during a join": {
			[]feed.Record{joining(t, 0), joining(t, 1)},
			reset, feed.ErrConflict,
			"is being joined with a neighbour", "no instance runs, which would finish that: start one", "try again in a moment",
		},
		"replay during a join": {
			[]feed.Record{joining(t, 0), joining(t, 1)},
			replay, feed.ErrConflict,
			"is being joined with a neighbour", "no instance runs, which would finish that: start one", "try again in a moment",
		},
		"reset during a split": {
			[]feed.Record{splitting, half(t, 1)},
			reset, feed.ErrConflict,
			"is being split: ", "no instance runs, which would finish that: start one", "try again in a moment",
		},
		"snapshot during a join": {
			[]feed.Record{joining(t, 0), joining(t, 1), whole},
			snapshot, feed.ErrOverlap,
			"lease " + half(t, 0).Token + " is being joined with a neighbour", "no instance runs: start one",
			"in their next rounds: try again then",
		},
		"snapshot after a split": {
			[]feed.Record{half(t, 0), half(t, 1), whole},
			snapshot, feed.ErrOverlap,
			"because partitions were split or merged", "no instance runs: start one",
			"in their next rounds: try again then",
		},
		"snapshot of a hole": {
			[]feed.Record{half(t, 0)},
			snapshot, feed.ErrHole, "no lease of the unit holds", "start an instance",
			"the instances make leases there",
		},
	} {
		t.Run(name, func(t *testing.T) {
			orders, leases := stores(t)
			u := Open(orders, leases, Options{})
			for _, l := range c.leases {
				if _, err := leases.Create(t.Context(), l); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.do(u); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.what) ||
				!strings.Contains(err.Error(), c.idle) {
				t.Errorf("without an instance: %v, want %q and %q", err, c.what, c.idle)
			}
			h := feed.Record{Kind: feed.KindHost, Token: "a", Owner: "a", Epoch: "1", Expiration: time.Minute}
			if _, err := leases.Create(t.Context(), h); err != nil {
				t.Fatal(err)
			}
			if err := c.do(u); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.what) ||
				!strings.Contains(err.Error(), c.atWork) {
				t.Errorf("with an instance: %v, want %q and %q", err, c.what, c.atWork)
			}
		})
	}
}
