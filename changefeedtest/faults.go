package changefeedtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
)

// Faults for the tests of handlers, and of the processor itself. Three parts of a call can fail separately: the request
// to the store, the store's work, and the reply. A caller sees an error each time, and cannot know which part has
// failed; so a fault describes each part.

// ErrInjected is the error of faults without a specific error. ErrInjected matches no sentinel, so the caller does not
// know the outcome of the call, as after a lost connection.
var ErrInjected = errors.New("injected fault")

// Fault is the fault of a call. The zero Fault injects nothing.
type Fault struct {
	Delay      time.Duration // before the call
	Before     error         // returned instead of the call
	After      error         // returned although the call was made: a lost reply
	DelayAfter time.Duration // before the reply, which may arrive too late
}

// Refuse is the fault of an omitted call.
func Refuse(err error) Fault { return Fault{Before: err} }

// Lose is the fault of a call whose reply is lost. This fault is the hardest for a caller, who must find out whether
// the call took effect.
func Lose() Fault { return Fault{After: ErrInjected} }

// Throttle is the fault of a throttling store.
func Throttle(after time.Duration) Fault {
	return Fault{Before: &feed.ThrottledError{After: after}}
}

// Faults decides the fault of each call. Calls of Faults may be concurrent.
type Faults func(c Call) Fault

// Source wraps a source. The result has the optional abilities of the source.
func (f Faults) Source(s feed.Source) feed.Source { return wrapSource(s, f.callWithFault) }

// Leases wraps a lease store. The result is a [feed.Follower] if the store is.
func (f Faults) Leases(s feed.LeaseStore) feed.LeaseStore { return wrapLeases(s, f.callWithFault) }

// Committer wraps a committer.
func (f Faults) Committer(c feed.Committer) feed.Committer {
	return wrapCommitter(c, f.callWithFault)
}

// callWithFault makes the call or omits it, according to its fault. If the caller's context ends while the reply is
// delayed, the caller receives an error although the call took effect, as in a network.
func (f Faults) callWithFault(ctx context.Context, c Call, call func() error) error {
	fault := f(c)
	if err := wait(ctx, fault.Delay); err != nil {
		return err
	}
	if fault.Before != nil {
		return fault.Before
	}
	err := call()
	if late := wait(ctx, fault.DelayAfter); late != nil {
		return late // the call was made, and its caller has gone
	}
	if fault.After != nil {
		return fault.After
	}
	return err
}

// Any combines plans: the first plan with a fault decides.
func Any(plans ...Faults) Faults {
	return func(c Call) Fault {
		for _, plan := range plans {
			if fault := plan(c); fault != (Fault{}) {
				return fault
			}
		}
		return Fault{}
	}
}

// Only limits a plan to calls of some methods.
func Only(plan Faults, methods ...Method) Faults {
	return func(c Call) Fault {
		if slices.Contains(methods, c.Method) {
			return plan(c)
		}
		return Fault{}
	}
}

// Nth injects a fault into the nth call of a method, counted from 1.
func Nth(method Method, n int, fault Fault) Faults {
	var mu sync.Mutex
	calls := 0
	return Only(func(Call) Fault {
		mu.Lock()
		defer mu.Unlock()
		if calls++; calls == n {
			return fault
		}
		return Fault{}
	}, method)
}

// Always injects the same fault into every call.
func Always(fault Fault) Faults { return func(Call) Fault { return fault } }

// Window is a span of time, including From and excluding To.
type Window struct {
	From, To time.Time
}

// Blackout refuses every call within the windows with err; [ErrInjected] if err is nil.
func Blackout(err error, windows ...Window) Faults {
	if err == nil {
		err = ErrInjected
	}
	return func(Call) Fault {
		now := time.Now()
		for _, w := range windows {
			if !now.Before(w.From) && now.Before(w.To) {
				return Refuse(err)
			}
		}
		return Fault{}
	}
}

// Rates are the probabilities of faults, from 0 to 1. They add up: a call has at most one of refusal, loss, conflict
// and throttling, and possibly delays as well.
type Rates struct {
	Refuse   float64 // an error before the effect
	Lose     float64 // an error after the effect
	Conflict float64 // of conditional writes: ErrConflict without the effect
	Throttle float64 // ErrThrottled with a pause of up to MaxPause

	Slow     float64       // a delay of up to MaxDelay before the call
	SlowAway float64       // a delay of up to MaxDelay before the reply
	MaxDelay time.Duration // default 1 s
	MaxPause time.Duration // default 1 s
}

// Random draws the faults from r, which you must not use elsewhere from then on. A seed and an order of calls determine
// the order of faults, so you can repeat a failure.
func Random(r *rand.Rand, rates Rates) Faults {
	if rates.MaxDelay <= 0 {
		rates.MaxDelay = time.Second
	}
	if rates.MaxPause <= 0 {
		rates.MaxPause = time.Second
	}
	var mu sync.Mutex
	return func(c Call) Fault {
		mu.Lock()
		defer mu.Unlock()
		return rates.drawFault(r, c.Method)
	}
}

// drawFault takes the same number of random values for every call. So a change of rates does not change the other
// faults of a run.
func (rates Rates) drawFault(r *rand.Rand, m Method) Fault {
	outcome, slow, away := r.Float64(), r.Float64(), r.Float64()
	delay, late, pause := share(r, rates.MaxDelay), share(r, rates.MaxDelay), share(r, rates.MaxPause)
	var fault Fault
	// Each rate takes its share of a single random number. So a call has at most one of these faults, each as often as
	// its rate says.
	hit := func(rate float64) bool {
		outcome -= rate
		return outcome < 0 && outcome >= -rate
	}
	switch {
	case hit(rates.Refuse):
		fault = Refuse(ErrInjected)
	case hit(rates.Lose):
		fault = Lose()
	case hit(rates.Throttle):
		fault = Throttle(pause)
	case hit(rates.Conflict) && (m == LeaseCreate || m == LeaseUpdate || m == LeaseDelete):
		fault = Refuse(feed.ErrConflict)
	}
	if slow < rates.Slow {
		fault.Delay = delay
	}
	if away < rates.SlowAway {
		fault.DelayAfter = late
	}
	return fault
}

// share returns a random part of d, not zero.
func share(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(d))) + 1
}
