package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// errNetwork is the answer of a broken link.
var errNetwork = errors.New("network: connection reset")

// link is the network between an instance and the stores. It delays, loses requests, loses
// replies, delivers requests that the caller has given up on, throttles, freezes the whole
// instance, and breaks for a while or for good.
type link struct {
	by   *instance
	skew time.Duration // the store's clock as this instance sees it

	mu     sync.Mutex
	rng    *rand.Rand
	dead   bool      // the process has been killed
	frozen time.Time // nothing moves until then, as in a stopped process
	cut    time.Time // requests fail until then
	hang   bool      // ... by never being answered
	full   time.Time // requests are throttled until then
	wall   wall      // the clock that the instance writes into documents
}

// fate is the lot of a request.
type fate struct {
	before, after time.Duration
	err           error // instead of the effect
	hang          bool  // no effect, and no answer
	lost          bool  // the effect, but an error as answer
	late          bool  // the effect comes even if the caller no longer waits
}

// How long a request or its answer can be on its way. Nobody waits for an answer for as
// long as the first, and nobody trusts a lease for as long as the second: both must be
// harmless all the same.
const (
	lateWrite = 4 * time.Minute
	slowReply = 2 * time.Minute
)

// drawFate draws the lot of a request. The outages of the instance come before chance. Even a
// sound request takes some milliseconds each way, so that requests overtake each other.
func (l *link) drawFate() fate {
	calm := l.by.world.isCalm()
	slow := l.by.world.weather.slow
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
		f.err = &feed.ThrottledError{After: l.upTo(5 * time.Second)}
	// From here on it is chance, which ends when the faults do. A dead link stays dead,
	// and a frozen process moves again at its time.
	case calm:
	case l.rng.IntN(50) == 0:
		f.err = errNetwork
	case l.rng.IntN(50) == 0:
		f.lost = true
	case l.rng.IntN(80) == 0:
		f.before, f.late = l.upTo(20*time.Second), true
	case l.rng.IntN(80) == 0:
		f.after = l.upTo(20 * time.Second)
	case slow && l.rng.IntN(60) == 0:
		f.after = l.upTo(slowReply)
	}
	return f
}

// fateOfWrite draws the lot of a write. The creations of leases are few, and those whose
// callers have given up can do the most harm, so they are late more often.
func (l *link) fateOfWrite(call string) fate {
	f := l.drawFate()
	if !l.by.world.weather.late || l.by.world.isCalm() || f.err != nil {
		return f
	}
	in := 100
	if call == "create lease" {
		in = 4
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rng.IntN(in) == 0 {
		// It arrives minutes later, with an ETag that may still be right: a store
		// cannot know that the sender has given up.
		return fate{before: l.upTo(lateWrite), late: true}
	}
	return f
}

// upTo is a random time below d.
func (l *link) upTo(d time.Duration) time.Duration { return time.Duration(l.rng.Int64N(int64(d))) }

// changeState changes the state of the link.
func (l *link) changeState(edit func(*link)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	edit(l)
}

// thawsAt is when the instance moves again.
func (l *link) thawsAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.frozen
}

// A parcel is a call of a process that crosses its link.
type parcel struct {
	call string
	of   feed.Range // that it is about
	fate fate
}

// carry carries a parcel over the link. The effect and the answer have fates of their own,
// because a caller who has no answer cannot know about the effect: that is the case which the
// processor must survive.
func carry[T any](ctx context.Context, l *link, q parcel, do func(context.Context) (T, error)) (T, error) {
	var none T
	f := q.fate
	at := func(p phase) { l.by.springAmbush(point{q.call, p}, q.of) }
	act := func(ctx context.Context) (T, error) {
		at(going)
		got, err := do(ctx)
		at(coming)
		return got, err
	}
	at(before)
	if f.hang {
		select {
		case <-ctx.Done():
			return none, context.Cause(ctx)
		case <-l.by.world.quiet: // the connection ends
			return none, errNetwork
		}
	}
	if f.late {
		return late(ctx, l, f.before, act)
	}
	if err := pause.For(ctx, f.before); err != nil {
		return none, err
	}
	if f.err != nil {
		return none, f.err
	}
	got, err := act(ctx)
	l.by.noteWait(f.after)
	if waited := pause.For(ctx, f.after); waited != nil {
		return none, waited
	}
	l.awaitThaw(ctx)
	at(after)
	if f.lost && err == nil {
		return none, errNetwork
	}
	return got, err
}

// awaitThaw holds an answer back while the instance is frozen. The end of the caller's context does
// not help: a frozen process does not see that either.
func (l *link) awaitThaw(ctx context.Context) {
	if wait := time.Until(l.thawsAt()); wait > 0 {
		_ = pause.For(context.WithoutCancel(ctx), wait)
	}
}

// late performs a request after a delay, whether or not the caller still waits.
func late[T any](ctx context.Context, l *link, delay time.Duration, do func(context.Context) (T, error)) (T, error) {
	type answer struct {
		got T
		err error
	}
	l.by.noteWait(delay)
	l.by.world.noteStorm(time.Now().Add(delay)) // it may have its effect when nobody waits any more
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
