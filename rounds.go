package changefeed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// How often a round comes, in parts of [Options.Acquire].
const (
	listRounds     = 10 // a followed view is listed anew after so many rounds
	overdueRounds  = 2  // a lease that nobody took or gave for so many rounds is anybody's
	roundsPerEvent = 50 // news can make rounds come so much faster, no more
)

// rounds balances until ctx ends.
func (r *run) rounds(ctx context.Context) {
	for ctx.Err() == nil {
		expecting := r.round(ctx)
		wait := jitter(r.rng, r.opts.Acquire)
		if expecting && !r.follower.live.Load() {
			wait = r.opts.Acquire / 10 // leases are on their way to us
		}
		if !pause(ctx, r.opts.Acquire/roundsPerEvent) {
			return
		}
		r.await(ctx, min(wait, r.untilExpiry()))
	}
}

// untilExpiry is how long until the next lease of another owner expires, or may be begun
// with, counted from the last plan: whoever survives it need not find that out by chance.
func (r *run) untilExpiry() time.Duration {
	now := r.view.now()
	soonest := r.opts.Expiration
	leases, _ := r.view.leases()
	for _, l := range leases {
		if at := l.takeable(r.opts.Expiration); !at.Before(r.planned) && l.owner() != r.me {
			soonest = min(soonest, at.Sub(now))
		}
	}
	return soonest + jitter(r.rng, r.opts.Acquire/roundsPerEvent)
}

// await waits for news, for at most d.
func (r *run) await(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-r.kick:
	case <-timer.C:
	}
}

// wake makes the next round come at once.
func (r *run) wake() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// round looks at the leases once and does what the plan says. It tells whether others
// are about to give us leases.
func (r *run) round(ctx context.Context) (expecting bool) {
	r.past.mended(OriginBalancer, OriginLeaseStore, OriginSource)
	s, p, listed, err := r.plan(ctx)
	if err != nil {
		r.planned = r.view.now() // what expires in an outage is no reason to ask more often
		r.report(ctx, OriginBalancer, "", err)
		return false
	}
	if listed {
		r.dropRedundant()
		r.checkCover(ctx)
		r.presence.clean(ctx)
	}
	r.noteOverdue(s)
	done := Round{Leases: len(s.leases), Instances: len(s.hosts), Owned: r.claims.held(), Listed: listed}
	done.Taken = r.acquire(ctx, append(p.take, r.handedOver(s)...))
	done.Stolen = r.acquire(ctx, p.steal)
	done.Given = r.giveAway(p.give)
	r.past.over(done)
	r.hooks.Round(done)
	return p.expected > 0
}

// plan makes the plan of a round. A theft is planned by a listing, because a stale view
// must not cost anybody a lease.
func (r *run) plan(ctx context.Context) (s situation, p plan, listed bool, err error) {
	if listed, err = r.look(ctx); err != nil {
		return s, p, listed, err
	}
	s = r.situation()
	p = balance(s, r.me)
	if len(p.steal) == 0 || listed {
		return s, p, listed, nil
	}
	if err := r.view.list(ctx, time.Now()); err != nil {
		return s, p, false, err
	}
	s = r.situation()
	return s, balance(s, r.me), true, nil
}

// look lists the records, unless they are being followed and were listed not long ago.
func (r *run) look(ctx context.Context) (listed bool, err error) {
	age := time.Since(r.view.listedAt())
	if r.follower.live.Load() && age < listRounds*r.opts.Acquire {
		return false, nil
	}
	return true, r.view.list(ctx, time.Now())
}

// situation is the view as the balancer sees it. Documents that are no leases, or
// leases for a range that has one, are reported once and left alone.
func (r *run) situation() situation {
	good, bad := r.view.placed()
	for _, l := range bad {
		if !r.reported[l.ID] && !errors.Is(l.Err, ErrOverlap) { // overlaps may pass: see checkCover
			r.reported[l.ID] = true
			r.raise(&Error{Origin: OriginLeaseStore, Lease: l.Token, Err: l.Err})
		}
	}
	r.planned = r.view.now()
	s := situation{leases: good, now: r.planned, expiration: r.opts.Expiration, overdue: map[string]bool{}}
	s.hosts = append(s.hosts, r.me)
	for _, h := range r.view.kind(KindHost) {
		alive := h.Err == nil && h.State == StateLive && s.now.Sub(h.Updated) <= h.Expiration+clockGrain
		if alive && h.owner() != r.me {
			s.hosts = append(s.hosts, h.owner())
		}
	}
	for id, since := range r.overdue {
		s.overdue[id] = time.Since(since) > overdueRounds*r.opts.Acquire+r.opts.Drain
	}
	return s
}

// noteOverdue keeps since when each lease has been free, or should have been given to us.
func (r *run) noteOverdue(s situation) {
	w := weigh(s)
	waiting := map[string]time.Time{}
	note := func(l Record) {
		since, known := r.overdue[l.ID]
		if !known {
			since = time.Now()
		}
		waiting[l.ID] = since
	}
	for _, l := range slices.Concat(w.free, w.orphans) {
		note(l)
	}
	for _, from := range w.workers {
		if from == r.me {
			continue
		}
		for _, l := range w.surplus(from) {
			note(l)
		}
	}
	r.overdue = waiting
}

// handedOver lists the leases that name this process as owner but are not being
// worked on: given by others, or ours from a write whose answer was lost.
func (r *run) handedOver(s situation) (mine []Record) {
	for _, l := range s.leases {
		if _, begun := r.claims.worker(l.Range); !begun && l.owner() == r.me && !l.expired(s.now, s.expiration) {
			mine = append(mine, l)
		}
	}
	return mine
}

// acquire takes leases and starts to work on them; it returns how many it got. After one
// round's time it is time for a new plan: a slow store takes many rounds, at once after
// each other.
func (r *run) acquire(ctx context.Context, leases []Record) int {
	var got atomic.Int64
	bounded, cancel := context.WithTimeout(ctx, r.opts.Acquire)
	defer cancel()
	together(bounded, len(leases), func(i int) {
		if r.take(bounded, leases[i]) {
			got.Add(1)
		}
	})
	if bounded.Err() != nil {
		r.wake()
	}
	return int(got.Load())
}

// together calls f for each of n numbers, several at a time, until ctx ends.
func together(ctx context.Context, n int, f func(i int)) {
	const atOnce = 25 // as many as the service's own processors
	slots := make(chan struct{}, atOnce)
	var calls sync.WaitGroup
	defer calls.Wait()
	for i := range n {
		if slots <- struct{}{}; ctx.Err() != nil {
			return
		}
		calls.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
}

// take makes a lease ours and starts to work on it.
func (r *run) take(ctx context.Context, seen Record) bool {
	if !r.claims.claim(seen.Range) {
		return false // it is ours already, though the view may not know
	}
	if seen.untouched() && r.view.covers(seen) { // once it is taken, that can no longer be told
		r.report(ctx, OriginLeaseStore, seen.Token, r.discard(ctx, seen))
		r.claims.free(seen.Range)
		return false
	}
	if !r.tryTake(ctx, seen) {
		r.claims.free(seen.Range)
		return false
	}
	return true
}

func (r *run) tryTake(ctx context.Context, seen Record) bool {
	l := seen
	l.Owner, l.Epoch, l.Expiration = r.me.instance, r.me.epoch, r.opts.Expiration
	l.Fence = r.fence(seen)
	var started time.Time
	var got Record
	err := r.paced(ctx, r.random("take "+seen.Token), seen.Token, func() (err error) {
		writing, cancel := linger(ctx, r.opts.Drain)
		defer cancel()
		started, l.Timestamp = time.Now(), timestamp()
		got, err = r.store.Update(writing, l)
		return err
	})
	switch {
	case errors.Is(err, ErrNotFound):
		r.view.drop(seen.ID)
		return false
	case errors.Is(err, ErrConflict):
		r.view.distrust() // somebody else was faster
		return false
	case err != nil:
		r.view.distrust()
		r.report(ctx, OriginLeaseStore, seen.Token, fmt.Errorf("acquire: %w", err))
		return false
	}
	r.view.put(got)
	r.start(got, started)
	return true
}

// fence tells until when, by the store's clock, the new owner of a lease must wait: an
// owner that did not give it away trusts it until it would have expired, and hears of
// us only when it next writes.
func (r *run) fence(seen Record) time.Time {
	now := r.view.now()
	given := seen.Free() || seen.owner() == r.me
	if given || seen.expired(now, r.opts.Expiration) {
		if seen.Fence.After(now) {
			return seen.Fence
		}
		return time.Time{}
	}
	return seen.Updated.Add(max(seen.Expiration, r.opts.Expiration) + clockGrain)
}

// start begins to work on a claimed lease that is ours since a write begun at started.
func (r *run) start(l Record, started time.Time) {
	w := newWorker(r, l, started)
	r.claims.begin(w)
	r.work.Go(func() {
		if w.work() != ReasonStuck {
			r.claims.free(l.Range)
			r.wake()
		}
	})
}

// giveAway tells workers to hand their leases over.
func (r *run) giveAway(give map[Range]owner) int {
	n := 0
	for of, to := range give {
		if w, _ := r.claims.worker(of); w != nil && w.stop(ending{why: ReasonGiven, to: to}) {
			n++
		}
	}
	return n
}

// report tells Hooks.Error, unless the error is only that ctx has ended.
func (r *run) report(ctx context.Context, from Origin, lease string, err error) {
	if err == nil || ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return
	}
	r.raise(&Error{Origin: from, Lease: lease, Err: err})
}

// raise calls Hooks.Error, and has the error stand in the status of the instance or of the
// lease.
func (r *run) raise(err *Error) {
	if err.Lease == "" {
		r.past.failed(err)
	}
	r.hooks.Error(err)
}

// claims are the ranges that this process works on, or is about to. A range is claimed
// before anything is written for it: the feed of the leases may tell the rounds of a write
// before the writer hears of it.
type claims struct {
	mu       sync.Mutex
	workers  map[Range]*worker // nil while the lease is being acquired
	stopping bool
}

// claim reserves a range, unless it is taken.
func (c *claims) claim(of Range) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, taken := c.workers[of]; taken {
		return false
	}
	c.workers[of] = nil
	return true
}

// free ends a claim; the range may be taken again.
func (c *claims) free(of Range) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.workers, of)
}

// begin puts a worker on the range that was claimed for it.
func (c *claims) begin(w *worker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.workers[w.lease.Range] = w
	if c.stopping {
		w.stop(ending{why: ReasonStopped})
	}
}

// stop stops all workers, and those that may yet begin.
func (c *claims) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopping = true
	for _, w := range c.workers {
		if w != nil {
			w.stop(ending{why: ReasonStopped})
		}
	}
}

// worker is who works on a range, if it is claimed.
func (c *claims) worker(of Range) (w *worker, claimed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, claimed = c.workers[of]
	return w, claimed
}

// all are the workers, and whether they were told to stop.
func (c *claims) all() (workers []*worker, stopping bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.workers {
		if w != nil {
			workers = append(workers, w)
		}
	}
	return workers, c.stopping
}

// held is how many ranges are claimed.
func (c *claims) held() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.workers)
}
