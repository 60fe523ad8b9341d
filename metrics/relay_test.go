package metrics_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
)

// broker accepts messages, of which it refuses those from the second on at first. The context of its calls is that of
// the hooks of others.
type broker struct{ calls, outside int }

type ofOthers struct{}

func (b *broker) Publish(ctx context.Context, msgs []outbox.Message) (int, error) {
	time.Sleep(250 * time.Millisecond)
	if ctx.Value(ofOthers{}) == nil {
		b.outside++
	}
	if b.calls++; b.calls == 1 {
		return 1, feed.ErrThrottled
	}
	return len(msgs), nil
}

// A relay counts what the broker accepts and what it refuses, and the hooks of others are called too.
func TestARelayHasMetrics(t *testing.T) {
	inWorld(t, func(w *world) {
		for i := range 3 {
			w.put("oslo", fmt.Sprint(i),
				fmt.Sprintf(`,"partitionKey":"oslo","type":"domainEvent","seq":%d,"data":{"action":"Renamed"}`, i+1))
		}
		var others []int
		publisher := &broker{}
		relay, err := outbox.NewRelay(publisher, outbox.RelayOptions{Source: "/orders", Hooks: w.m.RelayHooks(
			outbox.RelayHooks{
				Publishing: func(ctx context.Context, msgs []outbox.Message) (context.Context, func(int, error)) {
					return context.WithValue(ctx, ofOthers{}, true), func(n int, _ error) { others = append(others, n) }
				},
			})})
		w.check(err)
		stopObserving, err := w.m.ObserveRelay(relay)
		w.check(err)
		if got := w.value("changefeed.outbox.lag", ""); got != "" {
			t.Errorf("before the first event the lag is %s", got)
		}
		time.Sleep(10 * time.Second)
		silent := changefeed.Hooks{Error: func(context.Context, *feed.Error) {}}
		_, stop := w.run(relay, changefeed.Options{Hooks: silent})
		time.Sleep(time.Minute)
		for _, c := range []struct{ name, of, want string }{
			{"changefeed.outbox.waiting", "", "0"},
			{"changefeed.outbox.oldest", "", "0"},
			{"messaging.client.operation.duration", "{error.type=throttled", "1 times, 0.25"},
			{"messaging.client.operation.duration", "{messaging", "1 times, 0.25"},
			{"messaging.client.sent.messages", "{error.type=throttled", "2"},
			{"messaging.client.sent.messages", "{messaging", "3"},
		} {
			if got := w.value(c.name, c.of); got != c.want {
				t.Errorf("%s %s is %q, want %q", c.name, c.of, got, c.want)
			}
		}
		var lag float64
		if _, err := fmt.Sscan(w.value("changefeed.outbox.lag", ""), &lag); err != nil || lag < 10.5 || lag > 15 {
			t.Errorf("the lag is %v s, %v, want 10.5 s and the pause before the retry", lag, err)
		}
		if !slices.Equal(others, []int{1, 2}) {
			t.Errorf("the hook of others was told of %v", others)
		}
		if publisher.outside > 0 {
			t.Errorf("%d of %d calls have lost the context of the hook of others", publisher.outside, publisher.calls)
		}
		stop()
		w.check(stopObserving())
		if got := w.value("changefeed.outbox.waiting", ""); got != "" {
			t.Errorf("a relay that is no longer observed has %s", got)
		}
	})
}

// closedBroker accepts nothing.
type closedBroker struct{}

func (closedBroker) Publish(context.Context, []outbox.Message) (int, error) {
	return 0, feed.ErrForbidden
}

// While a broker refuses an event, its age grows, and the time until it expires falls.
func TestAWaitingEventHasAnAgeAndAnEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put("oslo", "1",
			`,"partitionKey":"oslo","type":"domainEvent","seq":1,"data":{"action":"Renamed"},"ttl":600`)
		relay, err := outbox.NewRelay(closedBroker{}, outbox.RelayOptions{Source: "/orders"})
		w.check(err)
		stopObserving, err := w.m.ObserveRelay(relay)
		w.check(err)
		if got := w.value("changefeed.outbox.expires", ""); got != "" {
			t.Errorf("before the first event one expires in %s s", got)
		}
		silent := changefeed.Hooks{Error: func(context.Context, *feed.Error) {}}
		_, stop := w.run(relay, changefeed.Options{Hooks: silent})
		time.Sleep(time.Minute)
		for name, want := range map[string]string{"waiting": "1", "oldest": "60", "expires": "540"} {
			if got := w.value("changefeed.outbox."+name, ""); got != want {
				t.Errorf("changefeed.outbox.%s is %q, want %q", name, got, want)
			}
		}
		stop()
		w.check(stopObserving())
	})
}
