package delivery

import (
	"slices"
	"time"

	"github.com/millrace/changefeed/internal/notes"
)

// A failure alone does not show whose fault it is: the change's, or a fault of something the handler needs. A pause
// outlasts a short outage. Dividing a batch finds a change that always fails, in a number of calls growing with the
// logarithm of the batch's size. The breaker decides the rest: it compares with other keys. So no change is parked
// before the change has failed alone, and none because of an outage seen in three keys. MaxAge stands above all that.

// Failure is how a call of the handler failed.
type Failure struct {
	Err      error
	Hopeless bool          // trying again cannot help
	Left     []*Part       // the changes of a key in their order; the rest of the batch is done; nil is the whole batch
	After    time.Duration // no attempt before
	Late     bool          // the handler took too long
	Outage   bool          // the changes are not at fault: the failure counts for the pause and for MaxAge only
}

// Part is the changes of a failed batch coming again together.
type Part struct {
	Changes  []int // their places in the batch, in order
	Err      error
	Hopeless bool // a retry cannot help
	Untried  bool // the handler has not seen the part
}

// isTotal reports whether nothing is done of a batch of so many changes.
func (f *Failure) isTotal(changes int) bool {
	for _, p := range f.Left {
		changes -= len(p.Changes)
	}
	return f.Left == nil || changes == 0
}

// Failed reports a failed call of a batch. The rest of the batch comes again, in the parts the rules say.
type Failed struct {
	Batch   *Batch
	Failure Failure
}

func (v Failed) applyTo(e *Engine) {
	b, f := v.Batch, v.Failure
	b.putDown(e)
	e.guard.afterCall(b)
	defer e.guard.relaxIfSettled(e)
	probe := b.probe
	b.probe = false
	if b.request != nil {
		b.request.letterFailed(e, b, f)
		return
	}
	stale := b.era != e.breaker.outages()                  // called before the end of an outage
	missed := probe && !stale && f.isTotal(len(b.Changes)) // so the outage goes on
	if probe && !stale && !missed {
		e.breaker.close(e.now)
	}
	e.breaker.troubled(e.now)
	b.spreadKeys(e)
	if stale {
		b.beginAnew()
	}
	excused := missed || stale || f.Outage
	b.countFailure(e, f, excused)
	left := b.divideWhatIsLeft(e, f, excused)
	if len(left) == 0 {
		b.replaceBy(e, HandlerFailed)
		return
	}
	if f.Late {
		e.limit.shrink(len(b.Changes))
	}
	if len(left) == 1 && left[0] == b {
		b.decideNext(e, missed, f.Late)
		return
	}
	b.replaceBy(e, HandlerFailed, left...)
	for _, part := range left {
		if !part.failing.IsZero() && part.State != Over { // the part may be set aside behind an earlier part
			part.decideNext(e, missed, f.Late)
		}
	}
}

// countFailure notes a failure in a batch.
func (b *Batch) countFailure(e *Engine, f Failure, excused bool) {
	b.Err, b.blame = f.Err, blameFor(f.Hopeless, excused)
	b.streak++
	b.last = e.now
	if b.failing.IsZero() {
		b.failing = e.now
	}
	if b.since == nil {
		since := e.now
		b.since = &since
	}
	if b.apart.IsZero() {
		b.apart = e.now
	}
	b.notBefore = e.now.Add(max(e.rules.Backoff(b.streak), f.After))
	b.asked = e.now.Add(f.After)
	for i, c := range b.Changes {
		if f.hasTried(i) {
			if c.calls++; c.failing == 0 {
				c.failing = e.now.UnixNano()
			}
			if !excused {
				c.failures++
			}
		}
	}
}

// hasTried reports whether the handler has had the change at a place of the batch.
func (f *Failure) hasTried(i int) bool {
	for _, p := range f.Left {
		if p.Untried && slices.Contains(p.Changes, i) {
			return false
		}
	}
	return true
}

// divideWhatIsLeft settles the changes of a batch that are done, or confirmed by hand, and returns the rest in parts.
func (b *Batch) divideWhatIsLeft(e *Engine, f Failure, excused bool) []*Batch {
	if b.IsConfirmed() {
		return nil
	}
	if f.Left == nil {
		return []*Batch{b}
	}
	of := make([]*Batch, len(b.Changes)) // nil for done changes
	var parts []*Batch
	for _, p := range f.Left {
		part := b.partOf(nil)
		part.apart = b.apart
		if part.taken = b.taken; p.Untried {
			part.failing, part.apart, part.streak, part.taken, part.since = time.Time{}, time.Time{}, 0, time.Time{},
				nil
			part.notBefore = part.asked // without a failure, no pause is needed
		}
		part.Err, part.blame = p.Err, blameFor(p.Hopeless, excused)
		for _, i := range p.Changes {
			part.Changes, of[i] = append(part.Changes, b.Changes[i]), part
		}
		parts = append(parts, part)
	}
	var done []*Change
	open := map[*lane]bool{}
	for i, c := range b.Changes {
		switch {
		case of[i] != nil:
			open[c.lane] = true
		case open[c.lane]: // the part must not come again if an earlier part is read again by key
			c.lane.ahead = append(c.lane.ahead, e.rules.Name(c))
			fallthrough
		default:
			done = append(done, c)
		}
		if i > 0 && of[i] != of[i-1] {
			markCut(b.Changes, i)
		}
	}
	// The done part is evidence for the breaker, and must not be tried again whatever
	// becomes of the rest.
	e.breaker.creditKeys(done, b.taken)
	e.finishHandled(done)
	return parts
}

// IsConfirmed reports whether a whole batch is done for good, by a confirmation.
func (b *Batch) IsConfirmed() bool {
	return !slices.ContainsFunc(b.Changes, func(c *Change) bool { return c.state != Settled })
}

// decideNext decides whether a failed batch comes again, whole or in parts, waits for evidence, or is parked.
func (b *Batch) decideNext(e *Engine, missed, late bool) {
	exhausted := b.isExhausted(e)
	switch {
	case len(b.lanes) > 1, late && b.isDivisible(), len(b.Changes) > 1 && (missed || exhausted && e.rules.mayDivide()):
		b.replaceByHalves(e, HandlerFailed)
	case missed && b.suspicion == isSuspected:
		b.waitInState(e, Suspect)
	case exhausted && e.rules.CanPark:
		b.judgeAlone(e)
	default:
		b.waitInState(e, ToCall)
		if exhausted {
			b.setAside(e)
		}
	}
}

// mayDivide reports whether a failing change is ever separated from the batch.
func (r *Rules) mayDivide() bool { return r.MaxAttempts > 0 || r.MaxAge > 0 }

// isDivisible reports whether a batch holds several transactions.
func (b *Batch) isDivisible() bool {
	_, alone := middle(b.Changes)
	return !alone
}

// waitInState has a failed batch wait in a state.
func (b *Batch) waitInState(e *Engine, s BatchState) {
	b.to(s, HandlerFailed)
	for _, l := range b.lanes {
		l.lettersFirst()
	}
	switch {
	case s == Suspect:
		b.suspicion = isSuspected
	case b.suspicion == isSuspected:
		b.suspicion = notSuspected
	}
	if !slices.Contains(e.batches, b) {
		e.batches = append(e.batches, b)
	}
}

// replaceByHalves puts the halves of a batch in the place of the batch. If attempts are left, the halves wait as the
// batch would; otherwise each half has a single try at once.
func (b *Batch) replaceByHalves(e *Engine, because BatchEvent) {
	b.spreadKeys(e) // its parts must not pass each other when the first one fails
	halves := b.halves()
	if b.isExhausted(e) {
		for _, half := range halves {
			half.notBefore = b.asked
		}
	}
	b.replaceBy(e, because, halves...)
}

// judgeAlone decides about a change that has failed alone and used up all attempts.
func (b *Batch) judgeAlone(e *Engine) {
	key := b.Changes[0].Key
	b.evidence = *b.since
	*b.since = e.now // an outage may begin during the division of a batch: the next part needs separate evidence
	if b.blame != isHopeless && !b.isOld(e) && b.suspicion != hasOutlived {
		e.breaker.failed(e.number, e.era, key, b.Changes[0].LSN, e.now)
		if !e.breaker.judge(key, e.era, b.evidence, true, e.now) {
			b.waitInState(e, Suspect)
			b.setAside(e)
			return
		}
	}
	b.waitInState(e, ToPark)
	b.prepareLetter()
}

// prepareLetter has the letter of a batch stored at once.
func (b *Batch) prepareLetter() { b.notBefore, b.streak = time.Time{}, 0 }

// judgeSuspects parks the changes at fault by now.
func (e *Engine) judgeSuspects() {
	others := e.inHand > 0 || e.lanes.hasReady() || slices.ContainsFunc(e.batches, func(b *Batch) bool {
		return b.State == ToCall && b.isFirst() && !b.isPaused()
	})
	for _, b := range slices.Clone(e.batches) {
		switch {
		case b.request != nil || b.failing.IsZero() || !e.rules.CanPark:
		case b.State == Suspect && (b.isOld(e) || e.breaker.judge(b.Changes[0].Key, e.era, b.evidence, others, e.now)),
			b.State == ToCall && b.isOld(e) && len(b.Changes) == 1 && !b.apart.IsZero():
			b.to(ToPark, Judged)
			b.prepareLetter()
		case b.State == ToCall && b.isOld(e) && len(b.Changes) > 1 && e.breaker.IsOpen():
			b.replaceByHalves(e, TimeReached)
		}
	}
}

// divideLarge divides due batches above the present limit, which is set after a batch of such a size took too long, or
// ended the last owner.
func (e *Engine) divideLarge() {
	if e.limit.items == 0 && !e.guard.isCareful() {
		return
	}
	for i := 0; i < len(e.batches); i++ {
		if b := e.batches[i]; b.State == ToCall && b.isFirst() && b.isTooLarge(e) {
			b.replaceByHalves(e, TimeReached)
			i = -1 // the first part may be too large, too
		}
	}
}

func (b *Batch) isTooLarge(e *Engine) bool {
	n := len(b.Changes)
	tooLong := e.limit.items > 0 && n > e.limit.items && b.isDivisible()
	fatal := e.guard.isCareful() && n > e.guard.careful && b.isExhausted(e)
	return b.request == nil && n > 1 && (tooLong || fatal)
}

// findProbe finds the batch to show whether an outage is over: a batch without a failure, or otherwise the batch tried
// longest ago, because some batches may be poison.
func (e *Engine) findProbe() *Batch {
	var found *Batch
	if i := slices.IndexFunc(e.lanes.ready, func(l *lane) bool { return l.isFree() && l.hold == notHeld }); i >= 0 {
		found = e.lanes.formBatch(e, e.lanes.ready[i])
	} else {
		for _, b := range e.batches {
			if b.mayProbe() && !b.asked.After(e.now) && (found == nil || b.probed.Before(found.probed)) {
				found = b
			}
		}
	}
	return found
}

// mayProbe reports whether a batch could show whether an outage is over.
func (b *Batch) mayProbe() bool {
	return (b.State == ToCall || b.State == Suspect) && b.isFirst() && !b.isPaused()
}

// untilProbe is how long until the call of the first batch for which the handler has asked to wait; Never if there is
// none.
func (e *Engine) untilProbe() time.Duration {
	wait := Never
	for _, b := range e.batches {
		if left := b.asked.Sub(e.now); left > 0 && b.mayProbe() {
			wait = min(wait, left)
		}
	}
	return wait
}

// beginAnew forgets the failures of a batch, but not since when the batch fails: MaxAge stands above all.
func (b *Batch) beginAnew() {
	for _, c := range b.Changes {
		c.failures = 0
	}
	b.streak, b.blame, b.apart, b.since = 0, isCounted, time.Time{}, nil
}

// endOutage forgets, after an outage, the failures until the end of the outage: nothing may be parked for them. A
// change failing while others were handled again is not taken for a sign of the next outage.
func (e *Engine) endOutage() {
	era := e.breaker.outages()
	if era == e.era {
		return
	}
	e.era = era
	for _, b := range e.batches {
		if b.request != nil || b.failing.IsZero() || b.State != ToCall && b.State != Suspect {
			continue
		}
		if b.State == Suspect {
			b.to(ToCall, OutageOver)
			b.suspicion = hasOutlived
		}
		b.beginAnew()
		b.streak = 1
		if b.notBefore = e.now.Add(e.rules.Backoff(1)); b.notBefore.Before(b.asked) {
			b.notBefore = b.asked
		}
	}
	e.forgetFailures()
	e.recalls.startRecalls(e)
}

// LeaseLeft reports a lease which now belongs to somebody else: the failures of the lease do not show an outage here
// any more.
type LeaseLeft struct{}

func (LeaseLeft) applyTo(e *Engine) { e.breaker.leave(e.number, e.now) }

// forgetFailures forgets the failures of changes in no batch, and of unread changes.
func (e *Engine) forgetFailures() {
	anew := func(l *lane) {
		for _, c := range l.waiting {
			c.failures = 0
		}
		l.tried = withoutFailures(l.tried)
	}
	anew(e.lanes.common)
	for _, l := range e.lanes.own {
		anew(l)
	}
	e.feed.restored.tried = withoutFailures(e.feed.restored.tried)
	e.guard.beginAnew()
}

func withoutFailures(runs []notes.Run) []notes.Run {
	runs = slices.Clone(runs) // the lease may say them
	for i := range runs {
		runs[i].Failures = 0
	}
	return runs
}
