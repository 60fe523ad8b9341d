package outbox_test

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/outboxtest"
)

func TestEventsAreRecordedOnceAnAction(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(c *contact)
		want []string
	}{
		{"none of an object that was read", func(*contact) {}, nil},
		{"one a setter", func(c *contact) { c.rename("B") }, []string{"ContactNameUpdatedEvent"}},
		{"replaced in its place", func(c *contact) {
			c.rename("B")
			c.describe("d")
			c.rename("C")
		}, []string{"ContactNameUpdatedEvent", "ContactDescriptionUpdatedEvent"}},
		{"all kept", func(c *contact) {
			c.rename("B")
			c.RecordAlso(nameUpdated{"C"})
		}, []string{"ContactNameUpdatedEvent", "ContactNameUpdatedEvent"}},
		{"one forgotten", func(c *contact) {
			c.rename("B")
			c.describe("d")
			c.Forget("ContactNameUpdatedEvent")
		}, []string{"ContactDescriptionUpdatedEvent"}},
		{"all forgotten", func(c *contact) { c.rename("B"); c.describe("d"); c.ForgetAll() }, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &contact{Name: "A"}
			test.do(c)
			if diff := cmp.Diff(test.want, c.events()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheLastEventOfAnActionIsTheOneThatCounts(t *testing.T) {
	c := &contact{}
	c.rename("B")
	c.describe("d")
	c.rename("C")
	if got := c.Recorded()[0]; got != (nameUpdated{"C"}) {
		t.Errorf("first event is %v, want that of the last name", got)
	}
}

func TestANewObjectHasItsCreatedEventAlone(t *testing.T) {
	c := newContact("A")
	c.rename("B")
	c.RecordAlso(descriptionUpdated{"d"})
	if diff := cmp.Diff([]string{"ContactCreatedEvent"}, c.events()); diff != "" {
		t.Error(diff)
	}
	if !c.IsNew() {
		t.Error("it is not new")
	}
}

func TestARecorderIsNotInTheJSONOfItsObject(t *testing.T) {
	c := newContact("A")
	got, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != `{"name":"A"}` {
		t.Errorf("got %s", got)
	}
	var back contact
	if err := json.Unmarshal(got, &back); err != nil || len(back.Recorded()) != 0 {
		t.Errorf("an object that was read has events %v, error %v", back.Recorded(), err)
	}
}

func TestMessagesAreCloudEvents(t *testing.T) {
	m := outbox.Message{ID: "1", Key: "c", Action: "Created", Source: "/contacts", Seq: 7}
	got := maps.Collect(m.CloudEvent())
	want := map[string]string{
		"specversion": "1.0", "id": "1", "source": "/contacts", "type": "Created", "subject": "c",
		"partitionkey": "c", "sequence": "00000000000000000007",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// dated is an event that says itself when it happened.
type dated struct {
	CreatedAt string `json:"createdAt"`
}

func (dated) EventName() string { return "Dated" }

func TestAnEventKeepsItsOwnTime(t *testing.T) {
	contacts, _ := open(t)
	d := docOf("c1", &contact{Name: "A"})
	d.Data.Record(dated{"2001-02-03T04:05:06Z"})
	u := outbox.NewUnit(contacts, outbox.Options{})
	u.Create(d)
	if err := u.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for item, err := range contacts.Logical(t.Context(), feed.Key("c1"), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if text := string(item.Body); strings.Contains(text, outbox.EventType) &&
			(strings.Count(text, "createdAt") != 1 || !strings.Contains(text, `"createdAt":"2001-02-03T04:05:06Z"`)) {
			t.Errorf("the event is %s, want its own time alone", text)
		}
	}
}

func TestAnEventSaysWhenItWasRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, leases := open(t)
		d := add(t, contacts, "c1", "A")
		d.Data.rename("B")
		time.Sleep(1500 * time.Millisecond)
		recorded := time.Now()
		d.Data.rename("C") // in place of the first one
		time.Sleep(time.Hour)
		u := outbox.NewUnit(contacts, outbox.Options{})
		u.Replace(d)
		if err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		to := &broker{}
		relaying(t, contacts, leases, newRelay(t, to, outbox.RelayOptions{}), changefeed.Options{}, func() bool {
			return len(to.messages()) == 2
		})
		if at := to.messages()[1].Time; !at.Equal(recorded) {
			t.Errorf("the time of the event is %v, want %v", at, recorded)
		}
	})
}

// odd is an event with whatever members.
type odd map[string]string

func (odd) EventName() string { return "Odd" }

func TestAnEventHasNoMembersThatEveryEventHas(t *testing.T) {
	for _, member := range []string{"id", "action"} {
		contacts, _ := open(t)
		d := docOf("c1", &contact{Name: "A"})
		d.Data.Record(odd{member: "mine"})
		u := outbox.NewUnit(contacts, outbox.Options{})
		u.Create(d)
		if err := u.Commit(t.Context()); !errors.Is(err, feed.ErrBadRequest) || !strings.Contains(err.Error(), member) {
			t.Errorf("an event with a member %s: %v, want %v", member, err, feed.ErrBadRequest)
		}
	}
}

func TestACreatedEventTakesThePlaceOfEarlierOnes(t *testing.T) {
	c := &contact{Name: "A"}
	c.rename("B")
	c.RecordCreated(contactCreated{c})
	if got := c.events(); len(got) != 1 || got[0] != "ContactCreatedEvent" {
		t.Errorf("recorded are %q, want the created event alone", got)
	}
}

func TestWhoForgetsAllIsNotNew(t *testing.T) {
	c := newContact("A")
	c.ForgetAll()
	c.rename("B")
	if got := c.events(); c.IsNew() || len(got) != 1 {
		t.Errorf("new: %v, recorded are %q, want the rename", c.IsNew(), got)
	}
}

func TestANumberThatIsNoneIsRefused(t *testing.T) {
	decode := outbox.EventsOfType(outbox.EventType)
	for seq, want := range map[string]uint64{
		"3": 3, "3.0": 3, "0": 0, "9007199254740992": 1 << 53,
		"9007199254740994": 0, "1e17": 0, "1.5": 0, "-1": 0, `"3"`: 0, "null": 0,
	} {
		c := feed.Change{ID: "1", Body: []byte(`{"type":"domainEvent","seq":` + seq + `,"data":{"action":"Done"}}`)}
		m, ok, err := decode(&c)
		if isNumber := want > 0 || seq == "0"; !ok || (err == nil) != isNumber || m.Seq != want {
			t.Errorf("seq %s: an event %v with number %d, %v; want %d", seq, ok, m.Seq, err, want)
		}
	}
}

// An event of somebody else may have a member with the name of one of a mark.
func TestAMarkHasTwoMembers(t *testing.T) {
	contacts, _ := open(t)
	r, err := outbox.NewRelay(&outboxtest.Memory{}, outbox.RelayOptions{
		Container:   contacts,
		ExpireAfter: outbox.LeastExpireAfter,
	})
	if err != nil {
		t.Fatal(err)
	}
	wants := r.Needs().Filter
	for members, isMarked := range map[string]bool{
		"": false, `"published":"yes",`: false, `"publishedLsn":7,`: false, `"published":true,"publishedLsn":7,`: false,
		`"published":"2026-01-02T03:04:05Z","publishedLsn":7,`: true,
	} {
		c := feed.Change{ID: "1", Body: []byte(`{"type":"domainEvent",` + members + `"data":{"action":"Done"}}`)}
		if wants(&c) == isMarked {
			t.Errorf("with %s the event counts as published: %v, want %v", members, !isMarked, isMarked)
		}
	}
}
