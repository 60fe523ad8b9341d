package changefeed_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
)

// violent is an error that cannot be read.
type violent struct{}

func (violent) Error() string { panic("no text") }

// Nothing that a handler returns ends the process or loses a change.
func TestNothingThatAHandlerReturnsIsHarmful(t *testing.T) {
	var none *feed.Failure
	for name, said := range map[string]func(at int) error{
		"no failure":        func(int) error { return none },
		"no cause":          func(at int) error { return &feed.Failure{Items: map[int]error{at: nil}} },
		"a violent error":   func(int) error { return violent{} },
		"a violent cause":   func(at int) error { return &feed.Failure{Items: map[int]error{at: violent{}}} },
		"a violent failure": func(int) error { return &feed.Failure{Done: 0, Err: violent{}} },
		"violent poison":    func(int) error { return feed.Poison(violent{}) },
		"huge places": func(int) error {
			return &feed.Failure{Done: 1 << 40, Items: map[int]error{-5: errHandler}, After: -time.Hour}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				w.many(20, 5)
				w.put("oslo", "bad", 1)
				h := &tally{}
				handler := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
					for at, c := range b.Changes {
						if c.ID == "bad" {
							err := said(at)
							if f, ok := errors.AsType[*feed.Failure](err); ok && f != nil && len(f.Items) == 1 &&
								f.Items[at] == nil && at > 0 {
								_ = h.Handle(ctx, &feed.Batch{Changes: b.Changes[:at]}) // it says that they are done
							}
							return err
						}
					}
					return h.Handle(ctx, b)
				})
				box := &letterBox{}
				p := w.run("a", handler, changefeed.Options{
					Start:     feed.FromBeginning(),
					OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box}, RetryMax: time.Second,
				})
				time.Sleep(2 * time.Minute)
				p.stop(t)
				if l := box.all(); len(l) != 1 || l[0].Change.ID != "bad" || l[0].Cause == "" || w.pending() != 0 {
					t.Errorf("letters %q, %d pending", box.names(), w.pending())
				}
			})
		})
	}
}

// Processes that are killed now and then, whatever they do, are no fault of a change.
func TestKillsBlameNoChange(t *testing.T) {
	for _, concurrency := range []int{1, 8} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				w.many(2000, 50)
				box := &letterBox{}
				h := &slow{each: 10 * time.Millisecond}
				o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
					MaxAttempts: 3,
					DeadLetters: box, HoldKeys: true,
				}, Concurrency: concurrency, MaxItems: 20}
				for life := range 8 {
					p := w.run(fmt.Sprint("life-", life), h, o)
					// the leases of the last life expire first
					time.Sleep(90*time.Second + time.Duration(life)*300*time.Millisecond)
					p.kill(t)
				}
				p := w.run("last", h, o)
				time.Sleep(5 * time.Minute)
				p.stop(t)
				if items, _ := h.items(); items != 2000 || box.names() != "" || w.pending() != 0 {
					t.Errorf("%d items, letters %q, %d pending", items, box.names(), w.pending())
				}
			})
		})
	}
}

// What ended a process counts for what was in the handler then, and not for what comes into it while that waits.
func TestACrashCountsForWhatWasInTheHandler(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.put("oslo", "first", 1)
		in := make(chan string, 1)
		kills := map[string]int{"first": 1, "other": 3}
		h := &tally{}
		h.before = func(ctx context.Context, b *feed.Batch) error {
			id := b.Changes[0].ID
			switch {
			case id == "first" && (b.Attempt == 1 || kills[id] == 0 && kills["other"] > 0):
				return errHandler
			case kills[id] == 0:
				return nil
			}
			kills[id]--
			in <- id
			<-ctx.Done()
			return context.Cause(ctx)
		}
		box := &letterBox{}
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 5,
			DeadLetters: box,
		}, Concurrency: 4, Drain: time.Second}
		for life, want := range []string{"first", "other", "other", "other"} {
			p := w.run(fmt.Sprint("life-", life), h, o)
			if id := <-in; id != want {
				t.Errorf("life %d: %s is in the handler: the test shows nothing", life, id)
			}
			p.kill(t)
			if life == 0 {
				w.put("bergen", "other", 2)
			}
		}
		p := w.run("last", h, o)
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if items, _ := h.items(); items != 2 || box.names() != "" || w.pending() != 0 {
			t.Errorf("%d items, letters %q, %d pending", items, box.names(), w.pending())
		}
	})
}

// A process that is frozen while it writes an attempt hears, when it goes on, that this was stored; but the lease is
// lost.
func TestAnAnswerThatComesAfterTheLeaseIsLostBeginsNothing(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.put("oslo", "bad", 1)
		var frozen atomic.Bool
		store := &hookedStore{Leases: w.leases, update: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			got, err := w.leases.Update(ctx, l)
			if l.Kind == feed.KindLease && l.Attempts == 2 && frozen.CompareAndSwap(false, true) {
				time.Sleep(2 * trust)
			}
			return got, err
		}}
		var calls, late atomic.Int64
		h := feed.HandlerFunc(func(ctx context.Context, _ *feed.Batch) error {
			calls.Add(1)
			if ctx.Err() != nil {
				late.Add(1)
			}
			return errHandler
		})
		p := w.runWith(w.orders, store, "a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 3, DeadLetters: &letterBox{}},
		})
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if !frozen.Load() || calls.Load() < 2 || late.Load() != 0 {
			t.Errorf("frozen %v, %d calls, %d of them when the lease was lost", frozen.Load(), calls.Load(),
				late.Load())
		}
	})
}

// A stop in good order and a split repeat nothing, also with keys in parallel, and leave the letters of held keys as
// they are.
func TestAStopRepeatsNothingInParallel(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		for i := range 3000 {
			id := fmt.Sprint("item-", i)
			if i%200 == 7 {
				id = "bad-" + id
			}
			w.put(fmt.Sprintf("city-%d", i%70), id, i)
		}
		box := &letterBox{}
		h := &slow{each: 10 * time.Millisecond}
		h.before = func(_ context.Context, b *feed.Batch) error {
			for at, c := range b.Changes {
				if c.ID[:3] == "bad" {
					return &feed.Failure{Done: at, Err: errHandler}
				}
			}
			return nil
		}
		handler := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
			err := h.before(ctx, b)
			done := *b
			if f, ok := errors.AsType[*feed.Failure](err); ok {
				if done.Changes = b.Changes[:f.Done]; f.Done == 0 {
					return err
				}
			}
			return errors.Join(err, (&slow{each: h.each}).Handle(ctx, &done), h.tally.record(&done))
		})
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2,
			DeadLetters: box, HoldKeys: true,
		}, Concurrency: 8}
		for life := range 4 {
			p := w.run(fmt.Sprint("life-", life), handler, o)
			time.Sleep(time.Second)
			if life == 2 {
				w.split(0)
			}
			p.stop(t)
		}
		p := w.run("last", handler, o)
		for i := range 10 { // when nothing but bad keys is left, they are taken for an outage until others come
			time.Sleep(30 * time.Second)
			w.put(fmt.Sprint("later-", i), "good", i)
		}
		time.Sleep(time.Minute)
		p.stop(t)
		failed := 0
		for _, l := range box.all() {
			switch {
			case l.Disposition == feed.DispositionFailed && l.Change.ID[:3] == "bad":
				failed++
			case l.Disposition != feed.DispositionHeld:
				t.Errorf("%s is %s", l.Change.ID, l.Disposition)
			}
		}
		items, again := h.items()
		if again != 0 || items+len(box.all()) != 3010 || failed < 5 || w.pending() != 0 {
			t.Errorf("%d items, %d again, %d letters of which %d failed, %d pending", items, again, len(box.all()),
				failed, w.pending())
		}
	})
}

// In the first moments of an outage calls still succeed that were begun before. They are no evidence that the others
// fail by themselves.
func TestTheBeginningOfAnOutageParksNothing(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.many(2000, 100)
		var away atomic.Bool
		h := &tally{}
		h.before = func(ctx context.Context, b *feed.Batch) error {
			gone := away.Load()
			time.Sleep(time.Duration(10+b.Changes[0].LSN%7*40) * time.Millisecond)
			if gone {
				return errHandler
			}
			return nil
		}
		box := &letterBox{}
		p := w.run("a", h, changefeed.Options{
			Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
				MaxAttempts: 3, DeadLetters: box,
				HoldKeys: true,
			}, Concurrency: 8, MaxItems: 10, RetryMin: time.Millisecond,
		})
		time.Sleep(time.Second)
		away.Store(true)
		time.Sleep(time.Minute)
		away.Store(false)
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if items, _ := h.items(); items != 2000 || box.names() != "" || w.pending() != 0 {
			t.Errorf("%d items, letters %q, %d pending", items, box.names(), w.pending())
		}
	})
}

// A held change that comes again, because its owner was killed, keeps the letter that it has: also the first one, which
// has failed and says why.
func TestAHeldChangeThatComesAgainKeepsItsLetter(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.put("rome", "before", 1)
		w.put("oslo", "early", 1)
		bad := w.put("oslo", "bad", 1)
		w.put("oslo", "later", 2)
		box := &letterBox{}
		h := failsOn(onID("bad"))
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2,
			DeadLetters: box, HoldKeys: true,
		}, CheckpointEvery: time.Hour}
		p := w.run("a", h, o)
		time.Sleep(2 * time.Second)
		p.kill(t)
		// as if the last write of it had been one before the position moved
		for _, l := range w.records(feed.KindLease) {
			held := fmt.Sprintf(`{"at":"\"0\"","partition":"0 -FF","keys":["[\"oslo\"]"],"since":[%d]}`, bad)
			l.Properties = map[string]string{"changefeed.held": held}
			l.Position.Token, l.Owner, l.Epoch = `"0"`, "", ""
			if _, err := w.leases.Update(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
		p = w.run("b", h, o)
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if l := box.all(); box.names() != "bad failed, later held" || l[0].Cause == "" || w.pending() != 0 {
			t.Errorf("letters %q, %d pending", box.names(), w.pending())
		}
		if items, again := h.items(); items != 2 || again != 2 {
			t.Errorf("%d items, %d again", items, again)
		}
	})
}

// Without the right to delete, requests are served all the same, the same one twice if it is asked twice.
func TestRequestsAreServedWithoutTheRightToDelete(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		lsn := w.put("oslo", "bad", 1)
		box := &letterBox{}
		store := &hookedStore{Leases: w.leases, delete: func(context.Context, feed.Record) error {
			return feed.ErrForbidden
		}}
		var mended atomic.Bool
		p, err := changefeed.New(w.orders, store, failsOn(func(feed.Change) error {
			if mended.Load() {
				return nil
			}
			return errHandler
		}), changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2,
			DeadLetters: box,
		}, Hooks: changefeed.Hooks{Error: func(context.Context, *feed.Error) {}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		time.Sleep(time.Minute)
		for _, want := range []string{"bad failed", ""} {
			asking, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			if _, err := deadletters.Redrive(asking, w.orders, w.leases, feed.Key("oslo"),
				letterNamed(lsn, "bad")); err != nil {
				t.Error(err)
			}
			cancel()
			if box.names() != want {
				t.Errorf("letters %q, want %q", box.names(), want)
			}
			mended.Store(true)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// letterNamed is the ID of the letter of an item.
func letterNamed(lsn int64, item string) string {
	return fmt.Sprintf("%d.%x", lsn, sha256.Sum256([]byte(item)))[:len(fmt.Sprint(lsn))+1+32]
}

// Every change that is parked has a letter of its own: costarring and liquid have the same FNV-1a hash.
func TestChangesOfATransactionHaveLettersOfTheirOwn(t *testing.T) {
	for _, hold := range []bool{false, true} {
		t.Run(fmt.Sprint(hold), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				_, err := w.orders.Commit(t.Context(), feed.Key("oslo"), []feed.Write{
					upsert("oslo", "costarring", 1),
					upsert("oslo", "liquid", 2),
				})
				if err != nil {
					t.Fatal(err)
				}
				box := &letterBox{}
				h := failsOn(onID("costarring", "liquid"))
				p := w.run("a", h, changefeed.Options{
					Start:     feed.FromBeginning(),
					OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box, HoldKeys: hold},
				})
				time.Sleep(time.Minute)
				p.stop(t)
				if items, _ := h.items(); items+len(box.all()) != 2 {
					t.Errorf("%d handled, letters %q, %d pending: a change is lost", items, box.names(), w.pending())
				}
			})
		})
	}
}

// The letters of a transaction are told apart by their items: the place of a change in its transaction moves when
// another item of it is written again.
func TestALetterIsNamedByItsItem(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		if _, err := w.orders.Commit(t.Context(), feed.Key("oslo"),
			[]feed.Write{upsert("oslo", "one", 1), upsert("oslo", "two", 2)}); err != nil {
			t.Fatal(err)
		}
		box := &letterBox{}
		h := failsOn(onID("one"))
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 1,
			DeadLetters: box,
		}}
		p := w.run("a", h, o)
		time.Sleep(time.Minute)
		p.kill(t)
		w.put("oslo", "one", 3) // and now "two" is the first of its transaction
		for _, l := range w.records(feed.KindLease) {
			l.Position.Token, l.Owner, l.Epoch, l.Properties = `"0"`, "", "", nil
			if _, err := w.leases.Update(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
		p = w.run("b", failsOn(onID("one", "two")), o)
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if box.names() != "one failed, two failed, one failed" {
			t.Errorf("letters %q", box.names())
		}
	})
}

// lateList is a lease store whose lists lag a second, as those of an account without sessions do.
type lateList struct{ feed.LeaseStore }

func (s lateList) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	records, now, err := s.LeaseStore.List(ctx)
	var old []feed.Record
	for _, r := range records {
		if now.Sub(r.Updated) >= time.Second {
			old = append(old, r)
		}
	}
	return old, now, err
}

// No instance runs, so nobody can have served a request, whether the list of the records shows it or not.
func TestARequestThatIsNotListedYetIsNotServed(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.put("oslo", "one", 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := deadletters.Redrive(ctx, w.orders, lateList{w.leases}, feed.Key("oslo"), "1.0")
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Redrive: %v, though nobody can have served it", err)
		}
	})
}
