package changefeed_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// lossyBox keeps a letter, and loses its first answer.
type lossyBox struct {
	*letterBox
	puts atomic.Int64
}

func (b *lossyBox) Put(ctx context.Context, l feed.DeadLetter) error {
	if err := b.letterBox.Put(ctx, l); err != nil || b.puts.Add(1) > 1 {
		return err
	}
	return context.DeadlineExceeded
}

func TestALetterWhoseAnswerIsLostIsThereOnce(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.put("oslo", "bad", 1)
		box := &lossyBox{letterBox: &letterBox{}}
		p := w.run("a", failsOn(onID("bad")), changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box},
		})
		time.Sleep(time.Minute)
		p.stop(t)
		if box.names() != "bad failed" || box.puts.Load() != 2 || w.pending() != 0 {
			t.Errorf("letters %q after %d puts, %d pending", box.names(), box.puts.Load(), w.pending())
		}
	})
}

// Two changes of a transaction are parked, the second because its key is held. The answer of the dead letters to the
// second is lost. The letter is there when the processor looks again, and the hook hears of both.
func TestTheHookHearsOfALetterWhoseAnswerIsLost(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var writes []feed.Write
		for _, id := range []string{"bad", "good"} {
			writes = append(writes, feed.Write{
				Op: feed.WriteUpsert, ID: id,
				Body: fmt.Appendf(nil, `{"id":%q,"city":"oslo"}`, id),
			})
		}
		if _, err := w.orders.Commit(t.Context(), feed.Key("oslo"), writes); err != nil {
			t.Fatal(err)
		}
		box, lost := &letterBox{}, false
		box.refuse = func(l feed.DeadLetter) error {
			if lost || l.Disposition != feed.DispositionHeld {
				return nil
			}
			lost = true
			box.kept = append(box.kept, l)
			return errRefused
		}
		var mu sync.Mutex
		var heard []string
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2, DeadLetters: box, HoldKeys: true,
		}}
		o.Hooks.Parked = func(_ context.Context, l feed.DeadLetter) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, l.Change.ID)
		}
		p := w.run("a", feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			said := &feed.Failure{Items: map[int]error{0: feed.Poison(errHandler)}}
			for i := 1; i < len(b.Changes); i++ {
				said.Items[i] = feed.ErrUntried
			}
			return said
		}), o)
		time.Sleep(time.Minute)
		p.stop(t)
		if !lost || box.names() != "bad poison, good held" || !slices.Equal(heard, []string{"bad", "good"}) {
			t.Errorf("an answer was lost: %v; letters %q, heard of %q", lost, box.names(), heard)
		}
	})
}

// A lease has room for so many held keys. The change that would hold one more stays, and that is said.
func TestALeaseHoldsSoManyKeys(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		for i := range notes.MaxHeld + 1 {
			w.put(fmt.Sprint("bad-", i), "bad", i)
			for n := range 3 { // else it looks like an outage
				w.put(fmt.Sprintf("good-%d-%d", i, n), fmt.Sprint("item-", i), i)
			}
		}
		h := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			said := &feed.Failure{Items: map[int]error{}, Err: errHandler}
			for i, c := range b.Changes {
				if c.ID == "bad" {
					said.Items[i] = feed.Poison(errHandler)
				}
			}
			if len(said.Items) == 0 {
				return nil
			}
			return said
		})
		box := &letterBox{}
		o := changefeed.Options{
			Start: feed.FromBeginning(), MaxItems: 50,
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box, HoldKeys: true},
		}
		p := w.run("a", h, o)
		time.Sleep(10 * time.Minute)
		p.stop(t)
		if n := len(box.all()); n != notes.MaxHeld || w.pending() == 0 || p.errs.find(feed.ErrTooManyHeld) == nil {
			t.Errorf("%d letters, want %d; %d pending; said: %v", n, notes.MaxHeld, w.pending(),
				p.errs.find(feed.ErrTooManyHeld))
		}
	})
}

// Only what was alone in the handler when a process ended is parked for it: anything else may have ended it.
func TestOnlyWhatWasAloneIsParkedAfterACrash(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.put("oslo", "unlucky", 1)
		w.many(20, 5)
		crash := make(chan struct{}, 1)
		h := &tally{}
		h.before = func(ctx context.Context, b *feed.Batch) error {
			switch {
			case b.Changes[0].ID != "unlucky":
				return nil
			case b.Attempt < 3:
				return errHandler
			}
			crash <- struct{}{}
			<-ctx.Done()
			return context.Cause(ctx)
		}
		box := &letterBox{}
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 3,
			DeadLetters: box,
		}, Concurrency: 4, Drain: time.Second}
		p := w.run("a", h, o)
		<-crash
		p.kill(t)
		h.before = nil
		p = w.run("b", h, o)
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if items, _ := h.items(); items != 21 || box.names() != "" || w.pending() != 0 {
			t.Errorf("%d items, letters %q, %d pending", items, box.names(), w.pending())
		}
	})
}

// What was alone in the handler when a process ended is known by its item: its place in its transaction moves when
// another item of that is written again.
func TestACrashIsNotBlamedOnAnotherItemOfTheTransaction(t *testing.T) {
	for _, concurrency := range []int{1, 4} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				oslo := feed.Key("oslo")
				w.put("bergen", "fine", 1)
				writes := []feed.Write{upsert("oslo", "first", 1), upsert("oslo", "bad", 1), upsert("oslo", "last", 1)}
				if _, err := w.orders.Commit(t.Context(), oslo, writes); err != nil {
					t.Fatal(err)
				}
				crash := make(chan struct{}, 1)
				h := &tally{before: func(ctx context.Context, b *feed.Batch) error {
					if !slices.ContainsFunc(b.Changes, func(c feed.Change) bool { return c.ID == "bad" }) {
						return nil
					}
					crash <- struct{}{}
					<-ctx.Done()
					return context.Cause(ctx)
				}}
				box := &letterBox{}
				o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
					MaxAttempts: 3,
					DeadLetters: box,
				}, Concurrency: concurrency, Drain: time.Second}
				moved := false
				for life := range 20 {
					p := w.run(fmt.Sprint("life-", life), h, o)
					select {
					case <-crash:
						p.kill(t)
					case <-time.After(5 * time.Minute):
						p.stop(t)
					}
					l := w.records(feed.KindLease)[0]
					// it is parked next
					if done := l.Properties[notes.DoneProperty]; !moved && strings.Contains(done, `"changes":1,`) {
						moved = true
						w.put("oslo", "first", 2)
					}
				}
				if items, _ := h.items(); !moved || items != 3 || box.names() != "bad crashed" || w.pending() != 0 {
					t.Errorf("moved %v, %d items, letters %q, %d pending", moved, items, box.names(), w.pending())
				}
			})
		})
	}
}

// An error may have any text. Letters and logs have the beginning of it.
func TestTheTextOfAnErrorIsBounded(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		bad := w.put("oslo", "bad", 1)
		h := &tally{before: func(context.Context, *feed.Batch) error {
			return fmt.Errorf("%s%w", strings.Repeat("no ", 1<<20), errHandler)
		}}
		box := &letterBox{}
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box},
		})
		time.Sleep(time.Minute)
		if _, err := deadletters.Redrive(t.Context(), w.orders, w.leases, feed.Key("oslo"),
			letterNamed(bad, "bad")); err != nil {
			t.Fatal(err)
		}
		p.stop(t)
		l := box.all()
		if len(l) != 1 || !strings.HasPrefix(l[0].Cause, "no no ") || len(l[0].Cause) > 9<<10 ||
			!strings.HasSuffix(l[0].Cause, " bytes)") || l[0].Attempts != 3 {
			t.Errorf("letters %q, the cause has %d bytes", box.names(), len(l[0].Cause))
		}
		var log bytes.Buffer
		changefeed.LogHooks(slog.New(slog.NewTextHandler(&log, nil))).Error(t.Context(), p.errs.find(errHandler))
		if log.Len() < 8<<10 || log.Len() > 9<<10 {
			t.Errorf("the log has %d bytes", log.Len())
		}
	})
}

func TestAHoldSurvivesTwoOwners(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.put("oslo", "bad", 1)
		box := &letterBox{}
		h := failsOn(onID("bad"))
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2,
			DeadLetters: box, HoldKeys: true,
		}}
		for _, name := range []string{"a", "b", "c"} {
			p := w.run(name, h, o)
			time.Sleep(time.Minute)
			p.stop(t)
		}
		w.put("oslo", "later", 2)
		p := w.run("d", h, o)
		time.Sleep(time.Minute)
		p.stop(t)
		if items, _ := h.items(); items != 0 || box.names() != "bad failed, later held" {
			t.Errorf("%d items, letters %q", items, box.names())
		}
	})
}

// After a split the child that has the key holds it, and no other does: it could never be released there.
func TestAHoldGoesToTheChildThatHasItsKey(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.put("oslo", "bad", 1)
		box := &letterBox{}
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2,
			DeadLetters: box, HoldKeys: true,
		}}
		p := w.run("a", failsOn(onID("bad")), o)
		time.Sleep(time.Minute)
		w.split(0)
		time.Sleep(time.Minute)
		w.put("oslo", "later", 2)
		w.many(20, 20)
		time.Sleep(time.Minute)
		place, err := w.orders.Locate(t.Context(), feed.Key("oslo"))
		if err != nil {
			t.Fatal(err)
		}
		leases := p.processor.Status()[0].Leases
		for _, l := range leases {
			if has := l.Lease.Range.Holds(place); (l.Held == 1) != has {
				t.Errorf("lease %s holds %d keys, has the key: %v", l.Lease.Token, l.Held, has)
			}
		}
		p.stop(t)
		if len(leases) != 2 || box.names() != "bad failed, later held" {
			t.Errorf("%d leases, letters %q", len(leases), box.names())
		}
	})
}

// slowBox calls after when it has found the letters of a key, and before it gives them.
type slowBox struct {
	*letterBox
	after func()
}

func (b *slowBox) Letters(ctx context.Context, key feed.PartitionKey) iter.Seq2[feed.DeadLetter, error] {
	return func(yield func(feed.DeadLetter, error) bool) {
		found := slices.Collect(func(yield func(feed.DeadLetter) bool) {
			for l := range b.letterBox.Letters(ctx, key) {
				if !yield(l) {
					return
				}
			}
		})
		if b.after != nil {
			b.after()
		}
		for _, l := range found {
			if !yield(l, nil) {
				return
			}
		}
	}
}

// A change that is parked for a held key while the key is being released is handled before the key is free.
func TestAReleaseWaitsForWhatIsBeingParked(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.put("oslo", "bad", 1)
		box := &slowBox{letterBox: &letterBox{}}
		once := false
		box.after = func() {
			if !once {
				once = true
				w.put("oslo", "late", 2)
				time.Sleep(10 * time.Second)
			}
		}
		h := failsOn(onID("bad"))
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2,
			DeadLetters: box, HoldKeys: true,
		}}
		p := w.run("a", h, o)
		time.Sleep(time.Minute)
		if _, err := deadletters.Release(t.Context(), w.orders, w.leases, feed.Key("oslo")); err != nil {
			t.Fatal(err)
		}
		w.put("oslo", "free", 3)
		time.Sleep(time.Minute)
		p.stop(t)
		if items, again := h.items(); items != 2 || again != 0 || box.names() != "bad failed" {
			t.Errorf("%d items, %d again, letters %q", items, again, box.names())
		}
		h.perKey(t)
	})
}

// A release ends where a held change fails in turn, and a retry releases the key only when nothing of it has failed.
func TestAReleaseStopsAtWhatFails(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var mended atomic.Value
		mended.Store("")
		h := &tally{before: func(_ context.Context, b *feed.Batch) error {
			if c := b.Changes[0]; c.PartitionKey == feed.Key("oslo") && (c.ID == "bad" || c.ID == "worse") &&
				c.ID != mended.Load() {
				return errHandler
			}
			return nil
		}}
		box := &letterBox{}
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2,
			DeadLetters: box, HoldKeys: true,
		}}
		p := w.run("a", h, o)
		oslo := feed.Key("oslo")
		bad := w.put("oslo", "bad", 1)
		time.Sleep(time.Minute)
		w.put("oslo", "worse", 2)
		w.put("oslo", "later", 3)
		time.Sleep(time.Minute)
		if _, err := deadletters.Release(t.Context(), w.orders, w.leases, oslo); err != nil {
			t.Fatal(err)
		}
		if box.names() != "bad failed, worse failed, later held" {
			t.Errorf("after a release that fails: %s", box.names())
		}
		mended.Store("bad")
		if _, err := deadletters.Redrive(t.Context(), w.orders, w.leases, oslo, letterNamed(bad, "bad")); err != nil {
			t.Fatal(err)
		}
		w.put("oslo", "last", 4)
		time.Sleep(time.Minute)
		p.stop(t)
		if items, _ := h.items(); items != 1 || box.names() != "worse failed, later held, last held" {
			t.Errorf("%d items, letters %s", items, box.names())
		}
	})
}

// The instances that serve a request are stopped, one after the other: none of them has ended because of it.
func TestAStopInGoodOrderIsNoEndOfTheProcessForARequest(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		lsn := w.put("oslo", "bad", 1)
		in := make(chan struct{}, 1)
		var mended atomic.Bool
		h := &tally{before: func(ctx context.Context, b *feed.Batch) error {
			switch {
			case mended.Load():
				return nil
			case b.Redriven:
				in <- struct{}{}
				<-ctx.Done()
			}
			return errHandler
		}}
		box := &letterBox{}
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2,
			DeadLetters: box,
		}, Drain: time.Second}
		p := w.run("a", h, o)
		w.isParked(box, "bad")
		answer := make(chan deadletters.Outcome, 1)
		go func() {
			o, err := deadletters.Redrive(t.Context(), w.orders, w.leases, feed.Key("oslo"), letterNamed(lsn, "bad"))
			if err != nil {
				t.Error(err)
			}
			answer <- o
		}()
		for i := range 5 {
			select {
			case <-in:
			case <-time.After(5 * time.Minute):
				t.Errorf("the request is not served again after %d stops", i)
			}
			p.stop(t)
			if i == 4 {
				mended.Store(true)
			}
			p = w.run(fmt.Sprint("next-", i), h, o)
		}
		heard := <-answer
		p.stop(t)
		if heard.Result != deadletters.ResultHandled || box.names() != "" {
			t.Errorf("after five stops its caller hears %+v, letters %q", heard, box.names())
		}
	})
}

// A letter that ends the process is not handed over for ever.
func TestARequestThatEndsTheProcessIsGivenUp(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		bad := w.put("oslo", "bad", 1)
		crash := make(chan struct{}, 1)
		h := &tally{before: func(ctx context.Context, b *feed.Batch) error {
			if b.Redriven {
				crash <- struct{}{}
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return errHandler
		}}
		box := &letterBox{}
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2,
			DeadLetters: box,
		}, Drain: time.Second}
		p := w.run("a", h, o)
		time.Sleep(time.Minute)
		p.stop(t)
		answer := make(chan deadletters.Outcome, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
			defer cancel()
			o, err := deadletters.Redrive(ctx, w.orders, w.leases, feed.Key("oslo"), letterNamed(bad, "bad"))
			if err != nil {
				t.Error(err)
			}
			answer <- o
		}()
		crashes := 0
		for life := range 8 {
			p = w.run(fmt.Sprint("life-", life), h, o)
			select {
			case <-crash:
				crashes++
				p.kill(t)
			case <-time.After(5 * time.Minute):
				p.stop(t)
			}
		}
		heard := <-answer
		if n := len(w.records(feed.KindRequest)); crashes != 3 || n != 0 || box.names() != "bad failed" {
			t.Errorf("%d crashes, %d requests are left, letters %q", crashes, n, box.names())
		}
		if heard.Result != deadletters.ResultFailed ||
			!strings.Contains(heard.Cause, "ended 3 times while it was served") {
			t.Errorf("its caller hears %+v", heard)
		}
	})
}

// A request waits for the owner of its key's range, though others run: only there is a letter in order with its key.
func TestARequestWaitsForTheOwnerOfItsRange(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		oslo := feed.Key("oslo")
		place, err := w.orders.Locate(t.Context(), oslo)
		if err != nil {
			t.Fatal(err)
		}
		var redriven []feed.Range
		h := &tally{before: func(_ context.Context, b *feed.Batch) error {
			if b.Redriven {
				redriven = append(redriven, b.Range)
				return nil
			}
			return onID("bad")(b.Changes[0])
		}}
		box := &letterBox{}
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2,
			DeadLetters: box,
		}}
		running := map[string]*process{"a": w.run("a", h, o), "b": w.run("b", h, o)}
		time.Sleep(time.Minute) // a lease each
		bad := w.put("oslo", "bad", 1)
		time.Sleep(time.Minute)
		for _, l := range w.records(feed.KindLease) {
			if l.Range.Holds(place) {
				running[l.Owner].kill(t)
				delete(running, l.Owner)
			}
		}
		if len(running) != 1 {
			t.Fatalf("%d instances are left: the test shows nothing", len(running))
		}
		if _, err := deadletters.Redrive(t.Context(), w.orders, w.leases, oslo, letterNamed(bad, "bad")); err != nil {
			t.Fatal(err)
		}
		for _, p := range running {
			p.stop(t)
		}
		if len(redriven) != 1 || !redriven[0].Holds(place) || box.names() != "" {
			t.Errorf("redriven in %v, letters %q", redriven, box.names())
		}
	})
}

// A host of another processor knows nothing of held keys: it hands their changes over. When it has
// moved the position, what was held is dropped, and that is said.
func TestAHostOfAnotherProcessorEndsAHold(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		box := &letterBox{}
		h := failsOn(onID("bad"))
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2,
			DeadLetters: box, HoldKeys: true,
		}}
		w.put("oslo", "bad", 1)
		w.put("oslo", "next", 2)
		p := w.run("a", h, o)
		time.Sleep(time.Minute)
		p.stop(t)
		w.put("oslo", "foreign", 3)
		l := w.records(feed.KindLease)[0]
		page, err := w.orders.Read(t.Context(), l.Range, l.Position, feed.ReadOptions{})
		if err != nil || len(page.Changes) != 1 {
			t.Fatalf("%d changes, %v", len(page.Changes), err)
		}
		l.Position = page.Next // it has handled that one
		if _, err := w.leases.Update(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		w.put("oslo", "ours", 4)
		p = w.run("b", h, o)
		time.Sleep(time.Minute)
		p.stop(t)
		if items, _ := h.items(); items != 1 || box.names() != "bad failed, next held" || w.pending() != 0 {
			t.Errorf("%d items, letters %q, %d pending", items, box.names(), w.pending())
		}
		if p.errs.find(feed.ErrMoved) == nil {
			t.Error("nobody has said so")
		}
	})
}

// What a newer version asks for is left to it.
func TestARequestOfANewerVersionIsLeftAlone(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		oslo := feed.Key("oslo")
		epk, err := w.orders.Locate(t.Context(), oslo)
		if err != nil {
			t.Fatal(err)
		}
		q := notes.Request{Action: "move", EPK: epk, Key: string(oslo)}
		if _, err := w.leases.Create(t.Context(), feed.Record{
			Kind: feed.KindRequest, Token: q.Token(),
			Properties: q.Properties(nil),
		}); err != nil {
			t.Fatal(err)
		}
		p := w.run("a", &tally{}, changefeed.Options{OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 1,
			DeadLetters: &letterBox{},
		}})
		time.Sleep(5 * time.Minute)
		p.stop(t)
		left := w.records(feed.KindRequest)
		if len(left) != 1 || notes.ReadRequest(left[0].Properties) != q || p.errs.find(feed.ErrBadLease) == nil {
			t.Errorf("%+v are left; said: %v", left, p.errs.find(feed.ErrBadLease))
		}
	})
}

// blindBox cannot be read for a while.
type blindBox struct {
	*letterBox
	blind atomic.Bool
}

func (b *blindBox) Letters(ctx context.Context, key feed.PartitionKey) iter.Seq2[feed.DeadLetter, error] {
	if !b.blind.Load() {
		return b.letterBox.Letters(ctx, key)
	}
	return func(yield func(feed.DeadLetter, error) bool) { yield(feed.DeadLetter{}, errMissing) }
}

// errMissing says of the dead letters what a store says of a request that another has served.
var errMissing = fmt.Errorf("letters: %w", feed.ErrNotFound)

// A request stays for as long as the dead letters cannot be read, because that ends no process.
func TestARequestWaitsForItsLetterBox(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var mended atomic.Bool
		h := &tally{before: func(context.Context, *feed.Batch) error {
			if mended.Load() {
				return nil
			}
			return errHandler
		}}
		bad := w.put("oslo", "bad", 1)
		box := &blindBox{letterBox: &letterBox{}}
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2,
			DeadLetters: box,
		}}
		p := w.run("a", h, o)
		time.Sleep(time.Minute)
		mended.Store(true)
		box.blind.Store(true)
		time.AfterFunc(10*time.Minute, func() { box.blind.Store(false) })
		asked := make(chan error, 1)
		go func() {
			_, err := deadletters.Redrive(t.Context(), w.orders, w.leases, feed.Key("oslo"), letterNamed(bad, "bad"))
			asked <- err
		}()
		for _, next := range []string{"b", "c", "d", "e"} { // none of them has ended because of the request
			time.Sleep(2 * time.Minute)
			p.stop(t)
			p = w.run(next, h, o)
		}
		if err := <-asked; err != nil {
			t.Fatal(err)
		}
		p.stop(t)
		if items, _ := h.items(); items != 1 || box.names() != "" || p.errs.find(errMissing) == nil {
			t.Errorf("%d items, letters %q, said %v", items, box.names(), p.errs.find(errMissing))
		}
	})
}
