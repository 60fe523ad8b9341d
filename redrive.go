package changefeed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

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
	err := d.keepLetter(b, l)
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
		d.lanes.Fail(b, lanes.Failure{Err: b.Err}, now) // with the handler's error: the letter says that
	}
	d.mu.Unlock()
	if err == nil {
		d.r.hooks.Parked(l)
	} else {
		d.report(d.untilStopped, OriginDeadLetters, fmt.Errorf("park item %q of partition %s, LSN %d: %w", l.Change.ID, l.Change.PartitionKey, l.Change.LSN, err))
	}
	notify(d.news)
	notify(d.space)
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
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-result:
		return err
	case <-time.After(d.r.opts.RetryMin):
		return fmt.Errorf("no answer: %w", context.Cause(ctx))
	}
}

// letter is what is parked of a batch of one change.
func (d *dispatcher) letter(b *laneBatch) DeadLetter {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := b.Changes[0]
	l := DeadLetter{
		ID: letterID(c.LSN, c.Place), Index: c.Place, Change: c.Value, Disposition: DispositionFailed,
		Instance: d.r.me.Instance, Lease: d.lease.Token, Range: d.lease.Range, Parked: time.Now(),
	}
	if b.Held {
		l.Disposition = DispositionHeld
		return l
	}
	l.Cause, l.Attempts, l.Failed = b.Err.Error(), b.Failures, b.Failing
	if panicked, ok := errors.AsType[*PanicError](b.Err); ok {
		l.Stack = string(panicked.Stack)
	}
	_, undecodable := errors.AsType[*DecodeError](b.Err)
	switch {
	case undecodable:
		l.Disposition = DispositionUndecodable
	case errors.Is(b.Err, errCrashed):
		l.Disposition = DispositionCrashed
	case isHopeless(b.Err):
		l.Disposition = DispositionPoison
	}
	return l
}

// serveRequests gives the requests to the workers that have their ranges.
func (r *run) serveRequests() {
	requests := r.view.kind(KindRequest)
	if len(requests) == 0 {
		return
	}
	workers, _ := r.claims.all()
	for _, q := range requests {
		place := notes.ReadRequest(q.Properties).EPK
		for _, w := range workers {
			if w.lease.Range.Holds(place) {
				w.lanes.serve(q)
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
		err := d.answer(q)
		d.report(d.untilStopped, OriginDeadLetters, err)
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.serving, q.Token)
	})
}

// answer serves a request, and deletes it when it was.
func (d *dispatcher) answer(q Record) error {
	asked := notes.ReadRequest(q.Properties)
	key, action := PartitionKey(asked.Key), asked.Action
	box, ok := d.r.opts.DeadLetters.(LetterBox)
	if !ok {
		return fmt.Errorf("%s %s: this instance has no letter box to read from", action, key)
	}
	q, err := d.countTry(q)
	if err != nil {
		return fmt.Errorf("%s %s: %w", action, key, err)
	}
	switch action {
	case notes.Retry:
		err = d.retryLetter(box, key, asked.Letter)
	case notes.Release:
		err = d.releaseKey(box, key)
	default:
		return fmt.Errorf("%w: request %q", ErrBadLease, action) // of a newer version
	}
	if err != nil {
		d.forgetTry(q) // it has not ended the process
		return fmt.Errorf("%s %s: %w", action, key, err)
	}
	err = d.r.store.Delete(d.untilDrained, q)
	if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrConflict) {
		return fmt.Errorf("%s %s: delete the request: %w", action, key, err)
	}
	d.r.view.drop(q.ID)
	return nil
}

// maxTries is how often a request may end the process that serves it.
const maxTries = 3

// countTry counts in a request how often it was begun with, because to serve it may end the process.
func (d *dispatcher) countTry(q Record) (Record, error) {
	asked := notes.ReadRequest(q.Properties)
	if asked.Tries >= maxTries {
		return q, errors.Join(fmt.Errorf("%w: its owner has ended %d times while it was served", ErrHandlerStuck, asked.Tries), d.r.store.Delete(d.untilDrained, q))
	}
	asked.Tries++
	q.Properties = asked.Properties(q.Properties)
	return d.r.store.Update(d.untilDrained, q)
}

// forgetTry takes back a try that came to an orderly end. If that fails, the try counts.
func (d *dispatcher) forgetTry(q Record) {
	asked := notes.ReadRequest(q.Properties)
	asked.Tries--
	q.Properties = asked.Properties(q.Properties)
	_, _ = d.r.store.Update(d.untilDrained, q)
}

// retryLetter hands a letter over. When the key is held for no other one, it is released.
func (d *dispatcher) retryLetter(box LetterBox, key PartitionKey, id string) error {
	letters, err := d.lettersOf(box, key)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(letters, func(l DeadLetter) bool { return l.ID == id })
	if i < 0 {
		return nil // handled or dropped before
	}
	if done, err := d.redrive(box, letters[i]); !done || err != nil {
		return err
	}
	letters = slices.Delete(letters, i, i+1)
	if slices.ContainsFunc(letters, func(l DeadLetter) bool { return l.Disposition != DispositionHeld }) {
		return nil
	}
	return d.releaseKey(box, key)
}

// releaseKey hands over the held letters of a key, and ends the hold when there is none left.
func (d *dispatcher) releaseKey(box LetterBox, key PartitionKey) error {
	for !d.isClosed() {
		d.mu.Lock()
		before := d.parked
		d.mu.Unlock()
		letters, err := d.lettersOf(box, key)
		if err != nil {
			return err
		}
		letters = slices.DeleteFunc(letters, func(l DeadLetter) bool { return l.Disposition != DispositionHeld })
		for _, l := range letters {
			if done, err := d.redrive(box, l); !done || err != nil {
				return err // and the key stays held from here
			}
		}
		if len(letters) == 0 && d.free(key, before) {
			return nil
		}
	}
	return fmt.Errorf("%w: the request goes to the next owner", ErrStopped)
}

// free ends the hold of a key, unless something was parked since so many letters were.
func (d *dispatcher) free(key PartitionKey, parked int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.parked != parked || d.lanes.IsParking(string(key)) {
		return false
	}
	delete(d.held, string(key))
	d.lanes.Free(string(key))
	d.save()
	notify(d.news)
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
func (d *dispatcher) redrive(box LetterBox, l DeadLetter) (done bool, err error) {
	result := make(chan error, 1)
	d.mu.Lock()
	b := d.lanes.Redrive(string(l.Change.PartitionKey), l.Change)
	d.redriven[b] = result
	d.mu.Unlock()
	d.start()
	notify(d.news)
	select {
	case err = <-result:
	case <-d.closing:
		return false, fmt.Errorf("%w: the request goes to the next owner", ErrStopped)
	case <-d.untilStopped.Done():
		return false, context.Cause(d.untilStopped)
	}
	if err == nil {
		return true, d.outside(func(ctx context.Context) error { return box.Remove(ctx, l.Change.PartitionKey, l.ID) })
	}
	if l.Disposition == DispositionHeld {
		l.Disposition, l.Failed = DispositionFailed, time.Now()
	}
	l.Cause, l.Attempts = err.Error(), l.Attempts+1
	return false, d.outside(func(ctx context.Context) error { return box.Put(ctx, l) })
}
