package sim

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/millrace/changefeed"
)

// errNetwork is what a broken link answers.
var errNetwork = errors.New("network: connection reset")

// link is the network between one instance and the stores. It delays, loses requests,
// loses replies, delivers requests that the caller has given up on, throttles, freezes
// the whole instance, and breaks for a while or for good.
type link struct {
	skew time.Duration // the store's clock as this instance sees it

	mu     sync.Mutex
	rng    *rand.Rand
	calm   bool      // no faults any more
	dead   bool      // the process has been killed
	frozen time.Time // nothing moves until then, as in a stopped process
	cut    time.Time // requests fail until then
	hang   bool      // ... by never being answered
	full   time.Time // requests are throttled until then
}

// fate is what happens to one request.
type fate struct {
	before, after time.Duration
	err           error // instead of the effect
	hang          bool  // no effect, and no answer
	lost          bool  // the effect, but an error as answer
	late          bool  // the effect comes even if the caller no longer waits
}

func (l *link) fate() fate {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	f := fate{before: l.upTo(20 * time.Millisecond), after: time.Millisecond + l.upTo(20*time.Millisecond)}
	if wait := l.frozen.Sub(now); wait > 0 {
		f.before += wait
	}
	switch {
	case l.dead:
		f.err = errNetwork
	case l.cut.After(now):
		f.err, f.hang = errNetwork, l.hang
	case l.full.After(now):
		f.err = &changefeed.ThrottledError{After: l.upTo(5 * time.Second)}
	case l.calm:
	case l.rng.IntN(50) == 0:
		f.err = errNetwork
	case l.rng.IntN(50) == 0:
		f.lost = true
	case l.rng.IntN(80) == 0:
		f.before, f.late = l.upTo(20*time.Second), true
	case l.rng.IntN(80) == 0:
		f.after = l.upTo(20 * time.Second)
	}
	return f
}

// lateCreate is how long the creation of a lease may be on its way: longer than anybody
// waits for it.
const lateCreate = 4 * time.Minute

// fateOfCreate is what happens to the creation of a lease: there are few, and those whose
// callers have given up are the ones that can do harm.
func (l *link) fateOfCreate() fate {
	f := l.fate()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.calm && f.err == nil && l.rng.IntN(4) == 0 {
		return fate{before: l.upTo(lateCreate), late: true}
	}
	return f
}

func (l *link) upTo(d time.Duration) time.Duration { return time.Duration(l.rng.Int64N(int64(d))) }

// cross carries one request over the link.
func cross[T any](ctx context.Context, l *link, do func(context.Context) (T, error)) (T, error) {
	return carry(ctx, l, l.fate(), do)
}

// carry is cross with a fate that is known.
func carry[T any](ctx context.Context, l *link, f fate, do func(context.Context) (T, error)) (T, error) {
	var none T
	if f.hang {
		<-ctx.Done()
		return none, context.Cause(ctx)
	}
	if f.late {
		return late(ctx, f.before, do)
	}
	if err := sleep(ctx, f.before); err != nil {
		return none, err
	}
	if f.err != nil {
		return none, f.err
	}
	got, err := do(ctx)
	if waited := sleep(ctx, f.after); waited != nil {
		return none, waited
	}
	l.thaw(ctx)
	if f.lost && err == nil {
		return none, errNetwork
	}
	return got, err
}

// thaw holds an answer back while the instance is frozen, or was killed.
func (l *link) thaw(ctx context.Context) {
	l.mu.Lock()
	wait := time.Until(l.frozen)
	l.mu.Unlock()
	if wait > 0 {
		_ = sleep(context.WithoutCancel(ctx), wait)
	}
}

// late performs a request after a delay, whether or not the caller still waits.
func late[T any](ctx context.Context, delay time.Duration, do func(context.Context) (T, error)) (T, error) {
	type answer struct {
		got T
		err error
	}
	answers := make(chan answer, 1)
	time.AfterFunc(delay, func() {
		got, err := do(context.WithoutCancel(ctx))
		answers <- answer{got, err}
	})
	select {
	case a := <-answers:
		return a.got, a.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// leases is a lease store behind a link.
type leases struct {
	*link
	store changefeed.LeaseStore
}

func (s leases) List(ctx context.Context) ([]changefeed.Lease, time.Time, error) {
	type listing struct {
		records []changefeed.Lease
		now     time.Time
	}
	got, err := cross(ctx, s.link, func(ctx context.Context) (listing, error) {
		records, now, err := s.store.List(ctx)
		return listing{records, now}, err
	})
	return s.seen(got.records), got.now.Add(s.skew), err
}

// seen moves the store's times to the clock that this instance takes for the store's:
// the same as if its own clock were off by as much.
func (s leases) seen(records []changefeed.Lease) []changefeed.Lease {
	for i := range records {
		records[i] = s.shift(records[i], s.skew)
	}
	return records
}

func (s leases) shift(l changefeed.Lease, by time.Duration) changefeed.Lease {
	if !l.Updated.IsZero() {
		l.Updated = l.Updated.Add(by)
	}
	if !l.Fence.IsZero() {
		l.Fence = l.Fence.Add(by)
	}
	l.Position = shiftStart(l.Position, by)
	if start, err := changefeed.ParseStart(l.Properties["origin"]); err == nil { // of the marker
		l.Properties = maps.Clone(l.Properties)
		l.Properties["origin"] = shiftStart(changefeed.Position{Start: start}, by).Start.String()
	}
	return l
}

func shiftStart(p changefeed.Position, by time.Duration) changefeed.Position {
	if at := p.Start.Time(); !at.IsZero() {
		p.Start = changefeed.FromTime(at.Add(by))
	}
	return p
}

func (s leases) Create(ctx context.Context, l changefeed.Lease) (changefeed.Lease, error) {
	f := s.fate()
	if l.Kind == changefeed.KindLease {
		f = s.fateOfCreate()
	}
	got, err := carry(ctx, s.link, f, func(ctx context.Context) (changefeed.Lease, error) {
		return s.store.Create(ctx, s.shift(l, -s.skew))
	})
	return s.shift(got, s.skew), err
}

func (s leases) Update(ctx context.Context, l changefeed.Lease) (changefeed.Lease, error) {
	got, err := cross(ctx, s.link, func(ctx context.Context) (changefeed.Lease, error) {
		return s.store.Update(ctx, s.shift(l, -s.skew))
	})
	return s.shift(got, s.skew), err
}

func (s leases) Delete(ctx context.Context, l changefeed.Lease) error {
	_, err := cross(ctx, s.link, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.store.Delete(ctx, l)
	})
	return err
}

// followed is leases whose changes can be followed.
type followed struct{ leases }

func (s followed) Follow(ctx context.Context, cursor string) ([]changefeed.Lease, string, time.Time, error) {
	type news struct {
		changed []changefeed.Lease
		next    string
		now     time.Time
	}
	got, err := cross(ctx, s.link, func(ctx context.Context) (news, error) {
		changed, next, now, err := s.store.(changefeed.Follower).Follow(ctx, cursor)
		return news{changed, next, now}, err
	})
	return s.seen(got.changed), got.next, got.now.Add(s.skew), err
}

// source is a source behind a link.
type source struct {
	*link
	source changefeed.Source
}

func (s source) Partitions(ctx context.Context) ([]changefeed.Partition, error) {
	return cross(ctx, s.link, s.source.Partitions)
}

func (s source) Read(ctx context.Context, r changefeed.Range, from changefeed.Position, o changefeed.ReadOptions) (changefeed.Page, error) {
	return cross(ctx, s.link, func(ctx context.Context) (changefeed.Page, error) {
		page, err := s.source.Read(ctx, r, shiftStart(from, -s.skew), o)
		page.Next = shiftStart(page.Next, s.skew)
		return page, err
	})
}

// pushed is a source that can be waited for.
type pushed struct{ source }

func (s pushed) Wait(ctx context.Context, r changefeed.Range, from changefeed.Position) error {
	return s.source.source.(changefeed.Waiter).Wait(ctx, r, from)
}
