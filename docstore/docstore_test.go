package docstore_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// open is a store in a fresh directory that is checked at the end of the test.
func open(t testing.TB, o docstore.Options) *docstore.DB {
	t.Helper()
	db, err := docstore.Open(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Check(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func container(t testing.TB, db *docstore.DB, s docstore.ContainerSpec) *docstore.Container {
	t.Helper()
	if s.ID == "" {
		s.ID = "c"
	}
	if s.Paths == nil {
		s.Paths = []string{"/pk"}
	}
	c, err := db.CreateContainer(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func upsert(t testing.TB, c *docstore.Container, id, pk string, v int) docstore.Item {
	t.Helper()
	it, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":%q,"pk":%q,"v":%d}`, id, pk, v))
	if err != nil {
		t.Fatal(err)
	}
	return it
}

// drain reads a range to its end.
func drain(t testing.TB, c *docstore.Container, r feed.Range, from feed.Position, o feed.ReadOptions) ([]feed.Change,
	feed.Position,
) {
	t.Helper()
	var all []feed.Change
	for {
		page, err := c.Read(t.Context(), r, from, o)
		if err != nil {
			t.Fatal(err)
		}
		if from = page.Next; len(page.Changes) == 0 {
			return all, from
		}
		all = append(all, page.Changes...)
	}
}

func TestWritesAppearInTheFeed(t *testing.T) {
	db := open(t, docstore.Options{})
	c := container(t, db, docstore.ContainerSpec{})
	for i := range 10 {
		upsert(t, c, fmt.Sprint("i", i), fmt.Sprint("p", i%3), i)
	}
	upsert(t, c, "i0", "p0", 100)
	got, next := drain(t, c, feed.FullRange(), feed.Position{Start: feed.FromBeginning()},
		feed.ReadOptions{MaxItems: 3})
	if len(got) != 10 || got[9].ID != "i0" || got[9].LSN != 11 {
		t.Errorf("got %d changes, last %+v", len(got), got[len(got)-1])
	}
	if next.Token != `"11"` {
		t.Errorf("next is %s", next)
	}
	it, err := c.Item(t.Context(), feed.Key("p0"), "i0")
	if err != nil || it.LSN != 11 || string(it.Body) != string(got[9].Body) {
		t.Errorf("item %s: %v", it.Body, err)
	}
}

func TestReadAfterSplitAndMerge(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true})
	c := container(t, db, docstore.ContainerSpec{})
	for i := range 100 {
		upsert(t, c, fmt.Sprint("i", i), fmt.Sprint("p", i), i)
	}
	made, err := c.Split(t.Context(), "0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(t.Context(), feed.FullRange(), feed.At("5"), feed.ReadOptions{}); !errors.Is(err,
		feed.ErrGone) {
		t.Errorf("read of the old range: %v", err)
	}
	for i := range 50 {
		upsert(t, c, fmt.Sprint("i", i), fmt.Sprint("p", i), i)
	}
	n := 0
	for _, p := range made {
		got, _ := drain(t, c, p.Range, feed.At(`"20"`), feed.ReadOptions{})
		n += len(got)
	}
	if n != 100 {
		t.Errorf("children have %d changes", n)
	}
	m, err := c.Merge(t.Context(), made[1].ID, made[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := drain(t, c, m.Range, feed.At("0"), feed.ReadOptions{MaxItems: 7})
	if len(got) != 100 || c.Count() != 100 {
		t.Errorf("merged has %d changes, %d documents", len(got), c.Count())
	}
	for i := range got[1:] {
		if got[i].LSN >= got[i+1].LSN {
			t.Fatalf("LSN %d before %d", got[i].LSN, got[i+1].LSN)
		}
	}
}

func TestWaitWakesReader(t *testing.T) {
	db := open(t, docstore.Options{})
	c := container(t, db, docstore.ContainerSpec{})
	it := upsert(t, c, "a", "p", 1)
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	go func() { done <- c.Wait(ctx, feed.FullRange(), feed.At(fmt.Sprint(it.LSN))) }()
	upsert(t, c, "a", "p", 2)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestLeasesAreWrittenUnderTheirETag(t *testing.T) {
	db := open(t, docstore.Options{})
	c := container(t, db, docstore.ContainerSpec{})
	lc := container(t, db, docstore.ContainerSpec{
		ID: "leases", Paths: []string{"/id"},
		DefaultTTL: new(docstore.NoDefaultTTL),
	})
	s, err := docstore.NewLeases(t.Context(), lc, "proc", c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Create(t.Context(), feed.Record{
		Kind: feed.KindLease, Token: "-FF", Range: feed.FullRange(),
		Version: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	_, cursor, _, err := s.Follow(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	l2 := l
	l2.Owner = "me"
	if l2, err = s.Update(t.Context(), l2); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update(t.Context(), l); !errors.Is(err, feed.ErrConflict) {
		t.Errorf("stale update: %v", err)
	}
	changed, _, _, err := s.Follow(t.Context(), cursor)
	if err != nil || len(changed) != 1 || changed[0].Owner != "me" {
		t.Errorf("followed %+v, %v", changed, err)
	}
	list, now, err := s.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Owner != "me" || now.IsZero() {
		t.Errorf("list %+v %v", list, err)
	}
	if err := s.Delete(t.Context(), l2); err != nil {
		t.Error(err)
	}
}

func valueOf(t testing.TB, body []byte) int {
	t.Helper()
	var d struct{ V int }
	if err := json.Unmarshal(body, &d); err != nil {
		t.Fatal(err)
	}
	return d.V
}

// SDKs tell an item's resource id from that of a stored procedure by four bits of its end.
func TestResourceIDsOfItems(t *testing.T) {
	c := container(t, open(t, docstore.Options{InMemory: true}), docstore.ContainerSpec{})
	seen := map[string]bool{}
	for i := range 100 {
		var said struct {
			RID string `json:"_rid"`
		}
		if err := json.Unmarshal(upsert(t, c, fmt.Sprint(i), "p", i).Body, &said); err != nil {
			t.Fatal(err)
		}
		rid, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(said.RID, "-", "/"))
		if err != nil || len(rid) != 16 || rid[15]>>4 != 0 || seen[said.RID] {
			t.Errorf("item %d has the resource id %q: %x, %v", i, said.RID, rid, err)
		}
		seen[said.RID] = true
	}
}
