package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
)

func TestAnObjectAndItsEventsAreCommittedTogether(t *testing.T) {
	contacts, _ := open(t)
	d := docOf("c1", newContact("A"))
	d.Data.rename("B")
	u := outbox.NewUnit(contacts, outbox.Options{EventTTL: 2 * time.Minute, TraceParent: func(context.Context) string {
		return "00-trace"
	}})
	u.Create(d)
	if err := u.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	docs := stored(t, contacts, "c1")
	if len(docs) != 2 {
		t.Fatalf("%d documents, want the contact and its event", len(docs))
	}
	object, event := docs[0], docs[1]
	data := event["data"].(map[string]any)
	for _, check := range []struct {
		what      string
		got, want any
	}{
		{"type of the object", object["type"], "contact"},
		{"ttl of the object", object["ttl"], -1.0},
		{"seq of the object", object["seq"], 1.0},
		{"type of the event", event["type"], "domainEvent"},
		{"ttl of the event", event["ttl"], 120.0},
		{"seq of the event", event["seq"], 1.0},
		{"traceparent", event["traceparent"], "00-trace"},
		{"id in the data", data["id"], event["id"]},
		{"action", data["action"], "ContactCreatedEvent"},
		{"the state at the commit", data["contact"].(map[string]any)["name"], "B"},
		{"ETag", d.ETag, object["_etag"]},
		{"events that are left", len(d.Data.Recorded()), 0},
		{"whether it is new", d.Data.IsNew(), false},
		{"number of events", d.Seq, uint64(1)},
	} {
		if check.got != check.want {
			t.Errorf("%s is %v, want %v", check.what, check.got, check.want)
		}
	}
	if _, err := time.Parse(time.RFC3339Nano, data["createdAt"].(string)); err != nil {
		t.Error(err)
	}
}

func TestAnUpdateAddsItsEvents(t *testing.T) {
	contacts, _ := open(t)
	d := add(t, contacts, "c1", "A")
	d.Data.rename("B")
	d.Data.describe("d")
	u := outbox.NewUnit(contacts, outbox.Options{})
	u.Replace(d)
	if err := u.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	docs := stored(t, contacts, "c1")
	if diff := cmp.Diff([]string{"ContactCreatedEvent", "ContactNameUpdatedEvent", "ContactDescriptionUpdatedEvent"},
		actions(docs)); diff != "" {
		t.Error(diff)
	}
	read, err := outbox.Load[contact](t.Context(), contacts, "c1", "contact", "c1")
	if err != nil {
		t.Fatal(err)
	}
	if read.Data.Name != "B" || read.Seq != 3 || read.ETag != d.ETag || len(read.Data.Recorded()) != 0 {
		t.Errorf("read %+v, committed with ETag %s", read, d.ETag)
	}
}

func TestWhatIsTrackedTwiceIsWrittenOnce(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(u *outbox.Unit, fresh, old *outbox.Doc[*contact])
		want map[string]string // names by id
	}{
		{"created twice", func(u *outbox.Unit, fresh, _ *outbox.Doc[*contact]) {
			u.Create(fresh)
			u.Create(fresh)
		}, map[string]string{"new": "N", "old": "O"}},
		{"created and replaced", func(u *outbox.Unit, fresh, _ *outbox.Doc[*contact]) {
			u.Create(fresh)
			u.Replace(fresh)
		}, map[string]string{"new": "N", "old": "O"}},
		{"created and deleted", func(u *outbox.Unit, fresh, _ *outbox.Doc[*contact]) {
			u.Create(fresh)
			u.Delete(fresh)
		}, map[string]string{"old": "O"}},
		{"replaced by the second", func(u *outbox.Unit, _, old *outbox.Doc[*contact]) {
			u.Replace(old)
			again := *old
			again.Data = &contact{Name: "2"}
			u.Replace(&again)
		}, map[string]string{"old": "2"}},
		{"replaced and deleted", func(u *outbox.Unit, _, old *outbox.Doc[*contact]) {
			u.Replace(old)
			u.Delete(old)
		}, map[string]string{}},
		{"deleted and created", func(u *outbox.Unit, _, old *outbox.Doc[*contact]) {
			u.Delete(old)
			u.Create(old)
		}, map[string]string{"old": "O"}},
		{"replaced and kept", func(u *outbox.Unit, _, old *outbox.Doc[*contact]) {
			old.Data.Name = "K"
			u.Replace(old)
			u.Keep(old)
		}, map[string]string{"old": "K"}},
		{"unmodified", func(u *outbox.Unit, _, old *outbox.Doc[*contact]) {
			old.Data.Name = "K"
			u.Keep(old)
		}, map[string]string{"old": "O"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			contacts, _ := open(t)
			fresh := &outbox.Doc[*contact]{ID: "new", PartitionKey: "p", Type: "contact", Data: &contact{Name: "N"}}
			old := &outbox.Doc[*contact]{ID: "old", PartitionKey: "p", Type: "contact", Data: &contact{Name: "O"}}
			u := outbox.NewUnit(contacts, outbox.Options{})
			u.Create(old)
			if err := u.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			test.do(u, fresh, old)
			if err := u.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, d := range stored(t, contacts, "p") {
				got[d["id"].(string)] = d["data"].(map[string]any)["name"].(string)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAnUnmodifiedObjectDoesNotShiftTheETags(t *testing.T) {
	contacts, _ := open(t)
	var docs []*outbox.Doc[*contact]
	u := outbox.NewUnit(contacts, outbox.Options{})
	for _, id := range []string{"a", "b", "c"} {
		d := &outbox.Doc[*contact]{ID: id, PartitionKey: "p", Type: "contact", Data: &contact{Name: id}}
		docs = append(docs, d)
		u.Create(d)
	}
	if err := u.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := docs[0].ETag
	u.Keep(docs[0])
	u.Replace(docs[1])
	u.Replace(docs[2])
	if err := u.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if docs[0].ETag != before {
		t.Error("the unmodified object has a new ETag")
	}
	for _, d := range docs {
		read, err := outbox.Load[contact](t.Context(), contacts, "p", "contact", d.ID)
		if err != nil {
			t.Fatal(err)
		}
		if read.ETag != d.ETag {
			t.Errorf("%s has ETag %s, stored is %s", d.ID, d.ETag, read.ETag)
		}
	}
}

func TestARefusedUnitWritesNothing(t *testing.T) {
	contacts, _ := open(t)
	d := add(t, contacts, "c1", "A")
	stale := *d
	stale.ETag, stale.Data = `"stale"`, &contact{Name: "A"}
	stale.Data.rename("B")
	missing := docOf("c9", &contact{})
	missing.Data.rename("B")
	again := docOf("c1", newContact("again"))
	before := len(stored(t, contacts, "c1"))
	for _, test := range []struct {
		name  string
		track func(u *outbox.Unit)
		want  error
		keeps *contact
	}{
		{"ETag has moved on", func(u *outbox.Unit) { u.Replace(&stale) }, feed.ErrPrecondition, stale.Data},
		{"no such object", func(u *outbox.Unit) { u.Replace(missing) }, feed.ErrNotFound, missing.Data},
		{"no such object to delete", func(u *outbox.Unit) { u.Delete(missing) }, feed.ErrNotFound, missing.Data},
		{"id is taken", func(u *outbox.Unit) { u.Create(again) }, feed.ErrConflict, again.Data},
	} {
		t.Run(test.name, func(t *testing.T) {
			u := outbox.NewUnit(contacts, outbox.Options{})
			test.track(u)
			if err := u.Commit(t.Context()); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if len(test.keeps.Recorded()) != 1 {
				t.Errorf("events are %v, want the one that was not committed", test.keeps.events())
			}
			if got := len(stored(t, contacts, "c1")) + len(stored(t, contacts, "c9")); got != before {
				t.Errorf("%d documents, want %d as before", got, before)
			}
		})
	}
	if !again.Data.IsNew() {
		t.Error("a new object whose unit was refused is not new any more")
	}
}

func TestLimitsAreCheckedBeforeAnythingIsSent(t *testing.T) {
	many := func(u *outbox.Unit, n int, data string) {
		for i := range n {
			u.Create(&outbox.Doc[*contact]{
				ID: fmt.Sprint(i), PartitionKey: "p", Type: "contact",
				Data: &contact{Name: data},
			})
		}
	}
	named := func(e outbox.Event) func(u *outbox.Unit) {
		return func(u *outbox.Unit) {
			c := &contact{}
			c.Record(e)
			u.Create(docOf("c1", c))
		}
	}
	for _, test := range []struct {
		name  string
		track func(u *outbox.Unit)
		want  error
		text  string
	}{
		{"two keys", func(u *outbox.Unit) {
			u.Create(docOf("a", &contact{}))
			u.Create(docOf("b", &contact{}))
		}, outbox.ErrMixedKeys, `contact "b" has "b", and others "a"`},
		{"too many", func(u *outbox.Unit) { many(u, 101, "") }, outbox.ErrTooLarge, "101 documents, want at most 100"},
		{"too many with their events", func(u *outbox.Unit) {
			many(u, 100, "")
			u.Create(&outbox.Doc[*contact]{ID: "x", PartitionKey: "p", Type: "contact", Data: newContact("")})
		}, outbox.ErrTooLarge, "102 documents"},
		{"too large", func(u *outbox.Unit) {
			many(u, 3, strings.Repeat("x", 1<<20))
		}, outbox.ErrTooLarge, "bytes, want at most 2097152"},
		{"no id", func(u *outbox.Unit) { u.Create(docOf("", &contact{})) }, feed.ErrBadRequest, `ID ""`},
		{"object that looks like an event", func(u *outbox.Unit) {
			u.Create(&outbox.Doc[*contact]{ID: "1", PartitionKey: "1", Type: outbox.EventType, Data: &contact{}})
		}, feed.ErrBadRequest, `Type "domainEvent"`},
		{"event without a name", named(namedEvent("")), feed.ErrBadRequest, "its name is empty"},
		{"event that is no object", named(namedEvent("E")), feed.ErrBadRequest, `it is "E": want a JSON object`},
		{"event with an id of its own", named(idEvent{"7"}), feed.ErrBadRequest, `member "id" of its own`},
		{"event that is no JSON", named(badEvent{}), nil, "unsupported type"},
	} {
		t.Run(test.name, func(t *testing.T) {
			sent := 0
			u := outbox.NewUnit(committerFunc(func(context.Context, feed.PartitionKey, []feed.Write) ([]feed.Result,
				error,
			) {
				sent++
				return nil, errors.New("must not be called")
			}), outbox.Options{})
			test.track(u)
			err := u.Commit(t.Context())
			if err == nil || test.want != nil && !errors.Is(err, test.want) ||
				!strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want %v with %q", err, test.want, test.text)
			}
			if _, ok := errors.AsType[*outbox.NotStoredError](err); !ok {
				t.Errorf("got %T, want that nothing is stored", err)
			}
			if sent > 0 {
				t.Error("something was sent")
			}
		})
	}
}

func TestAUnitHasUpTo100Documents(t *testing.T) {
	contacts, _ := open(t)
	u := outbox.NewUnit(contacts, outbox.Options{})
	for i := range 100 {
		u.Create(&outbox.Doc[*contact]{ID: fmt.Sprint(i), PartitionKey: "p", Type: "contact", Data: &contact{}})
	}
	if err := u.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}

type (
	namedEvent string
	idEvent    struct {
		ID string `json:"id"`
	}
	badEvent struct{ C chan int }
)

func (e namedEvent) EventName() string { return string(e) }
func (idEvent) EventName() string      { return "E" }
func (badEvent) EventName() string     { return "E" }

type committerFunc func(context.Context, feed.PartitionKey, []feed.Write) ([]feed.Result, error)

func (f committerFunc) Commit(ctx context.Context, key feed.PartitionKey, writes []feed.Write) ([]feed.Result, error) {
	return f(ctx, key, writes)
}

// lossy is a store some of whose answers do not arrive.
type lossy struct {
	*docstore.Container
	lose   int // so many answers
	refuse int // and so many requests before
}

var errLost = errors.New("connection reset")

func (l *lossy) Commit(ctx context.Context, key feed.PartitionKey, writes []feed.Write) ([]feed.Result, error) {
	if l.refuse > 0 {
		l.refuse--
		return nil, errLost
	}
	results, err := l.Container.Commit(ctx, key, writes)
	if l.lose > 0 {
		l.lose--
		return nil, errLost
	}
	return results, err
}

func TestACommitWhoseAnswerIsLostIsRepeatedAndNotDoubled(t *testing.T) {
	for refuse := range 2 {
		for lose := range 4 {
			t.Run(fmt.Sprintf("%d requests and %d answers are lost", refuse, lose), func(t *testing.T) {
				contacts, _ := open(t)
				store := &lossy{Container: contacts, refuse: refuse, lose: lose}
				d := docOf("c1", newContact("A"))
				u := outbox.NewUnit(store, outbox.Options{})
				u.Create(d)
				failures := 0
				for err := u.Commit(t.Context()); err != nil; err = u.Commit(t.Context()) {
					if !errors.Is(err, errLost) || failures > 10 {
						t.Fatal(err)
					}
					failures++
				}
				if failures == 0 && refuse+lose > 0 {
					t.Error("no commit has failed")
				}
				docs := stored(t, contacts, "c1")
				if len(docs) != 2 {
					t.Errorf("%d documents, want the contact and its event", len(docs))
				}
				if d.ETag != docs[0]["_etag"] || len(d.Data.Recorded()) > 0 || d.Seq != 1 {
					t.Errorf("after the commit the object is %+v", d)
				}
			})
		}
	}
}

func TestWhatHappensWhileTheOutcomeIsUnknownIsCommittedAfterIt(t *testing.T) {
	for _, lost := range []lossy{{lose: 1}, {refuse: 1}} {
		contacts, _ := open(t)
		store := &lossy{Container: contacts, lose: lost.lose, refuse: lost.refuse}
		d := docOf("c1", newContact("A"))
		u := outbox.NewUnit(store, outbox.Options{})
		u.Create(d)
		if err := u.Commit(t.Context()); !errors.Is(err, errLost) {
			t.Fatal(err)
		}
		d.Data.rename("B")
		u.Replace(d)
		// which records nothing
		u.Create(&outbox.Doc[*contact]{ID: "other", PartitionKey: "c1", Type: "contact", Data: &contact{}})
		if err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := outbox.Load[contact](t.Context(), contacts, "c1", "contact", "other"); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"ContactCreatedEvent", "ContactNameUpdatedEvent"},
			actions(stored(t, contacts, "c1"))); diff != "" {
			t.Error(diff)
		}
		if read, err := outbox.Load[contact](t.Context(), contacts, "c1", "contact", "c1"); err != nil ||
			read.Data.Name != "B" {
			t.Errorf("read %+v, %v", read, err)
		}
	}
}

func TestAnotherUnitIsNeverTakenForThisOne(t *testing.T) {
	contacts, _ := open(t)
	add(t, contacts, "c1", "A")
	// to the byte, but by somebody else; with an event and without
	for _, same := range []*contact{newContact("A"), {Name: "A"}} {
		u := outbox.NewUnit(contacts, outbox.Options{})
		u.Create(docOf("c1", same))
		if err := u.Commit(t.Context()); !errors.Is(err, feed.ErrConflict) {
			t.Errorf("got %v, want a conflict", err)
		}
	}
}

func TestAnObjectThatWasWrittenSinceKeepsItsOldETag(t *testing.T) {
	contacts, _ := open(t)
	d := add(t, contacts, "c1", "A")
	store := &lossy{Container: contacts, lose: 1}
	u := outbox.NewUnit(store, outbox.Options{})
	d.Data.rename("B")
	u.Replace(d)
	if err := u.Commit(t.Context()); !errors.Is(err, errLost) {
		t.Fatal(err)
	}
	other, err := outbox.Load[*contact](t.Context(), contacts, "c1", "contact", "c1")
	if err != nil {
		t.Fatal(err)
	}
	other.Data.rename("C")
	v := outbox.NewUnit(contacts, outbox.Options{})
	v.Replace(other)
	if err := v.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := u.Commit(t.Context()); err != nil {
		t.Fatalf("the first commit was stored: %v", err)
	}
	d.Data.rename("D")
	u.Replace(d)
	if err := u.Commit(t.Context()); !errors.Is(err, feed.ErrPrecondition) {
		t.Errorf("got %v, want that the object has changed since", err)
	}
}

func TestAMessageHasItsEffectOnce(t *testing.T) {
	contacts, _ := open(t)
	for i, want := range []error{nil, outbox.ErrDuplicate} {
		u := outbox.NewUnit(contacts, outbox.Options{})
		u.Once("p", "message/1 #?", time.Hour)
		u.Create(&outbox.Doc[*contact]{
			ID: fmt.Sprint("effect", i), PartitionKey: "p", Type: "contact",
			Data: &contact{},
		})
		if err := u.Commit(t.Context()); !errors.Is(err, want) {
			t.Errorf("the %d. time: got %v, want %v", i+1, err, want)
		}
	}
	if n := len(stored(t, contacts, "p")); n != 2 {
		t.Errorf("%d documents, want the effect and what remembers the message", n)
	}
	store := &lossy{Container: contacts, lose: 1}
	u := outbox.NewUnit(store, outbox.Options{})
	u.Once("p", "message 2", time.Hour)
	if err := u.Commit(t.Context()); !errors.Is(err, errLost) {
		t.Fatal(err)
	}
	if err := u.Commit(t.Context()); err != nil {
		t.Errorf("its own effect is taken for another's: %v", err)
	}
}

func TestAnEmptyUnitCommits(t *testing.T) {
	contacts, _ := open(t)
	if err := outbox.NewUnit(contacts, outbox.Options{}).Commit(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestADocumentOfAnotherTypeIsNotLoaded(t *testing.T) {
	contacts, _ := open(t)
	add(t, contacts, "c1", "A")
	if _, err := outbox.Load[contact](t.Context(), contacts, "c1", "account", "c1"); !errors.Is(err, outbox.ErrType) {
		t.Errorf("got %v", err)
	}
	if _, err := outbox.Load[contact](t.Context(), contacts, "c1", "contact", "c2"); !errors.Is(err, feed.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

// That a repetition is throttled says nothing of the try before it.
func TestAThrottledRepetitionIsRepeated(t *testing.T) {
	contacts, _ := open(t)
	answers := []error{errLost, feed.ErrThrottled, feed.ErrForbidden}
	store := committerFunc(func(ctx context.Context, key feed.PartitionKey, writes []feed.Write) ([]feed.Result,
		error,
	) {
		if len(answers) == 0 {
			return contacts.Commit(ctx, key, writes)
		}
		err := answers[0]
		if answers = answers[1:]; err == errLost {
			if _, err := contacts.Commit(ctx, key, writes); err != nil {
				t.Error(err)
			}
		}
		return nil, err
	})
	d := docOf("c1", newContact("A"))
	u := outbox.NewUnit(store, outbox.Options{})
	u.Create(d)
	for _, want := range []error{outbox.ErrUnknown, outbox.ErrUnknown, outbox.ErrUnknown, nil} {
		if err := u.Commit(t.Context()); !errors.Is(err, want) {
			t.Fatalf("got %v, want %v", err, want)
		}
	}
	if n := len(stored(t, contacts, "c1")); n != 2 {
		t.Errorf("%d documents, want the contact and its event", n)
	}
}
