package changefeed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// letterBox is one in memory, which can refuse.
type letterBox struct {
	mu     sync.Mutex
	kept   []feed.DeadLetter
	refuse func(feed.DeadLetter) error
}

func (b *letterBox) Put(_ context.Context, l feed.DeadLetter) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse != nil {
		if err := b.refuse(l); err != nil {
			return err
		}
	}
	b.kept = append(slices.DeleteFunc(b.kept, isLetter(l.Change.PartitionKey, l.ID)), l)
	return nil
}

func isLetter(key feed.PartitionKey, id string) func(feed.DeadLetter) bool {
	return func(l feed.DeadLetter) bool { return l.ID == id && l.Change.PartitionKey == key }
}

func (b *letterBox) Letters(_ context.Context, key feed.PartitionKey) iter.Seq2[feed.DeadLetter, error] {
	return func(yield func(feed.DeadLetter, error) bool) {
		for _, l := range b.all() {
			if (key == "" || l.Change.PartitionKey == key) && !yield(l, nil) {
				return
			}
		}
	}
}

func (b *letterBox) Remove(_ context.Context, key feed.PartitionKey, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept = slices.DeleteFunc(b.kept, isLetter(key, id))
	return nil
}

// all are the letters in the order of the feed.
func (b *letterBox) all() []feed.DeadLetter {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.SortedFunc(slices.Values(b.kept), func(a, c feed.DeadLetter) int {
		return int(a.Change.LSN - c.Change.LSN)
	})
}

// names are the ids and dispositions of the letters.
func (b *letterBox) names() string {
	var names []string
	for _, l := range b.all() {
		names = append(names, l.Change.ID+" "+string(l.Disposition))
	}
	return strings.Join(names, ", ")
}

var errHandler = errors.New("handler says no")

// failsOn is a handler that fails on batches with some items.
func failsOn(is func(feed.Change) error) *tally {
	return &tally{before: func(_ context.Context, b *feed.Batch) error {
		for _, c := range b.Changes {
			if err := is(c); err != nil {
				return err
			}
		}
		return nil
	}}
}

// failsUntilMended is a handler that fails on all until its fault is mended.
func failsUntilMended() (h *tally, mended *atomic.Bool) {
	mended = new(atomic.Bool)
	return failsOn(func(feed.Change) error {
		if mended.Load() {
			return nil
		}
		return errHandler
	}), mended
}

func onID(ids ...string) func(feed.Change) error {
	return func(c feed.Change) error {
		if slices.Contains(ids, c.ID) {
			return errHandler
		}
		return nil
	}
}

// Acceptance 5: one bad item in 100. The others are delivered, in order, and the bad one is
// parked with its cause, for at most 2*ceil(log2 100) = 14 calls more.
func TestAcceptance5OneBadItemInAHundredIsParked(t *testing.T) {
	for _, bad := range []int{0, 1, 49, 50, 73, 98, 99} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			lsns := make([]int64, 100)
			for i := range lsns {
				lsns[i] = w.put(fmt.Sprintf("city-%d", i%10), fmt.Sprint("item-", i), i)
			}
			h := failsOn(onID(fmt.Sprint("item-", bad)))
			box := &letterBox{}
			p := w.run("a", h, changefeed.Options{
				Start:     feed.FromBeginning(),
				OnFailure: changefeed.FailurePolicy{MaxAttempts: 3, DeadLetters: box},
			})
			time.Sleep(time.Minute)
			p.stop(t)
			if items, again := h.items(); items != 99 || again != 0 || w.pending() != 0 {
				t.Errorf("bad item %d: %d items, %d again, %d pending", bad, items, again, w.pending())
			}
			h.ordered(t)
			if calls := len(h.attempts); calls > 3+14 {
				t.Errorf("bad item %d: %d calls, want 3 and 14 more", bad, calls)
			}
			all := box.all()
			if len(all) != 1 {
				t.Fatalf("bad item %d: letters %s", bad, box.names())
			}
			l := all[0]
			if l.Change.ID != fmt.Sprint("item-", bad) || l.Change.LSN != lsns[bad] ||
				!strings.Contains(l.Cause, errHandler.Error()) || l.Attempts < 3 ||
				l.Instance != "a" || l.Range != feed.FullRange() || l.Disposition != feed.DispositionFailed ||
				l.Failed.IsZero() || len(l.Change.Body) == 0 {
				t.Errorf("letter %+v", l)
			}
		})
	}
}

// A transaction is cut only to find the one change of it that fails, and the batch says so.
func TestATransactionIsCutInTheLastStepOnly(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(10)
		var writes []feed.Write
		for n := range 16 {
			writes = append(writes, upsert("oslo", fmt.Sprint("t", n), n))
		}
		results, err := w.orders.Commit(t.Context(), feed.Key("oslo"), writes)
		if err != nil {
			t.Fatal(err)
		}
		w.fill(10)
		whole, cut := 0, 0
		h := failsOn(onID("t11"))
		inner := h.before
		h.before = func(ctx context.Context, b *feed.Batch) error {
			n := 0
			for _, c := range b.Changes {
				if c.LSN == results[0].LSN {
					n++
				}
			}
			switch {
			case n == len(writes):
				whole++
			case n > 0 && !b.Cut:
				t.Errorf("%d changes of a transaction, and the batch does not say that it is cut", n)
			case n > 0:
				cut++
			case b.Cut:
				t.Error("a batch without a part of the transaction says that it is cut")
			}
			return inner(ctx, b)
		}
		box := &letterBox{}
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box},
		})
		time.Sleep(time.Minute)
		p.stop(t)
		if box.names() != "t11 failed" || whole < 3 || cut != 8 || w.pending() != 0 {
			t.Errorf("letters %s; the transaction came whole %d times, and cut %d times; %d pending", box.names(),
				whole, cut, w.pending())
		}
		h.ordered(t)
	})
}

// A handler that can say more is taken at its word.
func TestAHandlerSaysWhatHasFailed(t *testing.T) {
	tests := []struct {
		name    string
		say     func(b *feed.Batch, at int) error // the bad item is at this place
		most    int                               // calls
		letters string
	}{
		{"done up to it", func(_ *feed.Batch, at int) error {
			return &feed.Failure{Done: at, Err: errHandler}
		}, 7, "bad failed"},
		{"exactly it", func(_ *feed.Batch, at int) error {
			return &feed.Failure{Items: map[int]error{at: errHandler}}
		}, 2, "bad failed"},
		{"it is hopeless", func(_ *feed.Batch, at int) error {
			return &feed.Failure{Items: map[int]error{at: feed.Poison(errHandler)}}
		}, 1, "bad poison"},
		{"all is hopeless", func(*feed.Batch, int) error { return feed.Poison(errHandler) }, 1 + 2*4, "bad poison"},
		{"done up to it, and it is hopeless", func(_ *feed.Batch, at int) error {
			return &feed.Failure{Done: at, Err: feed.Poison(errHandler)}
		}, 1 + 2*4, "bad poison"},
		{"nonsense", func(*feed.Batch, int) error {
			return &feed.Failure{Items: map[int]error{77: errHandler}, Done: -4}
		}, 2 + 2*4, "bad failed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				for i := range 10 {
					id := fmt.Sprint("item-", i)
					if i == 6 {
						id = "bad"
					}
					w.put(fmt.Sprintf("city-%d", i%3), id, i)
				}
				h := &tally{}
				done := map[string]int{}
				calls := 0
				handler := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
					calls++
					at := slices.IndexFunc(b.Changes, func(c feed.Change) bool { return c.ID == "bad" })
					if at < 0 {
						for _, c := range b.Changes {
							done[c.ID]++
						}
						return h.Handle(ctx, b)
					}
					err := tt.say(b, at)
					said, _ := errors.AsType[*feed.Failure](err)
					for i, c := range b.Changes {
						if said != nil && said.Done >= 0 &&
							(i < said.Done || said.Items != nil && said.Items[i] == nil) {
							done[c.ID]++
						}
					}
					return err
				})
				box := &letterBox{}
				p := w.run("a", handler, changefeed.Options{
					Start:     feed.FromBeginning(),
					OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box},
				})
				time.Sleep(time.Minute)
				p.stop(t)
				if calls > tt.most || box.names() != tt.letters || len(done) != 9 || w.pending() != 0 {
					t.Errorf("%d calls, letters %s, done %v, %d pending", calls, box.names(), done, w.pending())
				}
				for id, n := range done {
					if n != 1 {
						t.Errorf("%s was done %d times", id, n)
					}
				}
			})
		})
	}
}

// Without a policy a failure's parts count too: what is done does not come again.
func TestWhatIsDoneDoesNotComeAgainWithoutAPolicy(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(10)
		var sizes []int
		h := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			sizes = append(sizes, len(b.Changes))
			if len(b.Changes) > 1 {
				return &feed.Failure{Done: len(b.Changes) - 3, Err: errHandler, After: 5 * time.Second}
			}
			return nil
		})
		p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning(), RetryMax: time.Second})
		time.Sleep(time.Minute)
		p.stop(t)
		if n := len(sizes); n < 10 || n > 13 || sizes[0] != 10 || slices.Max(sizes[1:]) != 3 {
			t.Errorf("sizes %v, want one of 10 and then one of 3 every 5 s", sizes)
		}
	})
}

// A handler that asks for a pause gets it without a policy, too.
func TestTheWaitThatAHandlerAsksForIsKeptWithoutAPolicy(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.put("oslo", "one", 1)
		var calls []time.Time
		h := &tally{before: func(context.Context, *feed.Batch) error {
			calls = append(calls, time.Now())
			return &feed.Failure{After: time.Hour, Err: errHandler}
		}}
		p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(50 * time.Minute)
		p.stop(t)
		if len(calls) != 1 {
			t.Errorf("%d attempts within 50 minutes, though the handler has said After: an hour", len(calls))
		}
	})
}

// The wait is kept, too, while the change that fails is looked for.
func TestTheWaitThatAHandlerAsksForIsKeptInABisection(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(4)
		var calls []time.Time
		h := &tally{before: func(context.Context, *feed.Batch) error {
			calls = append(calls, time.Now())
			return &feed.Failure{After: time.Hour, Err: errHandler}
		}}
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 1, DeadLetters: &letterBox{}},
		})
		time.Sleep(90 * time.Minute)
		p.stop(t)
		if len(calls) < 2 || calls[1].Sub(calls[0]) < time.Hour {
			t.Errorf("calls at %v, though the handler has said After: an hour", calls)
		}
	})
}

// Without a limit nothing is parked, so poison is retried like any other failure, and the lease waits.
func TestPoisonWithoutALimitIsTriedForEver(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(3)
		calls := 0
		p := w.run("a", feed.HandlerFunc(func(context.Context, *feed.Batch) error {
			calls++
			return feed.Poison(errors.New("bad"))
		}), changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(10 * time.Minute) // in virtual time, for twenty calls with the longest pause between them
		p.stop(t)
		if calls < 20 || w.pending() != 3 {
			t.Errorf("%d calls, %d pending, want calls every 30 s, and all 3", calls, w.pending())
		}
	})
}

// Items parks one undecodable document by itself, with its bytes, and delivers the others.
func TestAnUndecodableDocumentIsPoisonByItself(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(5)
		body := json.RawMessage(`{"id":"odd","city":"oslo","n":"seven"}`)
		if _, err := w.orders.Commit(t.Context(), feed.Key("oslo"),
			[]feed.Write{{Op: feed.WriteCreate, Body: body}}); err != nil {
			t.Fatal(err)
		}
		w.put("oslo", "even", 8)
		type doc struct{ N int }
		var got []int
		h := changefeed.Items(func(_ context.Context, _ *feed.Batch, items []changefeed.Item[doc]) error {
			for _, i := range items {
				got = append(got, i.Value.N)
			}
			return nil
		})
		box := &letterBox{}
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 100, DeadLetters: box},
		})
		time.Sleep(time.Minute)
		p.stop(t)
		if !slices.Equal(got, []int{0, 1, 2, 3, 4, 8}) || box.names() != "odd undecodable" || w.pending() != 0 {
			t.Errorf("got %v, letters %s, %d pending", got, box.names(), w.pending())
		}
		if l := box.all(); len(l) == 1 && !strings.Contains(string(l[0].Change.Body), `"seven"`) {
			t.Errorf("letter of %s", l[0].Change.Body)
		}
	})
}

// Poison for a batch means that its culprit is searched for, also when Items could not decode another document of it.
func TestPoisonBesideAnUndecodableDocumentTakesNoHealthyChangeAlong(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		for i := range 9 {
			w.put("oslo", fmt.Sprint("item-", i), i)
		}
		body := []byte(`{"id":"odd","city":"oslo","n":"no number"}`)
		if _, err := w.orders.Commit(t.Context(), feed.Key("oslo"),
			[]feed.Write{{Op: feed.WriteUpsert, Body: body}}); err != nil {
			t.Fatal(err)
		}
		w.put("oslo", "item-9", 9)
		done := map[string]bool{}
		h := changefeed.Items(func(_ context.Context, _ *feed.Batch, items []changefeed.Item[struct{ N int }]) error {
			for _, it := range items {
				if it.ID == "item-4" {
					return feed.Poison(errHandler)
				}
			}
			for _, it := range items {
				done[it.ID] = true
			}
			return nil
		})
		box := &letterBox{}
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 3, DeadLetters: box},
		})
		time.Sleep(time.Minute)
		p.stop(t)
		if box.names() != "item-4 poison, odd undecodable" || len(done) != 9 {
			t.Errorf("letters %q, %d done", box.names(), len(done))
		}
	})
}

// An outage that a function of Items says counts no attempt, also when another document of the batch could not be
// decoded.
func TestAnOutageThatIsSaidBesideAnUndecodableDocumentCountsNoAttempt(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.put("oslo", "good", 1)
		body := []byte(`{"id":"odd","city":"oslo","n":"no number"}`)
		if _, err := w.orders.Commit(t.Context(), feed.Key("oslo"),
			[]feed.Write{{Op: feed.WriteUpsert, Body: body}}); err != nil {
			t.Fatal(err)
		}
		over := time.Now().Add(10 * time.Minute)
		done := 0
		h := changefeed.Items(func(_ context.Context, b *feed.Batch, items []changefeed.Item[struct{ N int }]) error {
			if time.Now().Before(over) {
				return &feed.Failure{Outage: true, Err: errHandler}
			}
			done += len(items)
			return nil
		})
		box := &letterBox{}
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 1, DeadLetters: box},
		})
		time.Sleep(20 * time.Minute)
		p.stop(t)
		if box.names() != "odd undecodable" || done != 1 {
			t.Errorf("letters %q, %d done", box.names(), done)
		}
	})
}

// Without dead letters the change that fails blocks, alone and loudly.
func TestWithoutDeadLettersAChangeThatFailsBlocksAlone(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(20)
		w.put("city-7", "bad", 1)
		w.put("city-7", "after", 1)
		h := failsOn(onID("bad"))
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2}, RetryMax: time.Second,
		})
		time.Sleep(time.Minute)
		if items, again := h.items(); items != 20 || again != 0 || w.pending() == 0 {
			t.Errorf("%d items, %d again, %d pending", items, again, w.pending())
		}
		p.stop(t)
		first, last := p.errs.errs[0], p.errs.errs[len(p.errs.errs)-1]
		for _, want := range []struct {
			err   error
			count int
			ids   []string
			key   feed.PartitionKey
		}{
			{first, 22, []string{"item", "item", "item", "item"}, feed.Key("city-0")},
			{last, 1, []string{"bad"}, feed.Key("city-7")},
		} {
			got, ok := errors.AsType[*feed.BatchError](want.err)
			if !ok || !errors.Is(got, errHandler) || got.Count != want.count || !slices.Equal(got.IDs, want.ids) ||
				got.Key != want.key || got.First == 0 || got.Last < got.First {
				t.Errorf("%v, want it to name %d changes of %v", want.err, want.count, want.ids)
			}
		}
	})
}

// One bad change on a quiet feed is no outage.
func TestOneBadChangeOnAQuietFeedIsParked(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.put("oslo", "bad", 1)
		box := &letterBox{}
		p := w.run("a", failsOn(onID("bad")), changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 3, DeadLetters: box},
		})
		time.Sleep(time.Minute)
		p.stop(t)
		if box.names() != "bad failed" || w.pending() != 0 {
			t.Errorf("letters %q, %d pending", box.names(), w.pending())
		}
	})
}

// If the dead letters refuse, nothing is lost: the change stays, and is parked when they do not.
func TestARefusedLetterStaysWithItsBatch(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(5)
		w.put("oslo", "bad", 1)
		errDisk := errors.New("disk is full")
		var mu sync.Mutex
		full := true
		box := &letterBox{refuse: func(feed.DeadLetter) error {
			mu.Lock()
			defer mu.Unlock()
			if full {
				return errDisk
			}
			return nil
		}}
		h := failsOn(onID("bad"))
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box}, RetryMax: time.Second,
		})
		time.Sleep(time.Minute)
		if err := p.errs.find(errDisk); err == nil || err.Origin != feed.OriginDeadLetters || w.pending() == 0 {
			t.Errorf("%v, %d pending", err, w.pending())
		}
		mu.Lock()
		full = false
		mu.Unlock()
		time.Sleep(time.Minute)
		p.stop(t)
		if l := box.all(); len(l) != 1 || !strings.Contains(l[0].Cause, errHandler.Error()) || w.pending() != 0 {
			t.Errorf("letters %+v, %d pending", l, w.pending())
		}
	})
}

// A change that ends the process each time is found too: attempts are in the lease, and so is what
// was in the handler.
func TestAChangeThatEndsTheProcessIsParked(t *testing.T) {
	for _, concurrency := range []int{1, 4} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				for i := range 40 {
					w.put(fmt.Sprintf("city-%d", i%7), fmt.Sprint("item-", i), i)
				}
				box := &letterBox{}
				h := &tally{}
				lives := 0
				for ; lives == 0 || lives < 30 && w.pending() > 0; lives++ {
					crash := make(chan struct{}, 1)
					h.before = func(ctx context.Context, b *feed.Batch) error {
						if !slices.ContainsFunc(b.Changes, func(c feed.Change) bool { return c.ID == "item-23" }) {
							return nil
						}
						crash <- struct{}{}
						<-ctx.Done()
						return ctx.Err()
					}
					p := w.run(fmt.Sprint("life-", lives), h, changefeed.Options{
						Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
							MaxAttempts: 3,
							DeadLetters: box,
						}, Concurrency: concurrency, Drain: time.Second,
					})
					select {
					case <-crash:
						p.kill(t)
					case <-time.After(5 * time.Minute):
						p.stop(t)
					}
				}
				if items, _ := h.items(); items != 39 || w.pending() != 0 || box.names() != "item-23 crashed" {
					t.Errorf("after %d lives: %d items, %d pending, letters %q", lives, items, w.pending(), box.names())
				}
				if lives > 3+6+4 {
					t.Errorf("it took %d lives", lives)
				}
			})
		})
	}
}

// What is parked holds later changes of its key, which follow it there, across restarts; other keys go on.
func TestAHeldKeyIsParkedBehindItsFirst(t *testing.T) {
	for _, concurrency := range []int{1, 8} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				w.fill(10)
				w.put("oslo", "bad", 1)
				w.put("oslo", "next", 2)
				w.put("rome", "free", 3)
				box := &letterBox{}
				h := failsOn(onID("bad"))
				o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
					MaxAttempts: 2,
					DeadLetters: box, HoldKeys: true,
				}, Concurrency: concurrency}
				p := w.run("a", h, o)
				time.Sleep(time.Minute)
				l := leaseOf(t, p.processor)
				if box.names() != "bad failed, next held" || w.pending() != 0 || l.Held != 1 || l.Parked != 2 ||
					l.Buffered != 0 {
					t.Errorf("letters %q, %d pending, %+v", box.names(), w.pending(), l)
				}
				p.stop(t)
				w.put("oslo", "later", 4)
				w.put("rome", "free", 5)
				p = w.run("b", h, o)
				time.Sleep(time.Minute)
				w.put("oslo", "last", 6)
				time.Sleep(time.Minute)
				p.stop(t)
				if box.names() != "bad failed, next held, later held, last held" || w.pending() != 0 {
					t.Errorf("letters %q, %d pending", box.names(), w.pending())
				}
				if items, again := h.items(); items != 11 || again != 1 {
					t.Errorf("%d items, %d again", items, again)
				}
			})
		})
	}
}

// What is parked can be handled again, in order with its key: the owner of its range does it, whoever asks.
func TestLettersAreRedriven(t *testing.T) {
	for _, concurrency := range []int{1, 8} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			inWorld(t, 2, func(t *testing.T, w *world) {
				var mu sync.Mutex
				mended := false
				box := &letterBox{}
				h := &tally{}
				redriven := 0
				h.before = func(_ context.Context, b *feed.Batch) error {
					mu.Lock()
					defer mu.Unlock()
					if b.Redriven {
						redriven++
					}
					if redriven > 20 { // a letter that stays would come for ever
						return errHandler
					}
					if !mended && slices.ContainsFunc(b.Changes, func(c feed.Change) bool { return c.ID == "bad" }) {
						return errHandler
					}
					return nil
				}
				o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
					MaxAttempts: 2,
					DeadLetters: box, HoldKeys: true,
				}, Concurrency: concurrency}
				a, b := w.run("a", h, o), w.run("b", h, o)
				w.many(40, 10)
				oslo := feed.Key("oslo")
				lsn := w.put("oslo", "bad", 1)
				w.put("oslo", "next", 2)
				time.Sleep(time.Minute)
				w.put("oslo", "later", 3)
				time.Sleep(time.Minute)
				id := letterNamed(lsn, "bad")
				if _, err := deadletters.Redrive(t.Context(), w.orders, w.leases, oslo, id); err != nil {
					t.Fatal(err)
				}
				if l := box.all(); box.names() != "bad failed, next held, later held" || l[0].Attempts < 3 {
					t.Errorf("after a retry that fails: %s, %+v", box.names(), l[0])
				}
				mu.Lock()
				mended = true
				mu.Unlock()
				if _, err := deadletters.Redrive(t.Context(), w.orders, w.leases, oslo, id); err != nil {
					t.Fatal(err)
				}
				w.put("oslo", "free", 4)
				time.Sleep(time.Minute)
				a.stop(t)
				b.stop(t)
				if items, again := h.items(); items != 44 || again != 0 || box.names() != "" || w.pending() != 0 ||
					redriven != 4 {
					t.Errorf("%d items, %d again, letters %q, %d pending, %d redriven", items, again, box.names(),
						w.pending(), redriven)
				}
				h.perKey(t)
				if n := len(w.records(feed.KindRequest)); n != 0 {
					t.Errorf("%d requests are left", n)
				}
			})
		})
	}
}

// A held key can go on without the change that has failed.
func TestAHeldKeyIsReleasedWithoutItsFirst(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		box := &letterBox{}
		h := failsOn(onID("bad"))
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2,
			DeadLetters: box, HoldKeys: true,
		}}
		p := w.run("a", h, o)
		for i, id := range []string{"bad", "next", "later"} {
			w.put("oslo", id, i)
		}
		time.Sleep(time.Minute)
		if _, err := deadletters.Release(t.Context(), w.orders, w.leases, feed.Key("oslo")); err != nil {
			t.Fatal(err)
		}
		w.put("oslo", "free", 4)
		time.Sleep(time.Minute)
		p.stop(t)
		if items, again := h.items(); items != 3 || again != 0 || box.names() != "bad failed" || w.pending() != 0 {
			t.Errorf("%d items, %d again, letters %q, %d pending", items, again, box.names(), w.pending())
		}
		h.perKey(t)
	})
}

// A letter has a place for whatever the feed has: one that is refused stays with its change for ever, and stops its
// lease.
func TestAChangeOfNearlyTwoMegabytesIsParked(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		dead := w.create(docstore.ContainerSpec{ID: "dead", Paths: []string{deadletters.KeyPath}})
		box, err := deadletters.Container(dead, "unit", w.orders)
		if err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 1_990_000) // which hardly compresses
		_, _ = rand.NewChaCha8([32]byte{}).Read(text)
		for i, b := range text {
			text[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-"[b%64]
		}
		body := fmt.Appendf(nil, `{"id":"bad","city":"oslo","text":"%s"}`, text)
		if _, err := w.orders.Commit(t.Context(), feed.Key("oslo"),
			[]feed.Write{{Op: feed.WriteUpsert, Body: body}}); err != nil {
			t.Fatal(err)
		}
		h := failsOn(onID("bad"))
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box},
		})
		time.Sleep(time.Minute)
		w.fill(10)
		time.Sleep(time.Minute)
		p.stop(t)
		letters := 0
		for l, err := range box.Letters(t.Context(), feed.Key("oslo")) {
			if err != nil || !strings.Contains(string(l.Change.Body), string(text)) {
				t.Fatalf("letter %s of %d bytes, %v", l.ID, len(l.Change.Body), err)
			}
			letters++
		}
		if items, _ := h.items(); items != 10 || letters != 1 {
			t.Errorf("%d of 10 changes of other keys are handled, %d letters; %v", items, letters,
				p.errs.find(feed.ErrBadRequest))
		}
	})
}
