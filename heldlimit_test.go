package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// unhurried takes a moment to keep a letter.
type unhurried struct{ *letterBox }

func (b unhurried) Put(ctx context.Context, l feed.DeadLetter) error {
	time.Sleep(20 * time.Millisecond)
	return b.letterBox.Put(ctx, l)
}

// Of 1,098 bad keys, of which 16 are parked at once, 1,000 are held. The changes of the others wait, without a report
// for each of their tries, and other keys go on. When one key is released, the next is held.
func TestNoMoreKeysAreHeldThanALeaseHasRoomFor(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		const waiting = 98
		for i := range notes.MaxHeld + waiting {
			w.put(fmt.Sprint("bad-", i), "bad", i)
		}
		h := failsOn(func(c feed.Change) error {
			if c.ID == "bad" {
				return feed.Poison(errHandler)
			}
			return nil
		})
		box := &letterBox{}
		p := w.run("a", h, changefeed.Options{
			Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
				MaxAttempts: 2,
				DeadLetters: unhurried{box}, HoldKeys: true,
			}, Concurrency: 16,
		})
		most := 0
		for range 10 * 60 { // a minute
			time.Sleep(100 * time.Millisecond)
			most = max(most, leaseOf(t, p.processor).Held, len(box.all()))
		}
		w.put("oslo", "good", 1)
		time.Sleep(time.Hour)
		most = max(most, leaseOf(t, p.processor).Held, len(box.all()))
		if items, _ := h.items(); most != notes.MaxHeld || items != 1 || w.pending() < waiting {
			t.Errorf("%d keys held or parked at most, want %d; %d of 1 good changes handled, %d pending, want "+
				"at least %d",
				most, notes.MaxHeld, items, w.pending(), waiting)
		}
		if n := p.reports(feed.ErrTooManyHeld); n == 0 || n > 400 {
			t.Errorf("%d reports in an hour for %d changes that wait", n, waiting)
		}
		first := slices.MinFunc(box.all(), func(a, b feed.DeadLetter) int {
			return int(a.Change.LSN - b.Change.LSN)
		}).Change.PartitionKey
		if _, err := deadletters.Release(t.Context(), w.orders, w.leases, first); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Minute)
		if n, l := len(box.all()), leaseOf(t, p.processor); n != notes.MaxHeld+1 || l.Held != notes.MaxHeld {
			t.Errorf("after one key was released: %d letters, %d keys held", n, l.Held)
		}
		p.stop(t)
	})
}

// reports is how often an error was reported.
func (p *process) reports(target error) (n int) {
	for _, err := range p.errs.all() {
		if errors.Is(err, target) {
			n++
		}
	}
	return n
}
