package docstore_test

import (
	"encoding/json"
	"testing"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// namesOf returns the names of a document's members, in order.
func namesOf(body []byte) (names string) {
	for key := range rawjson.Members(body) {
		names += string(key.Name()) + " "
	}
	return names
}

func TestAPatchKeepsMembersInTheirPlaces(t *testing.T) {
	dir := t.TempDir()
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := container(t, db, docstore.ContainerSpec{})
	if _, err := c.Create(t.Context(), []byte(`{"id":"a","pk":"p","n":1}`)); err != nil {
		t.Fatal(err)
	}
	patch := func(op, path, value, want string) {
		t.Helper()
		ops := []feed.PatchOp{{Op: op, Path: path, Value: json.RawMessage(value)}}
		item, err := c.Patch(t.Context(), feed.Key("p"), "a", ops, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := namesOf(item.Body); got != want {
			t.Errorf("after %s %s: %s, want %s", op, path, got, want)
		}
	}
	patch("add", "/x", `{"_etag":"\"mine\"","_rid":"mine"}`, "id pk n _rid _self _etag _attachments x _ts ")
	patch("set", "/n", `2`, "id pk n _rid _self _etag _attachments x _ts ")
	patch("add", "/y", `2`, "id pk n _rid _self _etag _attachments x y _ts ")
	// What the user wrote is not taken for the store's properties, also when the store is opened again.
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err = docstore.Open(dir, docstore.Options{}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := db.Check(); err != nil {
		t.Error(err)
	}
	if c, err = db.Container(c.Name()); err != nil {
		t.Fatal(err)
	}
	patch("remove", "/x", ``, "id pk n _rid _self _etag _attachments y _ts ")
}
