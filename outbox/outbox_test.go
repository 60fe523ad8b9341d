package outbox_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
)

// contact is the aggregate of these tests.
type contact struct {
	outbox.Recorder
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

type contactCreated struct {
	Contact *contact `json:"contact"`
}

type nameUpdated struct {
	Name string `json:"name"`
}

type descriptionUpdated struct {
	Description string `json:"description"`
}

func (contactCreated) EventName() string     { return "ContactCreatedEvent" }
func (nameUpdated) EventName() string        { return "ContactNameUpdatedEvent" }
func (descriptionUpdated) EventName() string { return "ContactDescriptionUpdatedEvent" }

func newContact(name string) *contact {
	c := &contact{Name: name}
	c.RecordCreated(contactCreated{c})
	return c
}

func (c *contact) rename(to string) {
	c.Name = to
	c.Record(nameUpdated{to})
}

func (c *contact) describe(as string) {
	c.Description = as
	c.Record(descriptionUpdated{as})
}

func (c *contact) events() (names []string) {
	for _, e := range c.Recorded() {
		names = append(names, e.EventName())
	}
	return names
}

// open opens an empty container for outboxes, and one for leases.
func open(t *testing.T) (contacts, leases *docstore.Container) {
	t.Helper()
	db, err := docstore.Open(t.TempDir(), docstore.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(db.Check(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	contacts, err = db.CreateContainer(t.Context(),
		docstore.ContainerSpec{
			ID: "contacts", Paths: []string{"/partitionKey"},
			DefaultTTL: new(docstore.NoDefaultTTL),
		})
	if err != nil {
		t.Fatal(err)
	}
	leases, err = db.CreateContainer(t.Context(), docstore.LeaseSpec("leases"))
	if err != nil {
		t.Fatal(err)
	}
	return contacts, leases
}

func docOf(id string, c *contact) *outbox.Doc[*contact] {
	return &outbox.Doc[*contact]{ID: id, PartitionKey: id, Type: "contact", Data: c}
}

// add commits a new contact.
func add(t *testing.T, store feed.Committer, id, name string) *outbox.Doc[*contact] {
	t.Helper()
	d := docOf(id, newContact(name))
	u := outbox.NewUnit(store, outbox.Options{})
	u.Create(d)
	if err := u.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

// stored are the documents of a logical partition, as they are.
func stored(t *testing.T, in *docstore.Container, key string) (docs []map[string]any) {
	t.Helper()
	for item, err := range in.Logical(t.Context(), feed.Key(key), 0) {
		if err != nil {
			t.Fatal(err)
		}
		var d map[string]any
		if err := json.Unmarshal(item.Body, &d); err != nil {
			t.Fatal(err)
		}
		docs = append(docs, d)
	}
	return docs
}

// actions are those of the events among documents.
func actions(docs []map[string]any) (names []string) {
	for _, d := range docs {
		if d["type"] == outbox.EventType {
			names = append(names, d["data"].(map[string]any)["action"].(string))
		}
	}
	return names
}

// letterBox is a container of dead letters.
func letterBox(t *testing.T) feed.LetterBox {
	t.Helper()
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	c, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{
		ID:    "letters",
		Paths: []string{deadletters.KeyPath},
	})
	if err != nil {
		t.Fatal(err)
	}
	box, err := deadletters.Container(c, "relay", c)
	if err != nil {
		t.Fatal(err)
	}
	return box
}
