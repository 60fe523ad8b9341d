package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
)

// Memory is a broker in memory, and an [outbox.Publisher] to this broker. Memory de-duplicates, can be stopped, and
// shows its messages. The zero value is ready.
type Memory struct {
	// MaxData limits the bytes of data in a message; 0 is no limit.
	MaxData int

	mu       sync.Mutex
	state    state
	changed  chan struct{} // closed when state changes; nil while no call waits
	failing  map[string]bool
	losing   map[string]bool
	known    map[string]bool
	received []Received
}

// state says how a broker answers.
type state int

const (
	isUp state = iota
	isStopped
	isStalled
)

// ErrDown is the error of [Memory] while it is stopped, or when it fails a message.
var ErrDown = errors.New("broker is down")

// Publish accepts messages one by one.
func (b *Memory) Publish(ctx context.Context, msgs []outbox.Message) (n int, err error) {
	for i, m := range msgs {
		if err := b.acceptMessage(ctx, m); err != nil {
			return i, fmt.Errorf("publish %s: %w", m.ID, err)
		}
	}
	return len(msgs), nil
}

// acceptMessage stores a message. If the broker is stalled, accept waits.
func (b *Memory) acceptMessage(ctx context.Context, m outbox.Message) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		changed, err := b.keepMessage(m)
		if changed == nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// keepMessage stores a message, or returns a channel to wait for.
func (b *Memory) keepMessage(m outbox.Message) (changed <-chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.state == isStalled:
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		return b.changed, nil
	case b.state == isStopped:
		return nil, ErrDown
	case b.MaxData > 0 && len(m.Data) > b.MaxData:
		return nil, feed.Poison(fmt.Errorf("%d bytes of data, of at most %d: %w", len(m.Data), b.MaxData,
			outbox.ErrTooLarge))
	case b.failing[m.ID]:
		delete(b.failing, m.ID)
		return nil, ErrDown
	case b.known[m.ID]:
		return nil, nil
	}
	if b.known == nil {
		b.known = map[string]bool{}
	}
	b.known[m.ID] = true
	if b.losing[m.ID] {
		delete(b.losing, m.ID)
		err = ErrDown
	}
	b.received = append(b.received, Received{
		ID: m.ID, Key: m.Key, Attributes: maps.Collect(m.CloudEvent()), Trace: maps.Collect(m.TraceContext()),
		ContentType: outbox.ContentType, Data: slices.Clone(m.Data),
	})
	return nil, err
}

// Received returns the messages so far, in the order in which they were accepted.
func (b *Memory) Received() []Received {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.received)
}

// Stop makes each message fail with [ErrDown] until Start.
func (b *Memory) Stop() { b.become(isStopped) }

// Stall makes each message wait until Start or Stop, or until its context ends.
func (b *Memory) Stall() { b.become(isStalled) }

// Start ends Stop or Stall.
func (b *Memory) Start() { b.become(isUp) }

func (b *Memory) become(s state) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state = s
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// Fail makes the message with this id fail with [ErrDown] once.
func (b *Memory) Fail(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failing == nil {
		b.failing = map[string]bool{}
	}
	b.failing[id] = true
}

// Lose makes the message with this id fail with [ErrDown] once, although the broker keeps the message: the answer is
// lost, or arrives too late.
func (b *Memory) Lose(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.losing == nil {
		b.losing = map[string]bool{}
	}
	b.losing[id] = true
}

// Broker returns b as a Broker for [TestPublisher], with a publisher that may differ from b.
func (b *Memory) Broker(publisher func() outbox.Publisher) Broker {
	return Broker{
		Publisher: func(*testing.T) outbox.Publisher { return publisher() },
		Received:  func(*testing.T) []Received { return b.Received() },
		Stop:      func(*testing.T) { b.Stop() },
		Stall:     func(*testing.T) { b.Stall() },
		Start:     func(*testing.T) { b.Start() },
		Fail:      func(_ *testing.T, id string) { b.Fail(id) },
		Misbehave: map[string]func(*testing.T, string){
			"answers late": func(_ *testing.T, id string) { b.Lose(id) },
			"refuses":      func(_ *testing.T, id string) { b.Fail(id) },
		},
		MaxData:      b.MaxData,
		Deduplicates: true,
	}
}
