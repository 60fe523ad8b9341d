package contract

import (
	"context"
	"time"

	"github.com/millrace/changefeed/feed"
)

// checkpointTime is how long a checkpoint may take.
const checkpointTime = time.Minute

// checkpoint confirms a batch, and tells the program the outcome.
func (h *Host) checkpoint(line []byte, id int64) error {
	h.mu.Lock()
	b, last := h.unsure[id], h.lastID
	h.mu.Unlock()
	switch {
	case id > last:
		return breach(line, "there was no batch %d", id)
	case !h.opts.Manual:
		return breach(line, "a checkpoint without --manual: the processor stores positions by itself")
	case b == nil: // this batch, or a later one of its lease, is confirmed
		h.lines.send(encode(toProgram{Type: KindCheckpointed, ID: id}), nil)
		return nil
	}
	h.work.Go(func() {
		ctx, cancel := context.WithTimeout(h.ctx, checkpointTime)
		defer cancel()
		answer := toProgram{Type: KindCheckpointed, ID: id}
		if err := b.Checkpoint(ctx); err != nil {
			answer.Error = err.Error()
		} else {
			h.forgetConfirmed(id, b)
		}
		h.lines.send(encode(answer), nil)
	})
	return nil
}

// forgetConfirmed forgets a confirmed batch and all earlier batches of its lease, which are confirmed too.
func (h *Host) forgetConfirmed(id int64, confirmed *feed.Batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for other, b := range h.unsure {
		if other <= id && b.LeaseToken == confirmed.LeaseToken && h.calls[other] == nil {
			delete(h.unsure, other)
		}
	}
}
