package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// Worlds whose operator pauses, resumes, resets and restores leases, and who dies in the middle of some calls. What
// must hold then is in steered.go.

// steerer is the operator's side of these worlds. One goroutine uses it, and after the faults that of the world.
type steerer struct {
	world    *world
	dice     *rand.Rand // of run, and when that has ended of the end of the world
	ended    chan struct{}
	asked    []feed.Range // pauses that were asked for, and whose resume has not succeeded
	snapshot *admin.Snapshot
	failed   []span // calls in calm weather that have failed
}

// span is a time from a beginning to an end.
type span struct{ from, to time.Time }

// counter is a lease store behind the operator's own network.
type counter struct {
	feed.LeaseStore
	dead *atomic.Bool
	lots *lots
}

// lots decides the fate of the requests of one call, which may send some at the same time.
type lots struct {
	mu   sync.Mutex
	dice *rand.Rand
}

// draw returns the times before and after a request, and its lot.
func (l *lots) draw() (before, after time.Duration, lot int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before = time.Duration(l.dice.Int64N(int64(20 * time.Millisecond)))
	after = time.Duration(1+l.dice.IntN(20)) * time.Millisecond
	return before, after, l.dice.IntN(150)
}

// carry takes some time, and loses some requests and some answers.
func (c counter) carry(ctx context.Context, do func() error) error {
	before, after, lot := c.lots.draw()
	if err := pause.For(ctx, before); err != nil {
		return err
	}
	if c.dead.Load() || lot == 0 {
		return errNetwork
	}
	err := do()
	_ = pause.For(context.WithoutCancel(ctx), after)
	if c.dead.Load() || lot == 1 {
		return errNetwork
	}
	return err
}

// List implements [feed.LeaseStore].
func (c counter) List(ctx context.Context) (found []feed.Record, now time.Time, err error) {
	err = c.carry(ctx, func() (err error) {
		found, now, err = c.LeaseStore.List(ctx)
		return err
	})
	return found, now, err
}

// Create implements [feed.LeaseStore].
func (c counter) Create(ctx context.Context, record feed.Record) (got feed.Record, err error) {
	err = c.carry(ctx, func() (err error) {
		got, err = c.LeaseStore.Create(ctx, record)
		return err
	})
	return got, err
}

// Update implements [feed.LeaseStore].
func (c counter) Update(ctx context.Context, record feed.Record) (got feed.Record, err error) {
	err = c.carry(ctx, func() (err error) {
		got, err = c.LeaseStore.Update(ctx, record)
		return err
	})
	return got, err
}

// Delete implements [feed.LeaseStore].
func (c counter) Delete(ctx context.Context, record feed.Record) error {
	return c.carry(ctx, func() error { return c.LeaseStore.Delete(ctx, record) })
}

// open is the unit as a call of the operator has it. wants says what is wrong with a position that the call gives to a
// lease.
func (s *steerer) open(wants func(of feed.Range, at feed.Position) string) (*admin.Unit, *atomic.Bool) {
	return s.openAs(&instance{name: "operator", world: s.world, steers: true, wants: wants})
}

// openAs is the unit as a call of the operator has it.
func (s *steerer) openAs(call *instance) (*admin.Unit, *atomic.Bool) {
	w := s.world
	seen := witness{stepping{w.desk, &w.clock}, w.ledger, call}
	c := counter{
		seen, &atomic.Bool{}, &lots{dice: rand.New(rand.NewPCG(s.dice.Uint64(), s.dice.Uint64()))},
	}
	return admin.Open(w.orders, w.history.recordRequests(call, c), admin.Options{By: "ops"}), c.dead
}

// call makes a call that may die, or be given up.
func (s *steerer) call(wants func(of feed.Range, at feed.Position) string,
	do func(ctx context.Context, u *admin.Unit) ([]admin.Step, error),
) ([]admin.Step, error) {
	return s.callAs(&instance{name: "operator", world: s.world, steers: true, wants: wants}, do)
}

// callAs makes a call that may die, or be given up.
func (s *steerer) callAs(as *instance, do func(ctx context.Context, u *admin.Unit) ([]admin.Step, error)) ([]admin.Step,
	error,
) {
	u, dead := s.openAs(as)
	patience := time.Duration(s.dice.Int64N(int64(100 * time.Second)))
	if s.dice.IntN(4) == 0 {
		patience /= 50
	}
	ctx, cancel := context.WithTimeout(s.world.ctx, patience)
	defer cancel()
	// What was asked and not withdrawn is served until a minute after the deadline.
	s.world.noteStorm(time.Now().Add(patience + time.Minute + defaultDrain*4))
	if s.dice.IntN(4) == 0 {
		defer time.AfterFunc(time.Duration(s.dice.Int64N(int64(3*time.Second))), func() {
			s.world.ledger.note("the operator dies")
			dead.Store(true)
			cancel()
		}).Stop()
	}
	return do(ctx, u)
}

// run steers until the faults end.
func (s *steerer) run() {
	defer close(s.ended)
	for {
		timer := time.NewTimer(time.Duration(s.dice.Int64N(int64(30 * time.Second))))
		select {
		case <-timer.C:
		case <-s.world.quiet:
			timer.Stop()
			return
		}
		if s.world.isReady() {
			s.takeTurn()
		}
	}
}

// takeTurn does one thing.
func (s *steerer) takeTurn() {
	if !s.world.ledger.strict && s.dice.IntN(3) == 0 { // the order of pages says nothing of single changes and keys
		s.takeSingle()
		return
	}
	of, leases := s.drawRange()
	switch what := s.dice.IntN(10); {
	case len(s.asked) > 0 && what < 5:
		s.resume(s.asked[s.dice.IntN(len(s.asked))])
	case what < 5:
		s.pause(of)
	case what < 8:
		s.reset(of)
	case what == 8 && leases > 0:
		s.resetBack()
	case s.snapshot == nil:
		s.takeSnapshot()
	default:
		s.restore()
	}
}

// drawRange draws all, or the range of a lease.
func (s *steerer) drawRange() (of feed.Range, leases int) {
	records, _, err := s.world.unit.List(s.world.ctx)
	if err != nil {
		s.world.ledger.fail("list: %v", err)
	}
	records = slices.DeleteFunc(records, func(r feed.Record) bool {
		return r.Kind != feed.KindLease || r.State != feed.StateLive
	})
	if len(records) == 0 || s.dice.IntN(2) == 0 {
		return feed.FullRange(), len(records)
	}
	return records[s.dice.IntN(len(records))].Range, len(records)
}

// pause pauses a range.
func (s *steerer) pause(of feed.Range) {
	s.world.ledger.note("the operator pauses %s", of)
	s.asked = append(s.asked, of)
	s.world.setPaused(s.asked)
	_, err := s.call(nil, func(ctx context.Context, u *admin.Unit) ([]admin.Step, error) {
		return u.Pause(ctx, admin.Of(of))
	})
	s.world.ledger.note("the operator has paused %s: %v", of, err)
	if err == nil {
		s.world.ledger.notePaused(of)
	}
}

// resume resumes a range, or the larger one of which it is a part.
func (s *steerer) resume(of feed.Range) {
	for _, r := range s.asked {
		if r.Overlaps(of) && !of.Contains(r) {
			of = r
		}
	}
	s.world.ledger.note("the operator resumes %s", of)
	s.world.ledger.noteResuming(of)
	_, err := s.call(nil, func(ctx context.Context, u *admin.Unit) ([]admin.Step, error) {
		return u.Resume(ctx, admin.Of(of))
	})
	s.world.ledger.note("the operator has resumed %s: %v", of, err)
	if err == nil {
		s.asked = slices.DeleteFunc(s.asked, of.Contains)
		s.world.setPaused(s.asked)
	}
}

// reset resets a range to the beginning, to now, or to a time.
func (s *steerer) reset(of feed.Range) {
	now := time.Now()
	to := []feed.Start{
		feed.FromBeginning(), feed.FromNow(),
		feed.FromTime(now.Add(-time.Duration(s.dice.Int64N(int64(3 * time.Minute))))),
	}[s.dice.IntN(3)]
	s.finish("resets "+of.String()+" to "+to.String(), s.world.ledger.wantsStart(to, now),
		func(ctx context.Context, u *admin.Unit) ([]admin.Step, error) { return u.Reset(ctx, admin.Of(of), to) })
}

// resetBack resets a lease to a position that it had.
func (s *steerer) resetBack() {
	of, at, found := s.world.ledger.drawPosition(s.dice)
	if !found {
		return
	}
	s.finish("resets "+of.String()+" to "+at.String(), wantsPosition(at),
		func(ctx context.Context, u *admin.Unit) ([]admin.Step, error) {
			return u.ResetTo(ctx, admin.Of(of), at)
		})
}

// takeSnapshot takes a snapshot.
func (s *steerer) takeSnapshot() {
	begun := time.Now()
	u, _ := s.open(nil)
	taken, err := u.Snapshot(s.world.ctx)
	s.world.ledger.note("the operator takes a snapshot: %+v, %v", taken, err)
	if err == nil {
		s.snapshot = taken
		s.world.ledger.checkSnapshot(taken, begun)
	}
}

// restore restores the snapshot.
func (s *steerer) restore() {
	s.finish("restores", wantsPlace(s.snapshot), func(ctx context.Context, u *admin.Unit) ([]admin.Step, error) {
		return u.Restore(ctx, s.snapshot)
	})
	s.snapshot = nil
}

// finish makes a call that resets leases, and checks what it says.
func (s *steerer) finish(what string, wants func(feed.Range, feed.Position) string,
	do func(ctx context.Context, u *admin.Unit) ([]admin.Step, error),
) {
	s.world.ledger.note("the operator %s", what)
	begun := time.Now()
	steps, err := s.call(wants, do)
	s.world.ledger.note("the operator's %s: %v", what, err)
	for _, step := range steps {
		if step.Done {
			s.world.ledger.checkStep(step, begun)
		}
	}
}

// resumeAll ends all pauses when the faults have ended.
func (s *steerer) resumeAll() {
	var err error
	for range 5 {
		s.world.ledger.noteResuming(feed.FullRange())
		u, _ := s.open(nil)
		ctx, cancel := context.WithTimeout(s.world.ctx, 3*time.Minute)
		_, err = u.Resume(ctx, admin.All())
		cancel()
		s.world.ledger.note("the operator resumes all: %v", err)
		if err == nil {
			s.asked = nil
			s.world.setPaused(nil)
			return
		}
		if !errors.Is(err, errNetwork) && !errors.Is(err, feed.ErrOverlap) {
			break
		}
		_ = pause.For(s.world.ctx, time.Second)
	}
	s.world.ledger.fail("resume at the end: %v", err)
}

// steerCalmly pauses, resumes and restores the unit when the faults have ended: then all instances obey soon. A reset
// to the beginning or to now would hide what was lost before.
func (s *steerer) steerCalmly() {
	s.asked = []feed.Range{feed.FullRange()}
	s.world.setPaused(s.asked)
	s.must("pause", nil, func(ctx context.Context, u *admin.Unit) ([]admin.Step, error) {
		return u.Pause(ctx, admin.All())
	})
	s.world.ledger.notePaused(feed.FullRange())
	_ = pause.For(s.world.ctx, 2*time.Second)
	s.resumeAll()
	_ = pause.For(s.world.ctx, time.Duration(s.dice.Int64N(int64(20*time.Second))))
	s.snapshot = nil
	for n := 0; s.snapshot == nil && n < 5; n++ {
		_ = pause.For(s.world.ctx, 10*time.Second)
		s.takeSnapshot()
	}
	if s.snapshot == nil { // a lease has no position yet, or leases are being replaced
		return
	}
	begun := time.Now()
	for _, step := range s.must("restore", wantsPlace(s.snapshot),
		func(ctx context.Context, u *admin.Unit) ([]admin.Step, error) { return u.Restore(ctx, s.snapshot) }) {
		s.world.ledger.checkStep(step, begun)
	}
}

// must makes a call that has to succeed. Leases may still be split, so it is made again after a conflict.
func (s *steerer) must(what string, wants func(feed.Range, feed.Position) string,
	do func(ctx context.Context, u *admin.Unit) ([]admin.Step, error),
) (steps []admin.Step) {
	var err error
	for range 30 {
		u, _ := s.open(wants)
		begun := time.Now()
		ctx, cancel := context.WithTimeout(s.world.ctx, 4*time.Minute)
		steps, err = do(ctx, u)
		cancel()
		s.world.ledger.note("the operator's %s in calm weather: %v", what, err)
		if err == nil {
			return steps
		}
		s.failed = append(s.failed, span{begun, time.Now()})
		again := errors.Is(err, errNetwork) || errors.Is(err, feed.ErrConflict) || errors.Is(err, feed.ErrOverlap) ||
			strings.Contains(err.Error(), "try again in a moment") // the lease is being split
		if !again {
			break
		}
		_ = pause.For(s.world.ctx, 10*time.Second)
	}
	s.world.ledger.fail("%s in calm weather: %v", what, err)
	return nil
}

// mayStay reports whether a request may stay asked until its time to live is over: its call has failed, and the network
// of the operator may have lost the withdrawal.
func (s *steerer) mayStay(r feed.Record) bool {
	return slices.ContainsFunc(s.failed, func(call span) bool {
		return !r.Timestamp.Before(call.from.Truncate(time.Second)) && !r.Timestamp.After(call.to)
	})
}

// setPaused notes the ranges whose leases may lie still.
func (w *world) setPaused(ranges []feed.Range) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = slices.Clone(ranges)
	w.resumed = time.Now()
}
