package changefeed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/internal/fold"
	"github.com/millrace/changefeed/internal/lanes"
	"github.com/millrace/changefeed/internal/notes"
)

// How changes are parked, and letters redriven
//
// A change is parked when its letter is durable. Whoever wants the letter handled again writes
// a request among the leases: a record of [KindRequest] with the effective partition key. The
// owner of its range, and nobody else, serves it: so the change goes to the handler in order
// with its key, wherever the lease is by then. When it is served the request is deleted. What
// became of it is seen in the dead letters: the letter is gone, or there with a new cause.

// park puts the only change of a batch among the dead letters.
func (d *dispatcher) park(b *laneBatch) {
	c := b.Changes[0]
	l := d.letter(b)
	there, before, err := d.lookUp(b, l)
	if err == nil && b.Held && !there && !before { // it came again, and was never among those that are held
		d.mu.Lock()
		d.lanes.Handle(b)
		d.mu.Unlock()
		notify(d.news)
		return
	}
	if err == nil && !there {
		err = d.keepLetter(b, l)
	}
	now := time.Now()
	d.mu.Lock()
	if err == nil {
		if d.r.opts.HoldKeys && !b.Held {
			d.held[c.Key] = true
			d.lanes.Hold(c.Key)
		}
		d.parked++
		d.lanes.Succeed(b, false, now)
		d.turn(c.Page)
		d.blame(false)
	} else {
		d.lanes.Fail(b, lanes.Failure{}, now) // which leaves the handler's error as it is: the letter says that
	}
	d.mu.Unlock()
	switch {
	case there && err == nil:
	case err == nil:
		d.r.hooks.Parked(l)
	default:
		d.report(d.untilStopped, OriginDeadLetters, fmt.Errorf("park item %q of partition %s, LSN %d: %w", l.Change.ID, l.Change.PartitionKey, l.Change.LSN, err))
	}
	notify(d.news)
	notify(d.space)
}

// lookUp finds out, of a change whose key is held, whether its letter is there already, and whether one is before it: a
// change can come again after a crash.
func (d *dispatcher) lookUp(b *laneBatch, l DeadLetter) (there, before bool, err error) {
	if !b.Held {
		return false, false, nil
	}
	letters, err := d.lettersOf(d.r.opts.DeadLetters.(LetterBox), l.Change.PartitionKey)
	for _, o := range letters {
		there = there || o.ID == l.ID
		before = before || o.Change.LSN < l.Change.LSN || o.Change.LSN == l.Change.LSN && o.Index < l.Index
	}
	return there, before, err
}

// keepLetter has the dead letters keep a letter, unless its key would have to be held and cannot.
func (d *dispatcher) keepLetter(b *laneBatch, l DeadLetter) error {
	d.mu.Lock()
	full := d.r.opts.HoldKeys && !b.Held && len(d.held) >= notes.MaxHeld && !d.held[b.Changes[0].Key]
	d.mu.Unlock()
	if full {
		return fmt.Errorf("%w: %d of this lease: release some", ErrTooManyHeld, notes.MaxHeld)
	}
	return d.outside(func(ctx context.Context) error { return d.r.opts.DeadLetters.Put(ctx, l) })
}

// outside calls the dead letters, whose code is not ours either: what does not return is left behind.
func (d *dispatcher) outside(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(d.untilDrained, storeTimeout)
	defer cancel()
	result := d.delegate.launch(ctx, f)
	select {
	case err := <-result:
		return foreign(err)
	case <-ctx.Done():
	}
	// Code that heeds its context returns now, and its own error says more than ours.
	select {
	case err := <-result:
		return foreign(err)
	case <-time.After(d.r.opts.RetryMin):
		return fmt.Errorf("no answer: %w", context.Cause(ctx))
	}
}

// foreign is an error of the dead letters, which are no handler when they panic.
func foreign(err error) error {
	if panicked, ok := errors.AsType[*PanicError](err); ok {
		return fmt.Errorf("dead letters panicked: %v", panicked.Value)
	}
	return err
}

// letter is what is parked of a batch of one change.
func (d *dispatcher) letter(b *laneBatch) DeadLetter {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := b.Changes[0]
	l := DeadLetter{
		ID: d.letterID(c), Index: c.Place, Change: c.Value, Disposition: DispositionFailed,
		Instance: d.r.me.Instance, Lease: d.lease.Token, Range: d.lease.Range, Parked: time.Now(),
	}
	if b.Held {
		l.Disposition = DispositionHeld
		return l
	}
	l.Cause, l.Attempts, l.Failed = fold.Text(b.Err), b.Failures, b.Failing
	if panicked, ok := errors.AsType[*PanicError](b.Err); ok {
		l.Stack = string(panicked.Stack)
	}
	_, undecodable := errors.AsType[*DecodeError](b.Err)
	switch {
	case undecodable:
		l.Disposition = DispositionUndecodable
	case errors.Is(b.Err, errCrashed):
		l.Disposition = DispositionCrashed
	case IsPoison(b.Err):
		l.Disposition = DispositionPoison
	}
	return l
}

func (t *tenure) letterID(c *laneChange) string {
	return letterID(t.r.opts.Mode, c.LSN, c.Place, c.Value.ID)
}

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
	d.serving[q.Token] = true
	d.calls.Go(func() {
		err := newErrand(d, q).answer()
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
	e.r.view.drop(e.record.ID)
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

// retry hands a letter over. When the key is held for no other one, it is released.
func (e *errand) retry() error {
	letters, err := e.lettersOf(e.box, e.key)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(letters, func(l DeadLetter) bool { return l.ID == e.asked.Letter })
	if i < 0 {
		return nil // handled or dropped before
	}
	if done, err := e.redrive(letters[i]); !done || err != nil {
		return err
	}
	letters = slices.Delete(letters, i, i+1)
	if slices.ContainsFunc(letters, func(l DeadLetter) bool { return l.Disposition != DispositionHeld }) {
		return nil
	}
	return e.release()
}

// release hands over the held letters of a key, and ends the hold when there is none left.
func (e *errand) release() error {
	for !e.isClosed() {
		e.mu.Lock()
		// Whatever is parked from here on may lack in the list of letters below. Then
		// the key is not freed, and the list is made again.
		before := e.parked
		e.mu.Unlock()
		letters, err := e.lettersOf(e.box, e.key)
		if err != nil {
			return err
		}
		letters = slices.DeleteFunc(letters, func(l DeadLetter) bool { return l.Disposition != DispositionHeld })
		for _, l := range letters {
			if done, err := e.redrive(l); !done || err != nil {
				return err // and the key stays held from here
			}
		}
		if len(letters) == 0 && e.free(before) {
			return nil
		}
	}
	return errEndsHere
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

// lettersOf lists the letters of a key.
func (d *dispatcher) lettersOf(box LetterBox, key PartitionKey) (letters []DeadLetter, err error) {
	err = d.outside(func(ctx context.Context) error {
		var found []DeadLetter
		for l, err := range box.Letters(ctx, key) {
			if err != nil {
				return err
			}
			found = append(found, l)
		}
		letters = found
		return nil
	})
	return letters, err
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
		return true, e.outside(func(ctx context.Context) error { return e.box.Remove(ctx, l.Change.PartitionKey, l.ID) })
	}
	if l.Disposition == DispositionHeld {
		l.Disposition, l.Failed = DispositionFailed, time.Now()
	}
	l.Cause, l.Attempts = fold.Text(err), l.Attempts+1
	return false, e.outside(func(ctx context.Context) error { return e.box.Put(ctx, l) })
}
