package changefeed

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/delivery"
	"github.com/millrace/changefeed/internal/soon"
)

// How pages go to the handler
//
// The engine of internal/delivery decides which changes the handler receives, in which batches, and what becomes of those
// that fail. It has no clock, no goroutine and no I/O. The dispatcher does what the engine says and tells it what has
// happened: it calls the handler, stores letters (park.go), serves requests (redrive.go) and reads keys again
// (rereading.go).
//
// As long as nothing fails and one batch is in hand at a time, the worker's own goroutine calls the handler and stores the
// position, page after page. Everything else is done by a goroutine of the dispatcher, which starts others for the calls.
// It ends when the engine has nothing left.

// dispatcher hands the pages of one lease to the handler, or their changes to the dead letters.
type dispatcher struct {
	*tenure
	keeper   *keeper
	delegate *delegate
	news     chan struct{} // the engine may have something to do
	space    chan struct{} // there may be room for a page
	closing  chan struct{} // closed when nothing new is begun
	watching func()        // ends the watch on the breaker
	saver    *soon.Writer  // of the lease

	mu              sync.Mutex
	engine          *delivery.Engine
	running         bool // the goroutine of the dispatcher
	storing         bool // the lease is written for a batch before the next one is taken
	closed          bool // nothing new is begun
	stuck           bool
	restored        bool      // what the last owner has noted is known
	crashed         bool      // the last owner has ended without a word
	here            string    // the partition, and its range, that LSNs count in; empty before that is known
	marks           int       // of what the lease is to say, counted whenever that has changed by hand
	stored          int       // the last of them that is stored
	saved, madeRoom time.Time // when the lease last covered more changes, and when keys were last looked at to set some aside
	requests        requests

	loop  sync.WaitGroup // obey
	calls sync.WaitGroup // of the handler, of the dead letters, of the source for a key, and requests
}

func newDispatcher(t *tenure, k *keeper, d *delegate) *dispatcher {
	made := &dispatcher{
		tenure: t, keeper: k, delegate: d, news: make(chan struct{}, 1), space: make(chan struct{}, 1), closing: make(chan struct{}),
		engine: delivery.New(t.rules(), t.r.breaker), saved: time.Now(),
	}
	made.requests = requests{d: made, serving: map[string]*request{}}
	made.engine.Begin(t.lease.Position)
	// The lease may be written before all of it is restored.
	made.engine.Restore(delivery.Notes{First: t.lease.Attempts}, time.Now())
	if t.lease.State == feed.StateSplitting { // it moves no more, because its children begin where it is
		made.engine.Freeze()
	}
	made.saver = soon.New(max(storeGap, t.r.opts.CheckpointEvery), t.r.work.Go, func() error { return k.store(t.untilDrained) })
	return made
}

// storeGap is how often the lease is written for what is done after a change that is not.
const storeGap = time.Second

// notify makes a channel with room for one say that there is something.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// deliver hands a page over, and waits until there is room for another one.
func (d *dispatcher) deliver(page feed.Page) ending {
	d.mu.Lock()
	d.engine.AddPage(&readPage{Page: page}, page.Next, len(page.Changes), meta(page.Changes), time.Now())
	d.engine.Share(d.r.shared.Load())
	settled := d.isDue() // what another owner has settled
	d.mu.Unlock()
	if settled {
		d.saver.Write()
	}
	if d.r.opts.Concurrency == 1 && d.r.opts.MaxWait == 0 {
		d.handOver()
	}
	d.start()
	notify(d.news)
	return d.await()
}

// handOver calls the handler in this goroutine for as long as there is nothing else to do.
func (d *dispatcher) handOver() {
	for {
		d.mu.Lock()
		if d.running || d.closed || !d.ending().none() {
			d.mu.Unlock()
			return
		}
		do, _ := d.engine.Next(time.Now())
		d.mu.Unlock()
		d.announce()
		switch do.Kind {
		case delivery.Call:
			d.call(do.Batch, do.Note)
		case delivery.Nothing:
			return
		default:
			d.execute(do)
		}
	}
}

// await waits until there is room for a page, or the work must end.
func (d *dispatcher) await() ending {
	impatient := time.NewTicker(patience)
	defer impatient.Stop()
	reported := time.Now()
	for d.ending().none() && !d.hasRoom() {
		select {
		case <-d.space:
		case <-impatient.C:
			if time.Since(reported) >= d.r.opts.Renew {
				reported = time.Now()
				d.report(d.untilStopped, feed.OriginHandler, d.fullness())
			}
		case <-d.untilStopped.Done():
		}
	}
	return d.ending()
}

// patience is how long a batch may be in the handler before what waits behind it of its keys is forgotten, if that fills
// the buffer: it is read again later.
const patience = time.Second

// hasRoom reports whether another page may be read. If the buffer is full of changes behind others that fail, or that are
// in the handler for long, their keys are set aside.
func (d *dispatcher) hasRoom() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isFull() && time.Since(d.madeRoom) >= patience/10 { // it looks at each key
		d.madeRoom = time.Now()
		d.engine.MakeRoom(d.engine.Items()/2, patience, time.Now())
		d.saver.Changed()
	}
	return !d.isFull() && !d.storing && (d.r.opts.Concurrency > 1 || d.r.opts.MaxWait > 0 || d.engine.IsBlocked())
}

func (d *dispatcher) isFull() bool {
	return d.engine.Items() >= d.r.opts.BufferItems || int64(d.engine.Bytes()) >= d.r.opts.BufferBytes
}

// fullness is the report of a buffer that has been full for a while, and whose oldest change keeps it so.
func (d *dispatcher) fullness() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	oldest := d.engine.FirstOpen()
	if !d.isFull() || oldest == nil {
		return nil
	}
	return fmt.Errorf("%w: %d changes, %d bytes of pages, the oldest is LSN %d of partition %s", feed.ErrBufferFull, d.engine.Items(), d.engine.Bytes(), oldest.LSN, oldest.Key)
}

// start starts the goroutine of the dispatcher if there is something to do, unless it runs.
func (d *dispatcher) start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running || d.closed || d.engine.IsIdle() {
		return
	}
	d.running = true
	if d.watching == nil {
		d.watching = d.r.breaker.Watch(func() { notify(d.news) })
	}
	d.loop.Go(d.obey)
}

// finish begins nothing new, waits for what is in hand, and reports whether a handler is stuck.
func (d *dispatcher) finish() (stuck bool) {
	d.mu.Lock()
	d.closed = true
	close(d.closing)
	d.mu.Unlock()
	notify(d.news)
	d.loop.Wait()
	if d.watching != nil {
		d.watching()
	}
	d.calls.Wait()
	return d.stuck
}

// obey does what the engine says until it has nothing left, or the work ends.
func (d *dispatcher) obey() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		do, wait, more := d.next()
		d.announce()
		if !more {
			return
		}
		if do.Kind != delivery.Nothing {
			d.execute(do)
			continue
		}
		timer.Reset(min(wait, d.saver.Due()))
		select {
		case <-d.news:
		case <-timer.C:
		case <-d.untilStopped.Done():
			return
		}
	}
}

// next asks the engine what to do. There is no more when it has nothing left, or when the work ends.
func (d *dispatcher) next() (do delivery.Effect, wait time.Duration, more bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed || !d.ending().none():
		return do, 0, false
	case d.storing:
		return do, delivery.Never, true
	}
	do, wait = d.engine.Next(time.Now())
	if do.Kind == delivery.Nothing && d.engine.IsIdle() && d.saver.Due() == soon.Never {
		d.running = false
		notify(d.space)
		return do, 0, false
	}
	if do.Kind == delivery.Nothing && d.engine.InHand() == 0 && wait < delivery.Never {
		d.activity.Set(feed.ActivityFailing)
	}
	return do, wait, true
}

// execute does what the engine says, in a goroutine of its own if that may take time.
func (d *dispatcher) execute(do delivery.Effect) {
	switch do.Kind {
	case delivery.Call:
		d.calls.Go(func() { d.call(do.Batch, do.Note) })
	case delivery.Park:
		d.calls.Go(func() { d.park(do.Batch) })
	case delivery.ReadKey:
		d.calls.Go(func() { d.readKey(do.Key, do.From.(feed.Position)) })
	case delivery.Shed:
		d.shed(do.Page)
	case delivery.TooManyHeld:
		d.reportUnheld(do.Batch)
	default:
		d.calls.Go(func() { d.requests.serve(do) })
	}
}

// call calls the handler with a batch.
func (d *dispatcher) call(b *delivery.Batch, note bool) {
	batch := d.batch(b)
	// The call counts though it may be the end of the process. The answer may come when the lease is lost.
	if note && (d.keeper.store(d.untilDrained) != nil || !d.ending().none()) {
		d.settle(b, wasCut, nil, 0)
		return
	}
	how, took, err := d.delegate.handle(batch)
	d.settle(b, how, err, took)
}

// batch is what the handler gets.
func (d *dispatcher) batch(b *delivery.Batch) *feed.Batch {
	d.mu.Lock()
	defer d.mu.Unlock()
	of := b.Changes[0].Page.Of.(*readPage)
	batch := &feed.Batch{
		LeaseToken: d.lease.Token, Range: d.lease.Range, Instance: d.r.me.Instance, Epoch: termOf(d.lease),
		Attempt: b.Attempt(), Cut: b.IsCut(), Redriven: b.IsRedriven(), Changes: changesOf(b),
		Session: of.Session, Charge: of.Charge, Head: of.Head, Position: of.Next,
	}
	of.Charge = 0
	if d.r.opts.Manual {
		batch.OnCheckpoint(func(ctx context.Context) error { return d.checkpoint(ctx, b) })
	}
	return batch
}

// settle tells the engine how a call came out.
func (d *dispatcher) settle(b *delivery.Batch, how outcome, err error, took time.Duration) {
	var failure error
	d.mu.Lock()
	switch how {
	case hasSucceeded:
		d.troubles.Remove(feed.OriginHandler)
		d.engine.Succeeded(b, took < d.r.opts.HandlerTimeout/2, time.Now())
	case hasFailed, wasLate:
		failure = newBatchError(changesOf(b), b.Attempt(), b.Failing(), err) // before the engine divides the batch
		d.engine.Failed(b, failureOf(err, len(b.Changes), how == wasLate), time.Now())
	default:
		d.stuck = d.stuck || how == isStuck
		d.engine.Cut(b)
	}
	stuck := d.stuck
	d.storing = d.r.opts.Concurrency == 1
	urgent := failure != nil && !d.engine.IsIdle() || how == hasSucceeded && d.engine.NamesReturned()
	d.mu.Unlock()
	if failure != nil {
		d.report(d.untilLost, feed.OriginHandler, failure)
	}
	if stuck {
		d.stop(ending{why: feed.ReasonStuck})
	}
	d.save(urgent)
	d.wake()
}

// save has the lease written if that is urgent or due: before the next batch if one is in hand at a time, and otherwise in
// the background.
func (d *dispatcher) save(urgent bool) {
	d.mu.Lock()
	due, first := d.isDue() || urgent, d.storing
	d.mu.Unlock()
	switch {
	case due && first:
		d.activity.Set(feed.ActivityStoring)
		d.keeper.store(d.untilDrained) // or the work ends
	case due:
		d.saver.Write()
	case !d.r.opts.Manual && d.r.opts.CheckpointItems == 0:
		d.saver.Changed()
	}
	d.mu.Lock()
	d.storing = false
	d.mu.Unlock()
}

// isDue reports whether the lease is to be written now for what is done.
func (d *dispatcher) isDue() bool {
	o, unsaved := d.r.opts, d.engine.Unsaved()
	switch {
	case unsaved == 0:
		return false
	case o.CheckpointItems == 0 && o.CheckpointEvery == 0:
		return true
	case o.CheckpointItems > 0 && unsaved >= o.CheckpointItems:
		return true
	}
	return o.CheckpointEvery > 0 && time.Since(d.saved) >= o.CheckpointEvery
}

// describe adds to a status what the engine has.
func (d *dispatcher) describe(s *feed.LeaseStatus) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.engine
	s.InHand, s.Buffered, s.Parked, s.Held, s.SetAside = e.InHand(), e.Items(), e.Parked(), e.Held(), e.SetAside()
	s.Redriven, s.Released, s.Unsaved = d.requests.redriven, d.requests.released, e.Unsaved()
	s.Lease.Position, s.Lease.Attempts = e.Position().(feed.Position), e.Attempts()
	s.Read = e.ReadFrom().(feed.Position)
	s.Failures, s.Failing = e.Oldest()
}

// checkpoint is [feed.Batch.Checkpoint].
func (d *dispatcher) checkpoint(ctx context.Context, b *delivery.Batch) error {
	d.mu.Lock()
	confirmed := d.engine.IsConfirmed(b)
	if d.engine.IsFrozen() && !confirmed {
		d.mu.Unlock()
		return fmt.Errorf("%w: its range was split", feed.ErrLeaseLost)
	}
	fresh, valid := d.engine.Confirm(b, time.Now())
	if fresh {
		d.marks++
	}
	isStored := d.stored >= d.marks
	d.mu.Unlock()
	d.wake()
	switch {
	case !valid:
		return fmt.Errorf("%w: this batch comes again in smaller parts", feed.ErrHandlerTimeout)
	case isStored:
		return nil
	}
	return d.keeper.store(ctx)
}
