package migration

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/changeline"
)

// world is a store with a source and a target of another partition key.
type world struct {
	t    *testing.T
	dir  string
	spec docstore.ContainerSpec // of the source
	key  string                 // of the target
	pair Pair
	copy Copy
	out  written
}

// written keeps what a command has written.
type written struct{ text []byte }

// Write implements io.Writer.
func (o *written) Write(p []byte) (int, error) {
	o.text = append(o.text, p...)
	return len(p), nil
}

// newWorld makes the containers.
func newWorld(t *testing.T, spec docstore.ContainerSpec) *world {
	w := &world{t: t, dir: filepath.Join(t.TempDir(), "data"), spec: spec, key: "/customer"}
	w.pair = Pair{
		Source: "docstore:" + w.dir + "#orders", Target: "docstore:" + w.dir + "#copies", Writers: 8,
		TTL: Remaining,
	}
	w.with(func(db *docstore.DB) {
		spec.ID, spec.Paths = "orders", []string{"/city"}
		w.create(db, spec)
		w.create(db, docstore.ContainerSpec{ID: "copies", Paths: []string{w.key}, DefaultTTL: spec.DefaultTTL})
	})
	return w
}

// create creates a container.
func (w *world) create(db *docstore.DB, spec docstore.ContainerSpec) {
	w.t.Helper()
	if _, err := db.CreateContainer(w.t.Context(), spec); err != nil {
		w.t.Fatal(err)
	}
}

// with opens the store.
func (w *world) with(f func(db *docstore.DB)) {
	w.t.Helper()
	db, err := docstore.Open(w.dir, docstore.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			w.t.Error(err)
		}
	}()
	f(db)
}

// put writes documents into a container.
func (w *world) put(name string, bodies ...string) {
	w.t.Helper()
	w.with(func(db *docstore.DB) {
		c := container(w.t, db, name)
		for _, body := range bodies {
			if _, err := c.Upsert(w.t.Context(), []byte(body)); err != nil {
				w.t.Fatal(err)
			}
		}
	})
}

// remove deletes a document.
func (w *world) remove(name, key, id string) {
	w.t.Helper()
	w.with(func(db *docstore.DB) {
		if err := container(w.t, db, name).Delete(w.t.Context(), feed.Key(key), id, ""); err != nil {
			w.t.Fatal(err)
		}
	})
}

// container returns a container of a store.
func container(t *testing.T, db *docstore.DB, name string) *docstore.Container {
	t.Helper()
	c, err := db.Container(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// all returns the documents of a container, each as its key and its text without system properties.
func (w *world) all(name string) (texts map[string]string) {
	w.t.Helper()
	texts = map[string]string{}
	w.with(func(db *docstore.DB) {
		for item, err := range container(w.t, db, name).Items(w.t.Context(), feed.FullRange(), "") {
			if err != nil {
				w.t.Fatal(err)
			}
			body, err := changeline.WithoutSystem(item.Body)
			if err != nil {
				w.t.Fatal(err)
			}
			texts[string(item.Key)+" "+item.ID] = string(body)
		}
	})
	return texts
}

// run copies until the copy is caught up.
func (w *world) run() error {
	w.t.Helper()
	c := w.copy
	c.Pair, c.UntilCaughtUp, c.Expiration = w.pair, true, time.Minute
	c.Report = report.New(report.Text, &w.out)
	c.Log, c.Say, c.Exit = silent(), func(string) {}, func() {}
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	return c.Run(ctx)
}

// compare compares, and returns the differences.
func (w *world) compare(change func(*Compare)) ([]Difference, error) {
	w.t.Helper()
	c := &Compare{Pair: w.pair, Most: 100, Report: report.New(report.JSON, &w.out)}
	if change != nil {
		change(c)
	}
	w.out.text = nil
	err := c.Run(w.t.Context())
	return differencesIn(w.t, w.out.text), err
}

// expect compares the documents of the target with those expected.
func (w *world) expect(want ...string) {
	w.t.Helper()
	got := w.all("copies")
	for _, text := range want {
		found := false
		for name, body := range got {
			if body == text {
				delete(got, name)
				found = true
				break
			}
		}
		if !found {
			w.t.Errorf("the target lacks %s", text)
		}
	}
	for name, body := range got {
		w.t.Errorf("the target has %s: %s", name, body)
	}
}

// order is a document of an order.
func order(id, city, customer string, n int) string {
	return fmt.Sprintf(`{"id":%q,"city":%q,"customer":%q,"n":%d}`, id, city, customer, n)
}
