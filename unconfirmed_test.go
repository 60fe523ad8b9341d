package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/trigger/contract"
)

// mortal is a handler in a program, which can be ended; the next batch begins another one.
type mortal struct {
	handler feed.Handler

	mu   sync.Mutex
	host *contract.Host
	die  func()
}

// life is the program that runs.
func (m *mortal) life(ctx context.Context) (*contract.Host, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.host != nil {
		return m.host, nil
	}
	toProgram, fromHost := io.Pipe()
	toHost, fromProgram := io.Pipe()
	handler := m.handler
	m.die = func() { toProgram.Close(); fromProgram.Close() }
	go func() {
		_ = contract.Serve(context.WithoutCancel(ctx), toProgram, fromProgram, handler, contract.ProgramOptions{})
	}()
	host, err := contract.Connect(ctx, toHost, fromHost, contract.HostOptions{Manual: true})
	if err != nil {
		return nil, err
	}
	m.host = host
	return host, nil
}

// Handle implements feed.Handler.
func (m *mortal) Handle(ctx context.Context, b *feed.Batch) error {
	host, err := m.life(ctx)
	if err != nil {
		return err
	}
	return host.Handle(ctx, b)
}

// end ends the program. The next one has another handler.
func (m *mortal) end(next feed.Handler) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.handler = next
	if m.host != nil {
		m.die()
		m.host.Wait()
		m.host = nil
	}
}

// If a long-lived program ends, nobody confirms any more what it has handled and not confirmed. So that comes again, to
// the owner of the lease too; and it is not confirmed with the next batch of its key.
func TestWhatAProgramHasNotConfirmedComesAgainAfterItsEnd(t *testing.T) {
	for _, concurrency := range []int{1, 8} {
		for _, next := range []string{"", "oslo", "rome"} {
			t.Run(fmt.Sprint(concurrency, next), func(t *testing.T) {
				inWorld(t, 1, func(t *testing.T, w *world) {
					h := &tally{}
					first := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
						if b.Changes[0].ID == "confirmed" {
							_ = h.record(b)
							return b.Checkpoint(ctx)
						}
						return h.record(b)
					})
					m := &mortal{handler: first}
					p := w.run("a", m, changefeed.Options{
						Start: feed.FromBeginning(), Manual: true, Concurrency: concurrency,
					})
					w.put("bonn", "confirmed", 1)
					time.Sleep(time.Minute) // for the change to be confirmed
					w.put("oslo", "lost", 1)
					time.Sleep(time.Minute) // for it to be handled
					m.end(feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
						_ = h.record(b)
						return b.Checkpoint(ctx)
					}))
					if next != "" {
						w.put(next, "next", 1)
					}
					time.Sleep(time.Minute) // for the handler to get what is to come
					for name, want := range map[string]int{`["bonn"]confirmed`: 1, `["oslo"]lost`: 2} {
						if got := h.times(name); got != want {
							t.Errorf("%s has come %d times, want %d", name, got, want)
						}
					}
					if n := w.pending(); n != 0 {
						t.Errorf("%d changes are pending", n)
					}
					p.stop(t)
					m.end(nil)
				})
			})
		}
	}
}

// A batch that is handled, not confirmed and abandoned comes again, and so does its lease with a new epoch. A batch
// that comes again anyway, or is confirmed, needs nothing.
func TestAnAbandonedBatchComesAgain(t *testing.T) {
	failed := errors.New("failed")
	inCall := func(confirm bool, outcome error) func(context.Context, *feed.Batch) error {
		return func(ctx context.Context, b *feed.Batch) error {
			err := outcome
			if confirm {
				err = errors.Join(err, b.Checkpoint(ctx))
			}
			return errors.Join(err, b.Abandon())
		}
	}
	for name, tt := range map[string]struct {
		first      func(context.Context, *feed.Batch) error // the first call
		afterwards bool                                     // the batch is abandoned after the call
		calls      int
		epochs     int64
	}{
		"after its call":       {func(context.Context, *feed.Batch) error { return nil }, true, 2, 2},
		"in its call":          {inCall(false, nil), false, 2, 2},
		"in a call that fails": {inCall(false, failed), false, 2, 1},
		"when it is confirmed": {inCall(true, nil), true, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				var calls []*feed.Batch
				p := w.run("a", feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
					if calls = append(calls, b); len(calls) == 1 {
						return tt.first(ctx, b)
					}
					return b.Checkpoint(ctx)
				}), changefeed.Options{Start: feed.FromBeginning(), Manual: true})
				w.put("oslo", "item", 1)
				time.Sleep(time.Minute) // for the handler to get what is to come
				synctest.Wait()
				if tt.afterwards {
					if err := calls[0].Abandon(); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(time.Minute) // for the handler to get what is to come
				synctest.Wait()
				last := calls[len(calls)-1]
				if epochs := last.Epoch - calls[0].Epoch + 1; len(calls) != tt.calls || epochs != tt.epochs {
					t.Errorf("%d calls in %d epochs, want %d in %d", len(calls), epochs, tt.calls, tt.epochs)
				}
				if n := w.pending(); n != 0 {
					t.Errorf("%d changes are pending", n)
				}
				p.stop(t)
			})
		})
	}
}

// From when a batch is abandoned until its lease is given up, no batch is confirmed that would take it in, or that is
// later in its key.
func TestNothingIsConfirmedPastAnAbandonedBatch(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var calls []*feed.Batch
		var why []feed.Reason
		h := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
			if calls = append(calls, b); len(calls) == 2 {
				if err := errors.Join(calls[0].Abandon(), pause.For(ctx, time.Second)); err != nil {
					t.Error(err)
				}
				if err := b.Checkpoint(ctx); !errors.Is(err, feed.ErrLeaseLost) {
					t.Errorf("a checkpoint after that: %v, want lease lost", err)
				}
			}
			if len(calls) <= 2 {
				return nil
			}
			return b.Checkpoint(ctx)
		})
		p := w.run("a", h, changefeed.Options{
			Start: feed.FromBeginning(), Manual: true, Hooks: changefeed.Hooks{
				Released: func(_ context.Context, _ feed.Lease, reason feed.Reason) { why = append(why, reason) },
			},
		})
		for i := range 2 {
			w.put("oslo", fmt.Sprint(i), 1)
			time.Sleep(time.Minute) // for the handler to get what is to come
		}
		synctest.Wait()
		var order []string
		for _, b := range calls {
			for _, c := range b.Changes {
				order = append(order, c.ID)
			}
		}
		if n := w.pending(); !slices.Equal(order, []string{"0", "1", "0", "1"}) || n != 0 ||
			!slices.Equal(why, []feed.Reason{feed.ReasonUnconfirmed}) {
			t.Errorf("the handler has received %v, the lease was given up %v, and %d changes are pending", order, why, n)
		}
		p.stop(t)
	})
}
