package contract

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
)

// checkpointTime is how long a checkpoint may take.
const checkpointTime = time.Minute

// maxUnsure is how many batches that are not confirmed a host remembers.
const maxUnsure = 10_000

// unconfirmed are the batches that the program may still confirm, without their changes.
type unconfirmed struct {
	batches map[int64]*feed.Batch
	asked   map[int64]int // checkpoints of them that the program waits for
	order   []int64       // their ids, also those of batches that are confirmed already
	lost    int64         // batches up to this id are forgotten
}

// add remembers a batch, and forgets the oldest if there are too many.
func (u *unconfirmed) add(id int64, b *feed.Batch) {
	bare := *b
	bare.Changes = nil
	if u.batches == nil {
		u.batches, u.asked = map[int64]*feed.Batch{}, map[int64]int{}
	}
	u.batches[id], u.order = &bare, append(u.order, id)
	for len(u.order) > maxUnsure {
		u.lost = u.order[0]
		delete(u.batches, u.lost)
		u.order = u.order[1:]
	}
}

// abandon abandons the batches that an ended program has handled and cannot confirm any more. The batches in hand have
// failed, and batches with a pending checkpoint are abandoned when the checkpoint has failed too.
func (u *unconfirmed) abandon(inHand map[int64]*call) {
	for _, id := range u.order {
		if b := u.batches[id]; b != nil && inHand[id] == nil && u.asked[id] == 0 {
			_ = b.Abandon() // without OnAbandon, as in tests, nothing comes again
		}
	}
}

// confirmBatch confirms a batch, and tells the program the outcome. The processor knows which batches are confirmed
// with this one: a batch that has failed is not, even if it came earlier.
func (h *Host) confirmBatch(line []byte, id int64) error {
	h.mu.Lock()
	b, last, lost := h.unsure.batches[id], h.lastID, h.unsure.lost
	if b != nil && h.opts.Manual {
		h.unsure.asked[id]++
	}
	h.mu.Unlock()
	answer := toProgram{Type: KindCheckpointed, ID: id}
	switch {
	case id > last:
		return breach(line, "there was no batch %d", id)
	case !h.opts.Manual:
		return breach(line, "a checkpoint without --manual: the processor stores positions by itself")
	case b == nil && id <= lost:
		answer.Error = fmt.Sprintf("the batch is too old: %d batches came after it", maxUnsure)
		h.lines.sendLine(encode(answer), nil)
		return nil
	case b == nil: // confirmed already
		h.lines.sendLine(encode(answer), nil)
		return nil
	}
	h.work.Go(func() {
		ctx, cancel := context.WithTimeout(h.ctx, checkpointTime)
		defer cancel()
		err := b.Checkpoint(ctx)
		if err != nil {
			answer.Error = err.Error()
		}
		h.endAsked(id, b, err == nil)
		h.lines.sendLine(encode(answer), nil)
	})
	return nil
}

// endAsked notes the outcome of a checkpoint that the program has asked for.
func (h *Host) endAsked(id int64, b *feed.Batch, isConfirmed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unsure.asked[id]--; h.unsure.asked[id] == 0 {
		delete(h.unsure.asked, id)
	}
	if isConfirmed {
		delete(h.unsure.batches, id)
	} else if h.err != nil {
		_ = b.Abandon()
	}
}

// askForCheckpoint asks the host to store the position of a batch, and waits for the outcome.
func (p *program) askForCheckpoint(ctx context.Context, id int64) error {
	outcome := make(chan error, 1)
	p.mu.Lock()
	p.confirm[id] = append(p.confirm[id], outcome)
	p.mu.Unlock()
	p.lines.sendLine(encode(toHost{Type: KindCheckpoint, ID: id}), nil)
	select {
	case err := <-outcome:
		return err
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// endCheckpoint ends the wait for a checkpoint.
func (p *program) endCheckpoint(m *fromHost) {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting := p.confirm[m.ID]
	if len(waiting) == 0 {
		return
	}
	if p.confirm[m.ID] = waiting[1:]; len(waiting) == 1 {
		delete(p.confirm, m.ID)
	}
	if m.Error != "" {
		waiting[0] <- errors.New(m.Error)
	} else {
		waiting[0] <- nil
	}
}
