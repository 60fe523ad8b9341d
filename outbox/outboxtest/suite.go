package outboxtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
)

// suite is a broker under test with the methods that cases use.
type suite struct {
	*testing.T
	Broker
}

// patience limits how long a publisher may take for a quick operation, and how long a returned broker may stay unfound.
const patience = time.Minute

// soon limits how long a publisher may go on after its context has ended.
const soon = 5 * time.Second

// publisher makes a publisher, which is closed before the broker.
func (s *suite) publisher() outbox.Publisher {
	s.Helper()
	p := s.Publisher(s.T)
	if c, ok := p.(io.Closer); ok {
		s.Cleanup(func() {
			if err := c.Close(); err != nil {
				s.Errorf("Close: %v", err)
			}
		})
	}
	return p
}

// needsField skips a case if the broker lacks a field.
func (s *suite) needsField(has bool, field string) {
	s.Helper()
	if !has {
		s.Skipf("not tested: Broker.%s is not set", field)
	}
}

// message returns the nth message of a key, from 1 on.
func message(key string, n int) outbox.Message {
	return outbox.Message{
		ID: fmt.Sprintf("%s-%d", key, n), Key: key, Action: "ThingDone", Source: "/things", Seq: uint64(n),
		Time: time.Date(2026, 3, 4, 5, 6, 7, 890_000_000, time.UTC),
		Data: json.RawMessage(fmt.Sprintf(`{"key":%q,"n":%d}`, key, n)),
	}
}

// series returns the messages of a key from one number to another, both included.
func series(key string, from, to int) (all []outbox.Message) {
	for n := from; n <= to; n++ {
		all = append(all, message(key, n))
	}
	return all
}

// publish sends messages of a key to a working broker, which must accept all of them.
func (s *suite) publish(p outbox.Publisher, msgs ...outbox.Message) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	if n, err := p.Publish(ctx, msgs); n != len(msgs) || err != nil {
		s.Fatalf("Publish of %d messages of key %.40q: %d, %v", len(msgs), msgs[0].Key, n, err)
	}
}

// publishUntilAccepted publishes as a relay does: after a temporary error it goes on after the prefix. persist calls
// accepted with each prefix, and returns false if patience ends before the last message.
func (s *suite) publishUntilAccepted(p outbox.Publisher, msgs []outbox.Message,
	accepted func(prefix []outbox.Message),
) bool {
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	for {
		n, err := p.Publish(ctx, msgs)
		if !s.isHonest(msgs, n, err) {
			return false
		}
		accepted(msgs[:n])
		if msgs = msgs[n:]; len(msgs) == 0 {
			return true
		}
		if feed.IsPoison(err) {
			s.Errorf("Publish says of a broker that is away that message %s can never be sent: %v", msgs[0].ID, err)
			return false
		}
		if !pause(ctx, retryEvery) {
			s.Errorf("Publish of key %s still fails after %v: %v", msgs[0].Key, patience, err)
			return false
		}
	}
}

const retryEvery = 5 * time.Millisecond

// pause waits, and reports whether it waited for the whole time.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// isHonest checks the rules for every answer of Publish.
func (s *suite) isHonest(msgs []outbox.Message, n int, err error) bool {
	s.Helper()
	if n < 0 || n > len(msgs) || (n < len(msgs)) != (err != nil) {
		s.Errorf("Publish of %d messages: %d, %v", len(msgs), n, err)
		return false
	}
	return true
}

// wantTemporary checks the error of a message that can be sent later.
func (s *suite) wantTemporary(err error) {
	s.Helper()
	if err == nil || feed.IsPoison(err) {
		s.Errorf("error %v, want one that is not Poison", err)
	}
}

// received returns the messages that consumers receive, by key.
func (s *suite) received() map[string][]Received {
	s.Helper()
	byKey := map[string][]Received{}
	for _, r := range s.Received(s.T) {
		byKey[r.Key] = append(byKey[r.Key], r)
	}
	return byKey
}

// wantAll expects exactly these messages, each once and those of each key in their order.
func (s *suite) wantAll(want ...outbox.Message) {
	s.Helper()
	byKey := map[string][]outbox.Message{}
	for _, m := range want {
		byKey[m.Key] = append(byKey[m.Key], m)
	}
	got := s.received()
	for key, msgs := range byKey {
		if g, w := ids(got[key]), idsOf(msgs); !slices.Equal(g, w) {
			s.Errorf("key %.40q: received %s, want %s", key, some(g), some(w))
			continue
		}
		for i, m := range msgs {
			s.wantSame(got[key][i], m)
		}
	}
	for key, msgs := range got {
		if byKey[key] == nil {
			s.Errorf("received %s of key %.60q, of which nothing was published", some(ids(msgs)), key)
		}
	}
}

// wantSame compares a received message with the sent message.
func (s *suite) wantSame(got Received, want outbox.Message) {
	s.Helper()
	if got.Key != want.Key {
		s.Errorf("message %.60q: key %.60q, want %.60q", want.ID, got.Key, want.Key)
	}
	if attributes := maps.Collect(want.CloudEvent()); !maps.Equal(got.Attributes, attributes) {
		s.Errorf("message %.60q: attributes %.600q, want %.600q", want.ID, got.Attributes, attributes)
	}
	if trace := maps.Collect(want.TraceContext()); !maps.Equal(got.Trace, trace) {
		s.Errorf("message %.60q: trace context %.600q, want %.600q", want.ID, got.Trace, trace)
	}
	if got.ContentType != outbox.ContentType {
		s.Errorf("message %.60q: content type %q, want %q", want.ID, got.ContentType, outbox.ContentType)
	}
	if string(got.Data) != string(want.Data) {
		s.Errorf("message %.60q: data %.200q (%d bytes), want %.200q (%d bytes)", want.ID, got.Data, len(got.Data),
			want.Data, len(want.Data))
	}
}

// inOrder expects all of these messages of a key, with their first deliveries in order. A republished message may be
// delivered again, unless the broker recognizes duplicates.
func (s *suite) inOrder(got []Received, want []outbox.Message) {
	s.Helper()
	seen := map[string]bool{}
	var first []string
	for _, id := range ids(got) {
		if !seen[id] {
			first = append(first, id)
		}
		seen[id] = true
	}
	if w := idsOf(want); !slices.Equal(first, w) {
		s.Errorf("received for the first time %s, want %s", some(first), some(w))
	}
	if s.Deduplicates && len(got) != len(first) {
		s.Errorf("received %d messages twice from a broker that de-duplicates", len(got)-len(first))
	}
}

func ids(msgs []Received) (ids []string) {
	for _, m := range msgs {
		ids = append(ids, m.ID)
	}
	return ids
}

func idsOf(msgs []outbox.Message) (ids []string) {
	for _, m := range msgs {
		ids = append(ids, m.ID)
	}
	return ids
}

// some returns the beginning of a list, as far as a reader needs it.
func some(ids []string) string {
	if len(ids) <= 24 {
		return fmt.Sprintf("%.60q", ids)
	}
	return fmt.Sprintf("%.60q … (%d)", ids[:24], len(ids))
}
