// Package dispatch hands the changes of a lease to the handler, in the order and the batches that package delivery
// decides. The package calls the handler, parks changes, reads keys again and serves the requests of operators for a
// key.
package dispatch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/delivery"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/soon"
)

// How pages go to the handler
//
// The engine of internal/processor/delivery decides which changes the handler receives, in which batches, and whether
// failing changes come again or are parked. The engine has no clock, no goroutine and no I/O. The dispatcher executes
// the effects of the engine and reports the events: the dispatcher calls the handler, stores letters (park.go), serves
// requests (redrive.go) and reads keys again (rereading.go).
//
// As long as nothing fails and a single batch is in hand at a time, the worker's goroutine calls the handler and stores
// the position, page after page. A goroutine of the dispatcher does everything else, and starts others for the calls.
// This goroutine ends when the engine has no changes left.

// Dispatcher hands the pages of a lease to the handler, or their changes to the dead letters.
type Dispatcher struct {
	in       *instance.Instance
	held     *instance.Held
	store    func(context.Context) error // writes the lease; an error is that the work ends
	delegate *delegate
	letters  *letterCalls
	news     chan struct{} // the engine may have something to do
	space    chan struct{} // there may be room for a page
	watching func()        // ends the watch on the breaker
	saver    *saver

	mu       sync.Mutex
	engine   *delivery.Engine
	running  bool // the goroutine of the dispatcher
	storing  bool // the next batch waits for a write of the lease
	stuck    bool // a call of the handler has not returned
	givenUp  bool // unconfirmed changes come again, so nothing more is confirmed
	phase    phase
	here     string // the partition, with the range, in which LSNs count; empty if the lease has no notes
	failures failureNote
	asides   asideNote
	// batches that were handled and are not confirmed by hand
	unconfirmed unconfirmed
	marks       int // of the notes for the lease, counted at each change by hand
	stored      int // the last of them that is stored
	// when the lease last covered more changes, and when keys were last looked at to set some aside
	saved, madeRoom time.Time
	requests        requests
	noChanges       []feed.Change // of pages without a needed change: all empty, and never written

	loop  sync.WaitGroup // obey
	calls sync.WaitGroup // of the handler, of the dead letters, of the source for a key, and requests
}

// phase is the stage of a dispatcher's life.
type phase uint8

const (
	begun  phase = iota
	open         // the last owner's notes are known, so requests can be served
	closed       // nothing new is begun
)

// New makes the dispatcher of a lease, which store writes.
func New(in *instance.Instance, held *instance.Held, store func(context.Context) error) *Dispatcher {
	d := &Dispatcher{
		in: in, held: held, store: store, delegate: &delegate{in: in, held: held},
		news: make(chan struct{}, 1), space: make(chan struct{}, 1), saved: time.Now(),
	}
	d.letters = &letterCalls{in: in, held: held, delegate: d.delegate}
	d.requests = requests{d: d, serving: map[string]*request{}}
	d.engine = delivery.New(rulesOf(in, held), in.Breaker)
	d.engine.Begin(held.Lease.Position)
	d.engine.Share(in.Shared.Load())
	// The lease may be written before the whole state is restored.
	d.engine.Restore(delivery.Notes{First: held.Lease.Attempts, Outage: hadOutage(held.Lease)}, time.Now())
	if held.Lease.State == feed.StateSplitting { // the position moves no more, because the children begin there
		d.engine.Freeze()
	}
	d.saver = newSaver(in, held, store)
	return d
}

// Deliver hands a page over, and waits until there is room for another page.
func (d *Dispatcher) Deliver(page feed.Page) instance.Ending {
	d.mu.Lock()
	unsaved := d.engine.Counts().Unsaved
	d.engine.Tell(delivery.PageRead{
		Of: &readPage{Page: page}, Next: page.Next, Changes: len(page.Changes),
		Meta: meta(page.Changes),
	}, time.Now())
	d.engine.Share(d.in.Shared.Load())
	settled := d.engine.Counts().Unsaved > unsaved && d.isDue() // changes that another owner has settled
	d.mu.Unlock()
	if settled {
		d.saver.Write()
	}
	if d.in.Options.Concurrency == 1 && d.in.Options.MaxWait == 0 {
		d.handOver()
	}
	d.Start()
	notify(d.news)
	return d.awaitRoom()
}

// handOver calls the handler in this goroutine for as long as there is nothing else to do.
func (d *Dispatcher) handOver() {
	for {
		d.mu.Lock()
		if d.running || d.phase == closed || !d.held.Ending().None() {
			d.mu.Unlock()
			return
		}
		do, _ := d.engine.Next(time.Now())
		d.mu.Unlock()
		d.callNewsHooks()
		switch do.Kind {
		case delivery.Call:
			d.callHandler(do.Batch, do.Note)
		case delivery.Nothing:
			return
		default:
			d.execute(do)
		}
	}
}

// awaitRoom waits until there is room for a page, or the work must end.
func (d *Dispatcher) awaitRoom() instance.Ending {
	impatient := time.NewTicker(patience)
	defer impatient.Stop()
	reported := time.Now()
	for d.held.Ending().None() && !d.hasRoom() {
		select {
		case <-d.space:
		case <-impatient.C:
			if time.Since(reported) >= d.in.Options.Renew {
				reported = time.Now()
				d.held.Report(d.held.UntilStopped, feed.OriginHandler, d.reportFullness())
			}
		case <-d.held.UntilStopped.Done():
		}
	}
	return d.held.Ending()
}

// patience is how long a batch may be in the handler before later changes of the same keys are forgotten, if they fill
// the buffer: they are read again later.
const patience = time.Second

// hasRoom reports whether another page may be read. If the buffer is full of changes behind others that fail, or that
// are in the handler for long, their keys are set aside.
func (d *Dispatcher) hasRoom() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if isFull(d.engine.Counts(), &d.in.Options) && time.Since(d.madeRoom) >= patience/10 { // a look at each key
		d.madeRoom = time.Now()
		d.engine.MakeRoom(d.engine.Counts().Items/2, patience, time.Now())
		d.saver.Changed()
	}
	return !isFull(d.engine.Counts(), &d.in.Options) && !d.storing &&
		(d.in.Options.Concurrency > 1 || d.in.Options.MaxWait > 0 || d.engine.IsBlocked())
}

func isFull(n delivery.Counts, o *instance.Options) bool {
	return n.Items >= o.BufferItems || int64(n.Bytes) >= o.BufferBytes
}

// reportFullness is the report of a buffer that has been full for a while because of the oldest change.
func (d *Dispatcher) reportFullness() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	oldest, n := d.engine.FirstOpen(), d.engine.Counts()
	if !isFull(n, &d.in.Options) || oldest == nil {
		return nil
	}
	return fmt.Errorf("%w: %d changes, %d bytes of pages, the oldest is LSN %d of partition %s", feed.ErrBufferFull,
		n.Items, n.Bytes, oldest.LSN, oldest.Key)
}

// Start starts the goroutine of the dispatcher if there is work, unless the goroutine runs already.
func (d *Dispatcher) Start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asides.forgetCaughtUp(d)
	if d.running || d.phase == closed || d.engine.IsIdle() && !d.asides.asked {
		return
	}
	d.running = true
	if d.watching == nil {
		d.watching = d.in.Breaker.Watch(func() { notify(d.news) })
	}
	d.loop.Go(d.runEffects)
}

// Finish begins nothing new, waits for the calls in hand and for the write of the lease that is under way, concludes
// them, and reports whether a handler is stuck. The only write after that is the last write of the worker.
func (d *Dispatcher) Finish() (stuck bool) {
	d.mu.Lock()
	d.phase = closed
	d.mu.Unlock()
	notify(d.news)
	d.loop.Wait()
	d.held.Activity.DispatcherDoes("")
	if d.watching != nil {
		d.watching()
	}
	d.calls.Wait()
	d.saver.Wait()
	d.requests.finishConcluded()
	return d.stuck
}

// runEffects executes the effects of the engine until none is left, or the work ends.
func (d *Dispatcher) runEffects() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		do, wait, more := d.nextEffect()
		d.callNewsHooks()
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
		case <-d.held.UntilStopped.Done():
			return
		}
	}
}

// nextEffect asks the engine for the next effect. There is none when nothing is left to do, or when the work ends.
func (d *Dispatcher) nextEffect() (do delivery.Effect, wait time.Duration, more bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.phase == closed || !d.held.Ending().None():
		return do, 0, false
	case d.storing:
		return do, delivery.Never, true
	}
	do, wait = d.engine.Next(time.Now())
	if do.Kind != delivery.Nothing {
		return do, wait, true
	}
	d.asides.forgetCaughtUp(d)
	var activity feed.Activity
	if d.engine.Counts().InHand == 0 && d.engine.HasFailed() {
		activity = feed.ActivityFailing
	}
	d.held.Activity.DispatcherDoes(activity)
	if d.engine.IsIdle() && d.saver.Due() == soon.Never {
		d.running = false
		notify(d.space)
		return do, 0, false
	}
	return do, wait, true
}

// execute executes an effect, in a separate goroutine if the effect may take time.
func (d *Dispatcher) execute(do delivery.Effect) {
	switch do.Kind {
	case delivery.Call:
		d.calls.Go(func() { d.callHandler(do.Batch, do.Note) })
	case delivery.Park:
		d.calls.Go(func() { d.storeLetter(do.Batch) })
	case delivery.ReadKey:
		d.calls.Go(func() { d.readKey(do.Key, do.From.(feed.Position)) })
	case delivery.Shed:
		d.shedPage(do.Page)
	case delivery.TooManyHeld:
		d.reportUnheld(do.Batch)
	default:
		d.calls.Go(func() { d.requests.serveEffect(do) })
	}
}

// notify puts a signal into a channel with room for a single signal.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// wakeAll wakes the dispatcher and the reader after an event of the engine, and reports the engine's news.
func (d *Dispatcher) wakeAll() {
	notify(d.news)
	notify(d.space)
	d.callNewsHooks()
}

// tellEngine tells the engine an event.
func (d *Dispatcher) tellEngine(what delivery.Event) {
	d.mu.Lock()
	d.engine.Tell(what, time.Now())
	d.mu.Unlock()
	d.wakeAll()
}
