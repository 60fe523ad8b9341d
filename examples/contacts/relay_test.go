package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/outboxtest"
)

// topic is a broker that knows no duplicates, and loses some answers.
type topic struct {
	mu    sync.Mutex
	got   []outbox.Message
	calls int
	lose  int // each so manieth answer; 0 is none
}

var errLost = errors.New("connection reset")

func (b *topic) Publish(_ context.Context, msgs []outbox.Message) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = append(b.got, msgs...)
	b.calls++
	if b.lose > 0 && b.calls%b.lose == 0 {
		return 0, errLost
	}
	return len(msgs), nil
}

func (b *topic) messages() []outbox.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.got)
}

// bench is a service and the relays of it, in virtual time.
type bench struct {
	*service
	relays  *relays
	letters feed.LetterBox
	paths   []string // of the contacts
	updates int
}

func newBench(t *testing.T) *bench {
	contacts, container := inStore(t)
	leases, err := docstore.NewLeases(t.Context(), container, processorName, contacts)
	if err != nil {
		t.Fatal(err)
	}
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	box, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{
		ID:    "letters",
		Paths: []string{deadletters.KeyPath},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{service: newService(t, contacts), relays: &relays{source: contacts, leases: leases}}
	if b.letters, err = deadletters.Container(box, processorName, contacts); err != nil {
		t.Fatal(err)
	}
	return b
}

// start starts a relay.
func (b *bench) start(name string, to outbox.Publisher, hooks changefeed.Hooks) *running {
	b.Helper()
	relay, o, err := newRelay(to, b.letters)
	if err != nil {
		b.Fatal(err)
	}
	o.Instance, o.Hooks = name, changefeed.JoinHooks(o.Hooks, hooks)
	return b.relays.start(b, relay, o)
}

// write makes contacts, and then updates all that there are.
func (b *bench) write(contacts, updates int) {
	b.Helper()
	for range contacts {
		path, _ := b.add(ada)
		b.paths = append(b.paths, path)
	}
	for range updates {
		for _, path := range b.paths {
			b.updates++
			b.want(b.do("POST", path+"/update-description", fmt.Sprintf(`{"description":"%d"}`, b.updates)),
				http.StatusNoContent)
		}
	}
}

// events is how many there are.
func (b *bench) total() int { return len(b.paths) + b.updates }

// until waits until a consumer has had all events, and compares what it printed with what was written: each event
// once, those of a contact in their order.
func (b *bench) until(messages func() []outbox.Message) (printed []received) {
	b.Helper()
	for waited := 0; ; waited++ {
		if printed = consumed(b, messages()); len(printed) >= b.total() {
			break
		}
		if waited > 600 {
			b.Errorf("%d events have arrived after %ds, want %d", len(printed), waited, b.total())
			break
		}
		time.Sleep(time.Second)
	}
	last := map[string]uint64{}
	for i, e := range printed {
		if e.Order != int64(i+1) {
			b.Errorf("line %d has the order %d", i+1, e.Order)
		}
		if e.Sequence != last[e.Key]+1 {
			b.Errorf("of %s number %d comes after number %d", e.Key, e.Sequence, last[e.Key])
		}
		last[e.Key] = e.Sequence
	}
	if len(printed) != b.total() || len(last) != len(b.paths) {
		b.Errorf("%d events of %d contacts, want %d of %d", len(printed), len(last), b.total(), len(b.paths))
	}
	b.relays.stop()
	for l, err := range b.letters.Letters(b.Context(), "") {
		b.Errorf("parked: %s %s %s after %d attempts: %s, %v", l.Disposition, l.Change.PartitionKey, l.Change.ID,
			l.Attempts, l.Cause, err)
	}
	return printed
}

// consumed is what a consumer prints of messages.
func consumed(t testing.TB, messages []outbox.Message) (printed []received) {
	t.Helper()
	var lines bytes.Buffer
	c := consumer{to: &lines, asJSON: true, events: newJournal()}
	for _, m := range messages {
		if err := c.handleMessage(m); err != nil {
			t.Fatal(err)
		}
	}
	for d := json.NewDecoder(&lines); d.More(); {
		var e received
		if err := d.Decode(&e); err != nil {
			t.Fatal(err)
		}
		printed = append(printed, e)
	}
	return printed
}

func TestAcceptance5OrderPerContactWithSeveralRelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		to := &topic{lose: 7}
		b.start("a", to, changefeed.Hooks{})
		b.write(20, 2)
		second := b.start("b", to, changefeed.Hooks{}) // gets leases from the first
		b.write(5, 2)
		b.relays.balanced(t, 2)
		b.write(5, 2)
		second.kill() // its leases are left to expire
		b.start("c", to, changefeed.Hooks{})
		b.write(0, 2)
		b.until(to.messages)
		if got := len(to.messages()); got == b.total() {
			t.Error("nothing was published twice, so nothing had to be dropped")
		}

		// A message says all that one to Service Bus says in the sample.
		stored := map[string]feed.Change{}
		for _, path := range b.paths {
			for _, c := range b.documents(path) {
				stored[c.ID] = c
			}
		}
		for _, m := range to.messages() {
			c, ok := stored[m.ID]
			var data struct{ ContactID, Action string }
			if err := json.Unmarshal(m.Data, &data); err != nil || !ok {
				t.Fatalf("message %s: %v, stored: %v", m.ID, err, ok)
			}
			if m.Key != data.ContactID || m.Action != data.Action || m.Source != "/contacts" ||
				!bytes.Contains(c.Body, m.Data) {
				t.Errorf("message %+v of document %s", m, c.Body)
			}
		}
	})
}

func TestAcceptance6AnOutageLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		to := &outboxtest.Memory{}
		b.start("a", to, changefeed.Hooks{})
		b.start("b", to, changefeed.Hooks{})
		b.write(20, 1)
		to.Stop()
		b.write(5, 2)
		time.Sleep(10 * time.Minute) // ten times the expiration of a lease
		b.write(5, 2)
		to.Start()
		printed := b.until(func() []outbox.Message { return messagesOf(t, to) })
		if printed[0].Subject != "ContactCreatedEvent" {
			t.Errorf("the first event is %+v", printed[0])
		}
	})
}

// TestAnOutageThatOneContactSeesParksNothing has too few contacts for a processor to see that it is the broker.
func TestAnOutageThatOneContactSeesParksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		to := &outboxtest.Memory{}
		b.start("a", to, changefeed.Hooks{})
		to.Stop()
		b.write(1, 2)
		time.Sleep(time.Hour)
		to.Start()
		b.until(func() []outbox.Message { return messagesOf(t, to) })
	})
}

// messagesOf are the messages that a broker has.
func messagesOf(t *testing.T, b *outboxtest.Memory) (messages []outbox.Message) {
	t.Helper()
	for _, r := range b.Received() {
		var seq uint64
		if _, err := fmt.Sscan(strings.TrimLeft(r.Attributes["sequence"], "0"), &seq); err != nil {
			t.Fatal(err)
		}
		messages = append(messages, outbox.Message{
			ID: r.ID, Key: r.Key, Action: r.Attributes["type"], Seq: seq,
			Data: r.Data, Time: time.Now(),
		})
	}
	return messages
}

// TestAcceptance6ARelayThatDiesAnywhereLosesNothing has a relay end, like a process, at each point of its work, and
// another one go on.
func TestAcceptance6ARelayThatDiesAnywhereLosesNothing(t *testing.T) {
	for _, point := range []string{
		"before an event is sent", "before its answer comes", "before the checkpoint",
		"after the checkpoint",
	} {
		for n := range 4 {
			t.Run(fmt.Sprintf("%s, after %d times", point, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t)
					to := &topic{}
					var dying *running
					left := n
					var mu sync.Mutex
					begun := make(chan struct{})
					dies := func(at string) bool {
						<-begun
						mu.Lock()
						defer mu.Unlock()
						if at == point {
							if left--; left < 0 {
								dying.kill()
							}
						}
						return dying.killed.Load()
					}
					mortal := publisherFunc(func(ctx context.Context, msgs []outbox.Message) (int, error) {
						if dies("before an event is sent") {
							return 0, errLost
						}
						done, err := to.Publish(ctx, msgs)
						if dies("before its answer comes") {
							return 0, errLost
						}
						return done, err
					})
					dying = b.start("a", mortal, changefeed.Hooks{
						BatchDone: func(context.Context, feed.BatchDone) { dies("before the checkpoint") },
						StoreDone: func(context.Context, feed.StoreDone) { dies("after the checkpoint") },
					})
					close(begun)
					b.write(8, 2)
					<-dying.ended
					b.start("b", to, changefeed.Hooks{})
					b.until(to.messages)
				})
			})
		}
	}
}

// TestAnEventThatCannotBePublishedHoldsItsContact has a broker that takes no large events.
func TestAnEventThatCannotBePublishedHoldsItsContact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		to := &outboxtest.Memory{MaxData: 600}
		b.start("a", to, changefeed.Hooks{})
		b.write(2, 0)
		large := fmt.Sprintf(`{"description":%q}`, strings.Repeat("x", mostDescription))
		b.want(b.do("POST", b.paths[0]+"/update-description", large), http.StatusNoContent)
		b.want(b.do("POST", b.paths[0]+"/update-email", `{"email":"a@b"}`), http.StatusNoContent)
		b.want(b.do("POST", b.paths[1]+"/update-email", `{"email":"a@b"}`), http.StatusNoContent)
		time.Sleep(10 * time.Minute)
		var got []string
		for _, r := range to.Received() {
			got = append(got, root+"/"+r.Key+" "+r.Attributes["type"])
		}
		slices.Sort(got)
		want := []string{b.paths[0] + " ContactCreatedEvent", b.paths[1] + " ContactCreatedEvent", b.paths[1] +
			" ContactEmailUpdatedEvent"}
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		var parked []feed.Disposition
		for l, err := range b.letters.Letters(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			parked = append(parked, l.Disposition)
		}
		if diff := cmp.Diff([]feed.Disposition{feed.DispositionPoison, feed.DispositionHeld}, parked); diff != "" {
			t.Error(diff)
		}
		b.relays.stop()
	})
}

type publisherFunc func(ctx context.Context, msgs []outbox.Message) (int, error)

func (f publisherFunc) Publish(ctx context.Context, msgs []outbox.Message) (int, error) {
	return f(ctx, msgs)
}

func TestAConsumerPrintsEachEventOnce(t *testing.T) {
	m := func(id string) outbox.Message {
		return outbox.Message{ID: id, Key: "k", Action: "A", Seq: 1, Data: []byte("{}"), Time: time.Now()}
	}
	var messages []outbox.Message
	for n := range mostSeen + 2 {
		messages = append(messages, m(fmt.Sprint(n)), m(fmt.Sprint(n)), m(fmt.Sprint(max(0, n-mostSeen+1))))
	}
	if got := len(consumed(t, messages)); got != mostSeen+2 {
		t.Errorf("%d lines, want %d", got, mostSeen+2)
	}
	// An event that could not be printed is not taken for seen.
	closed := consumer{to: brokenPipe{}, events: newJournal()}
	if err := closed.handleMessage(m("1")); !errors.Is(err, errLost) || closed.seen.has("1") {
		t.Errorf("got %v, seen: %v", err, closed.seen.has("1"))
	}
	var text bytes.Buffer
	open := consumer{to: &text, events: newJournal()}
	if err := open.handleMessage(outbox.Message{
		ID: "id-1", Key: "key-1", Action: "ContactCreatedEvent", Seq: 3,
		Data: []byte("{}"), Time: time.Now(),
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"1", "ContactCreatedEvent", "key-1", "#3", "id-1"},
		strings.Fields(text.String())[:5]); diff != "" {
		t.Error(diff)
	}
}

func TestAPageGetsTheEventsThatItHasNotHad(t *testing.T) {
	j := newJournal()
	if events, news := j.eventsAfter(0); len(events) > 0 || news == nil {
		t.Errorf("an empty journal has %v", events)
	}
	for n := range int64(mostEvents + 5) {
		_, news := j.eventsAfter(0)
		j.addEvent(received{Order: n + 1})
		select {
		case <-news:
		default:
			t.Fatal("nobody hears of the event")
		}
	}
	for _, test := range []struct {
		after int64
		want  int
	}{
		{0, mostEvents},
		{mostEvents, 5},
		{mostEvents + 5, 0},
	} {
		events, _ := j.eventsAfter(test.after)
		if len(events) != test.want || len(events) > 0 && events[len(events)-1].Order != mostEvents+5 {
			t.Errorf("after %d there are %d events, want %d", test.after, len(events), test.want)
		}
	}
	j.close()
	j.close()
	j.addEvent(received{Order: mostEvents + 6})
	if events, news := j.eventsAfter(mostEvents + 5); len(events) != 1 || news != nil {
		t.Errorf("a closed journal has %v, %v", events, news)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errLost }
