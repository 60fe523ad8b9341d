package changefeed

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/balance"
	"github.com/millrace/changefeed/internal/delivery"
	"github.com/millrace/changefeed/internal/latest"
	"github.com/millrace/changefeed/internal/pause"
)

// Processor reads the change feed of a source with as many other instances as share
// its leases, and hands the changes to a handler. It is made by [New].
type Processor struct {
	source  feed.Source
	store   patientStore
	handler feed.Handler
	opts    Options

	runs latest.Set[string, *run] // that are under way, by their epochs
}

// New makes a processor. The lease store names the deployment unit: processors with the
// same store name share the work, those with different names each see every change.
// An option that makes no sense is an [*OptionError].
func New(source feed.Source, leases feed.LeaseStore, handler feed.Handler, o Options) (*Processor, error) {
	switch {
	case source == nil:
		return nil, &OptionError{"source", "nil", "a Source, such as a docstore.Container"}
	case leases == nil:
		return nil, &OptionError{"leases", "nil", "a LeaseStore, such as docstore.Leases"}
	case isNil(handler):
		return nil, &OptionError{"handler", "nil", "a Handler, such as a HandlerFunc"}
	}
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	return &Processor{source: source, store: patientStore{leases}, handler: handler, opts: o}, nil
}

func isNil(h feed.Handler) bool {
	f, isFunc := h.(feed.HandlerFunc)
	return h == nil || isFunc && f == nil
}

// Run works until ctx ends, then lets each batch in hand finish, stores the positions,
// releases the leases and returns nil. It returns an error only for what cannot mend itself: at
// the start a mode or start that does not fit the existing leases, a container that does not exist,
// a missing right; later [feed.ErrLeasesGone] or [feed.ErrSourceGone]. All else is reported to [Hooks.Error] and retried.
//
// When ctx ends, Run returns within four times [Options.Drain], whatever it is about: the
// batch in hand may go on for one Drain, has another to heed the end of its context, then
// [feed.Closer] and the release of the lease have one each. That holds with a source or a lease
// store that does not answer, if their calls end with their contexts, and with a handler
// that does not return: it is left behind, and its lease to expire.
//
// It may be called again after it has returned, and even several times at once: each
// call is an instance of its own.
func (p *Processor) Run(ctx context.Context) error {
	r := p.newRun(ctx)
	p.runs.Put(r.me.Epoch, r)
	defer p.runs.Remove(r.me.Epoch)
	if err := r.bootstrap(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	r.warnOfKeys()
	r.ready.Store(true)
	r.hooks.Ready()
	working, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(working, r.claims.stop)()
	var around sync.WaitGroup
	around.Go(func() { r.follower.run(working) })
	around.Go(func() { r.presence.run(working) })
	gone := r.balancer.rounds(working)
	end()
	around.Wait()
	r.leave(errors.Is(gone, feed.ErrLeasesGone))
	return gone
}

// run is one call of [Processor.Run]: one owner of leases.
type run struct {
	*Processor
	hooks Hooks
	me    balance.Owner
	view  *view
	base  context.Context // values of the caller's context, without its end
	seed  uint64
	kick  chan struct{} // there is news: do not wait for the next round
	phase time.Time     // leases are renewed at whole intervals from here, so all together
	work  sync.WaitGroup

	claims   claims
	breaker  *delivery.Breaker
	balancer balancer
	follower follower
	presence presence
	ready    atomic.Bool                  // the unit's leases exist
	began    atomic.Pointer[feed.NewUnit] // if this instance has made them
	absence  absence
	shared   atomic.Bool // another kind of processor owns leases of the unit
	last     latest.Value[feed.Round]
	troubles latest.Set[feed.Origin, *feed.Error] // that concern no single lease
}

func (p *Processor) newRun(ctx context.Context) *run {
	epoch := rand.Text()[:epochLength]
	seed := fnv.New64a()
	fmt.Fprint(seed, p.opts.Instance, epoch)
	r := &run{
		Processor: p,
		hooks:     p.opts.Hooks,
		me:        balance.Owner{Instance: p.opts.Instance, Epoch: epoch},
		view:      newView(p.store, p.source),
		base:      context.WithoutCancel(ctx),
		seed:      seed.Sum64(),
		kick:      make(chan struct{}, 1),
		phase:     time.Now(),
		claims:    claims{workers: map[feed.Range]*worker{}},
	}
	rng := r.random("breaker")
	r.breaker = delivery.NewBreaker(func(failures int) time.Duration { return r.backoff(rng, failures) })
	r.balancer, r.follower.r, r.presence.r = newBalancer(r), r, r
	return r
}

// epochLength is how many letters an epoch has, to separate the processes of one name: 60 bits.
const epochLength = 12

// leave ends the work: others hear that we go, batches in hand are drained, and leases
// released, unless they are gone.
func (r *run) leave(gone bool) {
	ctx, cancel := context.WithTimeout(r.base, r.opts.Drain)
	defer cancel()
	if !gone {
		r.presence.retire(ctx)
		r.balancer.declineGifts(ctx)
	}
	r.work.Wait()
}

// random is a source of random numbers for one goroutine, the same for the same run.
func (r *run) random(of string) *mathrand.Rand {
	h := fnv.New64a()
	h.Write([]byte(of))
	return mathrand.New(mathrand.NewPCG(r.seed, h.Sum64()))
}

// backoff is the pause after so many failures in a row.
func (r *run) backoff(rng *mathrand.Rand, failures int) time.Duration {
	return r.opts.backoff().After(rng, failures)
}

// paced calls f, and again after each pause that the store asks for, because pauses that
// double would leave a throttled store idle. They do double where the store does not say how
// long. Throttling is no news before it has lasted for a while.
func (r *run) paced(ctx context.Context, rng *mathrand.Rand, lease string, f func() error) error {
	begun := time.Now()
	for failures := 1; ; failures++ {
		err := f()
		throttled, ok := errors.AsType[*feed.ThrottledError](err)
		if !ok {
			return err
		}
		if time.Since(begun) > r.opts.Renew {
			r.report(ctx, feed.OriginLeaseStore, lease, err)
		}
		wait := r.backoff(rng, failures)
		if throttled.After > 0 {
			wait = r.opts.backoff().Asked(rng, throttled.After)
		}
		if pause.For(ctx, wait) != nil {
			return err
		}
	}
}

// linger is a context for a write to a lease store that may go on so much longer than ctx.
func linger(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	return pause.Linger(ctx, after, storeTimeout)
}

// timestamp is our clock, as finely as lease documents hold it.
func timestamp() time.Time { return time.Now().UTC().Truncate(timestampGrain) }

const timestampGrain = 100 * time.Nanosecond
