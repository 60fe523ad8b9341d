package sim

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed"
)

// instance is one process of the fleet.
type instance struct {
	name  string
	link  *link
	world *world
	dead  atomic.Bool

	stop context.CancelFunc
}

// String names the process, not only the instance.
func (i *instance) String() string { return fmt.Sprintf("%s@%p", i.name, i) }

func (i *instance) isDead() bool { return i.dead.Load() }

var errHandler = errors.New("handler: downstream is not there")

// Handle is the delegate: mostly quick, sometimes slow, failing, panicking or deaf.
func (i *instance) Handle(ctx context.Context, b *changefeed.Batch) error {
	c := i.world.ledger.begin(ctx, i, b)
	err := i.handle(ctx)
	i.link.thaw(ctx)
	i.world.ledger.end(c, err == nil)
	return err
}

func (i *instance) handle(ctx context.Context) error {
	d := i.world.dice()
	switch {
	case i.link.isCalm():
		return sleep(ctx, time.Millisecond)
	case d.IntN(20) == 0:
		return errHandler
	case d.IntN(100) == 0:
		panic("handler: unexpected")
	case d.IntN(60) == 0:
		return sleep(ctx, time.Duration(d.Int64N(int64(25*time.Second)))) // heeds its context
	case d.IntN(60) == 0:
		return sleep(context.WithoutCancel(ctx), time.Duration(d.Int64N(int64(15*time.Second)))) // does not
	}
	return sleep(ctx, time.Duration(d.Int64N(int64(50*time.Millisecond))))
}

func (l *link) isCalm() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calm
}

// start runs a new process under a name, which an old one may still use.
func (w *world) start(name string) {
	i := &instance{
		name: name, world: w,
		link: &link{rng: w.fork(), calm: w.calm, skew: time.Duration(w.rng.Int64N(int64(10*time.Minute))) - 5*time.Minute},
	}
	ctx, cancel := context.WithCancel(w.ctx)
	i.stop = cancel
	w.alive = append(w.alive, i)
	w.all = append(w.all, i)
	p, err := changefeed.New(w.sourceOf(i), w.leasesOf(i), i, changefeed.Options{
		Instance: name, Mode: w.mode, Start: w.start0, MaxItems: 1 + w.rng.IntN(20), MinLeases: w.minLeases,
		CheckpointItems: w.rng.IntN(2) * w.rng.IntN(30),
		Hooks: changefeed.Hooks{
			Ready:    w.markReady,
			Acquired: func(l changefeed.Lease) { w.ledger.note("%s has %s/%s at %v", i, l.Token, l.Epoch, l.Position) },
			Released: func(l changefeed.Lease, why changefeed.Reason) {
				w.ledger.note("%s released %s: %s", i, l.Token, why)
			},
			Error: func(err *changefeed.Error) { w.ledger.note("%s: %v", i, err) },
		},
	})
	if err != nil {
		w.ledger.breach("new processor: %v", err)
		cancel()
		return
	}
	w.processes.Go(func() {
		if err := p.Run(ctx); err != nil && !i.isDead() {
			w.ledger.fail("run %s: %v", i, err)
		}
	})
}

func (w *world) sourceOf(i *instance) changefeed.Source {
	s := source{i.link, w.orders}
	if w.push {
		return pushed{s}
	}
	return s
}

func (w *world) leasesOf(i *instance) changefeed.LeaseStore {
	var store changefeed.LeaseStore = witness{w.units[0], w.ledger, i}
	if w.bug != nil {
		store = w.bug(store)
	}
	l := leases{i.link, store}
	if w.push {
		return followed{l}
	}
	return l
}

// kill ends a process without a goodbye: nothing of it reaches the stores any more.
func (i *instance) kill() {
	i.world.ledger.note("%s is killed", i)
	i.dead.Store(true)
	i.link.mu.Lock()
	i.link.dead = true
	i.link.mu.Unlock()
	i.stop()
}
