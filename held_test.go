package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// staleBox shows a letter only a while after it was put, as a container does whose reads are not strongly consistent.
type staleBox struct {
	*letterBox
	lag time.Duration
}

func (b *staleBox) Letters(ctx context.Context, key feed.PartitionKey) iter.Seq2[feed.DeadLetter, error] {
	return func(yield func(feed.DeadLetter, error) bool) {
		for l, err := range b.letterBox.Letters(ctx, key) {
			if time.Since(l.Parked) >= b.lag && !yield(l, err) {
				return
			}
		}
	}
}

// A key is held because the lease says so, not because its letters are seen.
func TestAHeldKeyStaysHeldThoughItsLettersAreNotSeenAtOnce(t *testing.T) {
	for _, concurrency := range []int{1, 8} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				w.put("oslo", "bad", 1)
				w.put("oslo", "next", 2)
				w.put("rome", "free", 3)
				box := &staleBox{&letterBox{}, time.Second}
				h := failsOn(onID("bad"))
				p := w.run("a", h, changefeed.Options{
					Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
						MaxAttempts: 2, DeadLetters: box,
						HoldKeys: true,
					}, Concurrency: concurrency,
				})
				time.Sleep(time.Minute)
				p.stop(t)
				if box.names() != "bad failed, next held" {
					t.Errorf("letters %q: the later change of a held key was handled", box.names())
				}
			})
		})
	}
}

// A change that the handler has received with another one, which is parked, is held behind it. Its letter says how
// often.
func TestALetterThatIsHeldCountsTheCallsThatHadItsChange(t *testing.T) {
	for _, concurrency := range []int{1, 8} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				for i, id := range []string{"bad", "near", "far"} {
					w.put("oslo", id, i)
				}
				box := &letterBox{}
				h := &receipts{bad: []string{"bad"}, times: map[string]int{}}
				p := w.run("a", h, changefeed.Options{
					Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
						MaxAttempts: 1, DeadLetters: box,
						HoldKeys: true,
					}, Concurrency: concurrency,
				})
				time.Sleep(time.Minute)
				w.put("oslo", "later", 3)
				time.Sleep(time.Minute)
				p.stop(t)
				if box.names() != "bad failed, near held, far held, later held" {
					t.Fatalf("letters %q", box.names())
				}
				for _, l := range box.all() {
					if l.Attempts != h.times[l.Change.ID] || l.Failed.IsZero() != (l.Attempts == 0) {
						t.Errorf("the letter of %s says %d attempts, first failed %v; the handler had it %d times",
							l.Change.ID, l.Attempts, l.Failed, h.times[l.Change.ID])
					}
				}
				if h.times["near"] == 0 {
					t.Error("the handler has received no held change: the test shows nothing")
				}
			})
		})
	}
}

// A held change does not pass the one that it is held for.
func TestAHeldLetterIsNotRedrivenPastItsFirst(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.put("oslo", "bad", 1)
		lsn := w.put("oslo", "next", 2)
		box := &letterBox{}
		h := failsOn(onID("bad"))
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box, HoldKeys: true},
		})
		time.Sleep(time.Minute)
		_, err := deadletters.Redrive(t.Context(), w.orders, w.leases, feed.Key("oslo"), letterNamed(lsn, "next"))
		time.Sleep(time.Minute)
		p.stop(t)
		if items, _ := h.items(); items != 0 || box.names() != "bad failed, next held" {
			t.Errorf("Redrive: %v; %d items handled, letters %q", err, items, box.names())
		}
	})
}

// Two operators at once: one retries what has failed, the other releases its key. Each change is handled once.
func TestARetryAndAReleaseAtOnceRepeatNothing(t *testing.T) {
	for _, concurrency := range []int{1, 8} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				var mended atomic.Bool
				box := &letterBox{}
				h := &tally{before: func(_ context.Context, b *feed.Batch) error {
					if !mended.Load() && b.Changes[0].ID == "bad" {
						return errHandler
					}
					time.Sleep(time.Second)
					return nil
				}}
				lsn := w.put("oslo", "bad", 1)
				p := w.run("a", h, changefeed.Options{
					Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
						MaxAttempts: 2, DeadLetters: box,
						HoldKeys: true,
					}, Concurrency: concurrency,
				})
				time.Sleep(time.Minute)
				for i := range 5 {
					w.put("oslo", fmt.Sprint("next-", i), i)
				}
				time.Sleep(time.Minute)
				mended.Store(true)
				oslo := feed.Key("oslo")
				released := make(chan error)
				go func() {
					_, err := deadletters.Release(t.Context(), w.orders, w.leases, oslo)
					released <- err
				}()
				_, err := deadletters.Redrive(t.Context(), w.orders, w.leases, oslo, letterNamed(lsn, "bad"))
				err = errors.Join(err, <-released)
				time.Sleep(time.Minute)
				p.stop(t)
				items, again := h.items()
				if err != nil || items != 6 || again != 0 || box.names() != "" {
					t.Errorf("%v; %d items, %d again, letters %q, order %v", err, items, again, box.names(), h.order)
				}
			})
		})
	}
}

// paced is a box whose letters take time to read.
type paced struct {
	*letterBox
	each  time.Duration
	reads atomic.Int64
}

func (b *paced) Letters(ctx context.Context, key feed.PartitionKey) iter.Seq2[feed.DeadLetter, error] {
	return func(yield func(feed.DeadLetter, error) bool) {
		for l, err := range b.letterBox.Letters(ctx, key) {
			b.reads.Add(1)
			select {
			case <-time.After(b.each):
			case <-ctx.Done():
				yield(feed.DeadLetter{}, context.Cause(ctx))
				return
			}
			if !yield(l, err) {
				return
			}
		}
	}
}

// A held change costs a bounded number of letters that are read, however many its key has.
func TestWhatAHeldKeyCostsGrowsWithItsChanges(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		box := &paced{letterBox: &letterBox{}}
		w.put("oslo", "bad", 1)
		p := w.run("a", failsOn(onID("bad")), changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 1, DeadLetters: box, HoldKeys: true},
		})
		time.Sleep(time.Minute)
		const n = 300
		for i := range n {
			w.put("oslo", fmt.Sprint("next-", i), i)
		}
		time.Sleep(time.Hour)
		p.stop(t)
		if got := box.reads.Load(); len(box.all()) != n+1 || got > 20*n {
			t.Errorf("%d letters were read to park %d", got, len(box.all()))
		}
	})
}

// A retry that ends the hold of its key reads each letter once, to know that no other has failed.
func TestARetryReadsTheLettersOfItsKeyOnce(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var mended atomic.Bool
		h := failsOn(func(c feed.Change) error {
			if !mended.Load() {
				return onID("bad")(c)
			}
			return nil
		})
		box := &paced{letterBox: &letterBox{}}
		lsn := w.put("oslo", "bad", 1)
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 1, DeadLetters: box, HoldKeys: true},
		})
		time.Sleep(time.Minute)
		const n = 50
		for i := range n {
			w.put("oslo", fmt.Sprint("next-", i), i)
		}
		time.Sleep(time.Hour)
		mended.Store(true)
		box.reads.Store(0)
		_, err := deadletters.Redrive(t.Context(), w.orders, w.leases, feed.Key("oslo"), letterNamed(lsn, "bad"))
		p.stop(t)
		if items, _ := h.items(); err != nil || items != n+1 || box.names() != "" {
			t.Fatalf("%v; %d of %d handled, letters %q", err, items, n+1, box.names())
		}
		if got := box.reads.Load(); got > n+5 {
			t.Errorf("%d letters were read to retry one and release %d", got, n)
		}
	})
}

// However many letters a held key has, it can be released: here reading them takes 100 s.
func TestAHeldKeyWithManyLettersCanBeReleased(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		box := &paced{letterBox: &letterBox{}}
		w.put("oslo", "bad", 1)
		h := failsOn(onID("bad"))
		var writes atomic.Int64
		store := &hookedStore{Leases: w.leases, update: func(ctx context.Context, r feed.Record) (feed.Record, error) {
			if r.Kind == feed.KindRequest {
				writes.Add(1)
			}
			return w.leases.Update(ctx, r)
		}}
		p := w.runWith(w.orders, store, "a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 1, DeadLetters: box, HoldKeys: true},
		})
		time.Sleep(time.Minute)
		const n = 100
		for i := range n {
			w.put("oslo", fmt.Sprint("next-", i), i)
		}
		time.Sleep(time.Hour)
		box.each = time.Second
		w.put("oslo", "last", 1)
		time.Sleep(time.Hour)
		w.put("rome", "free", 1)
		time.Sleep(time.Hour)
		if items, _ := h.items(); items != 1 || w.pending() != 0 {
			t.Errorf("%d changes of other keys are handled, want 1; %d pending: one that cannot be parked for its "+
				"held key stops the lease", items, w.pending())
		}
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		_, err := deadletters.Release(ctx, w.orders, w.leases, feed.Key("oslo"))
		p.stop(t)
		if items, _ := h.items(); items != n+2 || err != nil {
			t.Errorf("release: %v; %d of %d handled", err, items, n+2)
		}
		if n := writes.Load(); n != 2 {
			t.Errorf("the request is written %d times, want when it begins and when it ends", n)
		}
	})
}

// A release may take long, and its lease move meanwhile. An owner that stops in good order was not ended by what it
// served.
func TestAReleaseGoesOnUnderManyOwners(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		box := &paced{letterBox: &letterBox{}}
		h := failsOn(onID("bad"))
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 1,
			DeadLetters: box, HoldKeys: true,
		}}
		w.put("oslo", "bad", 1)
		p := w.run("first", h, o)
		w.isParked(box.letterBox, "bad")
		const held = 20
		for n := range held {
			w.put("oslo", fmt.Sprint("next-", n), n)
		}
		time.Sleep(time.Minute)
		p.stop(t)
		box.each = 10 * time.Second
		heard := make(chan deadletters.Outcome, 1)
		go func() {
			said, err := deadletters.Release(t.Context(), w.orders, w.leases, feed.Key("oslo"))
			if err != nil {
				t.Error(err)
			}
			heard <- said
		}()
		for n := range 5 {
			p = w.run(fmt.Sprint("owner-", n), h, o)
			time.Sleep(time.Minute)
			p.stop(t)
		}
		p = w.run("last", h, o)
		said := <-heard
		p.stop(t)
		if want := (deadletters.Outcome{Result: deadletters.ResultHandled, Handled: held}); said != want {
			t.Errorf("%+v, want %+v; letters %q", said, want, box.names())
		}
	})
}

// What comes after a failed change in its transaction stays held, also when it comes again without it.
func TestAHeldChangeOfATransactionStaysAfterItsFirst(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		box := &letterBox{}
		refuse := atomic.Bool{}
		refuse.Store(true)
		box.refuse = func(l feed.DeadLetter) error {
			if refuse.Load() && l.Change.ID == "next" {
				return errors.New("refused")
			}
			return nil
		}
		h := failsOn(onID("bad"))
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2,
			DeadLetters: box, HoldKeys: true,
		}}
		if _, err := w.orders.Commit(t.Context(), feed.Key("oslo"),
			[]feed.Write{upsert("oslo", "bad", 1), upsert("oslo", "next", 2)}); err != nil {
			t.Fatal(err)
		}
		p := w.run("a", h, o)
		time.Sleep(time.Minute)
		p.kill(t)
		w.put("oslo", "bad", 3)
		refuse.Store(false)
		p = w.run("b", h, o)
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if items, _ := h.items(); items != 0 {
			t.Errorf("%d items handled of a held key, letters %q", items, box.names())
		}
	})
}

// delayed is a box whose calls take 10 ms each.
type delayed struct{ *letterBox }

func (b delayed) Put(ctx context.Context, l feed.DeadLetter) error {
	time.Sleep(10 * time.Millisecond)
	return b.letterBox.Put(ctx, l)
}

func (b delayed) Remove(ctx context.Context, key feed.PartitionKey, id string) error {
	time.Sleep(10 * time.Millisecond)
	return b.letterBox.Remove(ctx, key, id)
}

func (b delayed) Letters(ctx context.Context, key feed.PartitionKey) iter.Seq2[feed.DeadLetter, error] {
	time.Sleep(10 * time.Millisecond)
	return b.letterBox.Letters(ctx, key)
}

// A key with 40 changes a second, which its handler could do with ease, is released.
func TestABusyKeyCanBeReleased(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		box := delayed{&letterBox{}}
		var mended atomic.Bool
		h := &tally{before: func(_ context.Context, b *feed.Batch) error {
			time.Sleep(5 * time.Millisecond)
			if !mended.Load() && b.Changes[0].ID == "bad" {
				return errHandler
			}
			return nil
		}}
		lsn := w.put("oslo", "bad", 1)
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box, HoldKeys: true}, Concurrency: 8,
		})
		time.Sleep(time.Minute)
		mended.Store(true)
		stop := make(chan struct{})
		stopped := make(chan struct{})
		n := 1
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				case <-time.After(25 * time.Millisecond):
					w.put("oslo", fmt.Sprint("item-", n), n)
					n++
				}
			}
		}()
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := deadletters.Redrive(ctx, w.orders, w.leases, feed.Key("oslo"), letterNamed(lsn, "bad"))
		close(stop)
		<-stopped
		letters := len(box.all())
		p.stop(t)
		if err != nil {
			t.Errorf("%v: 40 changes a second, %d letters are left of %d changes", err, letters, n)
		}
	})
}

// A unit that held keys is started again without dead letters, or with a function: it says what it cannot do, and goes
// on.
func TestALeaseWithHeldKeysGoesToAnInstanceWithoutALetterBox(t *testing.T) {
	for name, box := range map[string]feed.DeadLetters{
		"none": nil, "a function": deadletters.Func(func(context.Context, feed.DeadLetter) error { return nil }),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				w.put("oslo", "bad", 1)
				p := w.run("a", failsOn(onID("bad")), changefeed.Options{
					Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
						MaxAttempts: 2,
						DeadLetters: &letterBox{}, HoldKeys: true,
					},
				})
				time.Sleep(time.Minute)
				p.stop(t)
				w.put("oslo", "next", 1)
				w.put("rome", "free", 1)
				o := changefeed.Options{OnFailure: changefeed.FailurePolicy{DeadLetters: box}}
				if box != nil {
					o.OnFailure.MaxAttempts = 2
				}
				h := &tally{}
				p = w.run("b", h, o)
				time.Sleep(10 * time.Minute)
				p.stop(t)
				if items, _ := h.items(); items != 1 || w.pending() == 0 {
					t.Errorf("%d items handled, %d pending, want the one of the other key, and that of the held "+
						"key to wait", items, w.pending())
				}
				said := func(e *feed.Error) bool { return strings.Contains(e.Error(), "no letter box") }
				if !slices.ContainsFunc(p.errs.all(), said) {
					t.Error("nobody has said that there is no letter box")
				}
			})
		})
	}
}

// Hashes of version 1 see the first 100 characters of a key, so two keys may have one place. Each is released.
func TestKeysWithOnePlaceAreReleasedEach(t *testing.T) {
	inWorldOf(t, docstore.ContainerSpec{Ranges: 1, HashVersion: 1}, func(t *testing.T, w *world) {
		box := &letterBox{}
		h := failsOn(onID("bad"))
		cities := []string{strings.Repeat("x", 120) + "a", strings.Repeat("x", 120) + "b"}
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box, HoldKeys: true},
		})
		for _, city := range cities {
			w.put(city, "bad", 1)
			w.put(city, "next", 1)
		}
		time.Sleep(time.Minute)
		released := make(chan error)
		for _, city := range cities {
			go func() {
				_, err := deadletters.Release(t.Context(), w.orders, w.leases, feed.Key(city))
				released <- err
			}()
		}
		err := errors.Join(<-released, <-released)
		time.Sleep(time.Minute)
		p.stop(t)
		if items, _ := h.items(); err != nil || items != 2 {
			t.Errorf("%v; %d of 2 held changes are handled, letters %q", err, items, box.names())
		}
	})
}

// A held key keeps its order, also when what holds it could not be decoded: what comes after it in its batch is parked
// after it.
func TestWhatComesAfterAnUndecodableDocumentOfAHeldKeyIsHeld(t *testing.T) {
	for _, concurrency := range []int{1, 8} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				body := []byte(`{"id":"odd","city":"oslo","n":"no number"}`)
				if _, err := w.orders.Commit(t.Context(), feed.Key("oslo"),
					[]feed.Write{{Op: feed.WriteUpsert, Body: body}}); err != nil {
					t.Fatal(err)
				}
				w.put("oslo", "next", 1)
				done := 0
				h := changefeed.Items(func(_ context.Context, _ *feed.Batch,
					items []changefeed.Item[struct{ N int }],
				) error {
					done += len(items)
					return nil
				})
				box := &letterBox{}
				p := w.run("a", h, changefeed.Options{
					Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
						MaxAttempts: 3, DeadLetters: box,
						HoldKeys: true,
					}, Concurrency: concurrency,
				})
				time.Sleep(time.Minute)
				p.stop(t)
				if box.names() != "odd undecodable, next held" || done != 0 {
					t.Errorf("letters %q, %d later changes of the key are handled", box.names(), done)
				}
			})
		})
	}
}

// What an operator has dropped stays away, also when it was just being retried.
func TestALetterThatIsDroppedDuringItsRetryStaysAway(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		lsn := w.put("oslo", "bad", 1)
		box := &letterBox{}
		h := &tally{before: func(_ context.Context, b *feed.Batch) error {
			if b.Redriven {
				time.Sleep(10 * time.Second)
			}
			return errHandler
		}}
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box},
		})
		time.Sleep(time.Minute)
		oslo, id := feed.Key("oslo"), letterNamed(lsn, "bad")
		time.AfterFunc(5*time.Second, func() { _ = box.Remove(t.Context(), oslo, id) })
		if _, err := deadletters.Redrive(t.Context(), w.orders, w.leases, oslo, id); err != nil {
			t.Fatal(err)
		}
		p.stop(t)
		if box.names() != "" {
			t.Errorf("letters %q", box.names())
		}
	})
}
