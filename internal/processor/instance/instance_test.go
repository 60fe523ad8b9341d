package instance_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/instance/instancetest"
)

// A store, or a proxy before it, may ask for a pause of hours: nobody is asked for as long.
func TestPausesThatAreAskedForAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := instancetest.Idle(t.Context(), nil, instance.Options{})
		calls, begun := 0, time.Now()
		err := r.Paced(t.Context(), r.Random("test"), "", func() error {
			if calls++; calls < 4 {
				return &feed.ThrottledError{After: 5 * time.Hour}
			}
			return nil
		})
		if took := time.Since(begun); err != nil || took < 3*r.Options.RetryMax || took > 4*r.Options.RetryMax {
			t.Errorf("%v after %v, want three pauses of about %v", err, took, r.Options.RetryMax)
		}
	})
}

// What goes wrong at the end is told; that the end has come is not.
func TestErrorsAtTheEndAreTold(t *testing.T) {
	var told []error
	r := instancetest.Idle(t.Context(), nil, instance.Options{})
	r.Hooks.Error = func(_ context.Context, err *feed.Error) { told = append(told, err.Err) }
	ended, end := context.WithCancelCause(t.Context())
	stop, away := errors.New("stop"), errors.New("away")
	end(stop)
	r.Report(ended, feed.OriginSource, "", stop)
	r.Report(ended, feed.OriginSource, "", away)
	r.Report(t.Context(), feed.OriginSource, "", context.Canceled)
	if !slices.Equal(told, []error{away, context.Canceled}) {
		t.Errorf("told %v", told)
	}
}

// A store that throttles and names no pause is asked again after pauses that double, each half of what it may be at
// least.
func TestAStoreThatNamesNoPauseIsAskedMoreAndMoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := instancetest.Idle(t.Context(), nil, instance.Options{})
		calls, begun := 0, time.Now()
		err := r.Paced(t.Context(), r.Random("test"), "", func() error {
			if calls++; calls < 6 {
				return &feed.ThrottledError{}
			}
			return nil
		})
		if took, least := time.Since(begun), 15*r.Options.RetryMin; err != nil || took < least {
			t.Errorf("%v after %v, want five pauses of %v together", err, took, least)
		}
	})
}

// A source may keep the page that it has given, and the next one is read while a filter works on it.
func TestAFilterLeavesThePageAsItIs(t *testing.T) {
	r := instancetest.Idle(t.Context(), nil, instance.Options{Filter: func(c *feed.Change) bool {
		return c.LSN%2 == 0
	}})
	var page []feed.Change
	for lsn := range int64(6) {
		page = append(page, feed.Change{LSN: lsn})
	}
	if wanted := r.Wanted(page); len(wanted) != 3 {
		t.Errorf("%d changes are wanted, want 3", len(wanted))
	}
	for i, c := range page {
		if c.LSN != int64(i) {
			t.Fatalf("the page is %+v now", page)
		}
	}
}

// moved is a source whose partitions are found, or not.
type moved struct {
	feed.Source
	err error
}

func (s *moved) Partitions(context.Context) ([]feed.Partition, error) { return nil, s.err }

// Partitions that are found show that the container is there: only another expiration without it shows that it has
// gone.
func TestAContainerWhosePartitionsAreFoundIsNotGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a instance.Absence
		s := &moved{}
		note := func() bool { return a.Note(t.Context(), s, time.Minute, feed.ErrNotFound) }
		note()
		time.Sleep(time.Minute)
		if note() {
			t.Fatal("gone, though its partitions are there")
		}
		s.err = feed.ErrNotFound
		time.Sleep(time.Second)
		if note() {
			t.Errorf("gone a second after its partitions were there: %v", a.Proven())
		}
		time.Sleep(time.Minute)
		if !note() || !errors.Is(a.Proven(), feed.ErrSourceGone) {
			t.Errorf("not gone after another expiration: %v", a.Proven())
		}
	})
}

// The position before a page keeps the time from which it was read.
func TestThePositionBeforeAPageKeepsItsStart(t *testing.T) {
	from := feed.Position{Start: feed.FromTime(time.Unix(1, 0))}
	change := func(lsn int64) feed.Change { return feed.Change{LSN: lsn} }
	for _, c := range []struct{ page, want feed.Position }{
		{feed.Position{Token: `"9"`}, feed.Position{Token: `"6"`, Start: from.Start}},
		{feed.Position{Token: `"10"`}, from}, // a token of another kind: only the start is known
	} {
		if got := instance.StartOfPage(instancetest.Counted{},
			(feed.Page{Changes: []feed.Change{change(7), change(9)}, Next: c.page}), from); got != c.want {
			t.Errorf("the position before the changes 7 and 9 with the token %s after them is %+v, want %+v",
				c.page.Token, got, c.want)
		}
	}
	page := feed.Page{Changes: []feed.Change{change(7), change(9)}, Next: feed.At(`"9"`)}
	if got := instance.StartOfPage(struct{ feed.Source }{instancetest.Counted{}}, page, from); got != from {
		t.Errorf("a source that is no Sequencer: %+v, want %+v", got, from)
	}
}

// Hooks receive the values of the context of the run, and no end. An unset hook is no fault.
func TestAHookReceivesTheContextOfTheRun(t *testing.T) {
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "run"))
	in := instancetest.Idle(ctx, nil, instance.Options{})
	cancel()
	instance.CallHook(in, in.Hooks.Round, feed.Round{})
	called := false
	instance.CallHook(in, func(ctx context.Context, r feed.Round) {
		called = ctx.Value(key{}) == "run" && ctx.Err() == nil && r.Leases == 7
	}, feed.Round{Leases: 7})
	if !called {
		t.Error("the hook was not called with the context of the run and its event")
	}
}
