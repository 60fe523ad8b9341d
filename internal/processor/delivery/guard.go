package delivery

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/millrace/changefeed/internal/notes"
)

// ErrCrashed is why a change is parked that was alone in the handler each time the process ended.
var ErrCrashed = errors.New("the process ended while the handler was at it")

// guard limits batches after a previous owner has crashed, in case a change caused the crash. From then on the lease
// names the changes in the handler, and later the changes in the handler after a failure: so the next owner knows which
// changes may have ended the process.
type guard struct {
	careful int            // 0, or the limit for changes in a batch, with a single batch in hand at a time
	former  *notes.Suspect // changes in the handler when the last owner ended; nil is unknown
	crashed *notes.Suspect // the same, if the change is to be parked and was not read yet
	since   time.Time      // when the care began
	of      *Batch         // in the handler, if named in the lease
	suspect *notes.Suspect // the note about this batch in the lease
	named   bool           // the stored lease may name a batch
}

// blindCare is how long the guard limits batches if the last owner has named nothing. Each restart gets further, so
// within this time a restart reaches the change that ends the process.
const blindCare = 5 * time.Second

// OwnerCrashed reports the end of the last owner, without a word.
type OwnerCrashed struct {
	Suspect *notes.Suspect // changes in its handler; nil if that is not known
}

func (v OwnerCrashed) applyTo(e *Engine) {
	s := v.Suspect
	r := &e.rules
	if !r.mayDivide() {
		return
	}
	g := &e.guard
	g.former, g.since, g.careful, g.named = s, e.now, math.MaxInt, true
	if s == nil {
		return
	}
	e.feed.restored.tried = slices.Insert(e.feed.restored.tried, 0, s.Tried...)
	first := s.First()
	// The time until another owner has the lease may be longer than MaxAge, and one end of a process is no pattern.
	isOld := r.MaxAge > 0 && age(first.FailingSince(), e.now) >= r.MaxAge && first.Failures > 1
	switch {
	case !s.Alone || !isOld && (r.MaxAttempts == 0 || first.Failures < r.MaxAttempts):
	case s.Changes > 1:
		g.careful = s.Changes / 2
	case r.CanPark:
		g.crashed = s
	}
}

func (g *guard) isCareful() bool { return g.careful > 0 }

// count gives a change read again by key the calls of the last owner.
func (g *guard) count(c *Change, name func(*Change) string) {
	if g.former == nil {
		return
	}
	for _, run := range g.former.Tried {
		if c.isIn(run, name) {
			c.restore(run)
		}
	}
}

// beginAnew forgets the failures of the changes in the handler of the last owner, but not how often they were called,
// nor since when they fail.
func (g *guard) beginAnew() {
	if g.former == nil {
		return
	}
	former := *g.former // the lease's notes may share it
	former.Tried = withoutFailures(former.Tried)
	g.former = &former
}

// pageAdded parks the change which has ended the last owners, if the page contains this change.
func (g *guard) pageAdded(e *Engine, p *Page) {
	if g.crashed == nil {
		return
	}
	for i := range p.changes {
		c := &p.changes[i]
		if c.state != Queued || c.LSN != g.crashed.First().From || e.rules.Name(c) != g.crashed.Letter {
			continue
		}
		c.parkCrashed(e)
		g.crashed = nil
		return
	}
	if at := g.crashed.First().From; e.feed.last >= at && !e.isOpenBefore(at) { // the change was replaced, or is done
		g.crashed = nil
	}
}

// parkCrashed marks a change waiting in its lane as a change to be parked. Earlier changes go to the handler first.
func (c *Change) parkCrashed(e *Engine) {
	l := e.lanes.ownLaneFor(e, c.Key)
	if l.hold != notHeld { // the change is parked when its turn comes
		return
	}
	for l.waiting[0] != c {
		n, _ := l.countFitting(e.lanes.shareOfNext(e), positive(e.rules.MaxBytes), true)
		b := &Batch{}
		b.takeFrom(e, l, min(n, slices.Index(l.waiting, c)))
		e.batches = append(e.batches, b)
	}
	b := &Batch{State: ToPark, Err: ErrCrashed}
	b.takeFrom(e, l, 1)
	e.batches = append(e.batches, b)
}

// beforeCall names a batch that may end the process, because a batch has done so before, or because the batch has
// failed. The result reports whether the lease must be written before the call: also if the lease still names another
// batch, which has returned.
func (g *guard) beforeCall(e *Engine, b *Batch) (write bool) {
	failed := b.streak > 0 && (b.isOldest(e) || len(b.lanes) == 1 && b.lanes[0].aside.state != notAside)
	if b.request != nil || !e.rules.mayDivide() || g.of != nil || !g.isCareful() && !failed {
		write = g.named && g.of == nil
		g.named = g.named && !write
		return write
	}
	g.of, g.named = b, true
	g.suspect = &notes.Suspect{
		Changes: len(b.Changes), Alone: g.isCareful() || e.rules.Concurrency == 1, Tried: b.triedNow(e),
	}
	g.suspect.Letter = e.rules.Name(slices.MinFunc(b.Changes, func(x, y *Change) int {
		return cmp.Compare(x.LSN, y.LSN)
	}))
	return true
}

// triedNow is how often the handler has received the changes of a batch if the call beginning now never returns. Runs
// of several keys have no change of another batch between them, because nobody inherits the failures of others.
func (b *Batch) triedNow(e *Engine) (runs []notes.Run) {
	oneKey := len(b.lanes) == 1 && b.lanes[0] != e.lanes.common
	changes := slices.SortedStableFunc(slices.Values(b.Changes), func(x, y *Change) int {
		return cmp.Compare(x.LSN, y.LSN)
	})
	for i, c := range changes {
		run := c.run(e.rules.Name)
		run.Calls++
		run.Failures++
		if oneKey {
			run.Key = c.Key
		}
		if run.Failing == 0 {
			run.Failing = e.now.Unix()
		}
		runs = addRun(runs, run, i > 0 && c.follows(changes[i-1], oneKey))
	}
	return runs
}

// follows reports whether a change directly follows another: in the feed, or of their key.
func (c *Change) follows(before *Change, oneKey bool) bool {
	switch {
	case oneKey:
		return before.isBefore(c)
	case before.LSN == c.LSN:
		return true
	}
	return before.Page == c.Page && before.Index+1 == c.Index && !c.Page.ofKey
}

// afterCall notes: a batch has not ended the process.
func (g *guard) afterCall(b *Batch) {
	if g.of == b {
		g.of, g.suspect = nil, nil
	}
}

// NamesReturned reports whether the stored lease may name a returned batch: then the lease must be written, because the
// batch would be blamed if the process ended now.
func (e *Engine) NamesReturned() bool {
	g := &e.guard
	return g.named && g.of == nil && g.crashed == nil
}

// isOldest reports whether a batch has the oldest change for which the position waits.
func (b *Batch) isOldest(e *Engine) bool {
	c := e.FirstOpen()
	return c != nil && slices.Contains(b.Changes, c)
}

// relaxIfSettled ends the care when the changes in the handler are settled or, if they are not known, after a while.
func (g *guard) relaxIfSettled(e *Engine) {
	switch {
	case !g.isCareful():
	case g.former == nil && e.now.Sub(g.since) < blindCare:
	case g.former != nil && e.isOpenBefore(g.former.To()):
	default:
		g.careful, g.former = 0, nil
	}
}

// isOpenBefore reports whether a change up to an LSN is not settled.
func (e *Engine) isOpenBefore(lsn int64) bool {
	if c := e.FirstOpen(); c != nil && c.LSN <= lsn {
		return true
	}
	return e.asides.firstOpen() <= lsn
}
