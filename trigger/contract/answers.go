package contract

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"time"
)

// readMessages reads the messages of the program until the connection ends, and then the rest of its output, because a
// program must not block while it ends.
func (h *Host) readMessages(r *bufio.Reader, hello chan<- toHost) {
	defer func() { _, _ = io.Copy(io.Discard, r) }() // the connection has ended anyway
	for wanted := KindHello; ; wanted = "" {
		line, err := readLine(r)
		if err != nil {
			if !errors.As(err, new(*BreachError)) {
				err = ErrEnded
			}
			h.endConnection(err)
			return
		}
		m, err := decodeToHost(line)
		if err == nil {
			if m.Type == KindHello || wanted == KindHello {
				err = h.checkHello(line, &m, wanted, hello)
			} else {
				err = h.obeyMessage(line, &m)
			}
		}
		if err != nil {
			h.endConnection(err)
			return
		}
		select {
		case h.heard <- struct{}{}:
		default:
		}
	}
}

// checkHello checks the hello of the program.
func (h *Host) checkHello(line []byte, m *toHost, wanted Kind, hello chan<- toHost) error {
	switch {
	case wanted != KindHello:
		return breach(line, "a second hello")
	case m.Type != KindHello:
		return breach(line, "type is %q: want hello first", m.Type)
	case m.Version != Version:
		return breach(line, "version is %d: this host speaks %d", m.Version, Version)
	case m.Batches < 0 || m.Batches > maxBatches:
		return breach(line, "batches is %d: want 1 to %d", m.Batches, maxBatches)
	case m.Heartbeat != 0 && !(m.Heartbeat >= minHeartbeat.Seconds() && m.Heartbeat <= maxHeartbeat.Seconds()):
		return breach(line, "heartbeat is %v: want seconds from %v to %v, or none", m.Heartbeat,
			minHeartbeat.Seconds(), maxHeartbeat.Seconds())
	}
	m.Batches = cmp.Or(m.Batches, 1)
	hello <- *m
	return nil
}

// The limits of a hello.
const (
	maxBatches   = 10_000
	minHeartbeat = 100 * time.Millisecond
	maxHeartbeat = time.Hour
)

// obeyMessage carries out a message of the program.
func (h *Host) obeyMessage(line []byte, m *toHost) error {
	switch m.Type {
	case KindStop:
		if h.opts.Stop != nil {
			h.opts.Stop()
		}
	case KindCheckpoint:
		return h.confirmBatch(line, m.ID)
	case KindDone, KindFailed, KindReleased:
		return h.endBatch(line, m)
	case KindStatus, KindCaughtUp:
		return h.answerQuestion(line, m)
	case KindToken:
		return h.takeToken(line, m)
	}
	return nil
}

// endBatch ends a batch according to the answer.
func (h *Host) endBatch(line []byte, m *toHost) error {
	c := h.findCall(m.ID)
	if c == nil {
		return breach(line, "the program has no batch %d: want one answer for each batch", m.ID)
	}
	var outcome error
	switch m.Type {
	case KindReleased:
		outcome = errReleased
	case KindFailed:
		var wrong error
		if outcome, wrong = m.failure(line, len(c.batch.Changes)); wrong != nil {
			return wrong // the batch stays in hand, so that this batch and no other is blamed for the end
		}
	}
	h.answerCall(m.ID, outcome)
	return nil
}

// errReleased is the outcome of a batch that was given up.
var errReleased = errors.New("the program has given the batch up")

// watchSilence reports a program that says nothing for longer than a period.
func (h *Host) watchSilence(period time.Duration) {
	timer := time.NewTimer(period)
	defer timer.Stop()
	isSilent := false
	for last := time.Now(); ; {
		select {
		case <-h.done:
			return
		case <-h.heard:
			last = time.Now()
			timer.Reset(period)
			if isSilent && h.opts.Silent != nil {
				h.opts.Silent(0)
			}
			isSilent = false
		case <-timer.C:
			if isSilent = true; h.opts.Silent != nil {
				h.opts.Silent(time.Since(last))
			}
		}
	}
}
