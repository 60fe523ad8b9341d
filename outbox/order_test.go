package outbox_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
)

// thing is an object of any type, whose events have names.
type thing struct {
	outbox.Recorder
	N int `json:"n"`
}

type done struct {
	name string
}

func (d done) EventName() string { return d.name }

func docOfThing(key, typ, id string) *outbox.Doc[*thing] {
	return &outbox.Doc[*thing]{ID: id, PartitionKey: key, Type: typ, Data: &thing{}}
}

func TestEventsOfSeveralObjectsKeepTheOrderInWhichTheyWereRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, leases := open(t)
		order, payment := docOfThing("k", "order", "o1"), docOfThing("k", "payment", "p1")
		u := outbox.NewUnit(contacts, outbox.Options{})
		payment.Data.Record(done{"PaymentAsked"})
		order.Data.Record(done{"OrderOpened"})
		order.Data.Record(done{"OrderPacked"})
		payment.Data.Record(done{"PaymentBooked"})
		order.Data.Record(done{"OrderClosed"})
		payment.Data.Record(done{"PaymentAsked"}) // in place of the first one
		u.Create(order)
		u.Create(payment)
		if err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		to := &broker{}
		relaying(t, contacts, leases, newRelay(t, to, outbox.RelayOptions{}), changefeed.Options{}, func() bool {
			return len(to.messages()) == 5
		})
		var got []string
		for _, m := range to.messages() {
			got = append(got, fmt.Sprint(m.Action, " ", m.ObjectType, " ", m.Object, " ", m.Seq))
		}
		want := []string{
			"PaymentAsked payment p1 1", "OrderOpened order o1 1", "OrderPacked order o1 2",
			"PaymentBooked payment p1 2", "OrderClosed order o1 3",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// The service does not say in which order the documents of a transaction are in the feed.
func TestEventsOfAUnitAreSortedWhereverTheFeedHasThem(t *testing.T) {
	var changes []feed.Change
	for i, place := range []int{3, 1, 4, 2} {
		changes = append(changes, feed.Change{
			ID: fmt.Sprint("e", i), LSN: 5, PartitionKey: feed.Key("k"),
			Body: fmt.Appendf(nil,
				`{"type":"domainEvent","object":"o%d","seq":1,"unitSeq":%d,"data":{"action":"a%[2]d"}}`, i, place),
		})
	}
	to := &broker{}
	if err := newRelay(t, to, outbox.RelayOptions{}).Handle(t.Context(), &feed.Batch{Changes: changes}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range to.messages() {
		got = append(got, m.Action)
	}
	if diff := cmp.Diff([]string{"a1", "a2", "a3", "a4"}, got); diff != "" {
		t.Error(diff)
	}
}

// A relay marks the events of several units of work in one transaction.
func TestMarkedEventsAreSortedByTheirCommits(t *testing.T) {
	var changes []feed.Change
	for i, place := range []int{3, 1, 4, 2} {
		changes = append(changes, feed.Change{
			ID: fmt.Sprint("e", i), LSN: 9, PartitionKey: feed.Key("k"),
			Body: fmt.Appendf(nil,
				`{"type":"domainEvent","unitSeq":%d,"published":"2026-01-01T00:00:00Z","publishedLsn":%d,"data":{"action":"a%[2]d"}}`, 5-place, place),
		})
	}
	to := &broker{}
	if err := newRelay(t, to, outbox.RelayOptions{}).Handle(t.Context(), &feed.Batch{Changes: changes}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range to.messages() {
		got = append(got, m.Action)
	}
	if diff := cmp.Diff([]string{"a1", "a2", "a3", "a4"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestAnEventNamesItsObject(t *testing.T) {
	contacts, _ := open(t)
	d := docOfThing("k", "order", "o1")
	d.Data.Record(done{"OrderOpened"})
	u := outbox.NewUnit(contacts, outbox.Options{})
	u.Create(d)
	if err := u.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, doc := range stored(t, contacts, "k") {
		if doc["type"] == outbox.EventType && (doc["object"] != "o1" || doc["objectType"] != "order") {
			t.Errorf("the event is %v", doc)
		}
	}
	m := outbox.Message{ID: "1", Key: "k", Object: "o1", ObjectType: "order"}
	if a := maps.Collect(m.CloudEvent()); a["subject"] != "o1" || a["objecttype"] != "order" ||
		a["partitionkey"] != "k" {
		t.Errorf("attributes %v", a)
	}
}

func TestKeysThatDifferAreTextsThatDiffer(t *testing.T) {
	texts := map[string]feed.PartitionKey{}
	for _, key := range []feed.PartitionKey{
		feed.Key("[7]"), feed.Key(7), feed.Key("7"), feed.Key(`["a"]`), feed.Key("a"), feed.Key("a", "b"),
		feed.Key(`["a","b"]`), feed.Key(nil), feed.Key("[null]"), feed.Key("null"), feed.Key(""), feed.Key("["),
	} {
		m, _, err := outbox.EventsOfType("e")(&feed.Change{
			ID: "1", PartitionKey: key,
			Body: []byte(`{"type":"e","data":{"action":"a"}}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := texts[m.Key]; ok {
			t.Errorf("the keys %s and %s both give %q", key, other, m.Key)
		}
		texts[m.Key] = key
	}
}

// unitOf runs a relay until it is stopped.
func unitOf(t *testing.T, contacts, leases *docstore.Container, name string, o outbox.RelayOptions,
	to outbox.Publisher,
) (stop func()) {
	t.Helper()
	store, err := docstore.NewLeases(t.Context(), leases, name, contacts)
	if err != nil {
		t.Fatal(err)
	}
	r := newRelay(t, to, o)
	p, err := changefeed.New(contacts, store, r, changefeed.Options{
		MaxItems: 2,
		Hooks:    changefeed.Hooks{Error: func(context.Context, *feed.Error) {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return func() { cancel(); wg.Wait() }
}

func TestEventsAreInOrderWhateverMarksMove(t *testing.T) {
	for _, lag := range []time.Duration{0, time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			contacts, leases := open(t)
			other := &broker{}
			d := docOfThing("k", "order", "o1")
			commit := func(track func(*outbox.Unit)) {
				t.Helper()
				d.Data.N++
				d.Data.RecordAlso(done{"OrderChanged"})
				u := outbox.NewUnit(contacts, outbox.Options{EventTTL: -1})
				track(u)
				if err := u.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			commit(func(u *outbox.Unit) { u.Create(d) })
			// The first relay is slow, so that later events are committed before the mark of an earlier one.
			fast := &broker{fail: func(int, outbox.Message) error { time.Sleep(100 * time.Millisecond); return nil }}
			stopFast := unitOf(t, contacts, leases, "fast", outbox.RelayOptions{
				Container:   contacts,
				ExpireAfter: time.Hour,
			}, fast)
			for range 30 {
				commit(func(u *outbox.Unit) { u.Replace(d) })
				time.Sleep(40 * time.Millisecond)
			}
			time.Sleep(lag)
			stopLate := unitOf(t, contacts, leases, "late", outbox.RelayOptions{Feed: contacts}, other)
			for range 5 {
				commit(func(u *outbox.Unit) { u.Replace(d) })
			}
			time.Sleep(2 * time.Minute)
			stopFast()
			stopLate()
			for name, b := range map[string]*broker{"fast": fast, "late": other} {
				var seqs []uint64
				for _, m := range b.messages() {
					if !slices.Contains(seqs, m.Seq) { // a consumer drops duplicates
						seqs = append(seqs, m.Seq)
					}
				}
				if len(seqs) != 36 || !slices.IsSorted(seqs) {
					t.Errorf("lag %v: the consumer of the %s relay has seen %v, want 1 to 36", lag, name, seqs)
				}
			}
			if n := len(other.messages()); n > 2*36 {
				t.Errorf("lag %v: %d messages for 36 events: moved events are published again and again", lag, n)
			}
		})
	}
}

// A faster relay marks what its broker has taken: a part of a transaction, and no event that expires by itself or has
// no room for a mark.
func TestAMovedEventKeepsItsPlaceAmongThoseThatHaveNoMark(t *testing.T) {
	for name, test := range map[string]struct {
		units   []unit
		refused uint64 // the first event that the faster relay does not publish
		noRoom  uint64 // the event that cannot be marked
		never   uint64 // the event that the other relay can never publish
		want    []uint64
	}{
		"one before it expires by itself": {[]unit{{time.Hour, 1}, {-1, 1}, {-1, 1}}, 3, 0, 0, []uint64{1, 2, 3}},
		"one before it has no room":       {[]unit{{-1, 1}, {-1, 1}, {-1, 1}}, 3, 1, 0, []uint64{1, 2, 3}},
		"all are of one transaction":      {[]unit{{-1, 3}}, 2, 0, 0, []uint64{1, 2, 3}},
		"it can never be published":       {[]unit{{-1, 1}, {-1, 1}, {-1, 2}, {-1, 1}}, 5, 1, 2, []uint64{1, 3, 4, 5}},
	} {
		for _, maxItems := range []int{2, 100} {
			t.Run(fmt.Sprintf("%s, %d at a time", name, maxItems), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					contacts, leases := open(t)
					commitUnits(t, contacts, test.units)
					publishUpTo(t, contacts, leases, test.refused, test.noRoom)
					to := &broker{fail: func(_ int, m outbox.Message) error {
						if m.Seq == test.never {
							return feed.Poison(errDown)
						}
						return nil
					}}
					late, box := newRelay(t, to, outbox.RelayOptions{Feed: contacts}), letterBox(t)
					relaying(t, contacts, leases, late,
						changefeed.Options{MaxItems: maxItems, OnFailure: changefeed.FailurePolicy{
							MaxAttempts: 5,
							DeadLetters: box,
						}}, func() bool {
							s := late.Status()
							return s.Waiting == 0 && s.Published+s.Parked == int64(len(test.want))+min(1,
								int64(test.never))
						})
					var got []uint64
					for _, m := range to.messages() {
						if got = append(got, m.Seq); m.Source != "/events" {
							t.Errorf("event %d has the source %q", m.Seq, m.Source)
						}
					}
					if diff := cmp.Diff(test.want, got); diff != "" {
						t.Error(diff)
					}
				})
			})
		}
	}
}

// unit is so many events that are committed together.
type unit struct {
	ttl    time.Duration
	events int
}

// commitUnits commits events of one order.
func commitUnits(t *testing.T, contacts *docstore.Container, units []unit) {
	t.Helper()
	d := docOfThing("k", "order", "o1")
	for i, of := range units {
		for range of.events {
			d.Data.RecordAlso(done{"OrderChanged"})
		}
		u := outbox.NewUnit(contacts, outbox.Options{EventTTL: of.ttl})
		if i == 0 {
			u.Create(d)
		} else {
			u.Replace(d)
		}
		if err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// publishUpTo has a relay publish the events before one, and mark them, except for one that has no room for that.
func publishUpTo(t *testing.T, contacts, leases *docstore.Container, refused, noRoom uint64) {
	t.Helper()
	full := ""
	for _, doc := range stored(t, contacts, "k") {
		if doc["type"] == outbox.EventType && doc["seq"] == float64(noRoom) {
			full = doc["id"].(string)
		}
	}
	marks := committerFunc(func(
		ctx context.Context, key feed.PartitionKey, writes []feed.Write,
	) ([]feed.Result, error) {
		if i := slices.IndexFunc(writes, func(w feed.Write) bool { return w.ID == full }); i >= 0 {
			return nil, &feed.WriteError{Index: i, Write: writes[i], Err: feed.ErrBadRequest}
		}
		return contacts.Commit(ctx, key, writes)
	})
	to := &broker{fail: func(_ int, m outbox.Message) error {
		if m.Seq >= refused {
			return errDown
		}
		return nil
	}}
	stop := unitOf(t, contacts, leases, "fast", outbox.RelayOptions{Container: marks, ExpireAfter: time.Hour}, to)
	time.Sleep(10 * time.Second)
	stop()
}

func TestAForeignEventThatSaysPublishedIsPublished(t *testing.T) {
	contacts, _ := open(t)
	changes := []feed.Change{{
		ID: "e", LSN: 1, PartitionKey: feed.Key("k"),
		Body: []byte(`{"id":"e","type":"domainEvent","published":"yes","data":{"action":"a"}}`),
	}}
	to := &broker{}
	r := newRelay(t, to, outbox.RelayOptions{Container: contacts, ExpireAfter: time.Hour})
	if err := r.Handle(t.Context(), &feed.Batch{Changes: changes}); err != nil {
		t.Fatal(err)
	}
	if n := len(to.messages()); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
}

func TestAnEventWithATimeToLiveKeepsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, leases := open(t)
		add(t, contacts, "c1", "A")
		to := &broker{}
		relaying(t, contacts, leases, newRelay(t, to, outbox.RelayOptions{Container: contacts, ExpireAfter: time.Hour}),
			changefeed.Options{}, func() bool { return len(to.messages()) == 1 })
		time.Sleep(time.Minute)
		for _, doc := range stored(t, contacts, "c1") {
			if doc["type"] == outbox.EventType && (doc["ttl"] != 864000.0 || doc["published"] != nil) {
				t.Errorf("the event is %v", doc)
			}
		}
	})
}

func TestATraceContextIsWhatHeadersCanBe(t *testing.T) {
	const parent, state = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "a=1,b=2"
	for _, test := range []struct {
		m    outbox.Message
		want map[string]string
	}{
		{outbox.Message{TraceParent: parent, TraceState: state}, map[string]string{
			"traceparent": parent,
			"tracestate":  state,
		}},
		{outbox.Message{TraceParent: parent}, map[string]string{"traceparent": parent}},
		{outbox.Message{TraceParent: parent + "\r\nCookie: x", TraceState: "é"}, map[string]string{}},
		{outbox.Message{}, map[string]string{}},
	} {
		if diff := cmp.Diff(test.want, maps.Collect(test.m.TraceContext())); diff != "" {
			t.Error(diff)
		}
	}
}

func TestTheTraceContextOfACommitIsStoredWithItsEvents(t *testing.T) {
	give := func(text string) func(context.Context) string { return func(context.Context) string { return text } }
	for parent, state := range map[string]string{"00-1": "a=1", "": ""} { // a state without a parent means nothing
		contacts, _ := open(t)
		u := outbox.NewUnit(contacts, outbox.Options{TraceParent: give(parent), TraceState: give("a=1")})
		u.Create(docOf("c1", newContact("A")))
		if err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		for item, err := range contacts.Logical(t.Context(), feed.Key("c1"), 0) {
			if err != nil {
				t.Fatal(err)
			}
			m, ok, err := outbox.EventsOfType(outbox.EventType)(&feed.Change{Body: item.Body})
			if err != nil || ok && (m.TraceParent != parent || m.TraceState != state) {
				t.Errorf("the event is %s, %v", item.Body, err)
			}
		}
	}
}

// A broker that is down need not be asked for each key.
func TestABrokerThatIsDownIsAskedOnceABatch(t *testing.T) {
	var changes []feed.Change
	for i := range 20 {
		changes = append(changes, feed.Change{
			ID: fmt.Sprint("e", i), LSN: int64(i + 1), PartitionKey: feed.Key(fmt.Sprint("k", i)),
			Body: []byte(`{"type":"domainEvent","data":{"action":"a"}}`),
		})
	}
	for want, failure := range map[int]error{1: errDown, 20: feed.Poison(errDown)} {
		asked := 0
		r := newRelay(t, publisherFunc(func(context.Context, []outbox.Message) (int, error) {
			asked++
			return 0, failure
		}), outbox.RelayOptions{})
		if err := r.Handle(t.Context(), &feed.Batch{Changes: changes}); err == nil {
			t.Error("nothing was accepted, and there is no error")
		}
		if asked != want {
			t.Errorf("%v: the broker was asked %d times for 20 keys, want %d", failure, asked, want)
		}
		if s := r.Status(); s.Waiting != 20 {
			t.Errorf("%v: %d keys are waiting, want 20", failure, s.Waiting)
		}
	}
}

// An order has a recorder of its own, one in a named field, and a child with one.
type nested struct {
	outbox.Recorder
	Named outbox.Recorder `json:"-"`
	Child *thing          `json:"child"`
}

func TestOnlyTheRecorderOfTheObjectItselfCounts(t *testing.T) {
	contacts, _ := open(t)
	d := &outbox.Doc[*nested]{ID: "o1", PartitionKey: "k", Type: "order", Data: &nested{Child: &thing{}}}
	d.Data.Record(done{"Own"})
	d.Data.Named.Record(done{"Named"})
	d.Data.Child.Record(done{"Child"})
	u := outbox.NewUnit(contacts, outbox.Options{})
	u.Create(d)
	if err := u.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Own"}, actions(stored(t, contacts, "k"))); diff != "" {
		t.Error(diff)
	}
}
