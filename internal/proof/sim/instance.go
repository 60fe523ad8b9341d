package sim

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// Processes: each an instance of the real processor, on a network of its own.

// instance is a process of the fleet.
type instance struct {
	name  string
	link  *link
	world *world
	opts  changefeed.Options
	dead  atomic.Bool

	stop context.CancelFunc
	ctx  context.Context

	// Of a call of an operator, which is no process but writes leases:
	steers bool
	wants  func(of feed.Range, at feed.Position) (wrong string) // of a call that resets
	single *single                                              // of a call that skips changes or replays a key

	// Under the world's lock.
	stopped time.Time // when it was asked to stop
	sound   time.Time // since when nothing has been wrong with it
	held    int       // leases that it works on
	down    bool      // it sees an outage
	hungry  time.Time // since when it has none, though it should
}

// String names the process, not only the instance.
func (i *instance) String() string { return fmt.Sprintf("%s@%p", i.name, i) }

// isDead reports whether the process was killed: its handlers may still run, and count for
// nothing.
func (i *instance) isDead() bool { return i.dead.Load() }

// isForeign reports that all promises hold for it.
func (i *instance) isForeign() bool { return false }

// start runs a new process under a name, which an old process may still use: then two owners
// are told apart by their epochs alone. Each process has a clock of its own, minutes off.
func (w *world) start(name string) {
	i := &instance{name: name, world: w, sound: time.Now()}
	i.link = &link{by: i, rng: w.fork(), skew: time.Duration(w.rng.Int64N(int64(10*time.Minute))) - 5*time.Minute}
	i.opts = w.optionsOf(i)
	i.ctx, i.stop = context.WithCancel(w.ctx)
	var handler feed.Handler = i
	endProgram := func() {}
	if w.weather.programs && i.link.rng.IntN(2) == 0 {
		behind := &program{of: i, ended: map[string]handled{}}
		handler, endProgram = behind, behind.end
	}
	p, err := changefeed.New(w.sourceOf(i), w.leasesOf(i), handler, i.opts)
	if err != nil {
		w.ledger.fail("new processor: %v", err)
		i.stop()
		return
	}
	w.mu.Lock()
	w.alive = append(w.alive, i)
	w.all = append(w.all, i)
	w.mu.Unlock()
	w.ledger.note("%s begins, expiration %v, drain %v", i, i.opts.Expiration, i.opts.Drain)
	// Run may return an error only for a process that was killed: no fault of a store
	// or of a link is a reason to give up.
	w.processes.Go(func() {
		err := p.Run(i.ctx)
		if err != nil && !i.isDead() {
			w.ledger.fail("run %s: %v", i, err)
		}
		i.checkReturned()
		endProgram() // a handler that ignores its context goes on in it
	})
}

// optionsOf are those of a new process.
func (w *world) optionsOf(i *instance) changefeed.Options {
	o := changefeed.Options{
		Instance: i.name, Mode: w.mode, Start: w.start0, MaxItems: 1 + w.rng.IntN(20), MinLeases: w.minLeases,
		Manual: w.weather.manual, Drain: defaultDrain, Expiration: defaultExpiration, Acquire: defaultAcquire,
		Renew: defaultRenew,
		Hooks: changefeed.Hooks{
			Ready:    w.markReady,
			Begun:    func(_ context.Context, u feed.NewUnit) { w.ledger.note("%s begins the unit: %+v", i, u) },
			Acquired: i.noteAcquired,
			Released: i.noteReleased,
			Outage:   i.noteOutage,
			Slow:     func(_ context.Context, b feed.SlowBatch) { w.ledger.note("%s has a slow batch: %+v", i, b) },
			Differing: func(_ context.Context, d feed.Difference) {
				w.ledger.note("%s sees instances that differ: %+v", i, d)
			},
			Error:  func(_ context.Context, err *feed.Error) { w.ledger.note("%s: %v", i, err) },
			Parked: func(_ context.Context, l feed.DeadLetter) { w.ledger.note("%s parks %s", i, l.ID) },
		},
	}
	o.Concurrency, o.OnFailure.MaxAttempts, o.OnFailure.HoldKeys = w.weather.at, w.weather.attempts, w.weather.hold
	o.OnFailure.MaxAge, o.BufferItems = w.weather.age, w.weather.buffer
	if o.OnFailure.MaxAttempts > 0 {
		o.OnFailure.DeadLetters = letters{i.link, w.box, w.ledger}
	}
	// Drawn in any case, so that a seed goes on with the same draws whether it is manual or not.
	if every := w.rng.IntN(2) * w.rng.IntN(30); !o.Manual {
		o.CheckpointItems = every
	}
	w.weather.drawIntervals(w.rng, &o)
	w.drawSharing(&o)
	return o
}

// drawSharing draws how a process shares the leases. Processes with one name have one weight. A process that begins
// later may ask for more leases, or for fewer, than the unit has.
func (w *world) drawSharing(o *changefeed.Options) {
	if w.weather.finer && w.sharing.IntN(2) == 0 {
		o.MinLeases = w.sharing.IntN(14)
	}
	if w.weather.weights && w.weights[o.Instance] == 0 {
		w.weights[o.Instance] = 1 + w.sharing.IntN(4)
	}
	o.Weight, o.ShareByLoad = w.weights[o.Instance], w.weather.loads
}

// The defaults of [changefeed.Options].
const (
	defaultDrain      = 10 * time.Second
	defaultExpiration = time.Minute
	defaultAcquire    = 13 * time.Second
	defaultRenew      = 17 * time.Second
)

// noteAcquired notes that the process has begun to work on a lease.
func (i *instance) noteAcquired(_ context.Context, lease feed.Lease) {
	i.world.ledger.noteAcquired(i, lease)
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	i.held++
}

// noteReleased notes that it has ended.
func (i *instance) noteReleased(_ context.Context, lease feed.Lease, why feed.Reason) {
	i.world.ledger.noteReleased(i, lease, why)
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	i.held--
}

// checkReturned checks that Run has returned in time after the process was asked to stop. A
// frozen process does not move, so the time of that does not count.
func (i *instance) checkReturned() {
	i.world.mu.Lock()
	since := i.stopped
	i.world.mu.Unlock()
	if thawed := i.link.thawsAt(); thawed.After(since) {
		since = thawed
	}
	const slack = time.Second
	if took := time.Since(since); !i.isDead() && took > 4*i.opts.Drain+slack {
		i.world.ledger.fail("run of %s returned after %v, with a drain time of %v", i, took, i.opts.Drain)
	}
}

// sourceOf is the source as a process has it.
func (w *world) sourceOf(i *instance) feed.Source {
	s := source{i.link, w.orders}
	if w.push {
		return pushed{s}
	}
	return s
}

// leasesOf is the lease store as a process has it, from the inside out: the store, its
// stepping clock, the witness, a planted bug, the network, and the history.
func (w *world) leasesOf(i *instance) feed.LeaseStore {
	// The witness stands behind the link, where writes arrive. The history stands
	// before it, because an owner acts on the answers that it gets.
	var store feed.LeaseStore = witness{stepping{w.unit, &w.clock}, w.ledger, i}
	if w.bug != nil {
		store = w.bug(store)
	}
	l := leases{i.link, store}
	if w.push {
		return w.history.recordRequests(i, followed{l})
	}
	return w.history.recordRequests(i, l)
}

// stopInOrder stops a process in good order.
func (i *instance) stopInOrder() {
	i.world.ledger.note("%s is stopped", i)
	i.leave()
	i.stop()
}

// kill ends a process without a goodbye: nothing of it reaches the stores any more. The link
// dies first, because what a context ends may still want to write.
func (i *instance) kill() {
	i.world.ledger.note("%s is killed", i)
	i.dead.Store(true)
	i.link.changeState(func(l *link) { l.dead = true })
	i.leave()
	i.stop()
}
