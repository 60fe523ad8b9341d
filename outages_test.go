package changefeed_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/millrace/changefeed/internal/proof/detector"
)

// What no attempt can help is parked, however many keys have it: it says nothing of an outage, and the feed goes on.
func TestUndecodableDocumentsOfSeveralKeysDoNotStopTheFeed(t *testing.T) {
	for _, concurrency := range []int{1, 8} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				for i := range 3 {
					city := fmt.Sprint("city-", i)
					body := fmt.Appendf(nil, `{"id":"odd","city":%q,"n":"no number"}`, city)
					if _, err := w.orders.Commit(t.Context(), feed.Key(city),
						[]feed.Write{{Op: feed.WriteUpsert, Body: body}}); err != nil {
						t.Fatal(err)
					}
				}
				done := 0
				h := changefeed.Items(func(_ context.Context, b *feed.Batch,
					items []changefeed.Item[struct{ N int }],
				) error {
					done += len(items)
					return nil
				})
				box := &letterBox{}
				p := w.run("a", h, changefeed.Options{
					Start:     feed.FromBeginning(),
					OnFailure: changefeed.FailurePolicy{MaxAttempts: 3, DeadLetters: box}, Concurrency: concurrency,
				})
				time.Sleep(time.Minute)
				if n := len(box.all()); n != 3 {
					t.Errorf("%d letters of 3; %v", n, p.errs.find(feed.ErrOutage))
				}
				w.put("oslo", "good", 1)
				time.Sleep(time.Minute)
				p.stop(t)
				if done != 1 || w.pending() != 0 {
					t.Errorf("%d good changes are handled, %d pending", done, w.pending())
				}
			})
		})
	}
}

// While the letter of a change is refused, other keys go on.
func TestARefusedLetterBlocksItsKeyAlone(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(5)
		w.put("oslo", "bad", 1)
		w.put("rome", "after", 1)
		box := &letterBox{refuse: func(feed.DeadLetter) error { return errors.New("refused") }}
		h := failsOn(onID("bad"))
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box},
		})
		time.Sleep(time.Minute)
		w.fill(10)
		time.Sleep(time.Hour)
		p.stop(t)
		if items, _ := h.items(); items != 11 {
			t.Errorf("%d of 11 items of other keys are handled", items)
		}
	})
}

// In an outage a letter that somebody asks for waits until the handler is probed. If the request is withdrawn
// meanwhile, the letter is not handed over when the outage ends, soon after.
func TestALetterThatWaitsInAnOutageCanBeWithdrawn(t *testing.T) {
	for _, repeated := range []bool{false, true} {
		t.Run(fmt.Sprint("repeated=", repeated), func(t *testing.T) { withdrawnInAnOutage(t, repeated) })
	}
}

// withdrawnInAnOutage withdraws a retry whose letter waits in an outage, and then that of a caller who repeats the
// request within the time in which an instance hears of the first withdrawal.
func withdrawnInAnOutage(t *testing.T, repeated bool) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var down, redriven atomic.Bool
		var calls atomic.Int64
		h := &tally{before: func(_ context.Context, b *feed.Batch) error {
			calls.Add(1)
			if down.Load() || b.Changes[0].ID == "bad" && !redriven.Load() {
				return errHandler
			}
			return nil
		}}
		box := &letterBox{}
		outage := make(chan feed.Outage, 2)
		p := w.run("a", h, changefeed.Options{
			Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{MaxAttempts: 3, DeadLetters: box},
			Concurrency: 4,
			Hooks: changefeed.Hooks{
				Outage: func(_ context.Context, o feed.Outage) { outage <- o },
				Redriven: func(_ context.Context, r feed.Redriven) {
					t.Errorf("a letter is handed over, recall %v: %v", r.Recall, r.Err)
				},
			},
		})
		lsn := w.put("oslo", "bad", 1)
		w.fill(40)
		w.isParked(box, "bad")
		time.Sleep(time.Minute)
		w.fill(40) // these succeed, so the change is bad, and does not return by itself after an outage
		time.Sleep(time.Minute)
		redriven.Store(true) // from now on the letter would be handled
		down.Store(true)
		w.fill(5)
		<-outage
		time.Sleep(time.Minute) // the pauses between two probes are long now
		before := calls.Load()
		w.until(time.Minute, "a probe", func() bool { return calls.Load() > before })
		asked := make(chan error, 1)
		go func() {
			var err error
			for range 2 { // the second request is written before an instance has heard that the first one was withdrawn
				ctx := t.Context()
				if repeated {
					ctx = w.within(2 * time.Second)
				}
				_, err = deadletters.Redrive(ctx, w.orders, w.leases, feed.Key("oslo"), letterNamed(lsn, "bad"))
				if !repeated {
					break
				}
			}
			asked <- err
		}()
		begun := func() bool {
			requests := w.records(feed.KindRequest)
			return len(requests) == 1 && notes.ReadRequest(requests[0].Properties).Tries > 0
		}
		w.until(5*time.Second, "an instance that has begun with the request", begun)
		if !repeated {
			if n, err := deadletters.Withdraw(t.Context(), w.leases, feed.Key("oslo")); n != 1 || err != nil {
				t.Fatalf("%d requests are withdrawn, %v", n, err)
			}
		}
		if err := <-asked; !errors.Is(err, deadletters.ErrNotServed) {
			t.Errorf("the caller gets %v", err)
		}
		time.Sleep(time.Second) // the leases are followed
		down.Store(false)
		<-outage
		time.Sleep(time.Minute)
		p.stop(t)
		if box.names() != "bad failed" {
			t.Errorf("letters %q: a letter was handled whose request was withdrawn", box.names())
		}
	})
}

// An outage of hours parks next to nothing, also when a change comes every ten minutes and its attempts take as long.
func TestAnOutageOnAQuietFeedParksLittle(t *testing.T) {
	for _, concurrency := range []int{8, 1}[:detector.Rounds(2, 1)] {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				up := time.Now().Add(6 * time.Hour)
				h := &tally{before: func(context.Context, *feed.Batch) error {
					if time.Now().Before(up) {
						return errHandler
					}
					return nil
				}}
				box := &letterBox{}
				p := w.run("a", h, changefeed.Options{
					Start:     feed.FromBeginning(),
					OnFailure: changefeed.FailurePolicy{MaxAttempts: 20, DeadLetters: box}, Concurrency: concurrency,
				})
				for i := range 30 {
					w.put(fmt.Sprint("city-", i), "item", i)
					time.Sleep(10 * time.Minute)
				}
				time.Sleep(3 * time.Hour)
				p.stop(t)
				if n := len(box.all()); n > 3 {
					t.Errorf("an outage of 6 hours has parked %d of 30 changes", n)
				}
			})
		})
	}
}

// A batch of 200 changes of 20 keys has one that fails; while it is looked for, everything begins to fail, for an hour.
func TestAnOutageThatBeginsInABisectionParksNoMore(t *testing.T) {
	for _, tt := range []struct{ concurrency, call int }{{1, 6}, {1, 12}, {1, 19}} {
		t.Run(fmt.Sprintf("%d, at call %d", tt.concurrency, tt.call), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				for i := range 200 {
					w.put(fmt.Sprint("city-", i%20), fmt.Sprint("item-", i), i)
				}
				var calls atomic.Int64
				var over atomic.Int64
				h := failsOn(onID("item-77"))
				bad := h.before
				h.before = func(ctx context.Context, b *feed.Batch) error {
					time.Sleep(10 * time.Millisecond)
					if calls.Add(1) == int64(tt.call) {
						over.Store(time.Now().Add(time.Hour).UnixNano())
					}
					if time.Now().UnixNano() < over.Load() {
						return errHandler
					}
					return bad(ctx, b)
				}
				box := &letterBox{}
				p := w.run("a", h, changefeed.Options{
					Start:     feed.FromBeginning(),
					OnFailure: changefeed.FailurePolicy{MaxAttempts: 3, DeadLetters: box}, Concurrency: tt.concurrency,
				})
				time.Sleep(3 * time.Hour)
				p.stop(t)
				// What is found first is judged by what succeeded before.
				if items, _ := h.items(); len(box.all()) > 2 || !strings.Contains(box.names(), "item-77 failed") ||
					items+len(box.all()) != 200 {
					t.Errorf("letters %q, %d items handled", box.names(), items)
				}
			})
		})
	}
}

// An outage fills no dead letters. When it is over, all goes on, and the change that was poison all
// the time is parked.
func TestAnOutageParksNothing(t *testing.T) {
	for _, concurrency := range []int{1, 8} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			inWorld(t, 2, func(t *testing.T, w *world) {
				var mu sync.Mutex
				away := true
				h := &tally{}
				calls := 0
				h.before = func(_ context.Context, b *feed.Batch) error {
					mu.Lock()
					defer mu.Unlock()
					calls++
					if away || slices.ContainsFunc(b.Changes, func(c feed.Change) bool { return c.ID == "bad" }) {
						return errHandler
					}
					return nil
				}
				w.fill(50)
				w.put("oslo", "bad", 1)
				box := &letterBox{}
				p := w.run("a", h, changefeed.Options{
					Start:     feed.FromBeginning(),
					OnFailure: changefeed.FailurePolicy{MaxAttempts: 3, DeadLetters: box}, Concurrency: concurrency,
				})
				time.Sleep(time.Minute)
				mu.Lock()
				calls = 0
				mu.Unlock()
				time.Sleep(30 * time.Minute)
				s := p.processor.Status()[0]
				if !s.Outage || s.Leases[0].Buffered+s.Leases[1].Buffered == 0 || s.Leases[0].Parked != 0 {
					t.Errorf("in the outage: %+v", s)
				}
				mu.Lock()
				if box.names() != "" || calls > 150 || calls < 20 {
					t.Errorf("in the outage: letters %q, %d probes in 30 minutes", box.names(), calls)
				}
				away = false
				mu.Unlock()
				if p.errs.find(feed.ErrOutage) == nil {
					t.Error("nobody has said so")
				}
				time.Sleep(5 * time.Minute)
				p.stop(t)
				if items, again := h.items(); items != 50 || again != 0 || w.pending() != 0 ||
					box.names() != "bad failed" {
					t.Errorf("after it: %d items, %d again, %d pending, letters %q", items, again, w.pending(),
						box.names())
				}
				h.ordered(t)
			})
		})
	}
}

// The partition of a lease is split in an outage. The instance has the parts, and the outage goes on.
func TestASplitInAnOutageParksNothing(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var mended atomic.Bool
		h := &tally{before: func(context.Context, *feed.Batch) error {
			if mended.Load() {
				return nil
			}
			return errHandler
		}}
		w.fill(5)
		box := &letterBox{}
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box},
		})
		time.Sleep(time.Minute)
		w.split(0)
		time.Sleep(time.Minute)
		w.split(0)
		time.Sleep(30 * time.Minute)
		if !p.processor.Status()[0].Outage || box.names() != "" {
			t.Errorf("after two splits: outage %v, letters %q", p.processor.Status()[0].Outage, box.names())
		}
		mended.Store(true)
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if items, again := h.items(); items != 5 || again != 0 || w.pending() != 0 || box.names() != "" {
			t.Errorf("after it: %d items, %d again, %d pending, letters %q", items, again, w.pending(), box.names())
		}
	})
}
