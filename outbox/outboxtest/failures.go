package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
)

// tooLarge sends a message too large for any attempt: first, alone and between others. The relay parks the message and
// goes on, so the others must arrive, once, in their order, and not before the message is decided.
func (s *suite) tooLarge() {
	s.needsField(s.MaxData > 0, "MaxData")
	p := s.publisher()
	refused := func(want int, msgs ...outbox.Message) {
		s.Helper()
		n, err := p.Publish(s.Context(), msgs)
		if n != want || !errors.Is(err, outbox.ErrTooLarge) || !feed.IsPoison(err) {
			s.Errorf("Publish of %d messages, of which number %d is too large: %d, %v; want %d and an ErrTooLarge "+
				"that is Poison", len(msgs), want+1, n, err, want)
		}
	}
	msgs := series("k", 1, 8)
	for _, large := range []int{2, 3, 6} {
		msgs[large] = sized(msgs[large], 2*s.MaxData)
	}
	refused(2, msgs...)
	s.wantAll(msgs[:2]...)
	refused(0, msgs[2:]...)
	refused(0, msgs[3])
	s.wantAll(msgs[:2]...)
	refused(2, msgs[4:]...)
	s.publish(p, msgs[7])
	s.wantAll(msgs[0], msgs[1], msgs[4], msgs[5], msgs[7])
}

// refusedOnce makes a message among others fail. Whatever the publisher then does, no later message may overtake the
// failed message.
func (s *suite) refusedOnce() {
	s.needsField(s.Fail != nil, "Fail")
	p, msgs := s.publisher(), series("k", 1, 12)
	s.Fail(s.T, msgs[0].ID)
	s.Fail(s.T, msgs[4].ID)
	s.publishUntilAccepted(p, msgs[:10], func([]outbox.Message) {})
	s.Fail(s.T, msgs[10].ID)
	s.publishUntilAccepted(p, msgs[10:], func([]outbox.Message) {})
	s.inOrder(s.received()["k"], msgs)
}

// publishToMisbehaving sends messages that are not accepted, in each way of the broker. Messages that a publisher
// counts as accepted must be there, and no message may overtake an earlier message.
func (s *suite) publishToMisbehaving() {
	s.needsField(len(s.Misbehave) > 0, "Misbehave")
	p := s.publisher()
	for _, way := range slices.Sorted(maps.Keys(s.Misbehave)) {
		msgs := series(way, 1, 9)
		for _, i := range []int{0, 4, 8} { // the first, a middle one, and the last alone
			s.Misbehave[way](s.T, msgs[i].ID)
		}
		s.publishUntilAccepted(p, msgs[:8], func([]outbox.Message) {})
		s.publishUntilAccepted(p, msgs[8:], func([]outbox.Message) {})
		s.inOrder(s.received()[way], msgs)
	}
}

// errGone is the cause with which a case ends a context.
var errGone = errors.New("the caller has gone")

// endedContext expects an error with the cause, because a processor recognizes the cause.
func (s *suite) endedContext() {
	p, msgs := s.publisher(), series("k", 1, 3)
	ctx, cancel := context.WithCancelCause(s.Context())
	cancel(errGone)
	if n, err := p.Publish(ctx, msgs); n != 0 || !errors.Is(err, errGone) || feed.IsPoison(err) {
		s.Errorf("Publish with an ended context: %d, %v; want 0 and the cause of its end", n, err)
	}
	s.publish(p, msgs...)
	s.inOrder(s.received()["k"], msgs)
}

// publishToStalled ends the context of a call without an answer.
func (s *suite) publishToStalled() {
	s.needsField(s.Stall != nil && s.Start != nil, "Stall")
	p, msgs := s.publisher(), series("k", 1, 9)
	s.publish(p, msgs[:3]...)
	s.Stall(s.T)
	ctx, cancel := context.WithCancelCause(s.Context())
	timer := time.AfterFunc(100*time.Millisecond, func() { cancel(errGone) })
	defer timer.Stop()
	begun := time.Now()
	n, err := p.Publish(ctx, msgs[3:])
	if took := time.Since(begun); took > soon {
		s.Errorf("Publish took %v, though its context had ended after 0.1 s", took)
	}
	if n != 0 || !errors.Is(err, errGone) || feed.IsPoison(err) {
		s.Errorf("Publish to a broker that does not answer, until its context ended: %d, %v; want 0 and the cause "+
			"of its end", n, err)
	}
	s.Start(s.T)
	s.publishUntilAccepted(p, msgs[3:], func([]outbox.Message) {})
	s.inOrder(s.received()["k"], msgs)
}

// outOfReach stops the broker for a while: a publisher returns an error, and later finds the broker again.
func (s *suite) outOfReach() {
	s.needsField(s.Stop != nil && s.Start != nil, "Stop")
	p, msgs := s.publisher(), series("k", 1, 9)
	s.publish(p, msgs[:3]...)
	s.Stop(s.T)
	ctx, cancel := context.WithTimeoutCause(s.Context(), 300*time.Millisecond, errGone)
	defer cancel()
	begun := time.Now()
	n, err := p.Publish(ctx, msgs[3:])
	if took := time.Since(begun); took > soon {
		s.Errorf("Publish took %v, though its context had ended after 0.3 s", took)
	}
	if n != 0 {
		s.Errorf("Publish to a broker that is out of reach: %d, %v; want 0", n, err)
	}
	s.wantTemporary(err)
	s.Start(s.T)
	s.publishUntilAccepted(p, msgs[3:], func([]outbox.Message) {})
	s.inOrder(s.received()["k"], msgs)
}

// midCall stops the broker while calls of many keys are in progress, again and again. Messages that a call reports as
// accepted must be there, and each key must be in order.
func (s *suite) midCall() {
	s.needsField(s.Stop != nil && s.Start != nil, "Stop")
	const keys, each, rounds = 8, 600, 4
	p := s.publisher()
	var accepted atomic.Int64
	progress := make(chan struct{}, 1)
	var publishers sync.WaitGroup
	for k := range keys {
		publishers.Go(func() {
			msgs := series(fmt.Sprintf("k%d", k), 1, each)
			for from := 0; from < each; from += 30 {
				ok := s.publishUntilAccepted(p, msgs[from:from+30], func(prefix []outbox.Message) {
					accepted.Add(int64(len(prefix)))
					select {
					case progress <- struct{}{}:
					default:
					}
				})
				if !ok {
					return
				}
			}
		})
	}
	ended := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() { publishers.Wait(); close(ended) })
	for round := 1; round <= rounds; round++ {
		if !until(ended, progress, func() bool { return accepted.Load() >= int64(round*keys*each/(rounds+1)) }) {
			break
		}
		s.Stop(s.T)
		pause(s.Context(), 20*time.Millisecond)
		s.Start(s.T)
	}
	waiting.Wait()
	got := s.received()
	for k := range keys {
		key := fmt.Sprintf("k%d", k)
		s.inOrder(got[key], series(key, 1, each))
	}
}

// until waits for a condition, with a check after each progress. The result is false if ended closes first.
func until(ended, progress <-chan struct{}, condition func() bool) bool {
	for !condition() {
		select {
		case <-progress:
		case <-ended:
			return false
		}
	}
	return true
}
