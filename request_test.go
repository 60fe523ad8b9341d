package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// breaking is a handler that fails on some items until it is mended.
func breaking(mended *atomic.Bool, ids ...string) *tally {
	return failsOn(func(c feed.Change) error {
		if mended.Load() {
			return nil
		}
		return onID(ids...)(c)
	})
}

// Who asks for a letter hears whether it was handled, with all that followed it, has failed again, or was not there.
func TestARedriveReturnsItsOutcome(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var mended atomic.Bool
		box := &letterBox{}
		bad := w.put("oslo", "bad", 1)
		w.put("oslo", "next", 2)
		w.put("oslo", "later", 3)
		p := w.run("a", breaking(&mended, "bad"), changefeed.Options{
			Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
				MaxAttempts: 2, DeadLetters: box,
				HoldKeys: true,
			},
		})
		time.Sleep(time.Minute)
		for _, want := range []deadletters.Outcome{
			{Result: deadletters.ResultFailed, Cause: errHandler.Error(), Held: -1},
			{Result: deadletters.ResultHandled, Handled: 3},
			{Result: deadletters.ResultNothing, Held: -1},
		} {
			got, err := deadletters.Redrive(t.Context(), w.orders, w.leases, feed.Key("oslo"), letterNamed(bad, "bad"))
			if got != want || err != nil {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
			mended.Store(true)
		}
		p.stop(t)
		if n := len(w.records(feed.KindRequest)); n != 0 {
			t.Errorf("%d requests are left", n)
		}
	})
}

// Who asks for a key to be released hears how far it came.
func TestAReleaseReturnsItsOutcome(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var mended atomic.Bool
		box := &letterBox{}
		for i, id := range []string{"bad", "next", "worse", "later", "last"} {
			w.put("oslo", id, i)
		}
		p := w.run("a", breaking(&mended, "bad", "worse"), changefeed.Options{
			Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
				MaxAttempts: 2, DeadLetters: box,
				HoldKeys: true,
			},
		})
		time.Sleep(time.Minute)
		for _, want := range []deadletters.Outcome{
			{Result: deadletters.ResultFailed, Cause: errHandler.Error(), Handled: 1, Held: 2},
			{Result: deadletters.ResultHandled, Handled: 2},
			{Result: deadletters.ResultNothing},
		} {
			got, err := deadletters.Release(t.Context(), w.orders, w.leases, feed.Key("oslo"))
			if got != want || err != nil {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
			mended.Store(true)
		}
		p.stop(t)
		if box.names() != "bad failed, worse failed" {
			t.Errorf("letters %q", box.names())
		}
	})
}

// A key without letters is released, too: that is something, although nothing is handled.
func TestAHeldKeyWithoutLettersIsReleased(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		box := &letterBox{}
		bad := w.put("oslo", "bad", 1)
		p := w.run("a", failsOn(onID("bad")), changefeed.Options{
			Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
				MaxAttempts: 2, DeadLetters: box,
				HoldKeys: true,
			},
		})
		time.Sleep(time.Minute)
		oslo := feed.Key("oslo")
		if err := box.Remove(t.Context(), oslo, letterNamed(bad, "bad")); err != nil {
			t.Fatal(err)
		}
		got, err := deadletters.Release(t.Context(), w.orders, w.leases, oslo)
		p.stop(t)
		if got != (deadletters.Outcome{Result: deadletters.ResultHandled}) || err != nil {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

// A release that nobody has served in time is withdrawn: a hold that begins later is another decision.
func TestAReleaseThatTimedOutDoesNotLiftALaterHold(t *testing.T) {
	for _, tt := range []struct {
		name  string
		right error // to delete
		fate  string
	}{
		{"withdrawn", nil, "the request was withdrawn"},
		{"without the right to delete", feed.ErrForbidden, "the request was withdrawn"},
		{"its caller dies", errors.New("no answer"), "stays asked for at most 1m0s: no answer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				store := &hookedStore{Leases: w.leases}
				if tt.right != nil {
					store.delete = func(context.Context, feed.Record) error { return tt.right }
				}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				oslo := feed.Key("oslo")
				_, err := deadletters.Release(ctx, w.orders, store, oslo)
				if !errors.Is(err, deadletters.ErrNotServed) || !errors.Is(err, context.DeadlineExceeded) {
					t.Fatal(err)
				}
				want := `release ["oslo"]: not served within 30s: no instance has answered: want a running instance that has the dead letters; `
				if !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), tt.fate) {
					t.Errorf("got %v, want %s%s", err, want, tt.fate)
				}
				if tt.right != nil && !errors.Is(tt.right, feed.ErrForbidden) {
					time.Sleep(time.Hour)
				}
				box := &letterBox{}
				p := w.run("a", failsOn(onID("bad")), changefeed.Options{
					Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
						MaxAttempts: 2, DeadLetters: box,
						HoldKeys: true,
					},
				})
				w.put("oslo", "bad", 1)
				time.Sleep(time.Minute)
				w.put("oslo", "next", 2)
				time.Sleep(time.Hour)
				w.put("oslo", "later", 3)
				time.Sleep(time.Minute)
				p.stop(t)
				if box.names() != "bad failed, next held, later held" {
					t.Errorf("letters %q: the key was released by a request of an hour before", box.names())
				}
			})
		})
	}
}

// Not every store removes a record when its time is over. A request that is older is not served all the same.
func TestARequestOfADeadCallerIsNotServedInAStoreThatRemovesNothing(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		c := w.create(docstore.ContainerSpec{ID: "lasting", Paths: []string{"/id"}})
		leases, err := docstore.NewLeases(t.Context(), c, "unit", w.orders)
		if err != nil {
			t.Fatal(err)
		}
		dies := &hookedStore{Leases: leases, delete: func(context.Context, feed.Record) error {
			return errors.New("no answer")
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := deadletters.Release(ctx, w.orders, dies, feed.Key("oslo")); !errors.Is(err,
			deadletters.ErrNotServed) {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		box := &letterBox{}
		w.put("oslo", "bad", 1)
		w.put("oslo", "next", 2)
		p := w.runWith(w.orders, leases, "a", failsOn(onID("bad")), changefeed.Options{
			Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
				MaxAttempts: 2, DeadLetters: box,
				HoldKeys: true,
			},
		})
		time.Sleep(time.Hour)
		// Asked again, it is served, although the record is the same.
		if box.names() != "bad failed, next held" {
			t.Errorf("letters %q", box.names())
		}
		if got, err := deadletters.Release(t.Context(), w.orders, leases, feed.Key("oslo")); got.Handled != 1 ||
			err != nil {
			t.Errorf("asked again: %+v, %v", got, err)
		}
		p.stop(t)
	})
}

// The letters of a key may take long to read. Whoever asked for its release has died meanwhile, and their time is over:
// the key stays held, also in a store that removes no record.
func TestARequestEndsInTheMidstOfItsListing(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		c := w.create(docstore.ContainerSpec{ID: "lasting", Paths: []string{"/id"}})
		leases, err := docstore.NewLeases(t.Context(), c, "unit", w.orders)
		if err != nil {
			t.Fatal(err)
		}
		box := &paced{letterBox: &letterBox{}}
		w.put("oslo", "bad", 1)
		h := failsOn(onID("bad"))
		p := w.runWith(w.orders, leases, "a", h, changefeed.Options{
			Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
				MaxAttempts: 2, DeadLetters: box,
				HoldKeys: true,
			},
		})
		time.Sleep(time.Minute)
		const held = 30
		for n := range held {
			w.put("oslo", fmt.Sprint("next-", n), n)
		}
		time.Sleep(time.Minute)
		box.each = 30 * time.Second
		noAnswer := errors.New("no answer")
		dies := &hookedStore{
			Leases: leases,
			update: func(_ context.Context, l feed.Record) (feed.Record, error) { return l, noAnswer },
			delete: func(context.Context, feed.Record) error { return noAnswer },
		}
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		if _, err := deadletters.Release(ctx, w.orders, dies, feed.Key("oslo")); !errors.Is(err,
			deadletters.ErrNotServed) {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		p.stop(t)
		if items, _ := h.items(); items != 0 || len(box.all()) != held+1 {
			t.Errorf("%d items are handled, %d letters are left of %d: the key was released", items, len(box.all()),
				held+1)
		}
	})
}

// An instance that cannot serve a request says why, once, and its caller hears it.
func TestACallerHearsWhyARequestIsNotServed(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.put("oslo", "one", 1)
		var written atomic.Int64
		store := &hookedStore{Leases: w.leases, update: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindRequest {
				written.Add(1)
			}
			return w.leases.Update(ctx, l)
		}}
		p := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		_, err := deadletters.Redrive(ctx, w.orders, w.leases, feed.Key("oslo"), "1.0")
		p.stop(t)
		const want = "not served within 10m0s: instance a has no letter box to read from; the request was withdrawn"
		if !errors.Is(err, deadletters.ErrNotServed) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		if n := written.Load(); n != 1 {
			t.Errorf("its owner has written the request %d times, want once", n)
		}
	})
}

// Without the right to delete, a request that was served stays, and is not served again: neither by the next owner, nor
// when its key is held anew.
func TestAServedRequestIsNotServedAgainWithoutTheRightToDelete(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		store := &hookedStore{Leases: w.leases, delete: func(context.Context, feed.Record) error {
			return feed.ErrForbidden
		}}
		box := &letterBox{}
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2,
			DeadLetters: box, HoldKeys: true,
		}}
		p := w.runWith(w.orders, store, "a", failsOn(onID("bad")), o)
		oslo := feed.Key("oslo")
		w.put("oslo", "bad", 1)
		time.Sleep(time.Minute)
		if got, err := deadletters.Release(t.Context(), w.orders, store,
			oslo); got.Result != deadletters.ResultHandled || err != nil {
			t.Fatalf("got %+v, %v", got, err)
		}
		if left := w.records(feed.KindRequest); len(left) != 1 || left[0].State != feed.StateRetired ||
			left[0].TTL != notes.OutcomeTTL {
			t.Fatalf("left: %+v", left)
		}
		w.put("oslo", "bad", 2)
		w.put("oslo", "next", 2)
		time.Sleep(time.Minute)
		p.stop(t)
		p = w.runWith(w.orders, store, "b", failsOn(onID("bad")), o)
		time.Sleep(5 * time.Minute)
		if box.names() != "bad failed, bad failed, next held" {
			t.Errorf("letters %q: the key was released again", box.names())
		}
		// Asked again, it is served again.
		if got, err := deadletters.Release(t.Context(), w.orders, store, oslo); got.Handled != 1 || err != nil {
			t.Errorf("got %+v, %v", got, err)
		}
		p.stop(t)
	})
}

// A request whose caller has died ends when it was to end, although its owner writes it at each try.
func TestARequestDoesNotLiveLongerForItsTries(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		box := &blindBox{letterBox: &letterBox{}}
		bad := w.put("oslo", "bad", 1)
		p := w.run("a", failsOn(onID("bad")), changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box},
		})
		time.Sleep(time.Minute)
		box.blind.Store(true)
		errDead := errors.New("no answer")
		dies := &hookedStore{
			Leases: w.leases, delete: func(context.Context, feed.Record) error { return errDead },
			update: func(context.Context, feed.Record) (feed.Record, error) { return feed.Record{}, errDead },
		}
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		if _, err := deadletters.Redrive(ctx, w.orders, dies, feed.Key("oslo"),
			letterNamed(bad, "bad")); !strings.Contains(err.Error(), "instance a: letters: ") {
			t.Errorf("got %v, want what the owner says", err)
		}
		if n := len(w.records(feed.KindRequest)); n != 1 {
			t.Errorf("%d requests, want the one that could not be withdrawn", n)
		}
		time.Sleep(2 * time.Minute)
		if n := len(w.records(feed.KindRequest)); n != 0 {
			t.Errorf("%d requests are left 6 minutes after one for 5 was written", n)
		}
		p.stop(t)
	})
}
