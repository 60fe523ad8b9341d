package fleet

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
)

// An instance cannot be killed while its process lives on: its goroutines still run.
// But nothing of it reaches the leases any more when its wire is cut, which is all that
// others can know of a death.

// Leases is a lease store that can be followed.
type Leases interface {
	feed.LeaseStore
	feed.Follower
}

// A Wire is a lease store that can be cut off: then its instance is as good as dead for the others, and does not know
// it. It counts the requests.
type Wire struct {
	leases Leases
	sent   *Requests

	mu    sync.Mutex
	whole context.Context // ends when the wire is cut
	cut   context.CancelFunc
}

// Requests counts what is asked of a lease store.
type Requests struct{ Lists, Writes, Follows atomic.Int64 }

// All is the number of requests of all kinds.
func (r *Requests) All() int64 { return r.Lists.Load() + r.Writes.Load() + r.Follows.Load() }

// ErrCutOff is the answer of a wire that is cut.
var ErrCutOff = errors.New("no route to the lease store")

// NewWire makes a wire to a lease store, which counts its requests in sent. The end of ctx does not cut it.
func NewWire(ctx context.Context, leases Leases, sent *Requests) *Wire {
	w := &Wire{leases: leases, sent: sent, whole: ctx}
	w.Mend()
	return w
}

// Cut cuts the wire. A request that is on its way may still arrive; its answer does not.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut()
}

// Mend makes the wire whole.
func (w *Wire) Mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.whole, w.cut = context.WithCancel(context.WithoutCancel(w.whole))
}

// IsCut reports whether the wire is cut.
func (w *Wire) IsCut() bool { return w.now().Err() != nil }

// now is the context of the wire as it is.
func (w *Wire) now() context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.whole
}

// through sends a request.
func through[T any](ctx context.Context, w *Wire, send func(context.Context) (T, error)) (T, error) {
	var none T
	whole := w.now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(whole, func() { cancel(ErrCutOff) })()
	if whole.Err() != nil {
		return none, ErrCutOff
	}
	got, err := send(ctx)
	if whole.Err() != nil {
		return none, ErrCutOff
	}
	return got, err
}

// List implements [feed.LeaseStore].
func (w *Wire) List(ctx context.Context) (records []feed.Record, now time.Time, err error) {
	w.sent.Lists.Add(1)
	records, err = through(ctx, w, func(ctx context.Context) (got []feed.Record, err error) {
		got, now, err = w.leases.List(ctx)
		return got, err
	})
	return records, now, err
}

// Create implements [feed.LeaseStore].
func (w *Wire) Create(ctx context.Context, record feed.Record) (feed.Record, error) {
	w.sent.Writes.Add(1)
	return through(ctx, w, func(ctx context.Context) (feed.Record, error) { return w.leases.Create(ctx, record) })
}

// Update implements [feed.LeaseStore].
func (w *Wire) Update(ctx context.Context, record feed.Record) (feed.Record, error) {
	w.sent.Writes.Add(1)
	return through(ctx, w, func(ctx context.Context) (feed.Record, error) { return w.leases.Update(ctx, record) })
}

// Delete implements [feed.LeaseStore].
func (w *Wire) Delete(ctx context.Context, record feed.Record) error {
	w.sent.Writes.Add(1)
	_, err := through(ctx, w, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, w.leases.Delete(ctx, record)
	})
	return err
}

// Follow implements [feed.Follower].
func (w *Wire) Follow(ctx context.Context, cursor string) (changed []feed.Record, next string, now time.Time,
	err error,
) {
	w.sent.Follows.Add(1)
	changed, err = through(ctx, w, func(ctx context.Context) (got []feed.Record, err error) {
		got, next, now, err = w.leases.Follow(ctx, cursor)
		return got, err
	})
	return changed, next, now, err
}
