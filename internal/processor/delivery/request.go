package delivery

import (
	"slices"
	"time"
)

// How letters are handed over again
//
// A retry hands a letter over, before all waiting changes of the key. If the handler succeeds, the letter is removed,
// and if no other letter holds the key, the held letters follow. A release hands over the held letters alone. Meanwhile
// new changes of the key wait: otherwise a busy key would be parked as fast as it is handled. When no held letter is
// left, the key goes on. If the handler fails, the key stays held from there. A held letter passes no earlier change of
// its key that is not done: a reset ends a hold and leaves its letters, and the changes between them come again. The
// states of a request are in state.go.

// Request is a retry, if it names a letter, or a release.
type Request struct {
	Token  string // two requests with the same token are the same
	Key    string
	Letter string
	Of     any // of the owner

	State   RequestState
	Current *Letter // that is handed over, removed or rewritten
	Result  Result
	Err     error // why the handler failed, or the request was not served
	Handled int   // letters
	IsHeld  bool  // the key is held, when the request is answered

	letters   []*Letter // after Current
	origin    origin
	stage     stage
	failed    time.Time // time of the handler's failure with the letter
	withdrawn bool      // nothing follows the letter that the handler has, or had
	outdated  bool      // a letter of the key was stored since the listing
	lane      *lane
}

// IsRecall reports whether nobody has asked: the letter was parked just before an outage was detected.
func (q *Request) IsRecall() bool { return q.origin != asked }

// Waiting is how many letters were listed and not handed over. If a letter was stored since, the number of others is
// unknown.
func (q *Request) Waiting() (n int, known bool) { return len(q.letters), !q.outdated }

// Letter is a dead letter.
type Letter struct {
	Of    any // of the owner
	Name  string
	LSN   int64
	Size  int
	Calls int // how often the handler has received the change
}

// Result is the outcome of a request.
type Result uint8

// The results of a request.
const (
	NotServed Result = iota
	HandledAgain
	FailedAgain
	NothingToDo
)

// RequestMade reports a request, which is served unless the same request is being served already.
type RequestMade struct {
	Request *Request
}

func (v RequestMade) applyTo(e *Engine) {
	q := v.Request
	l := e.lanes.ownLaneFor(e, q.Key)
	if slices.ContainsFunc(l.requests, func(o *Request) bool { return o.Token == q.Token }) {
		return
	}
	q.lane = l
	l.requests = append(l.requests, q)
	e.requests++
	l.advance(e)
	l.beginRequest(e)
}

// RequestWithdrawn reports a withdrawn request. The request ends: if a letter of the request is in the handler, after
// that letter.
type RequestWithdrawn struct {
	Key   string
	Token string
}

func (v RequestWithdrawn) applyTo(e *Engine) {
	l := e.lanes.own[v.Key]
	if l == nil {
		return
	}
	i := slices.IndexFunc(l.requests, func(o *Request) bool { return o.Token == v.Token })
	if i < 0 {
		return
	}
	q := l.requests[i]
	q.withdrawn = true
	switch q.State {
	case Asked, Finding, Listing:
		q.answer(e, Withdrawn, NotServed, nil)
	case Redriving:
		waits := slices.IndexFunc(l.line, func(b *Batch) bool { return b.request == q && b.State == ToCall })
		if waits < 0 {
			return
		}
		b := l.line[waits]
		b.Changes[0].settle(e)
		b.replaceBy(e, RequestServed)
		q.answer(e, Withdrawn, NotServed, nil)
	}
}

// beginRequest begins with the first request of a key, unless a letter of the key is being stored: the list of the
// letters must be complete.
func (l *lane) beginRequest(e *Engine) {
	if len(l.requests) == 0 || l.requests[0].State != Asked {
		return
	}
	q := l.requests[0]
	if q.Letter != "" && q.Current == nil && q.stage == ownLetter {
		q.to(Finding, ItsTurn)
		e.queueEffect(Effect{Kind: FindLetter, Request: q})
		return
	}
	if l.hold == isHeld { // the changes of the key wait from now on
		l.hold = releasing
		l.advance(e)
	}
	if slices.ContainsFunc(l.line, func(b *Batch) bool { return b.State == Parking }) {
		return
	}
	l.unparkHeld(e)
	q.outdated = false
	q.to(Listing, ItsTurn)
	e.queueEffect(Effect{Kind: ListLetters, Request: q})
}

// unparkHeld returns changes that were to be parked only because the key is held to the waiting changes: the key may be
// free soon.
func (l *lane) unparkHeld(e *Engine) {
	for _, b := range slices.Backward(slices.Clone(l.line)) {
		if b.State != ToPark || !b.isHeld {
			continue
		}
		b.Changes[0].state = Queued
		l.waiting = slices.Concat(b.Changes, l.waiting)
		e.lanes.queued++
		b.replaceBy(e, RequestServed)
	}
}

// LetterFound is the answer to FindLetter.
type LetterFound struct {
	Request *Request
	Letter  *Letter // nil if there is none, or if the letter is held behind another letter
}

func (v LetterFound) applyTo(e *Engine) {
	q, l := v.Request, v.Letter
	switch {
	case q.State != Finding: // withdrawn
	case l == nil && q.lane.hold != notHeld && q.origin != recalled:
		// An ended owner may have handled the letter, and not the changes held behind it.
		q.stage = heldLetters
		q.to(Asked, LetterGone)
		q.lane.beginRequest(e)
	case l == nil:
		q.answer(e, LetterGone, NothingToDo, nil)
	case q.origin == recalledInHand:
		q.answer(e, LetterThere, NotServed, nil)
	default:
		q.redriveLetter(e, l, LetterThere)
	}
}

// LettersListed is the answer to ListLetters.
type LettersListed struct {
	Request *Request
	Letters []*Letter // the first that are held
	Failed  bool      // there is another letter of the key, which has failed
}

func (v LettersListed) applyTo(e *Engine) {
	q, letters, failed := v.Request, v.Letters, v.Failed
	switch {
	case q.State != Listing:
	case failed && q.Letter != "" && q.stage < heldLettersOnly:
		q.answer(e, LetterGone, q.handled(), nil)
	case len(letters) > 0 && q.lane.isBehind(letters[0].LSN):
		q.putOff(e, LetterThere, nil)
	case len(letters) > 0:
		q.stage = heldLettersOnly
		q.letters = letters[1:]
		q.redriveLetter(e, letters[0], LetterThere)
	case q.lane.hold == notHeld && q.Handled == 0:
		q.answer(e, LetterGone, NothingToDo, nil)
	default:
		q.lane.endHold(e)
		q.stage = keyFreed
		q.answer(e, LetterGone, HandledAgain, nil)
	}
}

// isBehind reports whether a change of the key from before an LSN is not done. Then an owner had read further, left a
// letter of this LSN, and ended before the lease said that the key is held: its change comes again, in its order.
func (l *lane) isBehind(lsn int64) bool {
	isBefore := func(c *Change) bool { return !c.letter && c.lane == l && c.LSN < lsn }
	unread := (l.aside.state == behind || l.aside.state == reading) && l.aside.after+1 < lsn
	return unread || slices.ContainsFunc(l.waiting, isBefore) ||
		slices.ContainsFunc(l.line, func(b *Batch) bool { return slices.ContainsFunc(b.Changes, isBefore) })
}

// outdateList notes that a letter of a key was stored, which the list of the request under way does not have.
func (l *lane) outdateList() {
	if len(l.requests) > 0 {
		l.requests[0].outdated = true
	}
}

// handled is the result of an ended request.
func (q *Request) handled() Result {
	if q.Handled == 0 {
		return NothingToDo
	}
	return HandledAgain
}

// redriveLetter puts a letter before all waiting changes of the key, with a single try.
func (q *Request) redriveLetter(e *Engine, letter *Letter, because RequestEvent) {
	q.to(Redriving, because)
	q.Current = letter
	l := q.lane
	p := newPage(letter.Of, nil, nil, 1, func(int) Meta { return Meta{letter.LSN, l.key, letter.Size} }, 0, nil)
	c := &p.changes[0]
	c.letter, c.lane, c.state, c.calls = true, l, Batched, letter.Calls
	c.release()
	b := &Batch{Changes: []*Change{c}, lanes: []*lane{l}, request: q}
	if len(l.line) > 0 && l.line[0].State == ToCall && len(l.line[0].lanes) > 1 {
		l.line[0].extractKey(e, l)
	}
	i := 0
	for i < len(l.line) && (l.line[i].State == Calling || l.line[i].State == Parking) {
		i++
	}
	l.line = slices.Insert(l.line, i, b)
	e.items++
	e.bytes += p.bytes
	e.batches = append(e.batches, b)
	l.advance(e)
}

// letterHandled notes the handler's success with a letter.
func (q *Request) letterHandled(e *Engine) {
	q.to(Removing, LetterHandled)
	q.Handled++
	e.queueEffect(Effect{Kind: Remove, Request: q})
}

// Conclusion takes an effect ending work without another call of the handler: on a letter the handler had, or on an
// ended request. An ending owner carries these out and no others, so that the next owner does not hand the letter over
// again.
func (e *Engine) Conclusion() (do Effect, found bool) {
	i := slices.IndexFunc(e.effects, func(o Effect) bool {
		return o.Kind == Remove || o.Kind == Rewrite || o.Kind == Answer
	})
	if i < 0 {
		return do, false
	}
	do = e.effects[i]
	e.effects = slices.Delete(e.effects, i, i+1)
	return do, true
}

// letterFailed notes the handler's next failure with a letter.
func (q *Request) letterFailed(e *Engine, b *Batch, f Failure) {
	b.Changes[0].settle(e)
	b.replaceBy(e, HandlerFailed)
	q.Err = f.Err
	if len(f.Left) > 0 { // the handler has named the change
		q.Err = f.Left[0].Err
	}
	q.failed = e.now
	switch {
	case q.IsRecall() && e.breaker.IsOpen(): // the letter returns after this outage
		e.recalls.remember(e, q.recall())
		q.answer(e, LetterFailed, NotServed, nil)
		return
	case q.IsRecall() && (f.Outage || e.recalls.isUncertain(e)): // the letter returns after the next success
		e.recalls.inherit(e, q.recall(), true)
		q.answer(e, LetterFailed, NotServed, nil)
		return
	}
	q.to(Rewriting, LetterFailed)
	e.queueEffect(Effect{Kind: Rewrite, Request: q})
}

// LetterRemoved reports the removal of a letter handled for a request.
type LetterRemoved struct {
	Request *Request
}

func (v LetterRemoved) applyTo(e *Engine) {
	q := v.Request
	isMore := len(q.letters) > 0 && !q.withdrawn
	switch {
	case isMore && !q.outdated && !q.lane.isBehind(q.letters[0].LSN):
		next := q.letters[0]
		q.letters = q.letters[1:]
		q.redriveLetter(e, next, Removed)
	case q.lane.hold == notHeld && !isMore:
		q.answer(e, Removed, HandledAgain, nil)
	case q.withdrawn:
		q.answer(e, Removed, NotServed, nil)
	default: // stored letters, or letters to be stored, may come before the next letter: they are listed again
		q.letters = nil
		q.to(Asked, Removed)
		q.lane.beginRequest(e)
	}
}

// LetterRewritten reports that the letter of a request has the new error.
type LetterRewritten struct {
	Request *Request
}

func (v LetterRewritten) applyTo(e *Engine) {
	q := v.Request
	if q.IsRecall() { // the letter returns again if this was the next outage
		e.recalls.remember(e, recall{key: q.Key, letter: q.Current.Name, failed: q.failed})
	}
	q.answer(e, Rewritten, FailedAgain, q.Err)
}

// RequestFailed reports a request whose letters could not be read or written, for which no change is at fault.
type RequestFailed struct {
	Request *Request
	Err     error
}

func (v RequestFailed) applyTo(e *Engine) {
	q := v.Request
	if q.State != Answered {
		q.putOff(e, BoxFailed, v.Err)
	}
}

// putOff ends a request that cannot be served now. The owner asks again; a recall does so by itself.
func (q *Request) putOff(e *Engine, because RequestEvent, err error) {
	if q.IsRecall() {
		e.recalls.postpone(e, q.recall())
	}
	q.answer(e, because, NotServed, err)
}

// answer ends a request, and begins with the next request of the key.
func (q *Request) answer(e *Engine, because RequestEvent, r Result, err error) {
	l := q.lane
	q.to(Answered, because)
	q.Result, q.Err, q.IsHeld = r, err, l.hold != notHeld
	e.requests--
	l.requests = slices.DeleteFunc(l.requests, func(o *Request) bool { return o == q })
	if l.hold == releasing {
		l.hold = isHeld
	}
	// A free key must not be held under the next owner: nobody would ask again.
	e.queueEffect(Effect{Kind: Answer, Request: q, Note: q.stage == keyFreed})
	l.advance(e)
	l.beginRequest(e)
}
