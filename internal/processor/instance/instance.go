// Package instance contains what the parts of a processor share: the identity, the stores and the reports of an
// instance ([Instance]), the held leases ([Held]), and the claimed ranges ([Claims]).
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
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/processor/balance"
	"github.com/millrace/changefeed/internal/processor/delivery"
	"github.com/millrace/changefeed/internal/processor/latest"
	"github.com/millrace/changefeed/internal/processor/records"
)

// Instance is a run of a processor: one owner of leases.
type Instance struct {
	Me      balance.Owner
	Source  feed.Source
	Store   records.PatientStore
	Handler feed.Handler
	Options Options
	Hooks   feed.Hooks

	View    *records.View
	Base    context.Context // values of the caller's context, without its end
	Since   time.Time       // leases are renewed at whole intervals from here, so all at the same time
	Breaker *delivery.Breaker
	Claims  *Claims
	Absence Absence
	Shared  atomic.Bool // another kind of processor owns leases of the unit
	Work    sync.WaitGroup
	Slow    latest.Set[string, feed.SlowBatch] // batches that are in the handler for too long

	// NeverJoin: no leases are joined, because the handler keeps something for each range, keys may be held, or the
	// source cannot compare positions. The other instances see that, and give no lease to this one for a join.
	NeverJoin bool

	// Begin begins to work on a claimed lease that is ours since a write begun at started. crashed: the last owner has
	// ended unexpectedly.
	Begin func(lease feed.Record, started time.Time, crashed bool)

	seed     uint64
	kick     chan struct{}                        // there is news: do not wait for the next round
	troubles latest.Set[feed.Origin, *feed.Error] // errors that concern no single lease
}

// New makes an instance with a new epoch. The instance keeps the values of ctx, and goes on when ctx ends: [Held] says
// how long.
func New(ctx context.Context, source feed.Source, store feed.LeaseStore, handler feed.Handler, o Options,
	hooks feed.Hooks,
) *Instance {
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

// epochLength is the length of an epoch: 60 random bits, which distinguish runs with the same name.
const epochLength = 12

// Random returns a source of random numbers for a single purpose: no purpose changes the numbers of another.
func (in *Instance) Random(of string) *mathrand.Rand {
	h := fnv.New64a()
	h.Write([]byte(of))
	return mathrand.New(mathrand.NewPCG(in.seed, h.Sum64()))
}

// Backoff returns the pause after this many failures in a row.
func (in *Instance) Backoff(rng *mathrand.Rand, failures int) time.Duration {
	return in.Options.retryBackoff().After(rng, failures)
}

// Wake makes the next round begin at once.
func (in *Instance) Wake() {
	select {
	case in.kick <- struct{}{}:
	default:
	}
}

// News receives a value when a round should begin.
func (in *Instance) News() <-chan struct{} { return in.kick }

// Relist makes the next round begin at once and list the records, because a record of this instance is gone, and others
// may be.
func (in *Instance) Relist() {
	in.View.Distrust()
	in.Wake()
}

// CanReadKeys reports whether the source can read a single partition key, so that keys can be set aside.
func (in *Instance) CanReadKeys() bool {
	_, ok := in.Source.(feed.Locator)
	return ok
}

// Wanted returns the changes that the handler wants.
func (in *Instance) Wanted(changes []feed.Change) []feed.Change {
	if in.Options.Filter == nil {
		return changes
	}
	return slices.DeleteFunc(slices.Clone(changes), func(c feed.Change) bool { return !in.Options.Filter(&c) })
}

// Report calls Hooks.Error, unless the end of ctx is the cause.
func (in *Instance) Report(ctx context.Context, from feed.Origin, lease string, err error) {
	if isFailure(ctx, err) {
		in.Raise(&feed.Error{Origin: from, Lease: lease, Err: err})
	}
}

// isFailure reports whether an error has another cause than the end of ctx.
func isFailure(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() == nil || !errors.Is(err, context.Cause(ctx)))
}

// Raise calls Hooks.Error. If the error concerns no lease, Raise also keeps the error for the status of the instance.
func (in *Instance) Raise(err *feed.Error) {
	if err.Lease == "" {
		in.troubles.Put(err.Origin, err)
	}
	CallHook(in, in.Hooks.Error, err)
}

// Solved notes that an operation of each origin has succeeded, and removes the errors of these origins.
func (in *Instance) Solved(of ...feed.Origin) { in.troubles.Remove(of...) }

// Troubles returns the last errors without a single lease, at most one of each origin, until an operation of the origin
// succeeds.
func (in *Instance) Troubles() []*feed.Error { return in.troubles.Values() }

// Paced calls f, and again after each pause that the store asks for, because doubled pauses would leave a throttled
// store idle. If the store does not say how long, the pauses double. Throttling is reported only after a while.
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
			wait = in.Options.retryBackoff().Asked(rng, throttled.After)
		}
		if pause.For(ctx, wait) != nil {
			return err
		}
	}
}

// Linger returns a context that outlives ctx for a while, so that a running write receives its answer.
func Linger(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	return pause.Linger(ctx, after, records.StoreTimeout)
}

// Timestamp returns our time, in the precision of lease documents.
func Timestamp() time.Time { return time.Now().UTC().Truncate(TimestampGrain) }

// TimestampGrain is the precision of a time in lease documents.
const TimestampGrain = 100 * time.Nanosecond

// RetireRequest writes the outcome into the record of a request about a whole lease. If the caller has withdrawn the
// request, nobody reads the outcome.
func (in *Instance) RetireRequest(ctx context.Context, request feed.Record, o notes.Outcome) error {
	request.Properties = o.Properties(request.Properties)
	request.State, request.TTL, request.Timestamp = feed.StateRetired, notes.OutcomeTTL, Timestamp()
	got, err := in.Store.Update(ctx, request)
	switch {
	case err == nil:
		in.View.Put(got)
	case errors.Is(err, feed.ErrConflict), errors.Is(err, feed.ErrNotFound):
		in.Relist()
	default:
		return fmt.Errorf("write outcome of request %s: %w", request.Token, err)
	}
	return nil
}
