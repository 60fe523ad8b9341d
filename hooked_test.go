package changefeed_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// hookedStore is a lease store whose methods can be replaced one by one.
type hookedStore struct {
	*docstore.Leases
	list   func(context.Context) ([]feed.Record, time.Time, error)
	create func(context.Context, feed.Record) (feed.Record, error)
	update func(context.Context, feed.Record) (feed.Record, error)
	delete func(context.Context, feed.Record) error
	follow func(context.Context, string) ([]feed.Record, string, time.Time, error)
}

func (s *hookedStore) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	if s.list != nil {
		return s.list(ctx)
	}
	return s.Leases.List(ctx)
}

func (s *hookedStore) Create(ctx context.Context, l feed.Record) (feed.Record, error) {
	if s.create != nil {
		return s.create(ctx, l)
	}
	return s.Leases.Create(ctx, l)
}

func (s *hookedStore) Update(ctx context.Context, l feed.Record) (feed.Record, error) {
	if s.update != nil {
		return s.update(ctx, l)
	}
	return s.Leases.Update(ctx, l)
}

func (s *hookedStore) Delete(ctx context.Context, l feed.Record) error {
	if s.delete != nil {
		return s.delete(ctx, l)
	}
	return s.Leases.Delete(ctx, l)
}

func (s *hookedStore) Follow(ctx context.Context, cursor string) ([]feed.Record, string, time.Time, error) {
	if s.follow != nil {
		return s.follow(ctx, cursor)
	}
	return s.Leases.Follow(ctx, cursor)
}

// farAway is a lease store with a delay each way.
func farAway(l *docstore.Leases, d time.Duration) *hookedStore {
	return &hookedStore{
		Leases: l,
		list: func(ctx context.Context) ([]feed.Record, time.Time, error) {
			time.Sleep(d)
			defer time.Sleep(d)
			return l.List(ctx)
		},
		create: func(ctx context.Context, r feed.Record) (feed.Record, error) {
			time.Sleep(d)
			defer time.Sleep(d)
			return l.Create(ctx, r)
		},
		update: func(ctx context.Context, r feed.Record) (feed.Record, error) {
			time.Sleep(d)
			defer time.Sleep(d)
			return l.Update(ctx, r)
		},
		delete: func(ctx context.Context, r feed.Record) error {
			time.Sleep(d)
			defer time.Sleep(d)
			return l.Delete(ctx, r)
		},
	}
}

// hookedSource is a source whose methods can be replaced one by one.
type hookedSource struct {
	*docstore.Container
	read func(context.Context, feed.Range, feed.Position, feed.ReadOptions) (feed.Page, error)
	wait func(context.Context, feed.Range, feed.Position) error
}

func (s *hookedSource) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page,
	error,
) {
	if s.read != nil {
		return s.read(ctx, r, from, o)
	}
	return s.Container.Read(ctx, r, from, o)
}

func (s *hookedSource) Wait(ctx context.Context, r feed.Range, from feed.Position) error {
	if s.wait != nil {
		return s.wait(ctx, r, from)
	}
	return s.Container.Wait(ctx, r, from)
}

// busyLoop is how many calls a fake answers at once before it lets time pass: in virtual
// time a loop without a pause would never end.
const busyLoop = 20_000

// runWith starts an instance on a source and a lease store of its own.
func (w *world) runWith(s feed.Source, l feed.LeaseStore, name string, h feed.Handler, o changefeed.Options) *process {
	w.t.Helper()
	p := &process{done: make(chan error, 1), errs: &errorLog{}}
	o.Instance = name
	o.Hooks.Error = p.errs.add
	processor, err := changefeed.New(s, l, h, o)
	if err != nil {
		w.t.Fatal(err)
	}
	p.processor = processor
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(w.t.Context())
	go func() { p.done <- processor.Run(ctx) }()
	return p
}

// runToCrash starts an instance that dies after so many steps of its first split.
func (w *world) runToCrash(left int, name string, h feed.Handler, o changefeed.Options) *process {
	w.t.Helper()
	p := &process{done: make(chan error, 1), errs: &errorLog{}}
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(w.t.Context())
	o.Instance, o.Drain = name, time.Second
	o.Hooks.Error = func(_ context.Context, err *feed.Error) {
		p.errs.add(w.t.Context(), err)
		if errors.Is(err, errCrash) {
			p.cancel()
		}
	}
	processor, err := changefeed.New(w.orders, &step{Leases: w.leases, left: left}, h, o)
	if err != nil {
		w.t.Fatal(err)
	}
	go func() { p.done <- processor.Run(ctx) }()
	return p
}

// until waits for something to come true and tells how long that took. After most it
// fails the test and gives up.
func (w *world) until(most time.Duration, what string, holds func() bool) time.Duration {
	w.t.Helper()
	start := time.Now()
	for !holds() {
		if time.Since(start) > most {
			w.t.Errorf("after %v: not %s", most, what)
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return time.Since(start)
}

// took stops an instance and tells how long that took.
func (p *process) took(t *testing.T) time.Duration {
	t.Helper()
	start := time.Now()
	p.stop(t)
	return time.Since(start)
}

// all is what has been reported so far.
func (e *errorLog) all() []*feed.Error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.errs)
}

// deleteLeases removes the unit's leases and leaves its other records.
func (w *world) deleteLeases() {
	w.t.Helper()
	for _, l := range w.records(feed.KindLease) {
		if err := w.leases.Delete(w.t.Context(), l); err != nil {
			w.t.Fatal(err)
		}
	}
}
