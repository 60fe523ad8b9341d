package dispatch

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/delivery"
	"github.com/millrace/changefeed/internal/processor/instance"
)

// requests serves the requests for the keys of a lease. The dispatcher's lock guards this type.
type requests struct {
	d        *Dispatcher
	serving  map[string]*request // by their tokens
	redriven int                 // letters that were handled
	released int                 // keys that are not held any more
}

// request is a request that is being served.
type request struct {
	record feed.Record
	asked  notes.Request
	lost   bool // the record is gone: withdrawn, or another owner serves the request
	before int  // letters that were handled by tries that could not go on
	// ID of a letter that could not be removed, unless the answer was lost; empty if there is none
	unsure string
	served *delivery.Request // nil before the engine knows the request
	whole  bool              // all held letters of the key were listed
}

// Accept begins to serve a request, unless that is being done.
func (s *requests) Accept(record feed.Record) {
	q := &request{
		record: record, asked: notes.ReadRequest(record.Properties),
		before: int(notes.Number(record.Properties, notes.CountProperty)),
		unsure: record.Properties[notes.UnsureProperty],
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.d.phase != open || s.serving[record.Token] != nil {
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
		s.d.engine.Tell(delivery.RequestMade{Request: q.served}, time.Now())
		s.d.mu.Unlock()
		s.d.Start()
		notify(s.d.news)
	})
}

// countLetterOnce notes that a letter is there: an already handled letter is handled again, and counts once.
func (q *request) countLetterOnce(l feed.DeadLetter) {
	if q != nil && q.unsure == l.ID {
		q.before, q.unsure = q.before-1, ""
	}
}

func (q *request) describeFailure(err error) error {
	return fmt.Errorf("%s %s: %w", q.asked.Action, q.asked.Key, err)
}

// countOne counts another letter or key.
func (s *requests) countOne(count *int) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	*count++
}

func (s *requests) forget(q *request) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	delete(s.serving, q.record.Token)
}

// finishConcluded ends the work on letters that the handler is done with, while the lease is ours.
func (s *requests) finishConcluded() {
	for s.d.held.UntilDrained.Err() == nil {
		s.d.mu.Lock()
		do, found := s.d.engine.Conclusion()
		s.d.mu.Unlock()
		if !found {
			return
		}
		s.serveEffect(do)
	}
}

// Withdraw ends the requests whose records are not asked for any more.
func (s *requests) Withdraw(asked map[string]bool) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	for token, q := range s.serving {
		if !asked[token] {
			q.lost = true
			s.d.engine.Tell(delivery.RequestWithdrawn{Key: q.asked.Key, Token: token}, time.Now())
		}
	}
	notify(s.d.news)
}

// maxTries is how often a request may end the process that serves it.
const maxTries = 3

// admit checks a request, and counts the attempts in the record: serving the request may end the process.
func (s *requests) admit(q *request) error {
	_, hasBox := s.d.in.Options.DeadLetters.(feed.LetterBox)
	switch {
	case q.asked.Action != notes.Retry && q.asked.Action != notes.Release:
		return s.leaveAlone(q)
	case !hasBox: // the next owner of the range may have a box
		return s.postpone(q, fmt.Errorf("instance %s has no letter box to read from", s.d.in.Me.Instance))
	case q.asked.Tries >= maxTries && q.record.Properties[notes.BegunProperty] != s.d.in.Me.Epoch:
		err := fmt.Errorf("%w: its owner has ended %d times while it was served", feed.ErrHandlerStuck, q.asked.Tries)
		return errors.Join(err, s.retire(q, notes.Outcome{
			Result: notes.Failed, Cause: err.Error(), Count: q.before,
			Left: notes.UnknownLeft,
		}))
	}
	// An instance that has lost the lease and has it again has not ended.
	if q.asked.Tries == 0 || q.record.Properties[notes.BegunProperty] != s.d.in.Me.Epoch {
		q.asked.Tries++
	}
	q.record.Properties = notes.Set(q.record.Properties, notes.WaitsProperty, "")
	q.record.Properties = notes.Set(q.record.Properties, notes.BegunProperty, s.d.in.Me.Epoch)
	return s.storeRequest(s.d.held.UntilDrained, q)
}

// reportUnlessOver reports why a request is not served here. If the record is gone, or another write has changed the
// record, the request was withdrawn, or was served before: the view lagged behind, and nobody has to do anything.
func (s *requests) reportUnlessOver(q *request, err error) {
	switch {
	case errors.Is(err, feed.ErrNotFound):
		s.d.in.View.Drop(q.record.ID)
		return
	case errors.Is(err, feed.ErrConflict): // another request may have replaced it
		s.d.in.Relist()
		return
	}
	s.d.held.Report(s.d.held.UntilStopped, feed.OriginDeadLetters, q.describeFailure(err))
}

// Requests serves the requests of operators for the keys of this lease.
func (d *Dispatcher) Requests() instance.Requests { return &d.requests }

// HandBack leaves the requests that are not served to the next owner.
func (d *Dispatcher) HandBack() { d.requests.handBack() }
