package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// sentinels are all exported errors of the package, and others that foreign code returns
// without a thought. What a call may not answer by its contract is a failure like others.
var sentinels = []error{
	feed.ErrConflict, feed.ErrPrecondition, feed.ErrNotFound, feed.ErrForbidden,
	feed.ErrGone, feed.ErrTooOld, feed.ErrThrottled, feed.ErrBadRequest,
	feed.ErrLeaseLost, feed.ErrStopped, feed.ErrHandlerTimeout, feed.ErrHandlerStuck,
	feed.ErrNotManual, feed.ErrModeChanged, feed.ErrStartIgnored, feed.ErrHole,
	feed.ErrOverlap, feed.ErrBadLease, context.Canceled, context.DeadlineExceeded,
	&feed.ThrottledError{After: time.Millisecond}, &feed.Error{Err: feed.ErrHandlerStuck},
}

// fickle is a handler, a source and a lease store in which one call answers an error a few
// times and then does what it should.
type fickle struct {
	call string
	err  error
	mu   sync.Mutex
	left int
}

func (f *fickle) fails(call string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if call != f.call || f.left == 0 {
		return nil
	}
	f.left--
	return fmt.Errorf("%s: %w", call, f.err)
}

type fickleHandler struct {
	*fickle
	tally
}

func (h *fickleHandler) Open(context.Context, feed.Lease) error { return h.fails("Open") }

func (h *fickleHandler) Close(context.Context, feed.Lease, feed.Reason) error {
	return h.fails("Close")
}

func (h *fickleHandler) Handle(ctx context.Context, b *feed.Batch) error {
	if err := h.fails("Handle"); err != nil {
		return err
	}
	return h.tally.Handle(ctx, b)
}

type fickleSource struct {
	*fickle
	*hookedSource
}

func (s fickleSource) Partitions(ctx context.Context) ([]feed.Partition, error) {
	if err := s.fails("Partitions"); err != nil {
		return nil, err
	}
	return s.hookedSource.Partitions(ctx)
}

func (w *world) fickleSource(f *fickle) feed.Source {
	return fickleSource{f, &hookedSource{
		Container: w.orders,
		read: func(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
			if err := f.fails("Read"); err != nil {
				return feed.Page{}, err
			}
			return w.orders.Read(ctx, r, from, o)
		},
		wait: func(ctx context.Context, r feed.Range, from feed.Position) error {
			if err := f.fails("Wait"); err != nil {
				return err
			}
			return w.orders.Wait(ctx, r, from)
		},
	}}
}

func (w *world) fickleStore(f *fickle) feed.LeaseStore {
	return &hookedStore{
		Leases: w.leases,
		list: func(ctx context.Context) ([]feed.Record, time.Time, error) {
			if err := f.fails("List"); err != nil {
				return nil, time.Time{}, err
			}
			return w.leases.List(ctx)
		},
		create: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if err := f.fails("Create"); err != nil {
				return l, err
			}
			return w.leases.Create(ctx, l)
		},
		update: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if err := f.fails("Update"); err != nil && l.Kind == feed.KindLease {
				return l, err
			}
			return w.leases.Update(ctx, l)
		},
		delete: func(ctx context.Context, l feed.Record) error {
			if err := f.fails("Delete"); err != nil {
				return err
			}
			return w.leases.Delete(ctx, l)
		},
		follow: func(ctx context.Context, cursor string) ([]feed.Record, string, time.Time, error) {
			if err := f.fails("Follow"); err != nil {
				return nil, "", time.Time{}, err
			}
			return w.leases.Follow(ctx, cursor)
		},
	}
}

// refuses tells the answers that end Run at the start, by the documentation of Run and of
// the seams: a container that does not exist, a missing right, an input that is refused.
func refuses(call string, err error) bool {
	switch call {
	case "Partitions", "Read", "List", "Create":
		return errors.Is(err, feed.ErrNotFound) || errors.Is(err, feed.ErrForbidden) ||
			errors.Is(err, feed.ErrBadRequest)
	}
	return false
}

// Whatever error a handler, a source or a store returns a few times, the unit goes on and
// the instance stops in time: an exported error is never taken for a signal of our own.
func TestNoExportedErrorFromForeignCodeStopsALease(t *testing.T) {
	for i, call := range []string{
		"Open", "Handle", "Close", "Partitions", "Read", "Wait", "List", "Create", "Update",
		"Delete", "Follow",
	} {
		t.Run(call, func(t *testing.T) {
			failures := sentinels
			if detector.On { // each call has another
				failures = sentinels[i%len(sentinels):][:1]
			}
			for _, err := range failures {
				inWorld(t, 1, func(t *testing.T, w *world) { w.survives(call, err) })
			}
		})
	}
}

func (w *world) survives(call string, failure error) {
	const drain = 5 * time.Second
	w.fill(10)
	for _, begun := range []bool{false, true} { // while the instance begins its work, and in the midst of it
		f := &fickle{call: call, err: failure}
		h := &fickleHandler{fickle: f}
		if !begun {
			f.left = 2
		}
		p := w.runWith(w.fickleSource(f), w.fickleStore(f), "a", h, changefeed.Options{
			Start: feed.FromBeginning(), Drain: drain, RetryMax: time.Second,
			Hooks: changefeed.Hooks{Released: func(_ context.Context, l feed.Lease, why feed.Reason) {
				answered := call == "Update" && (errors.Is(failure, feed.ErrNotFound) ||
					errors.Is(failure, feed.ErrConflict))
				if why == feed.ReasonLost && !answered {
					w.t.Errorf("%s fails with %v: lease %s was lost", call, failure, l.Token)
				}
			}},
		})
		time.Sleep(time.Minute)
		select {
		case err := <-p.done:
			if begun || !refuses(call, failure) || !errors.Is(err, failure) {
				w.t.Errorf("%s fails with %v: Run returned %v", call, failure, err)
			}
			continue
		default:
		}
		f.mu.Lock()
		f.left = 2
		f.mu.Unlock()
		if begun {
			w.split(0)
		}
		w.fill(10)
		time.Sleep(150 * time.Second)
		if n := w.pending(); n != 0 {
			w.t.Errorf("%s fails twice with %v, begun %v: %d pending; reported %v", call, failure, begun, n,
				p.errs.all())
		}
		f.mu.Lock()
		f.left = 2
		f.mu.Unlock()
		if took := p.took(w.t); took > 4*drain {
			w.t.Errorf("%s fails with %v, begun %v: stopped after %v", call, failure, begun, took)
		}
		w.tiles()
	}
}

// A handler whose context has ended may return what it likes, too.
func TestACutHandlerThatReturnsAnExportedErrorFreesItsLease(t *testing.T) {
	for _, failure := range sentinels {
		inWorld(t, 1, func(t *testing.T, w *world) {
			h := feed.HandlerFunc(func(ctx context.Context, _ *feed.Batch) error {
				<-ctx.Done()
				return fmt.Errorf("downstream: %w", failure)
			})
			w.fill(1)
			p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning(), Drain: time.Second})
			time.Sleep(5 * time.Second)
			p.stop(t)
			if l := w.records(feed.KindLease); len(l) != 1 || !l[0].Free() || l[0].State != feed.StateLive {
				t.Errorf("a handler that is cut short returns %v: lease %v", failure, l)
			}
		})
	}
}

// Wait of a source may fail with the end of a context that is not the caller's.
func TestPullTellsAWaitThatWasCancelledByTheSource(t *testing.T) {
	for _, failure := range sentinels {
		inWorld(t, 1, func(t *testing.T, w *world) {
			var waits atomic.Int64
			source := &hookedSource{Container: w.orders, wait: func(ctx context.Context, _ feed.Range,
				_ feed.Position,
			) error {
				if waits.Add(1) > 100 {
					<-ctx.Done()
				}
				return failure
			}}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var failed error
			for _, err := range changefeed.Pull(ctx, source, feed.FullRange(),
				feed.Position{Start: feed.FromBeginning()}, changefeed.PullOptions{Follow: true}) {
				failed = err
			}
			if !errors.Is(failed, failure) {
				t.Errorf("Wait failed with %v, Pull ended with %v", failure, failed)
			}
		})
	}
}
