package changefeed_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// What skips meet: writes that fail, callers that give up, versions that are replaced.

// failingBad is a unit whose only change fails, with an instance that works on it through a store.
func failingBad(w *world, store *hookedStore) (*bad, *process, admin.Failing) {
	h := newBad()
	w.put("oslo", "bad", 1)
	p := w.runWith(w.orders, store, "a", h, changefeed.Options{Start: feed.FromBeginning()})
	time.Sleep(time.Minute)
	return h, p, w.onlyBad()
}

// The first write of a skip fails, and the next one does not. The owner answers that the change is skipped.
func TestASkipWhoseWriteIsRepeatedIsDone(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		store := &hookedStore{Leases: w.leases}
		var failures atomic.Int32
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease && l.Properties[notes.ServedProperty] != "" && failures.Add(1) <= 2 {
				return l, errCutOff
			}
			return w.leases.Update(ctx, l)
		}
		h, p, f := failingBad(w, store)
		if _, err := w.skip(f); err != nil || failures.Load() < 3 {
			t.Errorf("got %v after %d writes, want a skip in the third", err, failures.Load())
		}
		w.put("oslo", "next", 1)
		time.Sleep(time.Minute)
		if items, again := h.items(); items != 1 || again != 0 || w.pending() != 0 {
			t.Errorf("%d items, %d again, %d pending, want next alone", items, again, w.pending())
		}
		p.stop(t)
	})
}

// An owner that loses its lease before the write of a skip has skipped nothing, and does not say so.
func TestASkipThatCannotBeWrittenIsNotDone(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		store := &hookedStore{Leases: w.leases}
		var stolen atomic.Bool
		var answers atomic.Int32
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			isSkip := l.Kind == feed.KindLease && l.Properties[notes.ServedProperty] != ""
			if isSkip && stolen.CompareAndSwap(false, true) {
				w.edit(func(l *feed.Record) { l.Owner, l.Epoch, l.Timestamp = "net", "", time.Now() })
			}
			if l.Kind == feed.KindRequest && l.State == feed.StateRetired {
				answers.Add(1)
			}
			return w.leases.Update(ctx, l)
		}
		_, p, f := failingBad(w, store)
		if got, err := w.skip(f); err == nil || got.Done || !stolen.Load() {
			t.Errorf("got %+v, %v, stolen %v", got, err, stolen.Load())
		}
		if answers.Load() != 0 {
			t.Error("the owner has answered, though it has lost the lease")
		}
		p.stop(t)
	})
}

// A caller who gives up while the owner ends its batch withdraws the request. It is not carried out.
func TestAWithdrawnSkipIsNotCarriedOut(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		h, p, f := failingBad(w, &hookedStore{Leases: w.leases})
		h.slow.Store(true)
		<-h.entered
		<-h.entered
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := w.admin(admin.Options{}).Skip(ctx, f); !errors.Is(err, admin.ErrNotServed) {
			t.Errorf("got %v, want a skip that is not served", err)
		}
		time.Sleep(time.Minute)
		if text := w.records(feed.KindLease)[0].Properties[notes.SkipsProperty]; text != "" {
			t.Errorf("skipped %s, though nobody asks any more", text)
		}
		h.repaired.Store(true)
		time.Sleep(3 * time.Minute)
		if items, again := h.items(); items != 1 || again != 0 {
			t.Errorf("%d items, %d again, want the change, which was not skipped", items, again)
		}
		p.stop(t)
	})
}

// A change that a later version has replaced is not listed, nor is its batch.
func TestABatchThatWasReplacedIsNotListed(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		_, p, _ := failingBad(w, &hookedStore{Leases: w.leases})
		p.stop(t)
		w.put("oslo", "bad", 2)
		if all := w.failing(); len(all) != 0 {
			t.Errorf("failing %+v, want nothing: the change was replaced", all)
		}
	})
}

// Wherever in its transaction the skipped change was, the handler is told that the others are not the whole.
func TestATransactionWithoutItsLastChangeIsCut(t *testing.T) {
	for _, ids := range [][]string{{"one", "two", "bad"}, {"bad", "one", "two"}} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			var cut, whole atomic.Int32
			h := newBad()
			fails := h.before
			h.before = func(ctx context.Context, b *feed.Batch) error {
				err := fails(ctx, b)
				switch {
				case err == nil && b.Cut:
					cut.Add(int32(len(b.Changes)))
				case err == nil:
					whole.Add(int32(len(b.Changes)))
				}
				return err
			}
			var writes []feed.Write
			for _, id := range ids {
				writes = append(writes, upsert("oslo", id, 1))
			}
			if _, err := w.orders.Commit(t.Context(), feed.Key("oslo"), writes); err != nil {
				t.Fatal(err)
			}
			p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning()})
			time.Sleep(time.Minute)
			if _, err := w.skip(w.onlyBad()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if cut.Load() != 2 || whole.Load() != 0 {
				t.Errorf("%v: %d changes came as parts and %d as a whole, want 2 and 0", ids, cut.Load(), whole.Load())
			}
			p.stop(t)
		})
	}
}

// Names of skipped changes go when the position has passed the changes, however many skips there are.
func TestANameGoesWithItsChange(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		h, p, f := failingBad(w, &hookedStore{Leases: w.leases})
		if _, err := w.skip(f); err != nil {
			t.Fatal(err)
		}
		w.put("oslo", "next", 1)
		time.Sleep(time.Minute)
		if items, _ := h.items(); items != 1 || w.pending() != 0 {
			t.Errorf("%d items, %d pending, want next", items, w.pending())
		}
		p.stop(t)
		l := w.records(feed.KindLease)[0]
		if text := l.Properties[notes.SkipsProperty]; text != "" {
			t.Errorf("at %v the lease still names %s", l.Position, text)
		}
	})
}

// More changes than can be skipped at once are refused, with words that say why.
func TestMoreThanCanBeSkippedIsRefused(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		_, p, f := failingBad(w, &hookedStore{Leases: w.leases})
		f.More = true
		_, err := w.skip(f)
		if !errors.Is(err, feed.ErrBadRequest) || !strings.Contains(err.Error(), "more than 1 changes are to be") {
			t.Errorf("got %v, want that there are more", err)
		}
		if text := w.records(feed.KindLease)[0].Properties[notes.SkipsProperty]; text != "" {
			t.Errorf("skipped %s", text)
		}
		p.stop(t)
	})
}
