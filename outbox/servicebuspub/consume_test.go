package servicebuspub_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"

	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/servicebuspub"
	"github.com/millrace/changefeed/outbox/servicebuspub/internal/peer"
)

// consuming makes a consumer of the broker's queue.
func consuming(t *testing.T, broker *peer.Broker, sessions int) servicebuspub.Consumer {
	t.Helper()
	d := newDialer(t, broker)
	client, err := azservicebus.NewClientFromConnectionString(connection, &azservicebus.ClientOptions{
		NewWebSocketConn: func(context.Context, azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			return d.dial(), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return servicebuspub.Consumer{Client: client, Entity: entity, Sessions: sessions}
}

// consumed has what a consumer was handed, until there is enough.
type consumed struct {
	mu   sync.Mutex
	got  map[string][]string // by key
	left int
	stop func()
}

func (c *consumed) handle(_ context.Context, m outbox.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got[m.Key] = append(c.got[m.Key], m.ID)
	if c.left--; c.left == 0 {
		c.stop()
	}
	return nil
}

func TestEventsOfEachKeyAreConsumedInOrder(t *testing.T) {
	for _, sessions := range []int{0, 4} {
		broker := &peer.Broker{RequiresSession: true}
		publisher := start(t, broker)
		want := map[string][]string{}
		for n := range 20 {
			key := fmt.Sprint("k", n)
			msgs := events(key, 1, 10)
			if n%2 == 0 { // the others are sent while the consumer is at work
				if n, err := publisher.Publish(t.Context(), msgs); n != 10 || err != nil {
					t.Fatal(n, err)
				}
			}
			for _, m := range msgs {
				want[key] = append(want[key], m.ID)
			}
		}
		ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
		all := &consumed{got: map[string][]string{}, left: 200, stop: stop}
		consumer := consuming(t, broker, sessions)
		var publishing sync.WaitGroup
		publishing.Go(func() {
			for n := 1; n < 20; n += 2 {
				_, _ = publisher.Publish(ctx, events(fmt.Sprint("k", n), 1, 10))
			}
		})
		if err := consumer.Run(ctx, all.handle); err != nil {
			t.Error(err)
		}
		publishing.Wait()
		if diff := cmp.Diff(want, all.got); diff != "" {
			t.Errorf("%d sessions at once: %s", sessions, diff)
		}
		if n := broker.Left(entity); n != 0 {
			t.Errorf("%d sessions at once: %d events are not completed", sessions, n)
		}
		stop()
	}
}

func TestAnEventThatFailsComesAgainBeforeTheLaterOnes(t *testing.T) {
	broker := &peer.Broker{RequiresSession: true}
	if n, err := start(t, broker).Publish(t.Context(), events("Oslo", 1, 5)); n != 5 || err != nil {
		t.Fatal(n, err)
	}
	refused := errors.New("no room")
	var got []string
	trying, end := context.WithTimeout(t.Context(), 10*time.Second)
	defer end()
	err := consuming(t, broker, 2).Run(trying, func(_ context.Context, m outbox.Message) error {
		got = append(got, m.ID)
		if m.Seq == 3 {
			return refused
		}
		return nil
	})
	if !errors.Is(err, refused) || trying.Err() != nil {
		t.Errorf("got %v, want the error of the function, which ends the other sessions", err)
	}
	// The other reader may have the session, and try the event once more, before it hears that the first one has ended.
	if want := []string{"Oslo/1", "Oslo/2", "Oslo/3"}; !slices.Equal(slices.Compact(got), want) ||
		broker.Left(entity) != 3 {
		t.Errorf("consumed %v, %d are left", got, broker.Left(entity))
	}
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	again := &consumed{got: map[string][]string{}, left: 3, stop: stop}
	if err := consuming(t, broker, 1).Run(ctx, again.handle); err != nil {
		t.Error(err)
	}
	if want := []string{"Oslo/3", "Oslo/4", "Oslo/5"}; !slices.Equal(again.got["Oslo"], want) {
		t.Errorf("then %v, want %v", again.got["Oslo"], want)
	}
}

// A failure ends the sessions of the other readers, too. The event fails once, or each of them would end by itself.
func TestAFailureEndsAllReaders(t *testing.T) {
	broker := &peer.Broker{RequiresSession: true}
	if n, err := start(t, broker).Publish(t.Context(), events("Oslo", 1, 1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	refused := errors.New("no room")
	var failed atomic.Bool
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	err := consuming(t, broker, 2).Run(ctx, func(context.Context, outbox.Message) error {
		if failed.CompareAndSwap(false, true) {
			return refused
		}
		return nil
	})
	if !errors.Is(err, refused) || ctx.Err() != nil {
		t.Errorf("got %v, %v, want the error of the function, at once", err, ctx.Err())
	}
}

func TestAMessageIsTheEventThatItWas(t *testing.T) {
	broker := &peer.Broker{RequiresSession: true}
	sent := event("Oslo é", 7)
	sent.Time, sent.TraceParent = time.Date(2026, 11, 23, 1, 2, 3, 4000, time.UTC),
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	if n, err := start(t, broker).Publish(t.Context(), []outbox.Message{sent}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	var got outbox.Message
	if err := consuming(t, broker, 1).Run(ctx, func(_ context.Context, m outbox.Message) error {
		got = m
		stop()
		return nil
	}); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(sent, got); diff != "" {
		t.Error(diff)
	}
}

func TestAMessageThatIsNoEventIsADeadLetter(t *testing.T) {
	broker := &peer.Broker{RequiresSession: true}
	consumer := consuming(t, broker, 1)
	sender, err := consumer.Client.NewSender(entity, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sender.SendMessage(t.Context(), &azservicebus.Message{
		MessageID: new("x"), SessionID: new("Oslo"),
		Body: []byte("hello"),
	}, nil); err != nil {
		t.Fatal(err)
	}
	if n, err := start(t, broker).Publish(t.Context(), events("Oslo", 1, 1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	all := &consumed{got: map[string][]string{}, left: 1, stop: stop}
	if err := consumer.Run(ctx, all.handle); err != nil {
		t.Error(err)
	}
	if want := []string{"x"}; len(all.got["Oslo"]) != 1 || !slices.Equal(broker.DeadLetters(entity), want) {
		t.Errorf("consumed %v, dead letters %v, want %v", all.got, broker.DeadLetters(entity), want)
	}
}

func TestARefusalEndsTheConsumer(t *testing.T) {
	consumer := consuming(t, &peer.Broker{RequiresSession: true}, 2)
	if err := consumer.Client.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	if err := consumer.Run(ctx, func(context.Context, outbox.Message) error { return nil }); err == nil {
		t.Error("consumer of a client that is closed returns no error")
	}
}
