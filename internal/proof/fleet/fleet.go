// Package fleet runs the instances of a unit in one process, each on a wire of its own to their leases that can be cut,
// and compares what was written with what they have handled. The demo, the benchmarks and tests of the processor are
// made of it.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// An Instance is one processor of a fleet.
type Instance struct {
	name  string
	wire  *Wire
	stop  context.CancelFunc
	ended context.Context // ends when the processor has returned
	err   error           // of the processor, when it has ended
}

// Name is the instance's name in the leases.
func (i *Instance) Name() string { return i.name }

// Ended is closed when the processor has returned.
func (i *Instance) Ended() <-chan struct{} { return i.ended.Done() }

// Killed reports whether the instance was killed, or its fleet has stopped.
func (i *Instance) Killed() bool { return i.wire.IsCut() }

// Kill ends an instance without a goodbye: its leases stay as they are.
func (i *Instance) Kill() {
	i.wire.Cut()
	i.stop()
}

// Leave ends an instance in order, as SIGTERM does: it hands its leases over. Leave does not wait.
func (i *Instance) Leave() { i.stop() }

// A Fleet is the instances of one unit that run in this process.
type Fleet struct {
	Source feed.Source
	Leases Leases
	Look   time.Duration                    // between two looks at the leases, for whoever waits for the fleet
	Report func(instance string, err error) // gets the errors of instances that were not killed; may be nil
	Sent   Requests                         // by all instances

	running sync.WaitGroup

	mu  sync.Mutex
	all []*Instance
}

// Instances returns all that were started, in their order.
func (f *Fleet) Instances() []*Instance {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.all)
}

// Start starts an instance. It runs until it is stopped: the end of ctx does not end it, so that changes that were
// written can still be handled.
func (f *Fleet) Start(ctx context.Context, handler feed.Handler, o changefeed.Options) (*Instance, error) {
	i := &Instance{name: o.Instance, wire: NewWire(ctx, f.Leases, &f.Sent)}
	o.Hooks.Error = func(_ context.Context, err *feed.Error) {
		if f.Report != nil && !i.Killed() {
			f.Report(i.name, err)
		}
	}
	p, err := changefeed.New(f.Source, i.wire, handler, o)
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

// Stop stops all instances, waits for them, and returns their errors.
func (f *Fleet) Stop() error {
	for _, i := range f.Instances() {
		i.stop()
	}
	f.running.Wait()
	var errs []error
	for _, i := range f.Instances() {
		if i.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", i.name, i.err))
		}
		i.wire.Cut()
	}
	return errors.Join(errs...)
}

// Owners counts the leases of each instance; those of "" are free.
func (f *Fleet) Owners(ctx context.Context) (map[string]int, error) {
	records, _, err := f.Leases.List(ctx)
	if err != nil {
		return nil, err
	}
	n := map[string]int{}
	for _, record := range records {
		if record.Kind == feed.KindLease && record.State == feed.StateLive {
			n[record.Owner]++
		}
	}
	return n, nil
}

// patience is how long to wait for a fleet.
const patience = 10 * time.Minute

// Balanced waits until n instances share all leases evenly, and returns how long that took.
func (f *Fleet) Balanced(ctx context.Context, n int) (time.Duration, error) {
	return f.Until(ctx, fmt.Sprintf("share their leases evenly among %d", n), func(owners map[string]int) bool {
		low, high := 1<<30, 0
		for _, held := range owners {
			low, high = min(low, held), max(high, held)
		}
		return owners[""] == 0 && len(owners) == n && high-low <= 1
	})
}

// Until looks at the owners of the leases until they are good, and returns how long that took. Its error says what it
// waited for.
func (f *Fleet) Until(ctx context.Context, wanted string, good func(map[string]int) bool) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("that took too long"))
	defer cancel()
	begun := time.Now()
	for {
		owners, err := f.Owners(ctx)
		if err == nil && good(owners) {
			return time.Since(begun), nil
		}
		if err == nil {
			err = pause.For(ctx, f.Look)
		}
		if err != nil {
			return 0, fmt.Errorf("wait for the instances to %s, now %v: %w", wanted, owners, err)
		}
		for _, i := range f.Instances() {
			if i.ended.Err() != nil && i.err != nil {
				return 0, fmt.Errorf("run %s: %w", i.name, i.err)
			}
		}
	}
}
