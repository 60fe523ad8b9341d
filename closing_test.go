package changefeed_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// lifecycle is a handler whose Open or Handle does what it is told, and that counts Close.
type lifecycle struct {
	open, handle func(ctx context.Context) error
	closes       atomic.Int64
}

func (h *lifecycle) Open(ctx context.Context, _ feed.Lease) error { return h.open(ctx) }

func (h *lifecycle) Handle(ctx context.Context, _ *feed.Batch) error { return h.handle(ctx) }

func (h *lifecycle) Close(context.Context, feed.Lease, feed.Reason) error {
	h.closes.Add(1)
	return nil
}

// Close is for a handler that was opened and has returned.
func TestOnlyWhatIsOpenAndIdleIsClosed(t *testing.T) {
	deaf := make(chan struct{})
	well := func(context.Context) error { return nil }
	for _, c := range []struct {
		name         string
		open, handle func(ctx context.Context) error
		want         int64
	}{
		{"well", well, well, 1},
		{"never opened", func(context.Context) error { return errDownstream }, well, 0},
		{"deaf", well, func(context.Context) error { <-deaf; return nil }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			deaf = make(chan struct{})
			inWorld(t, 1, func(t *testing.T, w *world) {
				deaf = make(chan struct{})
				h := &lifecycle{open: c.open, handle: c.handle}
				w.put("oslo", "a", 1)
				p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning()})
				time.Sleep(time.Minute)
				p.stop(t)
				if n := h.closes.Load(); n != c.want {
					t.Errorf("closed %d times, want %d", n, c.want)
				}
				close(deaf)
			})
		})
	}
}

// A document that does not decode fails by itself, and the error names it; the others have not failed, and are handed
// over without it.
func TestADocumentThatDoesNotDecodeFailsByItself(t *testing.T) {
	type order struct{ N int }
	items := 0
	h := changefeed.Items(func(_ context.Context, _ *feed.Batch, of []changefeed.Item[order]) error {
		items = len(of)
		return nil
	})
	good := feed.Change{ID: "good", PartitionKey: feed.Key("oslo"), Body: json.RawMessage(`{"n":1}`)}
	bad, rome := json.RawMessage(`{"n":"one"}`), feed.Key("rome")
	for _, c := range []feed.Change{
		{ID: "bad", PartitionKey: rome, Body: bad},
		{ID: "bad", PartitionKey: rome, Body: good.Body, Previous: bad},
	} {
		err := h.Handle(t.Context(), &feed.Batch{Changes: []feed.Change{good, c, good}})
		said, _ := errors.AsType[*feed.Failure](err)
		var poison []int
		for i, err := range said.Items {
			if feed.IsPoison(err) {
				poison = append(poison, i)
			}
		}
		if undecoded, ok := errors.AsType[*feed.DecodeError](err); !ok || undecoded.Change.ID != "bad" || items != 0 ||
			len(said.Items) != 3 ||
			!slices.Equal(poison, []int{1}) || !strings.Contains(err.Error(), "(1 change failed)") {
			t.Errorf("%v of %+v, with %d items handed over", err, said, items)
		}
		if err := h.Handle(t.Context(), &feed.Batch{Changes: []feed.Change{good, good}}); err != nil || items != 2 {
			t.Errorf("%v without it, with %d items handed over", err, items)
		}
		items = 0
	}
}

// fickle partitions: a source that says now one thing, now another.
type flapping struct {
	*hookedSource
	asked atomic.Int64
	parts []feed.Partition
}

func (s *flapping) Partitions(context.Context) ([]feed.Partition, error) {
	if s.asked.Add(1)%2 == 0 {
		return []feed.Partition{{ID: "0", Range: feed.FullRange()}}, nil
	}
	return s.parts, nil
}

// A source may say of a range that it was split, and when asked into what, that it was not.
func TestASplitThatIsNoneIsTriedWithPauses(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var writes atomic.Int64
		store := &hookedStore{Leases: w.leases, update: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			tick(&writes)
			return w.leases.Update(ctx, l)
		}}
		setup := w.run("setup", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		setup.stop(t)
		source := &flapping{hookedSource: &hookedSource{Container: w.orders}}
		for i, r := range feed.FullRange().Cut(2) {
			source.parts = append(source.parts, feed.Partition{
				ID: string(rune('1' + i)), Range: r,
				Parents: []string{"0"},
			})
		}
		source.read = func(context.Context, feed.Range, feed.Position, feed.ReadOptions) (feed.Page, error) {
			return feed.Page{}, feed.ErrGone
		}
		p := w.runWith(source, store, "a", &tally{}, changefeed.Options{})
		time.Sleep(10 * time.Minute)
		if n := writes.Load(); n < 10 || n > 600 {
			t.Errorf("%d lease writes in 10 minutes", n)
		}
		if p.errs.find(feed.ErrGone) == nil {
			t.Errorf("not reported: %v", first(p.errs.all()))
		}
		p.stop(t)
	})
}
