package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/fold"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/delivery"
	"github.com/millrace/changefeed/internal/processor/instance"
)

// How letters are handed over again
//
// Whoever wants a letter handled again writes a request among the leases: a record of [feed.KindRequest] with the
// effective partition key. Only the owner of the range serves the request: so the change goes to the handler in order
// with the key, wherever the lease is by then. The engine says in which steps (internal/processor/delivery/request.go);
// here each step is done. Then the owner writes the outcome into the request, and retires the request: a retired
// request is never served again. Package notes has the protocol.

// serveEffect does a step of a request.
func (s *requests) serveEffect(do delivery.Effect) {
	q := do.Request
	box, ok := s.d.in.Options.DeadLetters.(feed.LetterBox)
	if !ok {
		s.d.tellEngine(delivery.RequestFailed{Request: q, Err: errNoBox})
		return
	}
	var err error
	var what delivery.Event
	switch do.Kind {
	case delivery.FindLetter:
		var found *delivery.Letter
		found, err = s.findLetter(box, q)
		what = delivery.LetterFound{Request: q, Letter: found}
	case delivery.ListLetters:
		var held []*delivery.Letter
		var failed bool
		held, failed, err = s.heldLetters(box, q)
		what = delivery.LettersListed{Request: q, Letters: held, Failed: failed}
	case delivery.Remove:
		l := letterOf(q)
		err = s.d.letters.callLetters(func(ctx context.Context, _ func()) error {
			return box.Remove(ctx, l.Change.PartitionKey, l.ID)
		})
		if err == nil {
			instance.CallHook(s.d.in, s.d.in.Hooks.Redriven, feed.Redriven{Letter: *l, Recall: q.IsRecall()})
			s.countOne(&s.redriven)
		} else if of, asked := q.Of.(*request); asked {
			of.unsure = l.ID
		}
		what = delivery.LetterRemoved{Request: q}
	case delivery.Rewrite:
		err = s.rewriteLetter(box, q)
		what = delivery.LetterRewritten{Request: q}
	case delivery.Answer:
		s.writeOutcome(q, do.Note)
		return
	}
	if err != nil {
		what = delivery.RequestFailed{Request: q, Err: err}
	} else {
		s.d.held.Troubles.Remove(feed.OriginDeadLetters)
	}
	s.d.tellEngine(what)
}

func letterOf(q *delivery.Request) *feed.DeadLetter { return q.Current.Of.(*readPage).letter }

// asLetter is a dead letter in the engine's form.
func asLetter(l feed.DeadLetter) *delivery.Letter {
	return &delivery.Letter{
		Of:   &readPage{Page: feed.Page{Changes: []feed.Change{l.Change}}, letter: &l},
		Name: l.ID, LSN: l.Change.LSN, Size: changeSize(&l.Change), Calls: l.Attempts,
	}
}

// findLetter looks for the letter that a retry names. A letter held behind another letter is left alone, because it
// would pass that letter.
func (s *requests) findLetter(box feed.LetterBox, q *delivery.Request) (found *delivery.Letter, err error) {
	of, _ := q.Of.(*request)
	before := false
	err = s.d.letters.eachLetter(box, feed.PartitionKey(q.Key), func(l feed.DeadLetter) bool {
		of.countLetterOnce(l)
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

// heldLetters lists the first held letters of a request's key, and reports whether another letter has failed.
func (s *requests) heldLetters(box feed.LetterBox, q *delivery.Request) (held []*delivery.Letter, failed bool,
	err error,
) {
	of, asked := q.Of.(*request)
	left, more := bytesAtOnce, false
	err = s.d.letters.eachLetter(box, feed.PartitionKey(q.Key), func(l feed.DeadLetter) bool {
		of.countLetterOnce(l)
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

// rewriteLetter stores the new error in a letter, unless the letter was dropped meanwhile.
func (s *requests) rewriteLetter(box feed.LetterBox, q *delivery.Request) error {
	l := *letterOf(q)
	if l.Disposition == feed.DispositionHeld {
		l.Failed = time.Now()
	}
	setCause(&l, q.Err)
	l.Attempts++
	instance.CallHook(s.d.in, s.d.in.Hooks.Redriven, feed.Redriven{Letter: l, Recall: q.IsRecall(), Err: q.Err})
	if there, err := s.d.letters.hasLetter(box, l); err != nil || !there {
		return err
	}
	return s.d.letters.callLetters(func(ctx context.Context, _ func()) error { return box.Put(ctx, l) })
}

// writeOutcome writes the outcome of a request into its record, after the lease has it too: a key that is free in
// memory alone would be held again after a crash.
func (s *requests) writeOutcome(q *delivery.Request, freed bool) {
	if freed && s.d.store(s.d.held.UntilDrained) != nil {
		return // the work ends: the next owner serves the request
	}
	if freed {
		s.countOne(&s.released)
		s.d.wakeAll()
	}
	of, _ := q.Of.(*request)
	if of == nil { // nobody has asked
		return
	}
	defer s.forget(of)
	var err error
	switch outcome := of.outcome(q); {
	case of.lost: // another request may have replaced it by now
		s.d.in.Wake()
	case outcome.Result == "":
		if q.Err != nil {
			of.record.Properties = notes.SetWaits(of.record.Properties,
				fmt.Sprintf("instance %s: %v", s.d.in.Me.Instance, q.Err))
			s.d.held.Report(s.d.held.UntilStopped, feed.OriginDeadLetters, of.describeFailure(q.Err))
		}
		err = s.putBack(s.d.held.UntilDrained, of)
	default:
		err = s.retire(of, outcome)
	}
	if err != nil {
		s.reportUnlessOver(of, err)
	}
}

// outcome is the answer to the caller of a request. The result is empty if the request was not served.
func (of *request) outcome(q *delivery.Request) notes.Outcome {
	o := notes.Outcome{Count: of.before + q.Handled, Left: notes.UnknownLeft}
	switch q.Result {
	case delivery.HandledAgain:
		if o.Result = notes.Handled; !q.IsHeld {
			o.Left = 0
		}
	case delivery.FailedAgain:
		o.Result, o.Cause = notes.Failed, fold.Text(q.Err)
		if n, known := q.Waiting(); known && of.whole {
			o.Left = n
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
