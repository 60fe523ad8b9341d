package changefeed_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
)

// A patientBox keeps the letter of one item slowly, and counts how often it is read meanwhile.
type patientBox struct {
	*letterBox
	slow    string       // the item whose letter takes putTakes
	keeping atomic.Bool  // it is being kept
	reads   atomic.Int64 // meanwhile
}

const putTakes = 4 * time.Second

func (b *patientBox) Put(ctx context.Context, l feed.DeadLetter) error {
	if l.Change.ID == b.slow {
		b.keeping.Store(true)
		time.Sleep(putTakes)
		b.keeping.Store(false)
	}
	return b.letterBox.Put(ctx, l)
}

func (b *patientBox) Letters(ctx context.Context, key feed.PartitionKey) iter.Seq2[feed.DeadLetter, error] {
	// A loop without a pause would never let virtual time pass.
	if b.keeping.Load() && b.reads.Add(1) > 1000 {
		time.Sleep(10 * time.Millisecond)
	}
	return b.letterBox.Letters(ctx, key)
}

// heldKey is a lease with a held key: a change of it has a letter, and can be handled by now.
type heldKey struct {
	*world
	box  *patientBox
	h    *tally
	bad  int64 // the LSN of that change
	p    *process
	ctx  context.Context // for what is asked of the key
	redo func()          // called when the change comes again
}

// inHeldKey has a test ask for something while a change of the held key is being parked, and expects that this is
// served without reading the letters again and again, and that the key is free then.
func inHeldKey(t *testing.T, concurrency int, test func(t *testing.T, k *heldKey) error, want ...string) {
	t.Helper()
	inWorld(t, 1, func(t *testing.T, w *world) {
		k := &heldKey{world: w, box: &patientBox{letterBox: &letterBox{}, slow: "next"}, redo: func() {}}
		var mended atomic.Bool
		k.h = &tally{before: func(_ context.Context, b *feed.Batch) error {
			switch {
			case !slices.Contains(itemIDs(b), "bad"):
			case !mended.Load():
				return errHandler
			default:
				k.redo()
			}
			return nil
		}}
		k.p = w.run("a", k.h, changefeed.Options{
			Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
				MaxAttempts: 2, DeadLetters: k.box,
				HoldKeys: true,
			}, Concurrency: concurrency,
		})
		k.bad = w.put("oslo", "bad", 1)
		w.isParked(k.box.letterBox, "bad")
		mended.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		k.ctx = ctx
		if err := test(t, k); err != nil {
			t.Errorf("the request is not served: %v", err)
		}
		w.put("oslo", "last", 3)
		time.Sleep(time.Minute)
		k.p.stop(t)
		if n := k.box.reads.Load(); n > 20 {
			t.Errorf("the letters were read %d times in the %v that it took to park a change", n, putTakes)
		}
		var order []string
		for _, c := range k.h.changes {
			order = append(order, c.ID)
		}
		if !slices.Equal(order, want) {
			t.Errorf("handled in the order %v, want %v; letters %q", order, want, k.box.names())
		}
	})
}

func TestAReleaseDoesNotSpinWhileAChangeOfItsKeyIsBeingParked(t *testing.T) {
	for _, concurrency := range []int{1, 4} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			inHeldKey(t, concurrency, func(t *testing.T, k *heldKey) error {
				k.put("oslo", "next", 2)
				k.until(time.Minute, "parking the later change", k.box.keeping.Load)
				_, err := deadletters.Release(k.ctx, k.orders, k.leases, feed.Key("oslo"))
				return err
			}, "next", "last")
		})
	}
}

// A retry that succeeds releases the key. Here a change of the key comes while the handler has the letter, and may be
// being parked when the key is to be released.
func TestARetryDoesNotSpinWhileAChangeOfItsKeyIsBeingParked(t *testing.T) {
	for _, concurrency := range []int{1, 4} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			inHeldKey(t, concurrency, func(t *testing.T, k *heldKey) error {
				k.redo = func() {
					k.put("oslo", "next", 2)
					time.Sleep(5 * time.Second)
				}
				_, err := deadletters.Redrive(k.ctx, k.orders, k.leases, feed.Key("oslo"), letterNamed(k.bad, "bad"))
				return err
			}, "bad", "next", "last")
		})
	}
}
