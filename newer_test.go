package changefeed_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/changefeed"
)

// The numbers of kinds and states that this version does not know must not read like
// those that it knows: 4 is no lease.
func TestUnknownKindsAndStatesHaveNamesOfTheirOwn(t *testing.T) {
	names := map[string]string{}
	for n := range 256 {
		for _, name := range []string{"kind " + changefeed.Kind(n).String(), "state " + changefeed.State(n).String()} {
			if other, twice := names[name]; twice {
				t.Errorf("%s is the name of %s and of %d", name, other, n)
			}
			names[name] = fmt.Sprint(n)
		}
	}
}

// newer is a lease store that holds records of a newer version of this package, and
// remembers what was written over them.
type newer struct {
	*hookedStore
	records []changefeed.Lease
	touched []string
}

func (w *world) newer(records ...changefeed.Lease) *newer {
	s := &newer{hookedStore: &hookedStore{Leases: w.leases}, records: records}
	s.list = func(ctx context.Context) ([]changefeed.Lease, time.Time, error) {
		all, now, err := w.leases.List(ctx)
		return slices.Concat(all, s.records), now, err
	}
	s.update = func(ctx context.Context, l changefeed.Lease) (changefeed.Lease, error) {
		s.touch("update", l)
		return w.leases.Update(ctx, l)
	}
	s.delete = func(ctx context.Context, l changefeed.Lease) error {
		s.touch("delete", l)
		return w.leases.Delete(ctx, l)
	}
	return s
}

func (s *newer) touch(verb string, l changefeed.Lease) {
	for _, r := range s.records {
		if r.ID == l.ID || l.Kind > changefeed.KindLock || l.State > changefeed.StateRetired {
			s.touched = append(s.touched, fmt.Sprintf("%s of %v %s in state %v", verb, l.Kind, l.ID, l.State))
		}
	}
}

func TestRecordsOfANewerVersionAreKeptAndLeftAlone(t *testing.T) {
	long := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC) // before virtual time begins: expired, were it known
	half := changefeed.FullRange().Cut(2)
	for _, c := range []struct {
		name     string
		record   changefeed.Lease
		reported bool
		covered  bool
	}{
		{"a new kind like a lease", changefeed.Lease{Kind: 4, ID: "new", Token: half[0].String(), Range: half[0], Version: 1, Updated: long}, false, false},
		{"a new kind like a host", changefeed.Lease{Kind: 5, ID: "new", Token: "h/e", Owner: "h", Epoch: "e", Updated: long}, false, false},
		{"a new kind like the marker", changefeed.Lease{Kind: 6, ID: "new", Updated: long}, false, false},
		{"a new kind like the lock", changefeed.Lease{Kind: 7, ID: "new", Updated: long}, false, false},
		{"a lease in a new state", changefeed.Lease{ID: "new", Token: half[0].String(), Range: half[0], Version: 1, State: 3, Updated: long}, true, true},
		{"a lease in a state like that of a live one", changefeed.Lease{ID: "new", Token: half[0].String(), Range: half[0], Version: 1, State: 4, Updated: long}, true, true},
		{"a host in a new state", changefeed.Lease{Kind: changefeed.KindHost, ID: "new", Token: "h/e", Owner: "h", Epoch: "e", State: 4, Updated: long}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, 2, func(t *testing.T, w *world) {
				s := w.newer(c.record)
				y := &tally{}
				p := w.runWith(w.orders, s, "a", y, changefeed.Options{Start: changefeed.FromBeginning()})
				w.fill(20)
				time.Sleep(20 * time.Minute)
				if len(s.touched) != 0 {
					t.Errorf("written over: %v", s.touched)
				}
				leases, want := len(w.records(changefeed.KindLease)), 2
				if c.covered {
					want = 1 // the range of the other one is not ours to fill
				}
				if leases != want {
					t.Errorf("%d leases were made, want %d", leases, want)
				}
				if items, _ := y.items(); (items < 20) != c.covered {
					t.Errorf("%d of 20 items handled", items)
				}
				if found := p.errs.find(changefeed.ErrBadLease) != nil; found != c.reported || len(p.errs.all()) > 1 {
					t.Errorf("reported %v", p.errs.all())
				}
				p.stop(t)
			})
		})
	}
}
