package changefeed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/delivery"
	"github.com/millrace/changefeed/internal/fold"
	"github.com/millrace/changefeed/internal/notes"
)

// How letters are handed over again
//
// Whoever wants a letter handled again writes a request among the leases: a record of [feed.KindRequest]
// with the effective partition key. The owner of its range, and nobody else, serves it: so the
// change goes to the handler in order with its key, wherever the lease is by then. The engine says in which steps
// (internal/delivery/request.go); here each step is done. When it has served the request, the owner writes into it what
// became of it, and retires it: a retired request is never served again. Package notes has the protocol.

// serveRequests gives the requests to the workers that have their ranges, and withdraws those whose records are gone.
func (r *run) serveRequests() {
	workers, _ := r.claims.all()
	asked := map[string]bool{}
	for _, q := range r.view.kind(feed.KindRequest) {
		if q.State != feed.StateLive { // it was served, and its caller has not deleted it yet
			continue
		}
		if q.TTL > 0 && r.view.Now().After(q.Updated.Add(q.TTL)) { // its caller has died, and the store removes nothing
			continue
		}
		asked[q.Token] = true
		place := notes.ReadRequest(q.Properties).EPK
		for _, w := range workers {
			if w.lease.Range.Holds(place) {
				w.dispatcher.requests.accept(q)
			}
		}
	}
	for _, w := range workers {
		w.dispatcher.requests.withdraw(asked)
	}
}

// requests serves what is asked of the keys of a lease. The lock of its dispatcher guards it.
type requests struct {
	d        *dispatcher
	serving  map[string]*request // by their tokens
	redriven int                 // letters that were handled
	released int                 // keys that are not held any more
}

// request is a request that is being served.
type request struct {
	record feed.Record
	asked  notes.Request
	lost   bool              // its record is gone: it was withdrawn, or another owner serves it
	before int               // letters that were handled by tries that could not go on
	unsure string            // ID of one of them that could not be removed, unless the answer was lost; empty if there is none
	served *delivery.Request // nil before the engine knows of it
	whole  bool              // all held letters of the key were listed
}

// accept begins to serve a request, unless that is being done.
func (s *requests) accept(record feed.Record) {
	q := &request{
		record: record, asked: notes.ReadRequest(record.Properties), before: int(notes.Number(record.Properties, notes.CountProperty)),
		unsure: record.Properties[notes.UnsureProperty],
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if !s.d.restored || s.d.closed || s.serving[record.Token] != nil {
		return
	}
	s.serving[record.Token] = q
	s.d.calls.Go(func() {
		if err := s.admit(q); err != nil {
			s.forget(q)
			s.reportUnlessOver(q, err)
			return
		}
		s.d.mu.Lock()
		q.served = &delivery.Request{Token: record.Token, Key: q.asked.Key, Letter: q.asked.Letter, Of: q}
		s.d.engine.Ask(q.served, time.Now())
		s.d.mu.Unlock()
		s.d.start()
		notify(s.d.news)
	})
}

// sees notes that a letter is there: so it is handled again, if it was before, and counts once.
func (q *request) sees(l feed.DeadLetter) {
	if q != nil && q.unsure == l.ID {
		q.before, q.unsure = q.before-1, ""
	}
}

func (q *request) failure(err error) error {
	return fmt.Errorf("%s %s: %w", q.asked.Action, q.asked.Key, err)
}

func (s *requests) forget(q *request) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	delete(s.serving, q.record.Token)
}

// withdraw ends the requests whose records are not asked for any more.
func (s *requests) withdraw(asked map[string]bool) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	for token, q := range s.serving {
		if !asked[token] {
			q.lost = true
			s.d.engine.Withdraw(q.asked.Key, token)
		}
	}
	notify(s.d.news)
}

// maxTries is how often a request may end the process that serves it.
const maxTries = 3

// admit checks a request, and counts in its record how often it was begun with: to serve it may end the process.
func (s *requests) admit(q *request) error {
	_, hasBox := s.d.r.opts.DeadLetters.(feed.LetterBox)
	switch {
	case !hasBox: // the next owner of the range may have one
		return s.postpone(q, fmt.Errorf("instance %s has no letter box to read from", s.d.r.me.Instance))
	case q.asked.Action != notes.Retry && q.asked.Action != notes.Release:
		return s.postpone(q, fmt.Errorf("%w: instance %s does not know the action %q of a newer version", feed.ErrBadLease, s.d.r.me.Instance, q.asked.Action))
	case q.asked.Tries >= maxTries:
		err := fmt.Errorf("%w: its owner has ended %d times while it was served", feed.ErrHandlerStuck, q.asked.Tries)
		return errors.Join(err, s.retire(q, notes.Outcome{Result: notes.Failed, Cause: err.Error(), Count: q.before, Left: notes.UnknownLeft}))
	}
	q.asked.Tries++
	q.record.Properties = notes.Set(q.record.Properties, notes.WaitsProperty, "")
	return s.storeRequest(s.d.untilDrained, q)
}

// postpone notes in the request, once, why it is not served here.
func (s *requests) postpone(q *request, why error) error {
	before := q.record.Properties[notes.WaitsProperty]
	q.record.Properties = notes.SetWaits(q.record.Properties, why.Error())
	if q.record.Properties[notes.WaitsProperty] != before {
		_ = s.storeRequest(s.d.untilDrained, q) // otherwise its caller hears no reason
	}
	return why
}

// storeRequest writes what is known of a request, where the next owner of the range finds it. The request does not live
// longer for that.
func (s *requests) storeRequest(ctx context.Context, q *request) error {
	q.record.Properties = q.asked.Properties(q.record.Properties)
	if q.record.TTL > 0 {
		q.record.TTL = max(q.record.TTL-s.d.r.view.Now().Sub(q.record.Updated), time.Second)
	}
	stored, err := s.d.r.store.Update(ctx, q.record)
	if err == nil {
		q.record = stored
		s.d.r.view.put(stored)
	}
	return err
}

// putBack stores a request that cannot be served now, with how many letters were handled for it.
func (s *requests) putBack(ctx context.Context, q *request) error {
	q.asked.Tries-- // it has not ended the process
	handled := q.before
	if q.served != nil {
		handled += q.served.Handled
	}
	q.record.Properties = notes.Set(q.record.Properties, notes.CountProperty, notes.PlainNumber(int64(handled)))
	q.record.Properties = notes.Set(q.record.Properties, notes.UnsureProperty, q.unsure)
	return s.storeRequest(ctx, q)
}

// handBack puts back what is left for the next owner of the lease, once, because this one ends in good order.
func (s *requests) handBack() {
	// Of the base, because the contexts of the work have mostly ended by now.
	ctx, cancel := context.WithTimeout(s.d.r.base, s.d.r.opts.Drain/2)
	defer cancel()
	s.d.mu.Lock()
	left := slices.DeleteFunc(slices.Collect(maps.Values(s.serving)), func(q *request) bool { return q.lost })
	clear(s.serving)
	s.d.mu.Unlock()
	for _, q := range left {
		if q.served != nil && q.served.State == delivery.Removing { // its letter was handled
			q.unsure = letterOf(q.served).ID
		}
		_ = s.putBack(ctx, q) // otherwise it counts as a try
	}
}

// retire writes the outcome into a request.
func (s *requests) retire(q *request, o notes.Outcome) error {
	q.record.Properties, q.record.State, q.record.TTL = o.Properties(q.record.Properties), feed.StateRetired, notes.OutcomeTTL
	stored, err := s.d.r.store.Update(s.d.untilDrained, q.record)
	if err == nil {
		s.d.r.view.put(stored)
	}
	return err
}

// serve does one step of a request.
func (s *requests) serve(do delivery.Effect) {
	q := do.Request
	box, ok := s.d.r.opts.DeadLetters.(feed.LetterBox)
	if !ok {
		s.d.tell(func(now time.Time) { s.d.engine.RequestFailed(q, errNoBox, now) })
		return
	}
	var err error
	var next func(now time.Time)
	switch do.Kind {
	case delivery.FindLetter:
		var found *delivery.Letter
		found, err = s.findLetter(box, q)
		next = func(now time.Time) { s.d.engine.LetterFound(q, found, now) }
	case delivery.ListLetters:
		var held []*delivery.Letter
		var failed bool
		held, failed, err = s.heldLetters(box, q)
		next = func(now time.Time) { s.d.engine.LettersListed(q, held, failed, now) }
	case delivery.Remove:
		l := letterOf(q)
		err = s.d.outside(func(ctx context.Context, _ func()) error { return box.Remove(ctx, l.Change.PartitionKey, l.ID) })
		if err == nil {
			s.d.r.hooks.Redriven(feed.Redriven{Letter: *l, Recall: q.Recall})
		} else if of, asked := q.Of.(*request); asked {
			of.unsure = l.ID
		}
		next = func(now time.Time) { s.redriven++; s.d.engine.LetterRemoved(q, now) }
	case delivery.Rewrite:
		err = s.rewrite(box, q)
		next = func(now time.Time) { s.d.engine.LetterRewritten(q, now) }
	case delivery.Answer:
		s.conclude(q, do.Note)
		return
	}
	if err != nil {
		next = func(now time.Time) { s.d.engine.RequestFailed(q, err, now) }
	}
	s.d.tell(next)
}

// tell tells the engine of an event.
func (d *dispatcher) tell(event func(now time.Time)) {
	d.mu.Lock()
	event(time.Now())
	d.mu.Unlock()
	d.wake()
}

func letterOf(q *delivery.Request) *feed.DeadLetter { return q.Current.Of.(*readPage).letter }

// asLetter is a dead letter as the engine knows it.
func asLetter(l feed.DeadLetter) *delivery.Letter {
	return &delivery.Letter{Of: &readPage{Page: feed.Page{Changes: []feed.Change{l.Change}}, letter: &l}, LSN: l.Change.LSN, Size: changeSize(&l.Change), Calls: l.Attempts}
}

// findLetter looks for the letter that a retry names. One that is held behind another one is left alone, because it would
// pass that.
func (s *requests) findLetter(box feed.LetterBox, q *delivery.Request) (found *delivery.Letter, err error) {
	of, _ := q.Of.(*request)
	before := false
	err = s.d.eachLetter(box, feed.PartitionKey(q.Key), func(l feed.DeadLetter) bool {
		of.sees(l)
		isIt := l.ID == q.Letter
		if isIt && !(before && l.Disposition == feed.DispositionHeld) {
			found = asLetter(l)
		}
		before = true
		return !isIt
	})
	return found, err
}

// A request reads so many letters at a time.
const (
	lettersAtOnce = 100
	bytesAtOnce   = 16 << 20
)

// heldLetters lists the first held letters of a request's key, and reports whether another one has failed.
func (s *requests) heldLetters(box feed.LetterBox, q *delivery.Request) (held []*delivery.Letter, failed bool, err error) {
	of, asked := q.Of.(*request)
	left, more := bytesAtOnce, false
	err = s.d.eachLetter(box, feed.PartitionKey(q.Key), func(l feed.DeadLetter) bool {
		of.sees(l)
		switch {
		case l.Disposition != feed.DispositionHeld:
			failed = failed || l.ID != q.Letter
		case len(held) < lettersAtOnce && left > 0:
			held = append(held, asLetter(l))
			left -= changeSize(&l.Change)
		default:
			more = true
		}
		return !failed || !more
	})
	if asked {
		of.whole = !more
	}
	return held, failed, err
}

// rewrite stores in a letter why it has failed again, unless it was dropped meanwhile.
func (s *requests) rewrite(box feed.LetterBox, q *delivery.Request) error {
	l := *letterOf(q)
	if l.Disposition == feed.DispositionHeld {
		l.Failed = time.Now()
	}
	setCause(&l, q.Err)
	l.Attempts++
	s.d.r.hooks.Redriven(feed.Redriven{Letter: l, Recall: q.Recall, Err: q.Err})
	if there, err := s.d.isThere(box, l); err != nil || !there {
		return err
	}
	return s.d.outside(func(ctx context.Context, _ func()) error { return box.Put(ctx, l) })
}

// conclude writes what became of a request into its record, once the lease says so too: a key that is free in memory alone
// would be held again after a crash.
func (s *requests) conclude(q *delivery.Request, freed bool) {
	if freed && s.d.keeper.store(s.d.untilDrained) != nil {
		return // the work ends: the next owner serves the request
	}
	if freed {
		s.d.tell(func(time.Time) { s.released++ })
	}
	of, _ := q.Of.(*request)
	if of == nil { // nobody has asked
		return
	}
	defer s.forget(of)
	var err error
	switch outcome := of.outcome(q); {
	case of.lost:
	case outcome.Result == "":
		if q.Err != nil {
			of.record.Properties = notes.SetWaits(of.record.Properties, fmt.Sprintf("instance %s: %v", s.d.r.me.Instance, q.Err))
			s.d.report(s.d.untilStopped, feed.OriginDeadLetters, of.failure(q.Err))
		}
		err = s.putBack(s.d.untilDrained, of)
	default:
		err = s.retire(of, outcome)
	}
	if err != nil {
		s.reportUnlessOver(of, err)
	}
}

// reportUnlessOver reports why a request is not served here. If its record is gone, or another write has changed it, the
// request was withdrawn, or was served before: the view lagged behind, and nobody has to do anything.
func (s *requests) reportUnlessOver(q *request, err error) {
	if errors.Is(err, feed.ErrNotFound) || errors.Is(err, feed.ErrConflict) {
		s.d.r.view.Drop(q.record.ID)
		return
	}
	s.d.report(s.d.untilStopped, feed.OriginDeadLetters, q.failure(err))
}

// outcome is what the caller of a request hears. It has no result if the request was not served.
func (of *request) outcome(q *delivery.Request) notes.Outcome {
	o := notes.Outcome{Count: of.before + q.Handled, Left: notes.UnknownLeft}
	switch q.Result {
	case delivery.HandledAgain:
		if o.Result = notes.Handled; !q.IsHeld {
			o.Left = 0
		}
	case delivery.FailedAgain:
		if o.Result, o.Cause = notes.Failed, fold.Text(q.Err); of.whole {
			o.Left = q.Waiting()
		}
	case delivery.NothingToDo:
		if o.Result = notes.Nothing; o.Count > 0 {
			o.Result = notes.Handled
		}
		if q.Letter == "" {
			o.Left = 0
		}
	}
	return o
}
