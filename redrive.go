package changefeed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// How letters are redriven
//
// Whoever wants a letter handled again writes a request among the leases: a record of
// [KindRequest] with the effective partition key. The owner of its range, and nobody else, serves
// it: so the change goes to the handler in order with its key, wherever the lease is by then.
// When it is served the request is deleted. What became of it is seen in the dead letters:
// the letter is gone, or there with a new cause.

// KindRequest is a record that asks the owner of a range for something.
const KindRequest Kind = "request"

// The properties of a request.
const (
	actionProperty = "changefeed.action" // one of the actions
	epkProperty    = "changefeed.epk"
	keyProperty    = "changefeed.key"
	letterProperty = "changefeed.letter"
	triesProperty  = "changefeed.tries"

	maxTries = 3

	actionRetry   = "retry"
	actionRelease = "release"
)

// Redrive has a dead letter handled again, by the instance that owns the range of its key, and
// waits until that was tried once. Whether it succeeded is seen in the letter box. If the key
// is held and this was its only letter that is not, its held letters follow, and the key is
// released. It is an error if ctx ends before: then the request stays, until it is served.
func Redrive(ctx context.Context, source Source, leases LeaseStore, key PartitionKey, letter string) error {
	return request(ctx, source, leases, actionRetry, key, letter)
}

// Release lets a held key go on without the changes of it that have failed: those that are held
// are handled, in their order, and then the key is not held any more. If one of them fails,
// the key stays held from there. It waits as [Redrive] does.
func Release(ctx context.Context, source Source, leases LeaseStore, key PartitionKey) error {
	return request(ctx, source, leases, actionRelease, key, "")
}

func request(ctx context.Context, source Source, leases LeaseStore, action string, key PartitionKey, letter string) error {
	locator, ok := source.(Locator)
	if !ok {
		return fmt.Errorf("%s %s: %w: source %T cannot locate a key", action, key, errors.ErrUnsupported, source)
	}
	epk, err := locator.Locate(ctx, key)
	if err != nil {
		return fmt.Errorf("%s %s: %w", action, key, err)
	}
	r := Record{
		Kind: KindRequest, Token: fmt.Sprintf("%s.%s.%s", action, epk, letter), Timestamp: timestamp(),
		Properties: map[string]string{actionProperty: action, epkProperty: epk, keyProperty: string(key), letterProperty: letter},
	}
	if _, err = leases.Create(ctx, r); err != nil && !errors.Is(err, ErrConflict) { // the same was asked before
		return fmt.Errorf("%s %s: %w", action, key, err)
	}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		records, _, err := leases.List(ctx)
		if err == nil && !slices.ContainsFunc(records, func(o Record) bool { return o.Kind == KindRequest && o.Token == r.Token }) {
			return nil
		}
		if !pause(ctx, wait) {
			return fmt.Errorf("%s %s: not served yet, it stays asked: is an instance running that has the dead letters? %w", action, key, context.Cause(ctx))
		}
	}
}

// serveRequests gives the requests to the workers that have their ranges.
func (r *run) serveRequests() {
	requests := r.view.kind(KindRequest)
	if len(requests) == 0 {
		return
	}
	workers, _ := r.claims.all()
	for _, q := range requests {
		for _, w := range workers {
			if w.lease.Range.Holds(q.Properties[epkProperty]) {
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
	key := PartitionKey(q.Properties[keyProperty])
	action := q.Properties[actionProperty]
	box, ok := d.r.opts.DeadLetters.(LetterBox)
	if !ok {
		return fmt.Errorf("%s %s: this instance has no letter box to read from", action, key)
	}
	q, err := d.begin(q)
	if err != nil {
		return fmt.Errorf("%s %s: %w", action, key, err)
	}
	switch action {
	case actionRetry:
		err = d.retryLetter(box, key, q.Properties[letterProperty])
	case actionRelease:
		err = d.releaseKey(box, key)
	default:
		return fmt.Errorf("%w: request %q", ErrBadLease, action) // of a newer version
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", action, key, err)
	}
	err = d.r.store.Delete(d.untilDrained, q)
	if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrConflict) {
		return fmt.Errorf("%s %s: delete the request: %w", action, key, err)
	}
	d.r.view.drop(q.ID)
	return nil
}

// begin counts in a request how often it was begun with, because to serve it may end the process.
func (d *dispatcher) begin(q Record) (Record, error) {
	tries, _ := strconv.Atoi(q.Properties[triesProperty])
	if tries >= maxTries {
		return q, errors.Join(fmt.Errorf("%w: its owner has ended %d times while it was served", ErrHandlerStuck, tries), d.r.store.Delete(d.untilDrained, q))
	}
	q.setProperty(triesProperty, strconv.Itoa(tries+1))
	return d.r.store.Update(d.untilDrained, q)
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
	for {
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
}

// free ends the hold of a key, unless something was parked since so many letters were.
func (d *dispatcher) free(key PartitionKey, parked int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.parked != parked || d.lanes.IsParking(string(key)) {
		return false
	}
	delete(d.held, key)
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
