package changefeed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/changefeed/internal/notes"
)

// How letters are redriven
//
// Whoever wants a letter handled again writes a request among the leases: a record of [KindRequest]
// with the effective partition key. The owner of its range, and nobody else, serves it: so the
// change goes to the handler in order with its key, wherever the lease is by then. When it is
// served the request is deleted. What became of it is seen in the dead letters: the letter is
// gone, or there with a new cause.

// serveRequests gives the requests to the workers that have their ranges.
func (r *run) serveRequests() {
	requests := r.view.kind(KindRequest)
	if len(requests) == 0 {
		return
	}
	workers, _ := r.claims.all()
	for _, q := range requests {
		if q.State != StateLive { // served, by somebody without the right to delete it
			continue
		}
		place := notes.ReadRequest(q.Properties).EPK
		for _, w := range workers {
			if w.lease.Range.Holds(place) {
				w.dispatcher.serve(q)
			}
		}
	}
}

// serve serves a request in the background, unless that is being done.
func (d *dispatcher) serve(q Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.here == "" || d.closed || d.serving[q.Token] {
		return
	}
	e := newErrand(d, q)
	turn := d.turns[string(e.key)]
	if turn == nil {
		turn = make(chan struct{}, 1)
		d.turns[string(e.key)] = turn
	}
	d.serving[q.Token] = true
	d.calls.Go(func() {
		turn <- struct{}{} // another one of the key would hand the same letters over
		err := e.answer()
		<-turn
		d.report(d.untilStopped, OriginDeadLetters, err)
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.serving, q.Token)
	})
}

// errand is the service of one request.
type errand struct {
	*dispatcher
	record Record
	asked  notes.Request
	key    PartitionKey
	box    LetterBox // nil when the dead letters cannot be read
}

func newErrand(d *dispatcher, q Record) *errand {
	asked := notes.ReadRequest(q.Properties)
	box, _ := d.r.opts.DeadLetters.(LetterBox)
	return &errand{dispatcher: d, record: q, asked: asked, key: PartitionKey(asked.Key), box: box}
}

// answer serves the request, and deletes it when it is served.
func (e *errand) answer() error {
	switch {
	case e.box == nil:
		// The request stays, because the next owner of the range may have one.
		return e.failure(errors.New("this instance has no letter box to read from"))
	case e.asked.Action != notes.Retry && e.asked.Action != notes.Release:
		return e.failure(fmt.Errorf("%w: a request of a newer version", ErrBadLease))
	}
	err := e.count()
	if err == nil {
		if err := e.serve(); err != nil {
			return e.failure(err)
		}
		err = e.r.erase(e.untilDrained, e.record)
	}
	if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrConflict) { // else another has served it
		return e.failure(err)
	}
	e.r.view.Drop(e.record.ID)
	return nil
}

func (e *errand) failure(err error) error { return fmt.Errorf("%s %s: %w", e.asked.Action, e.key, err) }

// serve does what is asked. An error has not ended the process, so the try does not count, unless
// that cannot be stored.
func (e *errand) serve() (err error) {
	if e.asked.Action == notes.Retry {
		err = e.retry()
	} else {
		err = e.release()
	}
	if err != nil {
		e.asked.Tries--
		_ = e.store()
	}
	return err
}

// maxTries is how often a request may end the process that serves it.
const maxTries = 3

// count counts in the request how often it was begun with, because to serve it may end the process.
func (e *errand) count() error {
	if e.asked.Tries >= maxTries {
		return errors.Join(fmt.Errorf("%w: its owner has ended %d times while it was served", ErrHandlerStuck, e.asked.Tries), e.r.erase(e.untilDrained, e.record))
	}
	e.asked.Tries++
	return e.store()
}

// store keeps the tries with the request, where the next owner of the range finds them.
func (e *errand) store() error {
	e.record.Properties = e.asked.Properties(e.record.Properties)
	stored, err := e.r.store.Update(e.untilDrained, e.record)
	if err == nil {
		e.record = stored
	}
	return err
}

// retry hands a letter over, but no held one past those before it. When the key is held for no other one, it is released.
func (e *errand) retry() error {
	var letter *DeadLetter
	before := false
	err := e.eachLetter(e.box, e.key, func(l DeadLetter) bool {
		if l.ID == e.asked.Letter {
			letter = &l
		}
		before = before || letter == nil
		return letter == nil
	})
	switch {
	case err != nil:
		return err
	case letter == nil: // handled or dropped before
		return nil
	case before && letter.Disposition == DispositionHeld:
		return nil
	}
	if done, err := e.redrive(*letter); !done || err != nil {
		return err
	}
	return e.release()
}

// A release reads so many letters at a time.
const (
	lettersAtOnce = 100
	bytesAtOnce   = 16 << 20
)

// release hands over the held letters of a key, and ends the hold when there is none left. While the last of them are
// handed over, what comes of the key waits: else a busy key would be parked as fast as it is handled. After a retry the
// key stays held if another of its letters has failed, for which the first reading goes on to the end.
func (e *errand) release() error {
	defer e.pause(false)
	sure := e.asked.Action == notes.Release
	for done := map[string]bool{}; !e.isClosed(); {
		e.mu.Lock()
		// Whatever is parked from here on may lack in the list of letters below. Then
		// the key is not freed, and the list is made again.
		before := e.parked
		e.mu.Unlock()
		var letters []DeadLetter
		left := bytesAtOnce
		all, failed := true, false
		err := e.eachLetter(e.box, e.key, func(l DeadLetter) bool {
			switch held := l.Disposition == DispositionHeld; {
			case held && all && !done[l.ID]:
				letters, left = append(letters, l), left-len(l.Change.Body)-len(l.Change.Previous)
				all = len(letters) < lettersAtOnce && left > 0
			case !held && l.ID != e.asked.Letter:
				failed = !sure
			}
			return (all || !sure) && !failed
		})
		if err != nil || failed {
			return err
		}
		sure = true
		if all {
			e.pause(true)
		}
		for _, l := range letters {
			if handled, err := e.redrive(l); !handled || err != nil {
				return err // and the key stays held from here
			}
			done[l.ID] = true
		}
		if len(letters) == 0 && e.free(before) {
			return nil
		}
	}
	return errEndsHere
}

// pause has what comes of the key wait, or go on to be parked.
func (e *errand) pause(on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lanes.Pause(string(e.key), on)
	notify(e.news)
}

// errEndsHere is why a request is not served: the lease is given up.
var errEndsHere = fmt.Errorf("%w: the request goes to the next owner", ErrStopped)

// free ends the hold of the key, unless something was parked since so many letters were.
func (e *errand) free(parked int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.parked != parked || e.lanes.IsParking(string(e.key)) {
		return false
	}
	delete(e.held, string(e.key))
	e.lanes.Free(string(e.key))
	e.saver.Write()
	notify(e.news)
	return true
}

// redrive hands a letter to the handler, in order with its key, and removes it when it is
// done. If the handler fails again, the letter says why.
func (e *errand) redrive(l DeadLetter) (done bool, err error) {
	result := make(chan error, 1)
	e.mu.Lock()
	b := e.lanes.Redrive(string(l.Change.PartitionKey), l.Change)
	e.redriven[b] = result
	e.mu.Unlock()
	e.start()
	notify(e.news)
	select {
	case err = <-result:
	case <-e.closing:
		return false, errEndsHere
	case <-e.untilStopped.Done():
		return false, context.Cause(e.untilStopped)
	}
	if err == nil {
		return true, e.outside(func(ctx context.Context, _ func()) error { return e.box.Remove(ctx, l.Change.PartitionKey, l.ID) })
	}
	if l.Disposition == DispositionHeld {
		l.Failed = time.Now()
	}
	l.because(err)
	l.Attempts++
	if there, err := e.isThere(e.box, l); err != nil || !there { // it was dropped meanwhile
		return false, err
	}
	return false, e.outside(func(ctx context.Context, _ func()) error { return e.box.Put(ctx, l) })
}
