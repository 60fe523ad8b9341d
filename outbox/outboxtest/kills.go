package outboxtest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
)

// The work of [TestKills].
const (
	killedKeys   = 4
	betweenKills = 20 // messages of each key
	publishEvery = 5 * time.Millisecond
)

// TestKills proves that accepted messages survive kills of the broker. Publishers work without pause while restart is
// called several times; restart kills the broker and returns when the broker answers again. Afterwards consumers must
// have each accepted message, and the first deliveries of a key must be in order. TestKills needs Publisher and
// Received of b.
func TestKills(t *testing.T, b Broker, kills int, restart func(t *testing.T)) {
	s := &suite{T: t, Broker: b}
	p := s.publisher()
	var accepted [killedKeys]atomic.Int64
	var publishing sync.WaitGroup
	over := make(chan struct{})
	for k := range accepted {
		publishing.Go(func() { s.publishUntil(over, p, fmt.Sprint("k", k), &accepted[k]) })
	}
	goOn := true
	for n := 0; goOn && n < kills; n++ {
		if goOn = s.awaitProgress(accepted[:]); goOn {
			restart(t)
		}
	}
	goOn = goOn && s.awaitProgress(accepted[:])
	close(over)
	publishing.Wait()
	if !goOn {
		return
	}
	got := s.received()
	for k := range accepted {
		key := fmt.Sprint("k", k)
		s.wantPrefix(got[key], key, accepted[k].Load())
	}
}

// publishUntil publishes the messages of a key one after the other until over is closed, and counts the accepted
// messages.
func (s *suite) publishUntil(over <-chan struct{}, p outbox.Publisher, key string, accepted *atomic.Int64) {
	tick := time.NewTicker(publishEvery)
	defer tick.Stop()
	for {
		m := message(key, int(accepted.Load())+1)
		n, err := p.Publish(s.Context(), []outbox.Message{m})
		if feed.IsPoison(err) {
			s.Errorf("Publish says of a broker that is away that message %s can never be sent: %v", m.ID, err)
			return
		}
		accepted.Add(int64(n))
		select {
		case <-over:
			return
		case <-tick.C:
		}
	}
}

// awaitProgress waits until some more messages of each key are accepted.
func (s *suite) awaitProgress(accepted []atomic.Int64) bool {
	var want []int64
	for k := range accepted {
		want = append(want, accepted[k].Load()+betweenKills)
	}
	for deadline := time.Now().Add(2 * patience); ; {
		behind := 0
		for k := range accepted {
			if accepted[k].Load() < want[k] {
				behind++
			}
		}
		switch {
		case s.Failed():
			return false
		case behind == 0:
			return true
		case time.Now().After(deadline):
			s.Errorf("%d publishers do not find the broker again within %v", behind, 2*patience)
			return false
		}
		pause(s.Context(), publishEvery)
	}
}

// wantPrefix expects the first messages of a key, at least atLeast, with their first deliveries in order.
func (s *suite) wantPrefix(got []Received, key string, atLeast int64) {
	var first []string
	for _, id := range ids(got) {
		if !slices.Contains(first, id) { // a message whose answer was lost is delivered again
			first = append(first, id)
		}
	}
	if int64(len(first)) < atLeast {
		s.Errorf("key %s: %d messages are there, %d were accepted", key, len(first), atLeast)
	}
	if want := idsOf(series(key, 1, len(first))); !slices.Equal(first, want) {
		s.Errorf("key %s: received for the first time %s, want %s", key, some(first), some(want))
	}
}
