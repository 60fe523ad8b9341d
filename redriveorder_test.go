package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
)

// The tests in this file ask for a letter while the handler has a later change of the same key in hand.

// itemIDs are the items of a batch.
func itemIDs(b *feed.Batch) (ids []string) {
	for _, c := range b.Changes {
		ids = append(ids, c.ID)
	}
	return ids
}

// isParked waits until a change of the key oslo has a letter.
func (w *world) isParked(box *letterBox, id string) {
	w.t.Helper()
	w.until(5*time.Minute, id+" parked", func() bool { return box.names() == id+" failed" })
}

// redriveWhen asks for the letter of an item of the key oslo as soon as now has a value. It gives up after a while, so
// that a lease that stands still fails the test.
func (w *world) redriveWhen(now <-chan struct{}, lsn int64, id string) error {
	w.t.Helper()
	select {
	case <-now:
	case <-time.After(5 * time.Minute):
		return errors.New("the later change has not come to the handler alone: the test shows nothing")
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Minute)
	defer cancel()
	_, err := deadletters.Redrive(ctx, w.orders, w.leases, feed.Key("oslo"), letterNamed(lsn, id))
	return err
}

// The page that fails is of the letter's key alone, so the letter waits until it is out of the handler. Then the page
// is retried and reported, the letter is handled before it, and other keys go on.
func TestARedriveBesideAFailingPageDoesNotStopTheLease(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var mended atomic.Bool
		inHand := make(chan struct{}, 1)
		tries := 0
		h := &tally{before: func(_ context.Context, b *feed.Batch) error {
			ids := itemIDs(b)
			if slices.Contains(ids, "bad") && !mended.Load() {
				return errHandler
			}
			if slices.Contains(ids, "next") {
				if tries++; tries == 1 {
					inHand <- struct{}{}
					time.Sleep(10 * time.Second) // the letter is asked for meanwhile
					return errHandler
				}
			}
			return nil
		}}
		box := &letterBox{}
		lsn := w.put("oslo", "bad", 1)
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 5, DeadLetters: box},
		})
		w.isParked(box, "bad")
		reported := len(p.errs.all())
		mended.Store(true)
		w.put("oslo", "next", 2)
		if err := w.redriveWhen(inHand, lsn, "bad"); err != nil {
			t.Errorf("the request is not served: %v", err)
		}
		w.put("rome", "free", 3)
		time.Sleep(5 * time.Minute)
		if n := w.pending(); n != 0 {
			t.Errorf("%d changes are pending", n)
		}
		p.stop(t)
		if items, again := h.items(); items != 3 || again != 0 || box.names() != "" || tries != 2 {
			t.Errorf("%d items, %d again, letters %q, the page was handed over %d times", items, again, box.names(),
				tries)
		}
		h.perKey(t)
		if !slices.ContainsFunc(p.errs.all()[reported:], func(e *feed.Error) bool {
			said, ok := errors.AsType[*feed.BatchError](e)
			return ok && slices.Equal(said.IDs, []string{"next"})
		}) {
			t.Errorf("nobody has said that the page failed, only %v", p.errs.all()[reported:])
		}
	})
}

// apart is a handler that has, after a letter of it was parked, the changes of a key handed over one by one: while the
// second change is in hand alone, and is about to fail, the letter is asked for.
type apart struct {
	*tally
	mended  atomic.Bool   // the change with the letter can be handled
	inHand  chan struct{} // the second change is
	divides func(ctx context.Context) error
	fails   error
	failed  bool // the second change, when it was alone
	calls   []string
}

func (h *apart) Handle(ctx context.Context, b *feed.Batch) error {
	ids := itemIDs(b)
	h.calls = append(h.calls, strings.Join(ids, "+"))
	switch {
	case slices.Contains(ids, "first") && !h.mended.Load():
		return errHandler
	case !slices.Contains(ids, "second") || h.failed:
		return h.tally.Handle(ctx, b)
	case len(ids) > 1:
		return h.divides(ctx)
	}
	h.inHand <- struct{}{}
	time.Sleep(5 * time.Second) // the letter is asked for meanwhile
	h.failed = true
	return h.fails
}

// isRedrivenInOrder parks the first change, writes the others in so many transactions while nobody is there, and asks
// for the letter while the second change is in hand alone.
func isRedrivenInOrder(t *testing.T, w *world, h *apart, o changefeed.Options, transactions ...[]string) {
	t.Helper()
	h.tally, h.inHand = &tally{}, make(chan struct{}, 1)
	box := &letterBox{}
	o.Start, o.OnFailure.DeadLetters = feed.FromBeginning(), box
	oslo := feed.Key("oslo")
	lsn := w.put("oslo", "first", 1)
	p := w.run("a", h, o)
	w.isParked(box, "first")
	if o.OnFailure.HoldKeys { // else the second change would be parked, too
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if _, err := deadletters.Release(ctx, w.orders, w.leases, oslo); err != nil {
			t.Error(err)
		}
	}
	p.stop(t)
	h.mended.Store(true)
	for _, ids := range transactions { // while nobody reads, so that they come in one page
		var writes []feed.Write
		for n, id := range ids {
			writes = append(writes, upsert("oslo", id, n))
		}
		if _, err := w.orders.Commit(t.Context(), oslo, writes); err != nil {
			t.Error(err)
		}
	}
	h.calls = nil
	p = w.run("b", h, o)
	if err := w.redriveWhen(h.inHand, lsn, "first"); err != nil {
		t.Errorf("redrive: %v", err)
	}
	time.Sleep(5 * time.Minute)
	if n := w.pending(); n != 0 {
		t.Errorf("%d changes are pending", n)
	}
	p.stop(t)
	var order []string
	for _, c := range h.changes {
		order = append(order, c.ID)
	}
	if want := []string{"first", "second", "third", "fourth"}; !slices.Equal(order, want) || box.names() != "" {
		t.Errorf("handled in the order %v, want %v; letters %q; the calls were %v", order, want, box.names(), h.calls)
	}
}

// The second change comes alone because its batch took too long, or because a batch has one change. It is tried again
// when a letter of its key is handled: the third change still waits for it.
func TestARedriveLetsNoLaterChangePassOneThatFails(t *testing.T) {
	takesTooLong := func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	for name, o := range map[string]changefeed.Options{
		"halved":     {HandlerTimeout: 10 * time.Second},
		"one by one": {MaxItems: 1, MaxWait: time.Millisecond},
	} {
		for _, hold := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, hold %v", name, hold), func(t *testing.T) {
				inWorld(t, 1, func(t *testing.T, w *world) {
					h := &apart{divides: takesTooLong, fails: errHandler}
					o.OnFailure.MaxAttempts, o.OnFailure.HoldKeys, o.RetryMin, o.RetryMax = 10, hold, 5*time.Second,
						5*time.Second
					isRedrivenInOrder(t, w, h, o, []string{"second"}, []string{"third"}, []string{"fourth"})
				})
			})
		}
	}
}

// A transaction that fails as a whole is cut at last. When its first part meets an outage, and comes again, a letter of
// its key is handled before it, and the rest of the transaction after it.
func TestARedriveLetsNoPartOfATransactionPassAnEarlierOne(t *testing.T) {
	for _, hold := range []bool{false, true} {
		t.Run(fmt.Sprintf("hold %v", hold), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				h := &apart{
					divides: func(context.Context) error { return errHandler },
					fails:   &feed.Failure{Outage: true, Err: errHandler},
				}
				o := changefeed.Options{
					OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, HoldKeys: hold},
					RetryMin:  5 * time.Second, RetryMax: 5 * time.Second,
				}
				isRedrivenInOrder(t, w, h, o, []string{"second", "third"}, []string{"fourth"})
			})
		})
	}
}

// A handler names the change of a letter, which fails again. The letter has the cause of the change, and not the text
// about the batch.
func TestALetterThatFailsAgainHasTheCauseOfItsChange(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		lsn := w.put("oslo", "bad", 1)
		box := &letterBox{}
		p := w.run("a", feed.HandlerFunc(func(context.Context, *feed.Batch) error {
			return &feed.Failure{Items: map[int]error{0: feed.Poison(errHandler)}}
		}), changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box},
		})
		w.until(5*time.Minute, "bad parked", func() bool { return box.names() == "bad poison" })
		said, err := deadletters.Redrive(t.Context(), w.orders, w.leases, feed.Key("oslo"), letterNamed(lsn, "bad"))
		p.stop(t)
		if err != nil || said.Result != deadletters.ResultFailed || said.Cause != errHandler.Error() {
			t.Errorf("the request is answered by %+v, %v; want the cause %q", said, err, errHandler)
		}
		if l := box.all()[0]; l.Cause != errHandler.Error() || box.names() != "bad poison" || l.Attempts != 2 {
			t.Errorf("the letter is %q with the cause %q and %d attempts; want poison, %q and 2", box.names(),
				l.Cause, l.Attempts, errHandler)
		}
	})
}
