// Package instance has what the parts of a processor share: who an instance is, what it works with and how it reports
// ([Instance]), the leases that it holds ([Held]), and the ranges that it works on ([Claims]).
package instance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/processor/balance"
	"github.com/millrace/changefeed/internal/processor/delivery"
	"github.com/millrace/changefeed/internal/processor/latest"
	"github.com/millrace/changefeed/internal/processor/records"
)

// Instance is one run of a processor: one owner of leases.
type Instance struct {
	Me      balance.Owner
	Source  feed.Source
	Store   records.PatientStore
	Handler feed.Handler
	Options Options
	Hooks   Hooks

	View    *records.View
	Base    context.Context // values of the caller's context, without its end
	Since   time.Time       // leases are renewed at whole intervals from here, so all together
	Breaker *delivery.Breaker
	Claims  *Claims
	Absence Absence
	Shared  atomic.Bool // another kind of processor owns leases of the unit
	Work    sync.WaitGroup

	// Begin begins to work on a claimed lease that is ours since a write begun at started. It was crashed if its last owner
	// has ended without a word.
	Begin func(lease feed.Record, started time.Time, crashed bool)

	seed     uint64
	kick     chan struct{}                        // there is news: do not wait for the next round
	troubles latest.Set[feed.Origin, *feed.Error] // that concern no single lease
}

// New makes an instance with an epoch of its own. It keeps the values of ctx, and goes on when ctx ends: [Held] says how long.
func New(ctx context.Context, source feed.Source, store feed.LeaseStore, handler feed.Handler, o Options, hooks Hooks) *Instance {
	epoch := rand.Text()[:epochLength]
	seed := fnv.New64a()
	fmt.Fprint(seed, o.Instance, epoch)
	patient := records.PatientStore{LeaseStore: store}
	in := &Instance{
		Me:     balance.Owner{Instance: o.Instance, Epoch: epoch},
		Source: source, Store: patient, Handler: handler, Options: o, Hooks: hooks,
		View:   records.NewView(patient, source),
		Base:   context.WithoutCancel(ctx),
		Since:  time.Now(),
		Claims: &Claims{held: map[feed.Range]*Held{}},
		seed:   seed.Sum64(),
		kick:   make(chan struct{}, 1),
	}
	rng := in.Random("breaker")
	in.Breaker = delivery.NewBreaker(func(failures int) time.Duration { return in.Backoff(rng, failures) })
	return in
}

// epochLength is that of an epoch: 60 random bits, which tell the runs of one name apart.
const epochLength = 12

// Random is a source of random numbers for one purpose, so that no purpose changes what another
// one gets.
func (in *Instance) Random(of string) *mathrand.Rand {
	h := fnv.New64a()
	h.Write([]byte(of))
	return mathrand.New(mathrand.NewPCG(in.seed, h.Sum64()))
}

// Backoff is the pause after so many failures in a row.
func (in *Instance) Backoff(rng *mathrand.Rand, failures int) time.Duration {
	return in.Options.backoff().After(rng, failures)
}

// Wake makes the next round come at once.
func (in *Instance) Wake() {
	select {
	case in.kick <- struct{}{}:
	default:
	}
}

// News has something when a round should come.
func (in *Instance) News() <-chan struct{} { return in.kick }

// Relist has the next round come at once and list the records: one that this instance had written is gone, and others may be.
func (in *Instance) Relist() {
	in.View.Distrust()
	in.Wake()
}

// CanReadKeys reports whether the source can read a single partition key, so that keys can be set aside.
func (in *Instance) CanReadKeys() bool {
	_, ok := in.Source.(feed.Locator)
	return ok
}

// Wanted is those of some changes that the handler wants.
func (in *Instance) Wanted(changes []feed.Change) []feed.Change {
	if in.Options.Filter == nil {
		return changes
	}
	return slices.DeleteFunc(slices.Clone(changes), func(c feed.Change) bool { return !in.Options.Filter(&c) })
}

// Report calls Hooks.Error, unless the error is only that ctx has ended.
func (in *Instance) Report(ctx context.Context, from feed.Origin, lease string, err error) {
	if isFailure(ctx, err) {
		in.Raise(&feed.Error{Origin: from, Lease: lease, Err: err})
	}
}

// isFailure reports whether an error is more than that ctx has ended.
func isFailure(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() == nil || !errors.Is(err, context.Cause(ctx)))
}

// Raise calls Hooks.Error, and keeps an error that concerns no lease in the status of the instance.
func (in *Instance) Raise(err *feed.Error) {
	if err.Lease == "" {
		in.troubles.Put(err.Origin, err)
	}
	in.Hooks.Error(err)
}

// Solved notes that something of each origin has succeeded, so that no error of it stands any more.
func (in *Instance) Solved(of ...feed.Origin) { in.troubles.Remove(of...) }

// Troubles are the last error of each origin that concerns no single lease, until that has succeeded again.
func (in *Instance) Troubles() []*feed.Error { return in.troubles.Values() }

// Paced calls f, and again after each pause that the store asks for, because pauses that
// double would leave a throttled store idle. They do double where the store does not say how
// long. Throttling is no news before it has lasted for a while.
func (in *Instance) Paced(ctx context.Context, rng *mathrand.Rand, lease string, f func() error) error {
	begun := time.Now()
	for failures := 1; ; failures++ {
		err := f()
		throttled, ok := errors.AsType[*feed.ThrottledError](err)
		if !ok {
			return err
		}
		if time.Since(begun) > in.Options.Renew {
			in.Report(ctx, feed.OriginLeaseStore, lease, err)
		}
		wait := in.Backoff(rng, failures)
		if throttled.After > 0 {
			wait = in.Options.backoff().Asked(rng, throttled.After)
		}
		if pause.For(ctx, wait) != nil {
			return err
		}
	}
}

// Linger is a context that outlives ctx for a while, so that a write under way is answered.
func Linger(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	return pause.Linger(ctx, after, records.StoreTimeout)
}

// Timestamp is our clock, as finely as lease documents hold it.
func Timestamp() time.Time { return time.Now().UTC().Truncate(TimestampGrain) }

// TimestampGrain is how finely lease documents hold a time.
const TimestampGrain = 100 * time.Nanosecond
