package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// relays run in this process, and share the leases of one unit.
type relays struct {
	source  feed.Source
	leases  *docstore.Leases
	running sync.WaitGroup
	all     []*running
}

// running is a relay that may be killed: then it reaches its leases no more, as if its process had ended.
type running struct {
	*docstore.Leases
	stop   context.CancelFunc
	killed atomic.Bool
	ended  chan struct{} // closed when the processor has returned
}

var errKilled = errors.New("the process is killed")

// start starts a relay.
func (r *relays) start(t testing.TB, handler feed.Handler, o changefeed.Options) *running {
	t.Helper()
	i := &running{Leases: r.leases, ended: make(chan struct{})}
	p, err := changefeed.New(r.source, i, handler, o)
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, i.stop = context.WithCancel(context.WithoutCancel(t.Context()))
	r.running.Go(func() {
		defer close(i.ended)
		if err := p.Run(ctx); err != nil && !i.killed.Load() {
			t.Errorf("run %s: %v", o.Instance, err)
		}
	})
	r.all = append(r.all, i)
	return i
}

// stop stops all relays, and waits for them.
func (r *relays) stop() {
	for _, i := range r.all {
		i.stop()
	}
	r.running.Wait()
}

// balanced waits until so many relays share the leases evenly.
func (r *relays) balanced(t testing.TB, n int) {
	t.Helper()
	for range 600 {
		records, _, err := r.leases.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		owned := map[string]int{}
		least, most := len(records), 0
		for _, record := range records {
			if record.Kind == feed.KindLease {
				owned[record.Owner]++
			}
		}
		for _, leases := range owned {
			least, most = min(least, leases), max(most, leases)
		}
		if len(owned) == n && owned[""] == 0 && most-least <= 1 {
			return
		}
		time.Sleep(time.Second)
	}
	t.Fatalf("the leases are not shared evenly by %d relays", n)
}

// kill ends a relay without a goodbye: its leases stay as they are, until they expire.
func (i *running) kill() {
	i.killed.Store(true)
	i.stop()
}

// answer is that of the lease store, unless the relay was killed meanwhile.
func (i *running) answer(err error) error {
	if i.killed.Load() {
		return errKilled
	}
	return err
}

// List implements [feed.LeaseStore].
func (i *running) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	records, now, err := i.Leases.List(ctx)
	return records, now, i.answer(err)
}

// Create implements [feed.LeaseStore].
func (i *running) Create(ctx context.Context, r feed.Record) (feed.Record, error) {
	if i.killed.Load() {
		return r, errKilled
	}
	stored, err := i.Leases.Create(ctx, r)
	return stored, i.answer(err)
}

// Update implements [feed.LeaseStore].
func (i *running) Update(ctx context.Context, r feed.Record) (feed.Record, error) {
	if i.killed.Load() {
		return r, errKilled
	}
	stored, err := i.Leases.Update(ctx, r)
	return stored, i.answer(err)
}

// Delete implements [feed.LeaseStore].
func (i *running) Delete(ctx context.Context, r feed.Record) error {
	if i.killed.Load() {
		return errKilled
	}
	return i.answer(i.Leases.Delete(ctx, r))
}
