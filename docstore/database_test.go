package docstore_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

func database(t *testing.T, db *docstore.DB, id, meta string) docstore.Database {
	t.Helper()
	d, err := db.CreateDatabase(t.Context(), id, json.RawMessage(meta))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// databaseIDs are the ids of all databases.
func databaseIDs(db *docstore.DB) []string {
	var all []string
	for _, d := range db.Databases() {
		all = append(all, d.ID)
	}
	return all
}

func TestDatabase(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true})
	made := database(t, db, "shop", `{"a":1}`)
	if made.ID != "shop" || string(made.Meta) != `{"a":1}` || made.ETag == "" || made.RID == "" ||
		made.Changed.IsZero() {
		t.Fatalf("created %+v", made)
	}
	if _, err := db.CreateDatabase(t.Context(), "shop", nil); !errors.Is(err, feed.ErrConflict) {
		t.Fatalf("created twice: %v, want a conflict", err)
	}
	next, err := db.ReplaceDatabase(t.Context(), "shop", json.RawMessage(`{"a":2}`))
	if err != nil || next.RID != made.RID || next.ETag == made.ETag || string(next.Meta) != `{"a":2}` {
		t.Fatalf("replaced %+v, %v", next, err)
	}
	if got, err := db.Database("shop"); err != nil || got.ETag != next.ETag {
		t.Fatalf("read %+v, %v, want what was replaced", got, err)
	}
	if err := db.DeleteDatabase(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]func() error{
		"read":    func() error { _, err := db.Database("shop"); return err },
		"replace": func() error { _, err := db.ReplaceDatabase(t.Context(), "shop", nil); return err },
		"delete":  func() error { return db.DeleteDatabase(t.Context(), "shop") },
		"create container": func() error {
			_, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{
				Database: "shop", ID: "c",
				Paths: []string{"/pk"},
			})
			return err
		},
	} {
		if err := f(); !errors.Is(err, feed.ErrNotFound) || !strings.Contains(err.Error(), `"shop"`) {
			t.Errorf("%s in a database that is gone: %v, want one that names it", what, err)
		}
	}
	if again := database(t, db, "shop", ""); again.RID == made.RID {
		t.Errorf("made anew, it has its old resource id %s", again.RID)
	}
}

func TestDatabaseNames(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true})
	for _, id := range []string{"", "a/b", `a\b`, "a?b", "a#b", strings.Repeat("x", 256)} {
		if _, err := db.CreateDatabase(t.Context(), id, nil); !errors.Is(err, feed.ErrBadRequest) ||
			!strings.Contains(err.Error(), "database id") {
			t.Errorf("database %q: %v, want a bad request that names the field", id, err)
		}
		if id == "" {
			continue // the default database
		}
		spec := docstore.ContainerSpec{Database: id, ID: "c", Paths: []string{"/pk"}}
		if _, err := db.CreateContainer(t.Context(), spec); !errors.Is(err, feed.ErrBadRequest) {
			t.Errorf("container in database %q: %v, want a bad request", id, err)
		}
	}
}

func TestDefaultDatabase(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true})
	if all := databaseIDs(db); len(all) != 0 {
		t.Fatalf("a new store has the databases %v", all)
	}
	c := container(t, db, docstore.ContainerSpec{ID: "c"})
	if c.Name() != "c" || c.Database() != docstore.DefaultDatabase {
		t.Errorf("container %s is in database %s", c.Name(), c.Database())
	}
	for _, name := range []string{"c", "default/c"} {
		if got, err := db.Container(name); err != nil || got != c {
			t.Errorf("container %s is %v, %v", name, got, err)
		}
	}
	d, err := db.Database(docstore.DefaultDatabase)
	if err != nil || d.RID != db.RID() || !strings.HasPrefix(c.Self(), "dbs/"+d.RID+"/colls/"+c.RID()+"/") {
		t.Errorf("default database is %+v, %v; container is %s", d, err, c.Self())
	}
}

func TestContainersOfDatabases(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true})
	a, b := database(t, db, "a", ""), database(t, db, "b", "")
	inA := container(t, db, docstore.ContainerSpec{Database: "a", ID: "c"})
	inB := container(t, db, docstore.ContainerSpec{Database: "b", ID: "c"})
	inDefault := container(t, db, docstore.ContainerSpec{ID: "c"})
	for name, want := range map[string]*docstore.Container{"a/c": inA, "b/c": inB, "c": inDefault} {
		if got, err := db.Container(name); err != nil || got != want || got.Name() != name {
			t.Errorf("container %s is %v, %v", name, got, err)
		}
	}
	if !strings.HasPrefix(inA.Self(), "dbs/"+a.RID+"/") || !strings.HasPrefix(inB.Self(), "dbs/"+b.RID+"/") {
		t.Errorf("links are %s and %s, want %s and %s in them", inA.Self(), inB.Self(), a.RID, b.RID)
	}
	if _, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{
		Database: "a", ID: "c",
		Paths: []string{"/pk"},
	}); !errors.Is(err, feed.ErrConflict) {
		t.Errorf("the same container twice: %v", err)
	}
	upsert(t, inA, "1", "p", 1)
	if err := db.DeleteDatabase(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := inA.Item(t.Context(), feed.Key("p"), "1"); !errors.Is(err, feed.ErrNotFound) {
		t.Errorf("an item of a database that is gone: %v", err)
	}
	if _, err := db.Container("a/c"); !errors.Is(err, feed.ErrNotFound) {
		t.Errorf("a container of a database that is gone: %v", err)
	}
	upsert(t, inB, "1", "p", 1)
	upsert(t, inDefault, "1", "p", 1)
	if got, want := databaseIDs(db), []string{"b", "default"}; !slices.Equal(got, want) {
		t.Errorf("databases are %v, want %v", got, want)
	}
}

func TestContainerMeta(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true})
	spec := docstore.ContainerSpec{ID: "c", Meta: json.RawMessage(`{"x":1}`)}
	c := container(t, db, spec)
	first, rid := etagOf(c), c.RID()
	ttl := 5
	spec = docstore.ContainerSpec{ID: "c", Paths: []string{"/pk"}, Meta: json.RawMessage(`{"x":2}`), DefaultTTL: &ttl}
	if _, err := db.ReplaceContainer(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if got := c.Spec(); string(got.Meta) != `{"x":2}` || *got.DefaultTTL != 5 || etagOf(c) == first || c.RID() != rid {
		t.Errorf("replaced to %+v with ETag %s, which was %s", got, etagOf(c), first)
	}
}

// What is on disk is there again.
func TestDatabasesReopen(t *testing.T) {
	dir := t.TempDir()
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := database(t, db, "shop", `{"a":1}`)
	database(t, db, "gone", "")
	c := container(t, db, docstore.ContainerSpec{Database: "shop", ID: "c", Meta: json.RawMessage(`{"x":1}`)})
	etag, changed := c.Version()
	self := c.Self()
	upsert(t, c, "1", "p", 7)
	if err := db.DeleteDatabase(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Database("shop"); !errors.Is(err, docstore.ErrClosed) {
		t.Errorf("read from a closed store: %v", err)
	}
	if db, err = docstore.Open(dir, docstore.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(db.Check(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	got, err := db.Database("shop")
	if err != nil || got.RID != want.RID || got.ETag != want.ETag || !got.Changed.Equal(want.Changed) ||
		string(got.Meta) != `{"a":1}` {
		t.Errorf("database is %+v, %v, want %+v", got, err, want)
	}
	if all := databaseIDs(db); len(all) != 1 {
		t.Errorf("databases are %v", all)
	}
	if c, err = db.Container("shop/c"); err != nil {
		t.Fatal(err)
	}
	if tag, at := c.Version(); tag != etag || !at.Equal(changed) || changed.IsZero() || c.Self() != self ||
		string(c.Spec().Meta) != `{"x":1}` {
		t.Errorf("container is %+v with ETag %s and link %s, want %s and %s", c.Spec(), etagOf(c), c.Self(), etag, self)
	}
	if it, err := c.Item(t.Context(), feed.Key("p"), "1"); err != nil || !strings.Contains(string(it.Body), `"v":7`) {
		t.Errorf("item is %s, %v", it.Body, err)
	}
}
