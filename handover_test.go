package changefeed_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
)

// A letter is in the handler when its owner is stopped in good order, or its range is split. The handler is done with
// it in time, so the next owner does not hand it over again, and the caller hears the outcome.
func TestALetterThatIsHandledWhileItsOwnerStopsDoesNotComeAgain(t *testing.T) {
	for _, release := range []bool{false, true} {
		for _, split := range []bool{false, true} {
			for _, concurrency := range []int{1, 8} {
				t.Run(fmt.Sprintf("release %v, split %v, concurrency %d", release, split, concurrency),
					func(t *testing.T) {
						inWorld(t, 1, func(t *testing.T, w *world) {
							w.stopsBesideALetter(release, split, concurrency)
						})
					})
			}
		}
	}
}

func (w *world) stopsBesideALetter(release, split bool, concurrency int) {
	lsn := w.put("oslo", "bad", 0)
	for i := range 4 {
		w.put("oslo", fmt.Sprint("held-", i), i)
	}
	var mended atomic.Bool
	var mu sync.Mutex
	times := map[string]int{}
	begun := make(chan struct{}, 100)
	h := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
		if !mended.Load() {
			return errHandler
		}
		if b.Redriven {
			begun <- struct{}{}
			time.Sleep(time.Second) // in the bubble
		}
		mu.Lock()
		defer mu.Unlock()
		for _, id := range itemIDs(b) {
			times[id]++
		}
		return nil
	})
	box := &letterBox{}
	o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
		MaxAttempts: 1,
		DeadLetters: box, HoldKeys: true,
	}, Concurrency: concurrency}
	p := w.run("a", h, o)
	time.Sleep(time.Minute)
	mended.Store(true)
	asked := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Minute)
		defer cancel()
		var outcome deadletters.Outcome
		var err error
		if release {
			outcome, err = deadletters.Release(ctx, w.orders, w.leases, feed.Key("oslo"))
		} else {
			outcome, err = deadletters.Redrive(ctx, w.orders, w.leases, feed.Key("oslo"), letterNamed(lsn, "bad"))
		}
		if want := map[bool]int{true: 4, false: 5}[release]; err == nil &&
			(outcome.Result != deadletters.ResultHandled || outcome.Handled != want) {
			err = fmt.Errorf("the outcome is %+v, want %d letters handled", outcome, want)
		}
		asked <- err
	}()
	<-begun
	<-begun // the second letter is in the handler
	time.Sleep(500 * time.Millisecond)
	if split {
		w.split(0)
	} else {
		p.stop(w.t)
		p = w.run("b", h, o)
	}
	if err := <-asked; err != nil {
		w.t.Error(err)
	}
	time.Sleep(time.Minute)
	p.stop(w.t)
	for id, n := range times {
		if n != 1 {
			w.t.Errorf("%s was handled %d times", id, n)
		}
	}
	if want := map[bool]string{true: "bad failed"}[release]; box.names() != want {
		w.t.Errorf("letters %q, want %q", box.names(), want)
	}
}

// The partition of a lease is split again and again while nobody runs. What was done does not come again, and a change
// that fails has its age and its attempts.
func TestNotesOfALeaseSurviveSplitsWhileNobodyRuns(t *testing.T) {
	for splits := range 4 {
		t.Run(fmt.Sprint(splits), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				w.put("bad", "bad", 0)
				w.fill(30)
				box := &letterBox{}
				h := &receipts{bad: []string{"bad"}, times: map[string]int{}}
				o := changefeed.Options{
					Start:     feed.FromBeginning(),
					OnFailure: changefeed.FailurePolicy{MaxAge: time.Hour, DeadLetters: box}, MaxItems: 5,
				}
				begun := time.Now()
				p := w.run("a", h, o)
				time.Sleep(50 * time.Minute)
				p.stop(t)
				before := h.times["item"]
				for range splits {
					for i := len(w.partitions()) - 1; i >= 0; i-- {
						w.split(i)
					}
				}
				p = w.run("b", h, o)
				time.Sleep(20 * time.Minute)
				p.stop(t)
				if again := h.times["item"] - before; again != 0 {
					t.Errorf("%d changes came again", again)
				}
				if err := p.errs.find(feed.ErrMoved); err != nil {
					t.Errorf("reported: %v", err)
				}
				letters := box.all()
				if len(letters) != 1 || letters[0].Parked.Sub(begun) > time.Hour+time.Minute ||
					letters[0].Attempts != h.times["bad"] {
					t.Errorf("letters %q, want that of the bad change after an hour, with %d attempts", box.names(),
						h.times["bad"])
				}
			})
		})
	}
}
