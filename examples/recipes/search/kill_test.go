package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/examples/recipes/internal/fleettest"
	"github.com/millrace/changefeed/feed"
)

const (
	kills  = 21
	before = 100 // items that exist before the unit does
)

// truth is what the writer has written: the texts of the live items. Item 0 never changes.
type truth struct {
	container *docstore.Container
	texts     map[string]string
	writes    int
}

func (w *truth) write(ctx context.Context) error {
	id := fmt.Sprint(1 + rand.IntN(2*before))
	w.writes++
	w.texts[id] = fmt.Sprintf("lamp version%d", w.writes)
	writes := []feed.Write{{Body: fmt.Appendf(nil, `{"id":%q,"text":%q}`, id, w.texts[id])}}
	if rand.IntN(3) == 0 { // in the same transaction, with the same LSN
		writes = append(writes, feed.Write{Op: feed.WriteDelete, ID: id})
		delete(w.texts, id)
	}
	_, err := w.container.Commit(ctx, feed.Key(id), writes)
	return err
}

// indexed reads all texts of the live index, and returns the name of the index.
func indexed(ctx context.Context, folder string) (texts map[string]string, name string, err error) {
	live, err := os.ReadFile(filepath.Join(folder, "live"))
	if err != nil {
		return nil, "", err
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(folder, string(live)+".sqlite?_pragma=busy_timeout(60000)"))
	if err != nil {
		return nil, "", err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, `SELECT id, text FROM texts JOIN docs ON row = texts.rowid WHERE texts MATCH 'lamp'`)
	if err != nil {
		return nil, "", err
	}
	defer rows.Close()
	texts = map[string]string{}
	for rows.Next() {
		var id, text string
		if err := rows.Scan(&id, &text); err != nil {
			return nil, "", err
		}
		texts[id] = text
	}
	return texts, string(live), rows.Err()
}

// watch searches until ctx ends. As soon as there is a live index, each search must find item 0.
func watch(ctx context.Context, folder string) error {
	searches := 0
	for ctx.Err() == nil {
		texts, name, err := indexed(ctx, folder)
		switch {
		case ctx.Err() != nil, searches == 0 && errors.Is(err, os.ErrNotExist):
		case err != nil:
			return err
		case texts["0"] == "":
			return fmt.Errorf("index %s lacks item 0", name)
		default:
			searches++
		}
		time.Sleep(20 * time.Millisecond)
	}
	if searches == 0 {
		return errors.New("nobody could search")
	}
	return nil
}

func (w *truth) check(ctx context.Context, folder, index string) error {
	got, name, err := indexed(ctx, folder)
	switch {
	case err != nil:
		return err
	case name != index:
		return fmt.Errorf("index %s is live, and %s should be", name, index)
	case maps.Equal(got, w.texts):
		return nil
	}
	for id, text := range w.texts {
		if got[id] != text {
			return fmt.Errorf("item %s has the text %q, and should have %q", id, got[id], text)
		}
	}
	return fmt.Errorf("%d items, and %d should be", len(got), len(w.texts))
}

func TestMain(m *testing.M) { fleettest.RunAs(m, main) }

func TestTheIndexIsRightAlthoughProcessesAreKilled(t *testing.T) {
	folder := t.TempDir()
	server := fleettest.StartAccount(t, docstore.ContainerSpec{
		ID: "products", Paths: []string{"/id"}, Ranges: 4, Retention: time.Hour,
	})
	products, err := server.DB.Container("shop/products")
	if err != nil {
		t.Fatal(err)
	}
	w := &truth{container: products, texts: map[string]string{"0": "lamp"}}
	if _, err := products.Upsert(t.Context(), []byte(`{"id":"0","text":"lamp"}`)); err != nil {
		t.Fatal(err)
	}
	for range before {
		if err := w.write(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var wrong error
	var watching sync.WaitGroup
	watching.Go(func() { wrong = watch(ctx, folder) })
	all := fleettest.Against(server, "shop/products", folder)
	v2 := fleettest.Against(server, "shop/products", folder, "-index", "v2")
	all.KillMany(t, kills, w.write, func(kill int) {
		switch {
		case kill == 2:
			all.Freeze(t)
		case kill == kills/3: // v1 must be live before, because the last new index wins
			all.Eventually(t, func() error { _, err := os.Stat(filepath.Join(folder, "live")); return err })
			v2.Start(t)
		case kill == kills/2:
			fleettest.Split(t, products)
		case kill > kills/3 && kill%2 == 0: // a building process dies too
			killOne(t, v2)
		}
	})
	v2.Eventually(t, func() error { return w.check(t.Context(), folder, "v2") })
	stop()
	watching.Wait()
	if wrong != nil {
		t.Error(wrong)
	}
	all.Stop(t)
	v2.Stop(t)
	if err := w.check(t.Context(), folder, "v2"); err != nil {
		t.Error("after the stop:", err)
	}
	out, err := fleettest.Recipe(t, folder, "lamp").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "0 lamp") {
		t.Errorf("the command found %s, %v", out, err)
	}
	t.Logf("%d writes, %d kills", w.writes, kills)
}

func TestItRunsOnALocalStore(t *testing.T) {
	folder := t.TempDir()
	if said := fleettest.RunLocally(t, folder); !strings.Contains(said, "changes indexed") {
		t.Error(said)
	}
	out, err := fleettest.Recipe(t, folder, "lamp").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "lamp") {
		t.Errorf("found %s, %v", out, err)
	}
}

func TestAnOlderVersionReplacesNothing(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "live"), []byte("v1"), 0o600); err != nil {
		t.Fatal(err)
	}
	x := openIndex(filepath.Join(folder, "v1"))
	defer x.Close()
	version := func(lsn int64, op feed.Op, text string) feed.Change {
		body := fmt.Appendf(nil, `{"id":"7","text":%q}`, text)
		if op == feed.OpDelete {
			body = nil
		}
		return feed.Change{Op: op, ID: "7", PartitionKey: feed.Key("7"), LSN: lsn, Body: body}
	}
	for _, step := range []struct {
		changes []feed.Change
		want    string
	}{
		{[]feed.Change{version(5, feed.OpCreate, "lamp five")}, "lamp five"},
		{[]feed.Change{version(4, feed.OpReplace, "lamp four")}, "lamp five"},
		{[]feed.Change{version(4, feed.OpDelete, "")}, "lamp five"},
		{[]feed.Change{version(7, feed.OpReplace, "lamp seven"), version(7, feed.OpReplace, "lamp 8")}, "lamp 8"},
		{[]feed.Change{version(9, feed.OpDelete, "")}, ""},
		{[]feed.Change{version(8, feed.OpReplace, "lamp nine")}, ""},
	} {
		if err := changefeed.Items(x.handle).Handle(t.Context(), &feed.Batch{Changes: step.changes}); err != nil {
			t.Fatal(err)
		}
		if got, _, err := indexed(t.Context(), folder); got["7"] != step.want || err != nil {
			t.Errorf("after LSN %d: %q, %v; should be %q", step.changes[0].LSN, got["7"], err, step.want)
		}
	}
}

// killOne kills one of the processes, and starts another one.
func killOne(t *testing.T, f *fleettest.Fleet) {
	t.Helper()
	f.Kill(t, f.Running[rand.IntN(len(f.Running))])
}

func TestTheIndexHasTheLocalStoreAfterKills(t *testing.T) {
	folder := t.TempDir()
	all, db := fleettest.KillLocally(t, folder, "search-data", "shop/products", nil)
	products, err := db.Container("shop/products")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for it, err := range products.Items(t.Context(), feed.FullRange(), "") {
		var p product
		if err := errors.Join(err, json.Unmarshal(it.Body, &p)); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(p.Text, "lamp") {
			want[it.ID] = p.Text
		}
	}
	all.Eventually(t, func() error {
		got, _, err := indexed(t.Context(), folder)
		if err == nil && !maps.Equal(got, want) {
			err = fmt.Errorf("the index has %v, and the store %v", got, want)
		}
		return err
	})
	all.Stop(t)
}
