// Package fleet runs the units of one process side by side. A unit that fails is started again after a pause, and the
// others do not notice. The units can be exchanged while they run: those that stay the same go on, and the others drain
// first.
package fleet

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/millrace/changefeed/internal/pause"
)

// A Member is a unit.
type Member struct {
	// Name is the name of the unit, for people.
	Name string

	// Identity says which unit runs, and how: two members with the same Identity are interchangeable.
	Identity string

	// Once says that the unit ends by itself. Its error is final.
	Once bool

	// Run runs the unit until ctx ends, or until the unit has ended by itself.
	Run func(ctx context.Context) error
}

// The pauses between the end of a unit and its next start. A unit that has run for steadyTime begins with the first.
const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
	steadyTime = time.Minute
)

// errExchanged ends a unit that is not in the file any more.
var errExchanged = errors.New("the unit has changed, or is not in the file any more")

// A Fleet is a set of units that run, or have ended for good. One goroutine at a time may call Exchange.
type Fleet struct {
	log *slog.Logger

	mu         sync.Mutex
	runs       []*run
	exchanging bool
	changed    chan struct{} // closed when a unit or an exchange ends, and then made anew
}

// run is a unit.
type run struct {
	Member
	end   context.CancelCauseFunc
	life  sync.WaitGroup
	ended bool
	err   error // of the end
}

// New makes a Fleet without units.
func New(log *slog.Logger) *Fleet { return &Fleet{log: log, changed: make(chan struct{})} }

// Exchange ends the units that are not among the members, waits until they have ended, and starts the members that are
// new. A unit that has ended for good is not started again unless its Identity is another one. The end of ctx ends the
// units that are started.
func (f *Fleet) Exchange(ctx context.Context, members []Member) {
	leaving := f.takeLeaving(members)
	for _, r := range leaving {
		f.log.Info("unit ends", "unit", r.Name)
		r.end(errExchanged)
	}
	for _, r := range leaving {
		r.life.Wait()
		if r.err != nil {
			f.log.Error("unit has ended with an error", "unit", r.Name, "error", r.err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range members {
		if !slices.ContainsFunc(f.runs, func(r *run) bool { return r.Identity == m.Identity }) {
			f.start(ctx, m)
		}
	}
	f.exchanging = false
	f.announce()
}

// takeLeaving removes the units that are not among the members.
func (f *Fleet) takeLeaving(members []Member) (leaving []*run) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.exchanging = true
	f.runs = slices.DeleteFunc(f.runs, func(r *run) bool {
		stays := slices.ContainsFunc(members, func(m Member) bool { return m.Identity == r.Identity })
		if !stays {
			leaving = append(leaving, r)
		}
		return !stays
	})
	return leaving
}

// start starts a unit. The caller holds the lock.
func (f *Fleet) start(ctx context.Context, m Member) {
	ctx, end := context.WithCancelCause(ctx)
	r := &run{Member: m, end: end}
	f.runs = append(f.runs, r)
	f.log.Info("unit is started", "unit", m.Name)
	r.life.Go(func() {
		defer end(nil)
		err := f.keepRunning(ctx, m)
		if ctx.Err() == nil {
			f.sayOver(m, err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		r.ended, r.err = true, err
		f.announce()
	})
}

// sayOver says that a unit has ended by itself. Wait returns its error too, but only when the others have ended.
func (f *Fleet) sayOver(m Member, err error) {
	switch {
	case err != nil:
		f.log.Error("unit has ended with an error, and is not started again", "unit", m.Name, "error", err)
	case m.Once:
		f.log.Info("unit is over: all its changes are handled", "unit", m.Name)
	default:
		f.log.Warn("unit has ended, as its program has asked, and is not started again", "unit", m.Name)
	}
}

// keepRunning runs a unit, again and again, until ctx ends or the unit has ended for good.
func (f *Fleet) keepRunning(ctx context.Context, m Member) error {
	wait := firstPause
	for {
		began := time.Now()
		err := m.Run(ctx)
		switch {
		case ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))):
			return nil // the end during a start
		case ctx.Err() != nil, err == nil, m.Once:
			return err
		}
		if time.Since(began) >= steadyTime {
			wait = firstPause
		}
		f.log.Error("unit has failed, and is started again after a pause", "unit", m.Name, "error", err, "pause", wait)
		if pause.For(ctx, wait) != nil {
			return nil
		}
		wait = min(2*wait, lastPause)
	}
}

// announce wakes Wait. The caller holds the lock.
func (f *Fleet) announce() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// Wait waits until all units have ended. The error joins those of the units that have ended with one.
func (f *Fleet) Wait() error {
	for {
		isOver, changed, err := f.look()
		if isOver {
			return err
		}
		<-changed
	}
}

// look reports whether all units have ended, with their errors, and returns what is closed at the next change.
func (f *Fleet) look() (isOver bool, changed <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, r := range f.runs {
		if !r.ended {
			return false, f.changed, nil
		}
		if r.err != nil {
			errs = append(errs, r.err)
		}
	}
	return !f.exchanging, f.changed, errors.Join(errs...)
}
