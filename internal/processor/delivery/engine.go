// Package delivery decides which changes of a lease the handler receives now, in which batches, and whether failed
// changes come again or are parked. The package has no clock, no goroutine and no I/O. The owner of an [Engine] tells
// it the events ([Engine.Tell]: a page was read, the handler has failed, a letter is stored), and asks for the next
// effect ([Engine.Next]: call the handler, store a letter, read a key again). So a test can visit every interleaving of
// a small world.
//
// Each [Event] is a type, whose method applyTo carries out the consequences. From there the work goes to a method of a
// batch, a lane, a change, a request or a part of the engine, with the engine as the argument.
//
// # Lanes
//
// A lane is a queue of changes handled in order. With a concurrency of 1 all keys share the common lane, and a page
// without trouble is a single batch of that lane. A key gets a separate lane when its changes fail, are held, or are
// handed over again. Above a concurrency of 1 each key has a separate lane. A batch takes changes of several free
// lanes, and a lane is in one batch at a time.
//
// # Failures
//
// A failed batch comes again after a pause. A batch with several keys comes again in two parts, divided by key, so a
// failing key is alone soon. A batch of a single key comes again whole until the attempts are used up, and then in two
// parts, by transaction, until a failing change is alone. This change is a suspect. The [Breaker] compares the suspect
// with other keys: either the suspect is parked, or so many keys fail that none of them is at fault.
//
// # Keys that are set aside
//
// A failing key must not stop the others, however many changes are behind it. So the later changes of the key are
// forgotten, and are read again by key once those before them are settled. See aside.go.
package delivery

import (
	"math"
	"slices"
	"time"

	"github.com/millrace/changefeed/internal/notes"
)

// Position is a place in the feed. The engine keeps positions and compares none.
type Position any

// Rules are how changes are batched, retried and parked.
type Rules struct {
	Concurrency int           // batches in the handler at once
	InOrder     bool          // a batch waits for the batch before it, whatever the keys: all changes share a lane
	MaxItems    int           // changes in a batch, transactions excepted; 0 is no limit
	MaxBytes    int           // bytes in a batch, transactions excepted; 0 is no limit
	Wait        time.Duration // how long a batch that is not full waits for more changes
	// failures before a batch of a single key is divided, and a single change is a suspect; 0 is no limit
	MaxAttempts int
	MaxAge      time.Duration // how long a batch may fail before that; 0 is no limit
	CanPark     bool          // there are dead letters: without them a change that fails alone is tried for ever
	HoldKeys    bool          // the later changes of a parked change's key are parked too
	HasBox      bool          // letters can be read again
	ByHand      bool          // changes are settled by Confirm, not by success

	CanReadKeys   bool                 // the source can read a single key again
	MaxAside      int                  // keys that are set aside
	MaxAsideBytes int                  // of the notes about them in the lease; 0 is no limit
	AsideBytes    func(key string) int // of a key
	KeyPages      int                  // reads by key at once

	MaxHeld      int                  // keys that are held
	MaxHeldBytes int                  // of their names in the lease
	HeldBytes    func(key string) int // of a key

	Backoff func(failures int) time.Duration
	// the position after a read LSN, if known from the end of the read
	After func(end Position, lsn int64) (at Position, known bool)
	Name  func(c *Change) string // the name of a change in the lease, and the ID of its letter
	ID    func(c *Change) string // of the item of a change
}

// Engine has the unsettled changes of a lease.
type Engine struct {
	rules   Rules
	breaker *Breaker
	number  int  // by which the breaker knows the failures of this engine
	era     int  // outages of the breaker that this engine has heard the end of
	heir    bool // the last owner saw an outage, and this lease may have changes that failed in it
	now     time.Time

	feed    feed
	lanes   lanes
	asides  asides
	batches batchQueue
	held    holdings
	recalls recalls
	limit   sizeLimit
	width   width
	guard   guard
	skips   []notes.Skip // changes that are skipped and may come again

	items    int // changes in memory that are not settled, letters included
	bytes    int // of the pages of these changes
	inHand   int // batches that are in the handler, or whose letters are being stored
	parked   int // letters stored so far
	requests int // that are not answered
	effects  []Effect
	news     []KeyNews // that News has not returned yet
}

// New returns an engine without changes. The engines of several leases may share a breaker.
func New(r Rules, b *Breaker) *Engine {
	r.Concurrency = max(r.Concurrency, 1)
	e := &Engine{rules: r, breaker: b, number: b.join(), era: b.outages()}
	if e.rules.After == nil {
		e.rules.After = func(Position, int64) (Position, bool) { return nil, false }
	}
	e.feed.after, e.feed.name, e.feed.keeps = e.rules.After, e.rules.Name, e.rules.ByHand
	e.lanes = lanes{common: &lane{}, own: map[string]*lane{}, rules: &e.rules}
	e.held.rules, e.asides.rules = &e.rules, &e.rules
	e.width.lanes = widthAtFirst
	return e
}

// Event is an event that the owner reports to the engine:
//
//	of the feed    PageRead, FeedPassed
//	of a call      Succeeded, Failed, Cut
//	of a change    LetterStored, LetterRefused
//	of a key       KeyRead, KeyFailed
//	of a request   RequestMade, RequestWithdrawn, RequestFailed, LetterFound, LettersListed, LetterRemoved, LetterRewritten
//	of the lease   LeaseStored, LeaseLeft, OwnerCrashed
type Event interface {
	applyTo(e *Engine)
}

// Tell tells the engine an event.
func (e *Engine) Tell(what Event, now time.Time) {
	e.now = now
	what.applyTo(e)
}

// Effect is something the owner of the engine must do.
type Effect struct {
	Kind  EffectKind
	Batch *Batch // of Call, Park and TooManyHeld
	// of Call and Answer: the lease must be written first, because the call may end the process, or the key is free
	Note    bool
	Key     string   // of ReadKey
	From    Position // of ReadKey
	Request *Request // of the effects of requests
	Page    *Page    // of Shed
}

// EffectKind is a kind of effect.
type EffectKind uint8

// The effects. Each effect but the last three is answered by an event.
const (
	Nothing     EffectKind = iota
	Call                   // the handler, then Succeeded, Failed or Cut
	Park                   // store the letter of the batch's change, then LetterStored or LetterRefused
	ReadKey                // read a page of a key, then KeyRead or KeyFailed
	FindLetter             // look for the letter of a request, then LetterFound or RequestFailed
	ListLetters            // read the held letters of the request's key, then LettersListed or RequestFailed
	Remove                 // remove the request's letter, then LetterRemoved or RequestFailed
	// store the new error in the request's letter, then LetterRewritten or RequestFailed
	Rewrite
	Answer      // tell the caller of a request the outcome
	Shed        // give up the memory of a page's settled changes
	TooManyHeld // report that the key of a change cannot be held
)

// Never is a wait for an event alone.
const Never = time.Duration(math.MaxInt64)

// Next returns the next effect. If there is none, wait says when to ask again, unless an event comes before.
func (e *Engine) Next(now time.Time) (do Effect, wait time.Duration) {
	e.now = now
	e.endOutage()
	recalled := e.recalls.resumeDue(e)
	e.judgeSuspects()
	e.reportUnheld()
	wait = min(recalled, e.asides.readKeys(e), e.batches.untilOld(e))
	if len(e.effects) > 0 {
		do, e.effects = e.effects[0], e.effects[1:]
		return do, 0
	}
	b, left := e.nextBatch()
	if b == nil {
		return Effect{}, min(wait, left)
	}
	if b.State == ToPark {
		return b.beginParking(e), 0
	}
	return b.beginCall(e), 0
}

// queueEffect queues an effect.
func (e *Engine) queueEffect(effect Effect) { e.effects = append(e.effects, effect) }

// nextBatch finds a batch whose time has come.
func (e *Engine) nextBatch() (*Batch, time.Duration) {
	if e.inHand >= e.rules.Concurrency || e.guard.isCareful() && e.inHand > 0 {
		return nil, Never
	}
	// Letters go first, and in an outage too: they need nothing the handler needs.
	if e.breaker.IsOpen() {
		e.lanes.formHeld(e)
	}
	e.divideLarge()
	b, parks := e.batches.findDue(e.now, func(b *Batch) bool { return b.State == ToPark && b.mayPark(e) })
	if b != nil {
		return b, 0
	}
	open, left := e.breaker.admit(e.now)
	if open {
		b, wait := e.inOutage(left)
		return b, min(parks, wait)
	}
	var wait time.Duration
	if b, wait = e.batches.findDue(e.now, func(b *Batch) bool { return b.State == ToCall }); b != nil {
		return b, 0
	}
	if b, left = e.lanes.formNext(e); b != nil && b.isTooLarge(e) {
		return e.nextBatch()
	}
	if b != nil {
		return b, 0
	}
	return nil, min(parks, wait, left)
}

// inOutage finds a batch while the breaker is open: a batch too old to wait for the end of the outage or, when it is
// time for a probe, a batch that shows whether the outage is over.
func (e *Engine) inOutage(left time.Duration) (*Batch, time.Duration) {
	b, wait := e.batches.findDue(e.now, func(b *Batch) bool { return b.State == ToCall && b.isOld(e) })
	if b != nil {
		return b, 0
	}
	if left > 0 {
		return nil, min(wait, left)
	}
	if b = e.findProbe(); b == nil {
		return nil, min(wait, e.untilProbe())
	}
	if left := e.breaker.beginProbe(e.now); left > 0 { // another lease has begun a probe
		return nil, min(wait, left)
	}
	b.probe, b.probed = true, e.now
	return b, 0
}

// waitsForOthers reports whether nothing new is to be tried yet: two batches have failed whose keys are not apart, and
// nothing has succeeded since. In an outage, more calls would not help, and without an outage, the keys will be
// separated soon.
func (e *Engine) waitsForOthers() bool {
	unclear := 0
	for _, b := range e.batches {
		if b.State == ToCall && b.streak > 0 && len(b.lanes) > 1 && e.breaker.noneSince(b.failing) {
			unclear++
		}
	}
	return unclear > 1
}

// Succeeded reports the handler's success with a batch.
type Succeeded struct {
	Batch *Batch
	Quick bool // the call took less than half of its time
}

func (v Succeeded) applyTo(e *Engine) {
	b := v.Batch
	b.putDown(e)
	e.guard.afterCall(b)
	e.limit.grow(len(b.Changes), v.Quick)
	e.width.observe(len(b.lanes), len(b.Changes), e.now.Sub(b.taken))
	if b.probe {
		e.breaker.close(e.now)
	}
	e.breaker.creditKeys(b.Changes, b.taken)
	for _, c := range b.Changes {
		c.calls++
	}
	e.finishHandled(b.Changes)
	b.replaceBy(e, HandlerDone)
	if b.request != nil {
		b.request.letterHandled(e)
	}
	e.guard.relaxIfSettled(e)
}

// Cut says that the call of a batch was cut short, without success or failure.
type Cut struct {
	Batch *Batch
}

func (v Cut) applyTo(e *Engine) {
	b := v.Batch
	b.putDown(e)
	e.guard.afterCall(b)
	b.probe = false
	b.spreadKeys(e) // a letter of a key of the batch may wait by now
	if b.suspicion == isSuspected {
		b.to(Suspect, HandlerCut)
	} else {
		b.to(ToCall, HandlerCut)
	}
	for _, l := range b.lanes {
		l.lettersFirst()
	}
	e.batches = append(e.batches, b)
}

// finishHandled settles handled changes, or notes that they wait for a confirmation by hand.
func (e *Engine) finishHandled(changes []*Change) {
	for _, c := range changes {
		switch {
		case c.state == Settled || c.state == Handled:
		case e.rules.ByHand && !c.letter:
			c.leaveMemory(e)
			if c.state = Handled; c.passed {
				c.lane.handled = append(c.lane.handled, c)
			}
		default:
			c.settle(e)
		}
	}
	e.feed.trim()
}

// HasFailed reports whether a batch waits because the last call has failed, or the letter could not be stored.
func (e *Engine) HasFailed() bool {
	return slices.ContainsFunc(e.batches, func(b *Batch) bool { return b.streak > 0 && b.State != Over })
}

// Counts is how much an engine has.
type Counts struct {
	Items    int // changes in memory that are not handled, letters included
	Bytes    int // of the pages that these changes are of
	InHand   int // batches that are in the handler, or are being parked
	Parked   int // letters that were stored
	Held     int // keys
	SetAside int // keys
	Unsaved  int // changes that are settled and that the stored lease does not cover
}

// Counts counts the changes, keys and batches of the engine.
func (e *Engine) Counts() Counts {
	return Counts{
		Items: e.items, Bytes: e.bytes, InHand: e.inHand, Parked: e.parked,
		Held: e.held.keys, SetAside: e.asides.keys, Unsaved: e.feed.unsaved,
	}
}

// KeyNews reports a key whose changes are treated differently from now on.
type KeyNews struct {
	Key    string
	Became KeyState
}

// KeyState is how the changes of a key are treated.
type KeyState uint8

// The reported states of a key.
const (
	BecameAside KeyState = iota
	CaughtUp
	BecameHeld
	BecameFree
)

func (e *Engine) reportKey(key string, became KeyState) {
	e.news = append(e.news, KeyNews{key, became})
}

// News returns the keys that are treated differently since the last call of News.
func (e *Engine) News() (news []KeyNews) {
	news, e.news = e.news, nil
	return news
}
