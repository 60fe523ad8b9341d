package changefeed_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
)

// getsAhead has a unit work off some changes, and then moves the first lease beyond the end of its feed.
func (w *world) getsAhead() (first feed.Record) {
	w.t.Helper()
	w.fill(10)
	p := w.run("a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
	time.Sleep(time.Minute)
	p.stop(w.t)
	first = w.records(feed.KindLease)[0]
	first.Position.Token = `"1000"`
	if _, err := w.leases.Update(w.t.Context(), first); err != nil {
		w.t.Fatal(err)
	}
	return first
}

// TestAPositionAheadOfItsFeedIsReported: leases that are ahead of a store, as after its restore from a backup, wait
// silently for a feed that may never come as far, and skip what comes until then.
func TestAPositionAheadOfItsFeedIsReported(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		first := w.getsAhead()
		p := w.run("a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		p.stop(t)
		err := p.errs.find(feed.ErrAhead)
		if err == nil || err.Lease != first.Token ||
			!strings.Contains(err.Error(), `it is "1000", and the feed ends at 10`) ||
			!strings.Contains(err.Error(), "changefeed leases reset") {
			t.Errorf("reported %v, want that lease %s is ahead, and what to do", err, first.Token)
		}
		if n := len(p.errs.errs); n > 4 {
			t.Errorf("reported %d times in a minute", n)
		}
		lags, estimated := changefeed.Estimate(t.Context(), w.orders, w.leases)
		if estimated != nil {
			t.Fatal(estimated)
		}
		for _, l := range lags {
			if ahead := l.Lease.Token == first.Token; errors.Is(l.Err, feed.ErrAhead) != ahead {
				t.Errorf("the lag of %s has error %v, ahead is %t", l.Lease.Token, l.Err, ahead)
			}
		}
	})
}

// A reset brings a unit back whose positions are ahead, as the report advises, without a new start of all its leases.
func TestAResetBringsAUnitBackThatIsAhead(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.getsAhead()
		y := &tally{}
		p := w.run("a", y, changefeed.Options{})
		time.Sleep(time.Minute) // virtual time: the worker finds that its position is ahead
		operate(t, func(ctx context.Context) ([]admin.Step, error) {
			return w.admin(admin.Options{}).Reset(ctx, admin.All(), feed.FromBeginning())
		})
		time.Sleep(time.Minute) // virtual time: the reset is obeyed, and all changes are handled
		p.stop(t)
		if items, _ := y.items(); items != 10 || w.pending() != 0 {
			t.Errorf("%d items handled after the reset, %d pending, want 10 and 0", items, w.pending())
		}
	})
}

// lagging is a source whose replicas answer from a while ago, now and then.
type lagging struct {
	feed.Source
	ahead func() bool
}

func (s lagging) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
	page, err := s.Source.Read(ctx, r, from, o)
	page.Ahead = len(page.Changes) == 0 && s.ahead()
	return page, err
}

func TestAReplicaThatLagsBehindForAWhileIsNotReported(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		began := time.Now()
		source := lagging{w.orders, func() bool { return time.Since(began)%(17*time.Second) < 10*time.Second }}
		var errs errorLog
		p, err := changefeed.New(source, w.leases, &tally{},
			changefeed.Options{Instance: "a", Hooks: changefeed.Hooks{Error: errs.add}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
		if err := errs.find(feed.ErrAhead); err != nil {
			t.Error(err)
		}
	})
}

// A page with changes shows that the position is not ahead of its feed: what was seen before it does not count.
func TestAReplicaThatLagsBehindAgainAfterAChangeIsNotReported(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		began := time.Now()
		source := lagging{w.orders, func() bool {
			return time.Since(began) >= 30*time.Second && time.Since(began) < 58*time.Second
		}}
		y := &tally{}
		p := w.runWith(source, w.leases, "a", y, changefeed.Options{})
		time.Sleep(44 * time.Second)
		w.put("oslo", "1", 1)
		time.Sleep(time.Minute)
		if items, _ := y.items(); items != 1 {
			t.Errorf("%d items, want 1", items)
		}
		if err := p.errs.find(feed.ErrAhead); err != nil {
			t.Error(err)
		}
		p.stop(t)
	})
}

// uncounted is a source that cannot count, as an account of Azure.
type uncounted struct{ feed.Source }

// TestALagAheadOfAFeedThatCannotCountIsUnknown: whoever waits until nothing is pending must not take it for done.
func TestALagAheadOfAFeedThatCannotCountIsUnknown(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		first := w.getsAhead()
		lags, err := changefeed.Estimate(t.Context(), uncounted{w.orders}, w.leases)
		if err != nil || len(lags) != 2 {
			t.Fatalf("%d lags, %v", len(lags), err)
		}
		for _, l := range lags {
			if ahead := l.Lease.Token == first.Token; errors.Is(l.Err, feed.ErrAhead) != ahead {
				t.Errorf("the lag of %s has error %v, ahead is %t", l.Lease.Token, l.Err, ahead)
			}
		}
	})
}

// TestAPullFromAPositionAheadOfItsFeedIsAnError: who goes on from a stored position after the restore of a backup must
// not take the silence for the end of the feed.
func TestAPullFromAPositionAheadOfItsFeedIsAnError(t *testing.T) {
	for _, follow := range []bool{false, true} {
		for _, source := range []func(feed.Source) feed.Source{
			func(s feed.Source) feed.Source { return s },
			func(s feed.Source) feed.Source { return uncounted{s} }, // cannot wait either
		} {
			inWorld(t, 2, func(t *testing.T, w *world) {
				w.fill(10)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var got error
				pages := 0
				for page, err := range changefeed.Pull(ctx, source(w.orders), feed.FullRange(), feed.At(`"1000"`),
					changefeed.PullOptions{Follow: follow}) {
					got = err
					pages += len(page.Changes)
				}
				if !errors.Is(got, feed.ErrAhead) || pages > 0 ||
					!strings.Contains(got.Error(), `it is "1000", and the feed ends at 10`) {
					t.Errorf("follow %t: got %v after %d changes, want that the position is ahead", follow, got, pages)
				}
			})
		}
	}
}

// TestAPullFromAReplicaThatLagsBehindForAWhileGoesOn: an export of an account must not fail, nor end early, because a
// replica lags behind.
func TestAPullFromAReplicaThatLagsBehindForAWhileGoesOn(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(10)
		lag := time.Now().Add(4 * time.Second)
		got, behind := 0, false
		source := lagged{w.orders, func() bool { return got == 4 && time.Now().Before(lag) }, &behind}
		for page, err := range changefeed.Pull(t.Context(), source, feed.FullRange(), feed.Position{
			Start: feed.FromBeginning(),
		}, changefeed.PullOptions{ReadOptions: feed.ReadOptions{MaxItems: 4}}) {
			if err != nil {
				t.Fatal(err)
			}
			got += len(page.Changes)
		}
		if got != 10 || !behind {
			t.Errorf("got %d changes, lagged: %t, want 10 after a lag", got, behind)
		}
	})
}

// lagged is a source that a replica answers for a while that has less than an earlier page.
type lagged struct {
	feed.Source
	lags   func() bool
	lagged *bool
}

func (s lagged) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
	if s.lags() {
		*s.lagged = true
		return feed.Page{Next: feed.At(`"3"`), Head: 3, Ahead: true}, nil
	}
	return s.Source.Read(ctx, r, from, o)
}
