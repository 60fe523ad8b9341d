package tenure

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/instance/instancetest"
	"github.com/millrace/changefeed/internal/processor/records"
)

// slowList is a lease store whose listings show what was there when they began.
type slowList struct {
	shelf
	records []feed.Record
	takes   time.Duration
}

func (s *slowList) List(context.Context) ([]feed.Record, time.Time, error) {
	seen := append([]feed.Record(nil), s.records...)
	time.Sleep(s.takes)
	return seen, time.Now(), nil
}

// whole is a source with a single partition.
type whole struct{ instancetest.Counted }

func (whole) Partitions(context.Context) ([]feed.Partition, error) {
	return []feed.Partition{{ID: "0", Range: feed.FullRange()}}, nil
}

// joining are a worker of the left of two leases of its instance, and both leases, which are marked.
func joining(t *testing.T, lefts, rights time.Time) (j join, left, right feed.Record, store *slowList) {
	t.Helper()
	store = &slowList{}
	in := instancetest.Idle(t.Context(), store, instance.Options{})
	in.Source = whole{}
	halves := feed.FullRange().Cut(2)
	for i, until := range []time.Time{lefts, rights} {
		lease := made(halves[i], 5, 1)
		lease.Owner, lease.Epoch = in.Me.Instance, in.Me.Epoch
		records.MarkJoining(&lease, feed.FullRange(), until)
		store.records = append(store.records, lease)
	}
	left, right = store.records[0], store.records[1]
	w := newWorker(in, left, time.Now(), false)
	held := w.held
	t.Cleanup(func() {
		w.keeper.fuse.Stop()
		held.Lose(feed.ErrLeaseLost)
	})
	return join{w: w, seat: &instance.Seat{Meeting: &instance.Meeting{}, IsLeft: true}}, left, right, store
}

// The lease of both must be there before the next owner of any of the two makes it live again.
func TestTheEarlierMarkSaysUntilWhenTheLeaseOfBothIsMade(t *testing.T) {
	for _, apart := range []time.Duration{-5 * time.Second, 0, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			of := time.Now().Add(time.Minute).UTC()
			j, left, right, _ := joining(t, of, of.Add(apart))
			want := of.Add(min(0, apart))
			if _, until, ok := j.planJoint(left, right); !ok || !until.Equal(want) {
				t.Errorf("the right mark ends %v after the left one: until %v, %v, want %v", apart, until, ok, want)
			}
		})
	}
}

// A listing that began before the end of the marks does not show what came since: only a later one proves that the
// lease of both was not made.
func TestAListingProvesNothingAboutWhatCameAfterItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := time.Now().Add(30 * time.Second).UTC()
		j, left, _, store := joining(t, until, until)
		if err := j.w.in.View.List(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		store.takes = 20 * time.Second
		noAnswer := errors.New("no answer")
		if made, known := j.judgeJoint(t.Context(), left, feed.Record{}, noAnswer, until); made || known {
			t.Errorf("a listing that began before the end: made %v, known %v", made, known)
		}
		if made, known := j.judgeJoint(t.Context(), left, feed.Record{}, noAnswer, until); made || !known {
			t.Errorf("a listing after the end: made %v, known %v, want that it was not made", made, known)
		}
	})
}

// A lease of both that was made after the end of the marks counts as deleted, though the store has accepted it.
func TestALateLeaseOfBothIsNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := time.Now().Add(time.Minute).UTC()
		j, left, right, _ := joining(t, until, until)
		for _, late := range []bool{false, true} {
			joint := records.Joint(left, right)
			joint.ID, joint.Owner, joint.Epoch, joint.Timestamp = "joint", left.Owner, left.Epoch, instance.Timestamp()
			records.SetDue(&joint, until)
			if joint.Updated = until; late {
				joint.Updated = until.Add(time.Second)
			}
			if made, known := j.judgeJoint(t.Context(), left, joint, nil, until); made == late || !known {
				t.Errorf("late %v: made %v, known %v", late, made, known)
			}
		}
	})
}

// The right worker that must end before the left one has said whether the lease of both was made does not know.
func TestTheRightWorkerDoesNotGuess(t *testing.T) {
	for _, ends := range []string{"the worker must end", "the left worker has gone", "the left worker says so"} {
		synctest.Test(t, func(t *testing.T) {
			until := time.Now().Add(time.Minute)
			j, left, right, _ := joining(t, until, until)
			l, r := j.w.in.Hold(left), j.w.in.Hold(right)
			defer l.Lose(feed.ErrLeaseLost)
			defer r.Lose(feed.ErrLeaseLost)
			if !instance.Meet(l, r, 1) {
				t.Fatal("no meeting")
			}
			j.w.held, j.seat = r, r.Seat()
			want := instance.Unmade
			switch ends {
			case "the worker must end":
				r.Stop(instance.Ending{Why: feed.ReasonStopped})
				want = instance.MadePerhaps
			case "the left worker has gone":
				l.Seat().End()
			default:
				l.Seat().Say(instance.Word{Made: instance.MadeInTime})
				want = instance.MadeInTime
			}
			if got := j.hearWhetherMade(); got != want {
				t.Errorf("%s: made %v, want %v", ends, got, want)
			}
		})
	}
}

// The lease of both is not made beside a lease that has some of its keys, also while that one is being split: its parts
// would be read beside the lease of both.
func TestNoLeaseOfBothIsMadeBesideAnother(t *testing.T) {
	for state, want := range map[feed.State]bool{
		feed.StateLive: false, feed.StateSplitting: false, feed.StateRetired: true,
	} {
		synctest.Test(t, func(t *testing.T) {
			until := time.Now().Add(time.Minute).UTC()
			j, left, right, store := joining(t, until, until)
			other := made(feed.FullRange(), 5, 1)
			other.ID, other.State = "other", state
			store.records = append(store.records, other)
			if _, _, got := j.planJoint(left, right); got != want {
				t.Errorf("beside a lease that is %s: made %v, want %v", state, got, want)
			}
		})
	}
}
