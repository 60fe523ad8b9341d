package servicebuspub_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/outboxtest"
	"github.com/millrace/changefeed/outbox/servicebuspub"
	"github.com/millrace/changefeed/outbox/servicebuspub/internal/peer"
)

const (
	entity     = "contacts"
	connection = "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=relay;SharedAccessKey=c2VjcmV0"
)

// dialer connects clients to a broker in memory.
type dialer struct {
	broker *peer.Broker
	t      *testing.T
	served sync.WaitGroup
}

// dial is for the test's own network, and for the option of the client.
func (d *dialer) dial() net.Conn {
	near, far := net.Pipe()
	d.served.Go(func() {
		if err := d.broker.ServeConn(far); err != nil {
			d.t.Errorf("ServeConn: %v", err)
		}
	})
	return near
}

func newDialer(t *testing.T, broker *peer.Broker) *dialer {
	d := &dialer{broker: broker, t: t}
	t.Cleanup(d.served.Wait)
	return d
}

// open makes a publisher to a fit queue of the broker.
func open(t *testing.T, dial func(context.Context, azservicebus.NewWebSocketConnArgs) (net.Conn,
	error),
) *servicebuspub.Publisher {
	t.Helper()
	o := settings(pages{"/contacts": queue(true, true)})
	o.Client.NewWebSocketConn = dial
	p, err := servicebuspub.OpenConnectionString(t.Context(), connection, entity, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestConformance(t *testing.T) {
	outboxtest.TestPublisher(t, func(t *testing.T) outboxtest.Broker {
		broker := &peer.Broker{RequiresSession: true, MaxMessage: 64 << 10}
		d := newDialer(t, broker)
		line := outboxtest.NewLine(t)
		return outboxtest.Broker{
			Publisher: func(t *testing.T) outbox.Publisher {
				return open(t, func(context.Context, azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
					return line.Connect(d.dial())
				})
			},
			Received:     func(*testing.T) []outboxtest.Received { return received(broker) },
			Stop:         func(*testing.T) { line.Cut() },
			Stall:        func(*testing.T) { line.Stall() },
			Start:        func(*testing.T) { line.Mend() },
			Fail:         func(_ *testing.T, id string) { broker.Refuse(id, "com.microsoft:server-busy") },
			Misbehave:    misbehaviours(broker),
			MaxData:      60_000,
			MaxText:      128,
			Deduplicates: true,
		}
	})
}

// misbehaviours are the ways of a peer not to accept a message.
func misbehaviours(broker *peer.Broker) map[string]func(*testing.T, string) {
	ways := map[string]func(*testing.T, string){}
	for _, way := range []string{peer.Release, peer.Modify, peer.Reject, peer.Settle, peer.Close} {
		ways[way] = func(_ *testing.T, id string) { broker.Refuse(id, way) }
	}
	return ways
}

// A peer that never accepts a message must have it counted as accepted never.
func TestOnlyTheOutcomeAcceptedIsAnAcceptance(t *testing.T) {
	for _, way := range []string{peer.Release, peer.Modify, peer.Reject, peer.Settle, peer.Close} {
		t.Run(way, func(t *testing.T) {
			broker := &peer.Broker{RequiresSession: true}
			p := start(t, broker)
			msgs := events("c1", 1, 3)
			broker.RefuseAlways(msgs[1].ID, way)
			n, err := p.Publish(t.Context(), msgs)
			if n > 1 || err == nil || feed.IsPoison(err) {
				t.Errorf("Publish of a message that the service has %s: %d accepted, %v; want at most 1 and an error "+
					"that may pass", way, n, err)
			}
			broker.RefuseAlways(msgs[1].ID, "")
			for msgs = msgs[n:]; len(msgs) > 0 && t.Context().Err() == nil; msgs = msgs[n:] {
				if n, err = p.Publish(t.Context(), msgs); n == 0 {
					t.Fatal(err)
				}
			}
			if got := len(broker.Messages(entity)); got != 3 {
				t.Errorf("the service has %d messages, want 3", got)
			}
		})
	}
}

// received is what the queue has accepted.
func received(broker *peer.Broker) (all []outboxtest.Received) {
	for _, m := range broker.Messages(entity) {
		r := outboxtest.Received{
			ID: m.ID, Key: m.SessionID, Attributes: map[string]string{},
			Trace: map[string]string{}, ContentType: m.ContentType, Data: m.Data,
		}
		for name, value := range m.Properties {
			if name, ok := strings.CutPrefix(name, "cloudEvents:"); ok {
				r.Attributes[name], _ = value.(string)
			}
			if strings.HasPrefix(name, "trace") {
				r.Trace[name], _ = value.(string)
			}
		}
		all = append(all, r)
	}
	return all
}

func event(key string, seq int) outbox.Message {
	return outbox.Message{
		ID: fmt.Sprintf("%s/%d", key, seq), Key: key, Action: "ContactCreatedEvent", Source: "/contacts",
		Seq:  uint64(seq),
		Data: fmt.Appendf(nil, `{"n":%d}`, seq),
	}
}

func events(key string, from, to int) (msgs []outbox.Message) {
	for seq := from; seq <= to; seq++ {
		msgs = append(msgs, event(key, seq))
	}
	return msgs
}

func start(t *testing.T, broker *peer.Broker) *servicebuspub.Publisher {
	t.Helper()
	d := newDialer(t, broker)
	p := open(t, func(context.Context, azservicebus.NewWebSocketConnArgs) (net.Conn, error) { return d.dial(), nil })
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return p
}

func TestAMessageHasWhatServiceBusGoesBy(t *testing.T) {
	broker := &peer.Broker{RequiresSession: true}
	if n, err := start(t, broker).Publish(t.Context(), []outbox.Message{event("Oslo", 7)}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	m := broker.Messages(entity)[0]
	if m.ID != "Oslo/7" || m.SessionID != "Oslo" || m.PartitionKey != "Oslo" || m.Subject != "ContactCreatedEvent" ||
		m.ContentType != "application/json" {
		t.Errorf("got %+v", m)
	}
	if m.Properties["cloudEvents:type"] != "ContactCreatedEvent" || string(m.Data) != `{"n":7}` {
		t.Errorf("properties %v, data %s", m.Properties, m.Data)
	}
}

// A batch that is refused for one of its messages says nothing of the others.
func TestAMessageThatIsNeverTakenIsPoisonByItself(t *testing.T) {
	for _, condition := range []string{
		"amqp:link:message-size-exceeded", "amqp:decode-error", "amqp:invalid-field", "com.microsoft:argument-error",
		"com.microsoft:argument-out-of-range",
	} {
		broker := &peer.Broker{RequiresSession: true}
		p := start(t, broker)
		msgs := events("Oslo", 1, 9)
		broker.RefuseAlways("Oslo/4", condition)
		n, err := p.Publish(t.Context(), msgs)
		if n != 3 || !feed.IsPoison(err) || errors.Is(err,
			outbox.ErrTooLarge) != (condition == "amqp:link:message-size-exceeded") {
			t.Errorf("%s: %d, %v", condition, n, err)
		}
		if n, err = p.Publish(t.Context(), msgs[4:]); n != 5 || err != nil {
			t.Errorf("after it: %d, %v", n, err)
		}
		if got := len(broker.Messages(entity)); got != 8 {
			t.Errorf("%d messages", got)
		}
	}
}

// As on Premium, which takes messages of up to 100 MB one by one.
func TestAMessageThatIsLargerThanABatchIsSentByItself(t *testing.T) {
	broker := &peer.Broker{RequiresSession: true, MaxMessage: 1 << 20, MaxBatch: 64 << 10}
	msgs := events("Oslo", 1, 3)
	msgs[1].Data = fmt.Appendf(nil, "%q", strings.Repeat("x", 200<<10))
	if n, err := start(t, broker).Publish(t.Context(), msgs); n != 3 || err != nil {
		t.Errorf("%d of 3 are published, %v", n, err)
	}
	got := broker.Messages(entity)
	if len(got) != 3 || got[1].ID != msgs[1].ID {
		t.Errorf("the entity has %d messages, want 3 in their order", len(got))
	}
}

// As when a process ends while its relay is at work.
func TestAPublisherIsClosedWhileItPublishes(t *testing.T) {
	p := start(t, &peer.Broker{RequiresSession: true})
	var publishing sync.WaitGroup
	for n := range 8 {
		publishing.Go(func() {
			for {
				if _, err := p.Publish(t.Context(), events(fmt.Sprint("k", n), 1, 2)); err != nil {
					return
				}
			}
		})
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	publishing.Wait()
	if n, err := p.Publish(t.Context(), events("k", 1, 1)); n != 0 || err == nil ||
		!strings.Contains(err.Error(), "publisher is closed") {
		t.Errorf("afterwards %d, %v", n, err)
	}
}

func TestWhatMayPassIsNoPoison(t *testing.T) {
	for _, condition := range []string{
		"com.microsoft:server-busy", "com.microsoft:timeout", "amqp:unauthorized-access", "amqp:not-allowed",
		"amqp:resource-limit-exceeded",
		"com.microsoft:entity-disabled", "amqp:internal-error", "amqp:not-found", "com.example:unknown",
	} {
		broker := &peer.Broker{RequiresSession: true}
		p := start(t, broker)
		broker.RefuseAlways("Oslo/1", condition)
		if n, err := p.Publish(t.Context(), events("Oslo", 1, 3)); n != 0 || err == nil || feed.IsPoison(err) {
			t.Errorf("%s: %d, %v", condition, n, err)
		}
		broker.RefuseAlways("Oslo/1", "")
		if n, err := p.Publish(t.Context(), events("Oslo", 1, 3)); n != 3 || err != nil {
			t.Errorf("after %s: %d, %v", condition, n, err)
		}
	}
}

func TestAnIDOrAKeyHasAtMost128Characters(t *testing.T) {
	broker := &peer.Broker{RequiresSession: true}
	p := start(t, broker)
	long := strings.Repeat("😀", 64) // of two units each, as the service counts
	for _, c := range []struct {
		id, key string
		taken   bool
	}{{long, long, true}, {long + "x", "k", false}, {"1", long + "x", false}} {
		m := event("", 1)
		m.ID, m.Key = c.id, c.key
		n, err := p.Publish(t.Context(), []outbox.Message{m})
		if c.taken != (err == nil) || feed.IsPoison(err) == c.taken || c.taken != (n == 1) {
			t.Errorf("id of %d and key of %d bytes: %d, %v", len(c.id), len(c.key), n, err)
		}
	}
	if ids := len(broker.Messages(entity)); ids != 1 {
		t.Errorf("%d messages", ids)
	}
}

// stuckConn is a connection that takes nothing while it is stuck.
type stuckConn struct {
	net.Conn
	stuck *atomic.Bool
	goOn  <-chan struct{}
}

func (c stuckConn) Write(b []byte) (int, error) {
	if c.stuck.Load() {
		<-c.goOn
	}
	return c.Conn.Write(b)
}

func TestACallEndsWithItsContextThoughTheConnectionIsStuck(t *testing.T) {
	d := newDialer(t, &peer.Broker{RequiresSession: true})
	var stuck atomic.Bool
	goOn := make(chan struct{})
	p := open(t, func(context.Context, azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
		return stuckConn{d.dial(), &stuck, goOn}, nil
	})
	if n, err := p.Publish(t.Context(), events("Oslo", 1, 1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	stuck.Store(true)
	patience := time.AfterFunc(5*time.Second, func() { close(goOn) })
	gone := errors.New("gone")
	ctx, stop := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, gone)
	defer stop()
	if n, err := p.Publish(ctx, events("Oslo", 2, 3)); n != 0 || !errors.Is(err, gone) {
		t.Errorf("%d, %v", n, err)
	}
	if patience.Stop() {
		close(goOn)
	} else {
		t.Error("Publish took as long as the connection was stuck")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
