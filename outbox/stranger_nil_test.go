package outbox_test

import (
	"testing"

	"github.com/millrace/changefeed/outbox"
)

func TestStrangerNilData(t *testing.T) {
	contacts, _ := open(t)
	if _, err := contacts.Create(t.Context(), []byte(`{"id":"c1","partitionKey":"c1","type":"contact","data":null}`)); err != nil {
		t.Fatal(err)
	}
	d, err := outbox.Load[*contact](t.Context(), contacts, "c1", "contact", "c1")
	if err != nil {
		t.Skip(err)
	}
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("Load returned a document without an error, and tracking it panics: %v", p)
		}
	}()
	u := outbox.NewUnit(contacts, outbox.Options{})
	u.Delete(d)
	if err := u.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}
