package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// The handler of each process: it obeys the rules of package changefeed, and shows every
// weakness that they allow.

// errHandler is the failure of a handler for reasons of its own.
var errHandler = errors.New("handler: downstream is not there")

// errBox is the failure of the letter box.
var errBox = errors.New("letter box: not there")

// Handle is the delegate: mostly quick, sometimes slow, failing, panicking or deaf to its
// context.
func (i *instance) Handle(ctx context.Context, b *feed.Batch) error {
	return i.handleBatch(ctx, i.ctx, b, i.world.ledger.endCall)
}

// handleBatch is Handle of a handler that lives as long as living; end hears how the call has ended: whether with
// success, and which changes are done.
func (i *instance) handleBatch(
	ctx, living context.Context, b *feed.Batch, end func(c *call, ok bool, done []feed.Change),
) error {
	if i.isDead() { // it has a page in memory, but what it does with that is not in this world
		return errHandler
	}
	// A panic is a failure too, so the call ends in any case, and as done only at the last line.
	c := i.world.ledger.handOver(ctx, i, b)
	i.world.inTurn(i, b)
	ok := false
	var done []feed.Change
	defer func() { end(c, ok, done) }()
	i.link.awaitThaw(ctx)
	i.springAmbush(point{"handle", before}, b.Range)
	d := i.world.dice()
	said, err := i.attemptBatch(ctx, d, b)
	i.link.awaitThaw(ctx)
	i.springAmbush(point{"handle", after}, b.Range)
	if err == nil && i.opts.Manual {
		if err = i.checkpointByHand(ctx, living, d, b, c); err != nil {
			said = nil
		}
	}
	ok, done = err == nil, said
	return err
}

// pauseOrFail takes its time, and fails now and then. In calm weather it does neither.
func (i *instance) pauseOrFail(ctx context.Context, d *rand.Rand) error {
	switch {
	case i.world.isCalm():
		return pause.For(ctx, time.Millisecond)
	case d.IntN(20) == 0:
		return errHandler
	case d.IntN(100) == 0:
		panic("handler: unexpected")
	case d.IntN(60) == 0:
		return pause.For(ctx, time.Duration(d.Int64N(int64(25*time.Second)))) // heeds its context
	case d.IntN(60) == 0:
		return pause.For(context.WithoutCancel(ctx), time.Duration(d.Int64N(int64(deafTime)))) // does not
	}
	return pause.For(ctx, time.Duration(d.Int64N(int64(50*time.Millisecond))))
}

// deafTime is how long a handler goes on at most after its context has ended.
const deafTime = 15 * time.Second

// checkpointByHand checkpoints a batch by hand: at once, and sometimes fails all the same; or from
// another goroutine much later, when batches that came after it may be checkpointed
// already. That goroutine ends with its handler: a program that has died confirms nothing.
func (i *instance) checkpointByHand(ctx, living context.Context, d *rand.Rand, b *feed.Batch, c *call) error {
	if i.world.isCalm() || d.IntN(3) == 0 {
		if err := i.checkpoint(ctx, b, c); err != nil {
			return err
		}
		if d.IntN(20) == 0 && !i.world.isCalm() {
			return errHandler
		}
		return nil
	}
	delay := time.Duration(d.Int64N(int64(2 * time.Minute)))
	i.world.tasks.Go(func() {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-i.world.quiet:
		case <-living.Done():
		}
		for living.Err() == nil && i.checkpoint(living, b, c) != nil {
			_ = pause.For(living, time.Second)
		}
	})
	return nil
}

// checkpoint asks for a batch to be checkpointed. It is settled also if the lease is lost,
// or if the batch comes again in smaller parts.
func (i *instance) checkpoint(ctx context.Context, b *feed.Batch, c *call) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	i.world.ledger.noteAsked(c)
	err := b.Checkpoint(ctx)
	i.world.ledger.note("%s checkpoints %s from LSN %d: %v", i, b.LeaseToken, b.Changes[0].LSN, err)
	if err == nil {
		i.world.ledger.checkSaved(c)
	}
	if errors.Is(err, feed.ErrLeaseLost) || errors.Is(err, feed.ErrHandlerTimeout) {
		return nil
	}
	return err
}
