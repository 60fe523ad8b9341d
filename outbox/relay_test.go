package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
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
)

// broker is a topic in memory, which drops duplicates if it is told to.
type broker struct {
	mu     sync.Mutex
	unique bool
	got    []outbox.Message
	fail   func(calls int, m outbox.Message) error // before a message is taken
	lose   func(calls int) bool                    // the answer to a call
	calls  int
}

var errDown = errors.New("broker is down")

func (b *broker) Publish(ctx context.Context, msgs []outbox.Message) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	for i, m := range msgs {
		if b.fail != nil {
			if err := b.fail(b.calls, m); err != nil {
				return i, err
			}
		}
		if !b.unique || !slices.ContainsFunc(b.got, func(old outbox.Message) bool { return old.ID == m.ID }) {
			b.got = append(b.got, m)
		}
	}
	if b.lose != nil && b.lose(b.calls) {
		return 0, errLost
	}
	return len(msgs), nil
}

func (b *broker) messages() []outbox.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.got)
}

// actions are what a consumer sees of a key: action and number.
func (b *broker) actions(key string) (seen []string) {
	for _, m := range b.messages() {
		if m.Key == key {
			seen = append(seen, fmt.Sprint(m.Action, m.Seq))
		}
	}
	return seen
}

// relaying runs a processor with a relay until its source has nothing left, in virtual time.
func relaying(t *testing.T, contacts, leases *docstore.Container, r *outbox.Relay, o changefeed.Options,
	until func() bool,
) {
	t.Helper()
	store, err := docstore.NewLeases(t.Context(), leases, "relay", contacts)
	if err != nil {
		t.Fatal(err)
	}
	o.Start = feed.FromBeginning()
	o.Hooks.Error = func(context.Context, *feed.Error) {}
	p, err := changefeed.New(contacts, store, r, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	for range 1000 {
		if until() {
			break
		}
		time.Sleep(time.Second)
	}
	if !until() {
		t.Errorf("does not come to its end: %+v", r.Status())
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func newRelay(t *testing.T, to outbox.Publisher, o outbox.RelayOptions) *outbox.Relay {
	t.Helper()
	r, err := outbox.NewRelay(to, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// rename commits renamings of a contact, and returns what a consumer should see of it.
func rename(t *testing.T, contacts *docstore.Container, id string, times int) (want []string) {
	t.Helper()
	return renameFor(t, contacts, id, times, 0)
}

// renameFor is rename with events of another time to live, the first one excepted.
func renameFor(t *testing.T, contacts *docstore.Container, id string, times int, ttl time.Duration) (want []string) {
	t.Helper()
	d := add(t, contacts, id, "A")
	want = []string{"ContactCreatedEvent1"}
	for i := range times {
		d.Data.describe(fmt.Sprint("d", i))
		d.Data.rename(fmt.Sprint("n", i))
		u := outbox.NewUnit(contacts, outbox.Options{EventTTL: ttl})
		u.Replace(d)
		if err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprint("ContactDescriptionUpdatedEvent", 2*i+2),
			fmt.Sprint("ContactNameUpdatedEvent", 2*i+3))
	}
	return want
}

func TestEventsArePublishedInOrderAndByteForByte(t *testing.T) {
	for _, concurrency := range []int{1, 8} {
		t.Run(fmt.Sprint("concurrency ", concurrency), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				contacts, leases := open(t)
				want := map[string][]string{}
				for i := range 20 {
					id := fmt.Sprint("c", i)
					want[id] = rename(t, contacts, id, 3)
				}
				to := &broker{}
				relaying(t, contacts, leases, newRelay(t, to, outbox.RelayOptions{Source: "/contacts"}),
					changefeed.Options{Concurrency: concurrency, MaxItems: 7}, func() bool {
						return len(to.messages()) == 20*7
					})
				for id, actions := range want {
					if diff := cmp.Diff(actions, to.actions(id)); diff != "" {
						t.Errorf("%s: %s", id, diff)
					}
				}
				m := to.messages()[0]
				item, err := contacts.Item(t.Context(), feed.Key(m.Key), m.ID)
				if err != nil {
					t.Fatal(err)
				}
				var doc struct{ Data json.RawMessage }
				if err := json.Unmarshal(item.Body, &doc); err != nil {
					t.Fatal(err)
				}
				if string(m.Data) != string(doc.Data) || m.Source != "/contacts" || m.Time.IsZero() {
					t.Errorf("message %+v of %s", m, item.Body)
				}
			})
		})
	}
}

func TestWhatIsNoEventIsNotPublished(t *testing.T) {
	decode := outbox.EventsOfType(outbox.EventType)
	for _, body := range []string{
		`{"id":"1","type":"contact","data":{"action":"x"}}`,
		`{"id":"1","data":{"action":"x"}}`,
		`{"id":"1"}`,
	} {
		if m, ok, err := decode(&feed.Change{Body: []byte(body)}); ok || err != nil {
			t.Errorf("%s is taken for the event %+v, %v", body, m, err)
		}
	}
	event := []byte(`{"id":"1","type":"domainEvent","data":{"action":"x"}}`)
	if _, ok, err := decode(&feed.Change{Op: feed.OpDelete, Body: event}); ok || err != nil {
		t.Errorf("a delete is taken for an event, %v", err)
	}
	for body, want := range map[string]string{
		`{"id":"1","type":"domainEvent"}`:                                 "no data:",
		`{"id":"1","type":"domainEvent","data":{}}`:                       "no data.action",
		`{"id":"1","type":"domainEvent","data":7}`:                        "no data.action",
		`{"id":"1","type":"domainEvent","data":{"action":7}}`:             "no data.action",
		`{"id":"1","type":"domainEvent","seq":"x","data":{"action":"a"}}`: `seq is "x"`,
		`{"id":"1","type":"domainEvent","seq":-1,"data":{"action":"a"}}`:  `seq is -1`,
	} {
		if _, ok, err := decode(&feed.Change{Body: []byte(body)}); !ok || err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %t, %v: want an event that cannot be read", body, ok, err)
		}
	}
}

func TestTheSamplesEventsAreRead(t *testing.T) {
	body := `{"id":"2f2c","partitionKey":"c1","type":"domainEvent","data":{"name":{"firstName":"A"},"contactId":"c1","action":"ContactNameUpdatedEvent","id":"2f2c","createdAt":"2026-01-02T03:04:05.1234567Z"},"ttl":120,"_etag":"x"}`
	m, ok, err := outbox.EventsOfType("domainEvent")(&feed.Change{
		ID: "2f2c", PartitionKey: feed.Key("c1"),
		Body: []byte(body),
	})
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	if m.ID != "2f2c" || m.Key != "c1" || m.Action != "ContactNameUpdatedEvent" ||
		m.Time.UTC().Format(time.RFC3339Nano) != "2026-01-02T03:04:05.1234567Z" {
		t.Errorf("got %+v", m)
	}
}

func TestABrokerThatIsDownLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, leases := open(t)
		want := map[string][]string{}
		for i := range 10 {
			id := fmt.Sprint("c", i)
			want[id] = rename(t, contacts, id, 3)
		}
		begun := time.Now()
		to := &broker{unique: true, lose: func(int) bool {
			return rand.IntN(5) == 0
		}, fail: func(_ int, _ outbox.Message) error {
			if time.Since(begun) < 5*time.Minute { // longer than a lease lasts
				return errDown
			}
			return nil
		}}
		r := newRelay(t, to, outbox.RelayOptions{})
		seen := false
		relaying(t, contacts, leases, r, changefeed.Options{
			Concurrency: 4,
			OnFailure:   changefeed.FailurePolicy{MaxAttempts: 20, DeadLetters: refusing{t}},
		}, func() bool {
			s := r.Status()
			seen = seen || s.Err != nil && s.Waiting > 0 && time.Since(s.Oldest) > time.Minute
			return len(to.messages()) == 70 && s.Waiting == 0
		})
		if !seen {
			t.Error("the status has not shown the outage")
		}
		for id, actions := range want {
			if diff := cmp.Diff(actions, to.actions(id)); diff != "" {
				t.Errorf("%s: %s", id, diff)
			}
		}
		if s := r.Status(); s.Err != nil || s.Waiting != 0 || s.Lag < 4*time.Minute {
			t.Errorf("after the outage: %+v", s)
		}
	})
}

// refusing is a sink of dead letters that must stay empty.
type refusing struct{ t *testing.T }

func (r refusing) Put(_ context.Context, l feed.DeadLetter) error {
	r.t.Errorf("%s was parked: %s", l.Change.ID, l.Cause)
	return nil
}

func TestAnEventThatCannotBePublishedIsParked(t *testing.T) {
	for _, hold := range []bool{false, true} {
		for _, concurrency := range []int{1, 4} {
			t.Run(fmt.Sprintf("hold %t, concurrency %d", hold, concurrency), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					contacts, leases := open(t)
					for i := range 5 {
						rename(t, contacts, fmt.Sprint("c", i), 3)
					}
					to := &broker{fail: func(_ int, m outbox.Message) error {
						if m.Key == "c2" && m.Seq == 3 {
							return feed.Poison(outbox.ErrTooLarge)
						}
						return nil
					}}
					box := letterBox(t)
					want := 5*7 - 1
					if hold {
						want = 4*7 + 2
					}
					r := newRelay(t, to, outbox.RelayOptions{})
					relaying(t, contacts, leases, r, changefeed.Options{
						Concurrency: concurrency, OnFailure: changefeed.FailurePolicy{
							MaxAttempts: 2, DeadLetters: box,
							HoldKeys: hold,
						},
					}, func() bool { return len(to.messages()) == want && r.Status().Waiting == 0 })
					wantOf := []string{"ContactCreatedEvent1", "ContactDescriptionUpdatedEvent2"}
					if !hold {
						wantOf = append(wantOf, "ContactDescriptionUpdatedEvent4", "ContactNameUpdatedEvent5",
							"ContactDescriptionUpdatedEvent6", "ContactNameUpdatedEvent7")
					}
					if diff := cmp.Diff(wantOf, to.actions("c2")); diff != "" {
						t.Error(diff)
					}
					for l, err := range box.Letters(t.Context(), feed.Key("c2")) {
						if err != nil {
							t.Fatal(err)
						}
						if l.Disposition != feed.DispositionHeld && (l.Disposition != feed.DispositionPoison ||
							!strings.Contains(l.Cause, "too large")) {
							t.Errorf("parked as %s because of %q", l.Disposition, l.Cause)
						}
					}
				})
			})
		}
	}
}

func TestARelayNeedsItsEventsAlone(t *testing.T) {
	needs := newRelay(t, &broker{}, outbox.RelayOptions{}).Needs()
	if needs.Start != feed.FromBeginning() || needs.Concurrency != 64 || needs.InOrder {
		t.Errorf("needs %+v", needs)
	}
	for _, test := range []struct {
		c    feed.Change
		want bool
	}{
		{feed.Change{ID: "1", Body: []byte(`{"type":"domainEvent","data":{"action":"a"}}`)}, true},
		{feed.Change{ID: "1", Body: []byte(`{}`)}, false},
	} {
		if got := needs.Filter(&test.c); got != test.want {
			t.Errorf("%s %s is filtered as %v, want %v", test.c.ID, test.c.Body, got, test.want)
		}
	}
}

// A decoder that cannot tell of a change whether it is an event says why.
func TestAChangeThatADecoderCannotReadIsAnEvent(t *testing.T) {
	unread := errors.New("unread")
	for name, decode := range map[string]outbox.Decoder{
		"error": func(*feed.Change) (outbox.Message, bool, error) { return outbox.Message{}, false, unread },
		"panic": func(*feed.Change) (outbox.Message, bool, error) { panic(unread) },
	} {
		r := newRelay(t, &broker{}, outbox.RelayOptions{Decode: decode})
		c := feed.Change{ID: "1", PartitionKey: feed.Key("k")}
		if !r.Needs().Filter(&c) {
			t.Errorf("%s: the change does not reach the relay", name)
		}
		if name == "panic" { // which the processor reports
			continue
		}
		err := r.Handle(t.Context(), &feed.Batch{Changes: []feed.Change{c}})
		if !feed.IsPoison(err) || !errors.Is(err, unread) {
			t.Errorf("%s: got %v, want it as Poison", name, err)
		}
		if s := r.Status(); s.Waiting != 1 {
			t.Errorf("%s: %d keys wait", name, s.Waiting)
		}
	}
}

// eventOf is an event as the feed has it, of now.
func eventOf(key, id string, lsn int64, members string) feed.Change {
	return feed.Change{
		ID: id, PartitionKey: feed.Key(key), LSN: lsn, Time: time.Now(),
		Body: fmt.Appendf(nil, `{"id":%q,"type":"domainEvent",%s"data":{"action":"a"}}`, id, members),
	}
}

func TestAMessageKeepsTheSourceOfItsDecoder(t *testing.T) {
	to := &broker{}
	r := newRelay(t, to, outbox.RelayOptions{Source: "/default", Decode: func(c *feed.Change) (outbox.Message, bool,
		error,
	) {
		return outbox.Message{ID: c.ID, Source: map[string]string{"1": "/own"}[c.ID]}, true, nil
	}})
	if err := r.Handle(t.Context(), &feed.Batch{Changes: []feed.Change{
		{ID: "1", LSN: 1},
		{ID: "2", LSN: 2},
	}}); err != nil {
		t.Fatal(err)
	}
	if got := to.messages(); got[0].Source != "/own" || got[1].Source != "/default" {
		t.Errorf("the sources are %q and %q", got[0].Source, got[1].Source)
	}
}

func TestThePauseIsTheLongestThatABrokerAsksFor(t *testing.T) {
	pauses := map[string]time.Duration{"a": 5 * time.Second, "b": 20 * time.Second, "c": 10 * time.Second}
	r := newRelay(t, publisherFunc(func(_ context.Context, msgs []outbox.Message) (int, error) {
		return 0, &feed.Failure{After: pauses[msgs[0].Key], Err: outbox.ErrRefused}
	}), outbox.RelayOptions{})
	err := r.Handle(t.Context(), &feed.Batch{Changes: []feed.Change{
		eventOf("a", "1", 1, ""), eventOf("b", "2", 2, ""),
		eventOf("c", "3", 3, ""),
	}})
	if failure, ok := errors.AsType[*feed.Failure](err); !ok || failure.After != 20*time.Second || failure.Outage {
		t.Errorf("got %+v, want a pause of 20 s and no outage", err)
	}
}

// Its mark is lost, and with it the time to live of an event that is stored for ever.
func TestAnEventWhoseMarkFailedComesAgainThoughTheNextWasRefused(t *testing.T) {
	store := committerFunc(func(context.Context, feed.PartitionKey, []feed.Write) ([]feed.Result, error) {
		return nil, errLost
	})
	to := &broker{fail: func(_ int, m outbox.Message) error {
		if m.ID == "2" {
			return outbox.ErrRefused
		}
		return nil
	}}
	r := newRelay(t, to, outbox.RelayOptions{Container: store, ExpireAfter: time.Hour})
	err := r.Handle(t.Context(), &feed.Batch{Changes: []feed.Change{
		eventOf("a", "1", 1, ""),
		eventOf("a", "2", 2, ""),
	}})
	if failure, ok := errors.AsType[*feed.Failure](err); !ok || !errors.Is(err, errLost) || failure.Items != nil &&
		failure.Items[0] == nil {
		t.Errorf("got %+v, want that both events come again", err)
	}
}

// A mark makes an event larger, and some have no room for it. They are published, and not to be published again.
func TestAnEventWithoutRoomForItsMarkIsDone(t *testing.T) {
	var marked []string
	store := committerFunc(func(_ context.Context, _ feed.PartitionKey, writes []feed.Write) ([]feed.Result, error) {
		if i := slices.IndexFunc(writes, func(w feed.Write) bool { return w.ID == "full" }); i >= 0 {
			return nil, &feed.WriteError{Index: i, Write: writes[i], Err: feed.ErrBadRequest}
		}
		for _, w := range writes {
			marked = append(marked, w.ID)
		}
		return nil, nil
	})
	r := newRelay(t, &broker{}, outbox.RelayOptions{Container: store, ExpireAfter: time.Hour})
	changes := []feed.Change{eventOf("a", "1", 1, ""), eventOf("a", "full", 2, ""), eventOf("a", "3", 3, "")}
	if err := r.Handle(t.Context(), &feed.Batch{Changes: changes}); err != nil {
		t.Errorf("an event that cannot be marked comes again: %v", err)
	}
	if diff := cmp.Diff([]string{"1", "3"}, marked); diff != "" {
		t.Error(diff)
	}
}

func TestTheLagIsThatOfTheLastEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := eventOf("a", "1", 1, "")
		time.Sleep(time.Hour)
		second := eventOf("a", "2", 2, "")
		time.Sleep(time.Second)
		r := newRelay(t, &broker{}, outbox.RelayOptions{})
		if err := r.Handle(t.Context(), &feed.Batch{Changes: []feed.Change{first, second}}); err != nil {
			t.Fatal(err)
		}
		if lag := r.Status().Lag; lag != time.Second {
			t.Errorf("the lag is %v, want that of the event of a second ago", lag)
		}
	})
}

func TestTheStatusSaysWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRelay(t, publisherFunc(func(context.Context, []outbox.Message) (int, error) {
			return 0, outbox.ErrRefused
		}), outbox.RelayOptions{})
		oldest := time.Now()
		given := &feed.Batch{LeaseToken: "given"}
		for n := range 20 {
			given.Changes = append(given.Changes, eventOf(fmt.Sprint("k", n), fmt.Sprint(n), int64(n+1), ""))
			time.Sleep(time.Second)
		}
		kept := &feed.Batch{LeaseToken: "kept", Changes: []feed.Change{eventOf("l", "l", 30, `"ttl":60,`)}}
		expires := time.Now().Add(time.Minute)
		time.Sleep(time.Second)
		for _, b := range []*feed.Batch{given, kept} {
			if err := r.Handle(t.Context(), b); err == nil {
				t.Error("everything was refused, and there is no error")
			}
		}
		for range 20 { // keys are looked at in any order
			if s := r.Status(); s.Waiting != 21 || !s.Oldest.Equal(oldest) || !s.Expires.Equal(expires) {
				t.Fatalf("%d keys wait, since %v until %v; want 21 since %v until %v", s.Waiting, s.Oldest, s.Expires,
					oldest, expires)
			}
		}
		if err := r.Close(t.Context(), feed.Lease{Token: "given"}, feed.ReasonGiven); err != nil {
			t.Fatal(err)
		}
		if s := r.Status(); s.Waiting != 1 || !s.Expires.Equal(expires) {
			t.Errorf("after one lease was given %d keys wait, until %v; want that of the other lease", s.Waiting,
				s.Expires)
		}
	})
}

// The object is committed later than its event was recorded, which is when its time to live begins.
func TestTheAlarmIsOfTheEventThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorded := time.Now().UTC().Format(time.RFC3339)
		time.Sleep(time.Hour)
		var changes []feed.Change
		for n := range 3 {
			c := eventOf("a", fmt.Sprint(n), int64(n+1), `"ttl":600,`)
			c.Body = []byte(strings.Replace(string(c.Body), `"data":{`, `"data":{"createdAt":"`+recorded+`",`, 1))
			changes = append(changes, c)
		}
		var alarms []string
		to := &broker{fail: func(_ int, m outbox.Message) error {
			if m.ID != "0" {
				return outbox.ErrRefused
			}
			return nil
		}}
		r := newRelay(t, to, outbox.RelayOptions{
			Alarm: 5 * time.Minute,
			Hooks: outbox.RelayHooks{Expiring: func(m outbox.Message, left time.Duration) {
				alarms = append(alarms, fmt.Sprint(m.ID, " has ", left))
			}},
		})
		for range 2 {
			time.Sleep(3 * time.Minute)
			if err := r.Handle(t.Context(), &feed.Batch{Changes: changes}); err == nil {
				t.Error("two events were refused, and there is no error")
			}
		}
		if diff := cmp.Diff([]string{"1 has 4m0s"}, alarms); diff != "" {
			t.Error(diff)
		}
	})
}

func TestAnEventThatCannotBeReadIsParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, leases := open(t)
		add(t, contacts, "c1", "A")
		if _,
			err := contacts.Create(t.Context(),
			[]byte(`{"id":"bad","partitionKey":"c1","type":"domainEvent","data":{}}`)); err != nil {
			t.Fatal(err)
		}
		d, err := outbox.Load[*contact](t.Context(), contacts, "c1", "contact", "c1")
		if err != nil {
			t.Fatal(err)
		}
		d.Data.rename("B")
		u := outbox.NewUnit(contacts, outbox.Options{})
		u.Replace(d)
		if err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		to := &broker{}
		var parked []string
		relaying(t, contacts, leases, newRelay(t, to, outbox.RelayOptions{}), changefeed.Options{
			OnFailure: changefeed.FailurePolicy{
				MaxAttempts: 5,
				DeadLetters: deadletters.Func(func(_ context.Context, l feed.DeadLetter) error {
					parked = append(parked, l.Change.ID+": "+l.Cause)
					return nil
				}),
			},
		}, func() bool { return len(to.messages()) == 2 })
		if len(parked) != 1 || !strings.Contains(parked[0], "bad: ") || !strings.Contains(parked[0], "no data.action") {
			t.Errorf("parked %q", parked)
		}
	})
}

func TestAnAlarmIsGivenBeforeAnEventExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, leases := open(t)
		d := docOf("c1", newContact("A"))
		u := outbox.NewUnit(contacts, outbox.Options{EventTTL: 10 * time.Minute})
		u.Create(d)
		if err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		var alarms []time.Duration
		to := &broker{fail: func(int, outbox.Message) error {
			if time.Since(begun) > 10*time.Minute+30*time.Second {
				return nil
			}
			return errDown
		}}
		r := newRelay(t, to, outbox.RelayOptions{Hooks: outbox.RelayHooks{Expiring: func(m outbox.Message,
			left time.Duration,
		) {
			alarms = append(alarms, left)
			if m.Key != "c1" || m.Action != "ContactCreatedEvent" {
				t.Errorf("alarm of %+v", m)
			}
		}}})
		var expires time.Time
		relaying(t, contacts, leases, r, changefeed.Options{}, func() bool {
			if s := r.Status(); !s.Expires.IsZero() {
				expires = s.Expires
			}
			return len(to.messages()) == 1
		})
		if len(alarms) < 2 || alarms[0] > 2*time.Minute || alarms[0] < time.Minute {
			t.Errorf("alarms with so much left: %v; want the first of several within two minutes of the end", alarms)
		}
		for i := 1; i < len(alarms); i++ {
			if apart := alarms[i-1] - alarms[i]; apart < time.Minute {
				t.Errorf("alarms %v apart, want a minute at least", apart)
			}
		}
		if got := expires.Sub(begun); got != 10*time.Minute {
			t.Errorf("the status said that the event expires after %v", got)
		}
	})
}

func TestEventsExpireAfterTheyArePublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, leases := open(t)
		d := docOf("c1", newContact("A"))
		u := outbox.NewUnit(contacts, outbox.Options{EventTTL: -1})
		u.Create(d)
		if err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if docs := stored(t, contacts, "c1"); docs[1]["ttl"] != -1.0 {
			t.Fatalf("before it is published the event has ttl %v", docs[1]["ttl"])
		}
		to := &broker{}
		relaying(t, contacts, leases, newRelay(t, to, outbox.RelayOptions{
			Container:   contacts,
			ExpireAfter: time.Minute,
		}), changefeed.Options{},
			func() bool { return len(stored(t, contacts, "c1")) == 1 })
		if n := len(to.messages()); n != 1 {
			t.Errorf("published %d times: the write that lets an event expire comes back in the feed", n)
		}
	})
}

// The marks of 150 events take two batches, of which the second one fails.
func TestEventsWithAMarkAreDoneThoughLaterOnesHaveNone(t *testing.T) {
	b := &feed.Batch{}
	for n := range 150 {
		body := fmt.Appendf(nil, `{"id":"%d","partitionKey":"c1","type":"domainEvent","data":{"action":"a"}}`, n)
		b.Changes = append(b.Changes, feed.Change{
			ID: fmt.Sprint(n), PartitionKey: feed.Key("c1"), LSN: int64(n + 1),
			Body: body,
		})
	}
	marked := 0
	store := committerFunc(func(_ context.Context, _ feed.PartitionKey, writes []feed.Write) ([]feed.Result, error) {
		if marked > 0 {
			return nil, errLost
		}
		marked += len(writes)
		return nil, nil
	})
	err := newRelay(t, &broker{}, outbox.RelayOptions{Container: store, ExpireAfter: time.Hour}).Handle(t.Context(), b)
	failure, ok := errors.AsType[*feed.Failure](err)
	if !ok || marked == 0 || len(failure.Items) != len(b.Changes)-marked || failure.Items[marked-1] != nil ||
		failure.Items[marked] == nil {
		t.Errorf("got %+v after %d marks, want that the other events come again", failure, marked)
	}
}

func TestAPublisherIsNotBelievedWhatCannotBe(t *testing.T) {
	for _, test := range []struct {
		n    int
		err  error
		want string
	}{
		{-1, nil, "says that -1 of 1"}, {2, nil, "says that 2 of 1"}, {0, nil, "gives no reason"},
	} {
		r := newRelay(t, publisherFunc(func(context.Context, []outbox.Message) (int, error) {
			return test.n, test.err
		}), outbox.RelayOptions{})
		body := []byte(`{"id":"e","partitionKey":"c1","type":"domainEvent","data":{"action":"a"}}`)
		err := r.Handle(t.Context(), &feed.Batch{Changes: []feed.Change{{ID: "e", Body: body}}})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want %q", err, test.want)
		}
	}
}

type publisherFunc func(ctx context.Context, msgs []outbox.Message) (int, error)

func (f publisherFunc) Publish(ctx context.Context, msgs []outbox.Message) (int, error) {
	return f(ctx, msgs)
}

func TestContradictoryRelayOptionsAreRefused(t *testing.T) {
	contacts, _ := open(t)
	for want, o := range map[string]outbox.RelayOptions{
		"ExpireAfter is 0s":  {Container: contacts},
		"ExpireAfter is 1s":  {ExpireAfter: time.Second},
		"ExpireAfter is -1s": {Container: contacts, ExpireAfter: -time.Second},
		"Alarm is -1s":       {Alarm: -time.Second},
	} {
		if _, err := outbox.NewRelay(&broker{}, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := outbox.NewRelay(nil, outbox.RelayOptions{}); err == nil {
		t.Error("a relay to nowhere")
	}
}

// The service does not say in which order the changes of a transaction are.
func TestEventsOfATransactionAreInTheirOrder(t *testing.T) {
	changes := make([]feed.Change, 6)
	for i := range changes {
		lsn, seq := 8+i/3, 1+i/3*3+(2-i%3) // 3 2 1 at 8, and 6 5 4 at 9
		changes[i] = feed.Change{
			ID: fmt.Sprint("e", seq), LSN: int64(lsn), PartitionKey: feed.Key("c1"),
			Body: fmt.Appendf(nil,
				`{"id":"e%d","partitionKey":"c1","type":"domainEvent","seq":%[1]d,"data":{"action":"a"}}`, seq),
		}
	}
	to := &broker{fail: func(_ int, m outbox.Message) error {
		if m.Seq == 5 {
			return errDown
		}
		return nil
	}}
	err := newRelay(t, to, outbox.RelayOptions{}).Handle(t.Context(), &feed.Batch{Changes: changes})
	if diff := cmp.Diff([]string{"a1", "a2", "a3", "a4"}, to.actions("c1")); diff != "" {
		t.Error(diff)
	}
	failed, ok := errors.AsType[*feed.Failure](err)
	if !ok || len(failed.Items) != 2 || failed.Items[3] == nil || failed.Items[4] == nil {
		t.Errorf("got %v, want that the events 5 and 6 are left, which are the changes 4 and 3", err)
	}
}

func TestAPublishedEventThatIsGoneIsDoneWith(t *testing.T) {
	contacts, _ := open(t)
	d := docOf("c1", newContact("A"))
	u := outbox.NewUnit(contacts, outbox.Options{EventTTL: -1})
	u.Create(d)
	if err := u.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	event := stored(t, contacts, "c1")[1]["id"].(string)
	change := func(id string) feed.Change {
		return feed.Change{
			ID: id, PartitionKey: feed.Key("c1"),
			Body: []byte(`{"type":"domainEvent","data":{"action":"a"}}`),
		}
	}
	r := newRelay(t, &broker{}, outbox.RelayOptions{Container: contacts, ExpireAfter: time.Minute})
	if err := r.Handle(t.Context(), &feed.Batch{Changes: []feed.Change{
		change("gone"), change(event),
		change("gone as well"),
	}}); err != nil {
		t.Fatal(err)
	}
	if ttl := stored(t, contacts, "c1")[1]["ttl"]; ttl != 60.0 {
		t.Errorf("the event that is there has ttl %v, want 60", ttl)
	}
}

// A tracer begins its span with the call, and links it to the contexts that the events were committed in.
func TestACallOfThePublisherCanBeTraced(t *testing.T) {
	type span struct{}
	var said []string
	to := publisherFunc(func(ctx context.Context, msgs []outbox.Message) (int, error) {
		if ctx.Value(span{}) != "of c1" {
			t.Error("the publisher has not the context of the span")
		}
		return 1, errDown
	})
	r := newRelay(t, to, outbox.RelayOptions{Hooks: outbox.RelayHooks{
		Publishing: func(ctx context.Context, msgs []outbox.Message) (context.Context, func(int, error)) {
			for _, m := range msgs {
				said = append(said, "link to "+m.TraceParent)
			}
			return context.WithValue(ctx, span{}, "of "+msgs[0].Key), func(n int, err error) {
				said = append(said, fmt.Sprint(n, " accepted, ", err))
			}
		},
	}})
	var changes []feed.Change
	for _, id := range []string{"e1", "e2"} {
		changes = append(changes, feed.Change{
			ID: id, PartitionKey: feed.Key("c1"),
			Body: fmt.Appendf(nil, `{"id":%q,"type":"domainEvent","traceparent":"00-%[1]s","data":{"action":"a"}}`, id),
		})
	}
	if err := r.Handle(t.Context(), &feed.Batch{Changes: changes}); !errors.Is(err, errDown) {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff([]string{"link to 00-e1", "link to 00-e2", "1 accepted, broker is down"}, said); diff != "" {
		t.Error(diff)
	}
	if s := r.Status(); s.Published != 1 || s.Failed != 1 || !errors.Is(s.Err, errDown) {
		t.Errorf("status %+v", s)
	}
}
