package changefeed

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/changefeed/internal/lanes"
	"github.com/millrace/changefeed/internal/soon"
)

// How changes go to the handler in lanes
//
// With Options.Concurrency, and whenever the handler fails on a page and there is a policy for
// that, the changes of a page go into lanes: internal/lanes says which of them may be handled
// now. The dispatcher takes batches from there, calls the handler with each in a goroutine of
// its own, and says how it came out. The worker goes on reading until the lanes are full.
//
// The lease says the position up to which all is done and, beside it, what is done after that:
// see done.go. What cannot be handled goes to the dead letters, and may come back from there: see redrive.go.

// dispatcher hands the changes in the lanes of one lease to the handler, or to the dead letters.
type dispatcher struct {
	*tenure
	keeper   *keeper
	delegate *delegate
	news     chan struct{} // Next may have something
	space    chan struct{} // there may be room for a page
	closing  chan struct{} // closed when no new batch is taken
	watching func()        // ends the watch on the breaker
	saver    *soon.Writer  // of the lease

	mu          sync.Mutex
	running     bool
	whole       bool // a page is in the handler as a whole, past the lanes
	closed      bool // no new batch is taken
	stuck       bool
	unconfirmed *delivery // a checkpoint that nobody waits for
	lanes       *laneSet
	pages       []*lanes.Page[Change, *lanePage] // by hand: that are not confirmed, in their order
	caution     *caution
	here        string                      // the partition, and its range, that LSNs count in; empty before that is known
	held        map[string]int64            // keys, and the LSNs since which
	parked      int                         // letters so far
	serving     map[string]bool             // requests, by their tokens
	turns       map[string]chan struct{}    // one request of a key is served at a time
	redriven    map[*laneBatch]chan<- error // where those wait who want to know how it came out

	loop  sync.WaitGroup // dispatch
	calls sync.WaitGroup // of the handler, of the dead letters, and requests
}

// lanePage is the page that changes in the lanes came from.
type lanePage struct {
	on       *delivery
	read     Page // but for its changes, and its charge when a batch has that
	finished bool
}

type (
	laneSet    = lanes.Lanes[Change, *lanePage]
	laneBatch  = lanes.Batch[Change, *lanePage]
	laneChange = lanes.Change[Change, *lanePage]
)

func newDispatcher(t *tenure, k *keeper, d *delegate) *dispatcher {
	o := t.r.opts
	rng := t.r.random("lanes " + t.lease.Token)
	rules := lanes.Rules[Change]{
		Concurrency: o.Concurrency, MaxItems: o.MaxItems, MaxBytes: o.MaxBytes, Wait: o.MaxWait,
		MaxAttempts: o.MaxAttempts, MaxAge: o.MaxAge, CanPark: o.DeadLetters != nil, ByHand: o.Manual,
		Backoff: func(failures int) time.Duration { return t.r.backoff(rng, failures) },
		Key:     func(c *Change) string { return string(c.PartitionKey) },
		LSN:     func(c *Change) int64 { return c.LSN },
		Size:    changeSize,
		Detach:  func(c *Change) { c.Body, c.Previous = bytes.Clone(c.Body), bytes.Clone(c.Previous) },
	}
	all := lanes.New[Change, *lanePage](rules, t.r.breaker)
	made := &dispatcher{
		tenure: t, keeper: k, delegate: d, news: make(chan struct{}, 1), space: make(chan struct{}, 1), closing: make(chan struct{}),
		lanes: all, caution: &caution{tenure: t, keeper: k, lanes: all}, held: map[string]int64{},
		serving: map[string]bool{}, turns: map[string]chan struct{}{}, redriven: map[*laneBatch]chan<- error{},
	}
	made.saver = soon.New(max(storeGap, o.CheckpointEvery), t.r.work.Go, made.store)
	return made
}

// notify makes a channel with room for one say that there is something.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// deliver puts a page into the lanes, and waits until there is room for another one.
func (d *dispatcher) deliver(page Page) ending {
	on := d.keeper.deliver(page)
	d.mu.Lock()
	d.put(page, on, d.keeper.soFar().Failures)
	d.mu.Unlock()
	d.start()
	notify(d.news)
	return d.await(d.hasRoom)
}

// passes reports whether a page may go to the handler as a whole, past the lanes. Then nothing
// else does until passed.
func (d *dispatcher) passes(page Page) bool {
	o := d.r.opts
	// Only where the lanes would make one batch of the page, at once and with nothing
	// to note.
	if o.Concurrency > 1 || o.MaxWait > 0 || o.hasPolicy() && d.keeper.soFar().Failures > 0 {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	// The feed has come past all that was done already.
	if d.lanes.Ledger.Restored() > 0 && d.lanes.Ledger.Restored() < page.Changes[0].LSN {
		d.lanes.Ledger.Restore(0, nil)
	}
	d.whole = !d.r.breaker.IsOpen() && d.lanes.Ledger.Restored() == 0 && d.lanes.Items() == 0 && len(d.held) == 0 && (o.MaxBytes == 0 || sizeOf(page) <= o.MaxBytes)
	return d.whole
}

func (d *dispatcher) passed() {
	d.mu.Lock()
	d.whole = false
	d.mu.Unlock()
	notify(d.news)
}

// unravel puts a page into the lanes on which the handler has just failed as a whole, and
// waits until all of it is done.
func (d *dispatcher) unravel(page Page, on *delivery, err error, late bool) ending {
	d.mu.Lock()
	d.whole = false
	d.put(page, on, d.keeper.soFar().Failures)
	b := d.lanes.TakeAll(time.Now())
	if b == nil { // letters of all its keys are being redriven
		d.mu.Unlock()
		return d.await(d.hasRoom)
	}
	changes := b.Changes
	said := failureOf(err, len(page.Changes), late)
	if len(changes) != len(page.Changes) { // some keys are apart, and the places are others
		said.Left = nil
	}
	failure := failureError(b, err)
	d.lanes.Fail(b, said, time.Now())
	d.turn(pagesOf(changes)...)
	d.blame(true)
	d.mu.Unlock()
	d.report(d.untilLost, OriginHandler, failure)
	d.start()
	notify(d.news)
	return d.await(d.hasRoom)
}

func (d *dispatcher) put(page Page, on *delivery, failures int) {
	if d.caution.former != nil || d.lanes.Items() > 0 {
		failures = 0 // they are of its changes, or of an earlier page
	}
	read := page
	read.Changes = nil
	p := d.lanes.Add(&lanePage{on: on, read: read}, page.Changes, failures, time.Now())
	if d.r.opts.Manual { // else a page is confirmed when it is handled, and a stuck one must not have all others remembered
		d.pages = append(d.pages, p)
	}
	d.caution.added()
	d.turn(p)
}

// await waits until a condition holds, or the work must end.
func (d *dispatcher) await(holds func() bool) ending {
	long := time.NewTicker(d.r.opts.Renew)
	defer long.Stop()
	for d.ending().none() {
		d.mu.Lock()
		done := holds()
		d.mu.Unlock()
		if done {
			break
		}
		select {
		case <-d.space:
		case <-long.C:
			d.report(d.untilStopped, OriginHandler, d.fullness())
		case <-d.untilStopped.Done():
		}
	}
	return d.ending()
}

// fullness is the report of a buffer that has been full for a while, and whose oldest change keeps it so.
func (d *dispatcher) fullness() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	oldest := d.lanes.Ledger.First()
	if d.r.opts.Concurrency == 1 || oldest == nil {
		return nil
	}
	return fmt.Errorf("%w: %d changes, %d bytes of pages, the oldest is LSN %d of partition %s", ErrBufferFull, d.lanes.Items(), d.lanes.Bytes(), oldest.LSN, oldest.Key)
}

// hasRoom reports whether another page may be read.
func (d *dispatcher) hasRoom() bool {
	return d.lanes.Items() < d.r.opts.BufferItems && int64(d.lanes.Bytes()) < d.r.opts.BufferBytes &&
		(d.r.opts.Concurrency > 1 || d.r.opts.MaxWait > 0 || d.lanes.Items() == d.lanes.Stuck())
}

// start begins to dispatch, unless that was done.
func (d *dispatcher) start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.running && !d.closed {
		d.running = true
		d.watching = d.r.breaker.Watch(func() { notify(d.news) })
		d.loop.Go(d.dispatch)
	}
}

// finish takes no new batch, waits for those in hand, and reports whether one is stuck.
func (d *dispatcher) finish() (stuck bool) {
	d.mu.Lock()
	d.closed = true
	close(d.closing)
	running := d.running
	d.mu.Unlock()
	if running {
		notify(d.news)
		d.loop.Wait()
		d.watching()
	}
	d.calls.Wait()
	return d.stuck
}

// dispatch takes batches from the lanes until the work ends.
func (d *dispatcher) dispatch() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		b, wait := d.next()
		switch {
		case b != nil && b.Park:
			d.calls.Go(func() { d.park(b) })
			continue
		case b != nil:
			d.calls.Go(func() { d.call(b) })
			continue
		}
		if failed, outage := d.r.breaker.Opened(); outage {
			d.raise(OriginHandler, fmt.Errorf("%w: changes of %d partition keys fail, and none is parked for it", ErrOutage, failed))
		}
		timer.Reset(min(wait, d.saver.Due()))
		select {
		case <-d.news:
		case <-timer.C:
		case <-d.untilStopped.Done():
			return
		}
		if d.isClosed() {
			return
		}
	}
}

func (d *dispatcher) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// next takes a batch in hand, unless the work ends.
func (d *dispatcher) next() (b *laneBatch, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.whole || !d.ending().none() {
		return nil, lanes.Never
	}
	return d.lanes.Next(time.Now())
}

// call calls the handler with a batch.
func (d *dispatcher) call(b *laneBatch) {
	batch, suspicious := d.batch(b)
	// The attempt counts though it may be the end of the process. The answer may come when the lease is lost.
	if suspicious && (d.keeper.store(d.untilDrained) != nil || !d.ending().none()) {
		d.settle(b, wasCut, nil, 0)
		return
	}
	how, took, err := d.delegate.handle(batch)
	d.settle(b, how, err, took)
}

// batch is what the handler gets. It is suspicious if it has failed before and may end the process.
func (d *dispatcher) batch(b *laneBatch) (batch *Batch, suspicious bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	from := b.Changes[0].Page.Of
	if from == nil { // it is redriven
		from = &lanePage{}
	}
	batch = d.newBatch(from.read, b.Failures+1)
	from.read.Charge = 0
	batch.Cut, batch.Redriven, batch.Changes = b.IsCut(), b.Redriven, changesOf(b)
	if d.r.opts.Manual {
		batch.checkpoint = func(ctx context.Context) error { return d.checkpoint(ctx, b) }
	}
	return batch, d.caution.handing(b)
}

// settle says how a call came out.
func (d *dispatcher) settle(b *laneBatch, how outcome, err error, took time.Duration) {
	now := time.Now()
	changes := b.Changes
	failed := how == hasFailed || how == wasLate
	var failure error
	d.mu.Lock()
	d.caution.returned(b)
	if wanted := d.redriven[b]; wanted != nil && (failed || how == hasSucceeded) {
		wanted <- err
		delete(d.redriven, b)
	}
	switch {
	case how == hasSucceeded:
		d.troubles.Remove(OriginHandler)
		d.lanes.Succeed(b, took < d.r.opts.HandlerTimeout/2, now)
	case failed:
		failure = failureError(b, err)
		d.lanes.Fail(b, failureOf(err, len(changes), how == wasLate), now)
	default:
		d.stuck = d.stuck || how == isStuck
		d.lanes.Return(b)
	}
	d.turn(pagesOf(changes)...)
	d.blame(failed)
	d.caution.relax()
	stuck := d.stuck
	d.mu.Unlock()
	if failed {
		d.report(d.untilLost, OriginHandler, failure)
	}
	if stuck {
		d.stop(ending{why: ReasonStuck})
	}
	notify(d.news)
	notify(d.space)
}

// describe adds to a status what the lanes hold.
func (d *dispatcher) describe(s *LeaseStatus) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.InHand, s.Buffered, s.Parked, s.Held = d.lanes.InHand(), d.lanes.Items(), d.parked, len(d.held)
}

// failureError is the error of a batch whose changes are not done yet.
func failureError(b *laneBatch, err error) error {
	return newBatchError(changesOf(b), b.Failures+1, b.Failing, err)
}

func changesOf(b *laneBatch) []Change {
	changes := make([]Change, len(b.Changes))
	for i, c := range b.Changes {
		changes[i] = c.Value
	}
	return changes
}

// pagesOf are the pages that some changes are of.
func pagesOf(changes []*laneChange) (pages []*lanes.Page[Change, *lanePage]) {
	for _, c := range changes {
		if len(pages) == 0 || pages[len(pages)-1] != c.Page {
			pages = append(pages, c.Page)
		}
	}
	return pages
}
