package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/pause"
)

// wire ties one instance to its leases. It counts the requests, and it can be cut: then
// the instance is as good as dead for the others, and knows nothing about it.
type wire struct {
	leases *docstore.Leases
	sent   *requests
	whole  context.Context // ends when the wire is cut
	cut    context.CancelFunc
}

// requests counts what is asked of a lease store.
type requests struct{ lists, writes, follows atomic.Int64 }

func (r *requests) all() int64 { return r.lists.Load() + r.writes.Load() + r.follows.Load() }

var errCutOff = errors.New("no route to the lease store")

func newWire(ctx context.Context, leases *docstore.Leases, sent *requests) *wire {
	w := &wire{leases: leases, sent: sent}
	w.whole, w.cut = context.WithCancel(context.WithoutCancel(ctx))
	return w
}

// through sends a request. One that is on its way when the wire is cut may arrive; its
// answer does not.
func through[T any](ctx context.Context, w *wire, send func(context.Context) (T, error)) (T, error) {
	var none T
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(w.whole, func() { cancel(errCutOff) })()
	if w.whole.Err() != nil {
		return none, errCutOff
	}
	got, err := send(ctx)
	if w.whole.Err() != nil {
		return none, errCutOff
	}
	return got, err
}

// List implements [changefeed.LeaseStore].
func (w *wire) List(ctx context.Context) (records []changefeed.Lease, now time.Time, err error) {
	w.sent.lists.Add(1)
	records, err = through(ctx, w, func(ctx context.Context) (got []changefeed.Lease, err error) {
		got, now, err = w.leases.List(ctx)
		return got, err
	})
	return records, now, err
}

// Create implements [changefeed.LeaseStore].
func (w *wire) Create(ctx context.Context, l changefeed.Lease) (changefeed.Lease, error) {
	w.sent.writes.Add(1)
	return through(ctx, w, func(ctx context.Context) (changefeed.Lease, error) { return w.leases.Create(ctx, l) })
}

// Update implements [changefeed.LeaseStore].
func (w *wire) Update(ctx context.Context, l changefeed.Lease) (changefeed.Lease, error) {
	w.sent.writes.Add(1)
	return through(ctx, w, func(ctx context.Context) (changefeed.Lease, error) { return w.leases.Update(ctx, l) })
}

// Delete implements [changefeed.LeaseStore].
func (w *wire) Delete(ctx context.Context, l changefeed.Lease) error {
	w.sent.writes.Add(1)
	_, err := through(ctx, w, func(ctx context.Context) (struct{}, error) { return struct{}{}, w.leases.Delete(ctx, l) })
	return err
}

// Follow implements [changefeed.Follower].
func (w *wire) Follow(ctx context.Context, cursor string) (changed []changefeed.Lease, next string, now time.Time, err error) {
	w.sent.follows.Add(1)
	changed, err = through(ctx, w, func(ctx context.Context) (got []changefeed.Lease, err error) {
		got, next, now, err = w.leases.Follow(ctx, cursor)
		return got, err
	})
	return changed, next, now, err
}

// instance is one processor of a fleet, on a wire of its own.
type instance struct {
	name  string
	wire  *wire
	stop  context.CancelFunc
	ended context.Context // ends when the processor has returned
	err   error           // of the processor, when it has ended
}

// kill ends an instance without a goodbye: its leases stay as they are.
func (i *instance) kill() {
	i.wire.cut()
	i.stop()
}

// fleet is instances of one unit that run in this process.
type fleet struct {
	source  changefeed.Source
	leases  *docstore.Leases
	look    time.Duration                    // the rhythm of those who wait for the fleet
	report  func(instance string, err error) // what an instance reports while its wire is whole; may be nil
	sent    requests                         // by all
	running sync.WaitGroup

	mu  sync.Mutex
	all []*instance
}

// instances are all that were started, in their order.
func (f *fleet) instances() []*instance {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.all)
}

// start starts an instance. It runs until it is stopped: the end of ctx does not end it,
// so that what was written can still be handled.
func (f *fleet) start(ctx context.Context, handler changefeed.Handler, o changefeed.Options) (*instance, error) {
	i := &instance{name: o.Instance, wire: newWire(ctx, f.leases, &f.sent)}
	o.Hooks.Error = func(err *changefeed.Error) {
		if f.report != nil && i.wire.whole.Err() == nil {
			f.report(i.name, err)
		}
	}
	p, err := changefeed.New(f.source, i.wire, handler, o)
	if err != nil {
		return nil, err
	}
	ctx, i.stop = context.WithCancel(context.WithoutCancel(ctx))
	var over context.CancelFunc
	i.ended, over = context.WithCancel(context.WithoutCancel(ctx))
	f.running.Go(func() {
		defer over()
		i.err = p.Run(ctx)
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, i)
	return i, nil
}

// stop stops all instances, waits for them, and returns what they failed with.
func (f *fleet) stop() error {
	for _, i := range f.instances() {
		i.stop()
	}
	f.running.Wait()
	var errs []error
	for _, i := range f.instances() {
		if i.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", i.name, i.err))
		}
		i.wire.cut()
	}
	return errors.Join(errs...)
}

// owners counts the leases of each instance; those of "" are free.
func (f *fleet) owners(ctx context.Context) (map[string]int, error) {
	records, _, err := f.leases.List(ctx)
	if err != nil {
		return nil, err
	}
	n := map[string]int{}
	for _, l := range records {
		if l.Kind == changefeed.KindLease && l.State == changefeed.StateLive {
			n[l.Owner]++
		}
	}
	return n, nil
}

// patience is how long somebody waits for a fleet.
const patience = 10 * time.Minute

// balanced waits until n instances share all leases evenly, and tells how long it took.
func (f *fleet) balanced(ctx context.Context, n int) (time.Duration, error) {
	return f.until(ctx, fmt.Sprintf("share their leases evenly among %d", n), func(owners map[string]int) bool {
		low, high := 1<<30, 0
		for _, held := range owners {
			low, high = min(low, held), max(high, held)
		}
		return owners[""] == 0 && len(owners) == n && high-low <= 1
	})
}

// until looks at the owners of the leases until they are as they should be.
func (f *fleet) until(ctx context.Context, what string, good func(map[string]int) bool) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("that took too long"))
	defer cancel()
	begun := time.Now()
	for {
		owners, err := f.owners(ctx)
		if err == nil && good(owners) {
			return time.Since(begun), nil
		}
		if err == nil {
			err = pause.For(ctx, f.look)
		}
		if err != nil {
			return 0, fmt.Errorf("wait for the instances to %s, now %v: %w", what, owners, err)
		}
		for _, i := range f.instances() {
			if i.ended.Err() != nil && i.err != nil {
				return 0, fmt.Errorf("run %s: %w", i.name, i.err)
			}
		}
	}
}
