package migration

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/cosmosrest/faulty"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
)

// silent logs nothing.
func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

// differencesIn reads the differences of a comparison.
func differencesIn(t *testing.T, text []byte) []Difference {
	t.Helper()
	var result Comparison
	if err := json.Unmarshal(text, &result); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return result.Differences
}

// TestACopyFollowsEdits: all versions show where an item was, so an edited key and a delete leave nothing behind.
func TestACopyFollowsEdits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docstore.ContainerSpec{Retention: time.Hour})
	w.put("orders", order("1", "Oslo", "ada", 1), order("2", "Oslo", "ada", 1), order("3", "Rome", "bob", 1))
	if err := w.run(); err != nil {
		t.Fatal(err)
	}
	w.put("orders", order("1", "Oslo", "bob", 2), order("3", "Rome", "bob", 2), order("4", "Rome", "eve", 1))
	w.remove("orders", "Oslo", "2")
	if err := w.run(); err != nil {
		t.Fatal(err)
	}
	w.expect(order("1", "Oslo", "bob", 2), order("3", "Rome", "bob", 2), order("4", "Rome", "eve", 1))
}

// TestWithoutDeletesCompareFindsWhatIsLeft: without all versions, an edited key and a hard delete leave documents
// behind. compare names exactly them, and removes them.
func TestWithoutDeletesCompareFindsWhatIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docstore.ContainerSpec{})
	w.pair.DeletedWhen = "deleted"
	w.put("orders", order("1", "Oslo", "ada", 1), order("2", "Oslo", "ada", 1), order("3", "Rome", "bob", 1))
	if err := w.run(); err != nil {
		t.Fatal(err)
	}
	w.put("orders", order("1", "Oslo", "bob", 2), `{"id":"3","city":"Rome","customer":"bob","deleted":true}`)
	w.remove("orders", "Oslo", "2")
	if err := w.run(); err != nil {
		t.Fatal(err)
	}
	w.expect(order("1", "Oslo", "ada", 1), order("1", "Oslo", "bob", 2), order("2", "Oslo", "ada", 1)) // not 3
	found, err := w.compare(nil)
	if err == nil || len(found) != 2 || found[0].What != surplus || found[1].What != surplus || found[0].ID != "1" ||
		found[1].ID != "2" || found[0].Key != `["ada"]` {
		t.Errorf("compare finds %+v, %v", found, err)
	}
	if found, err := w.compare(func(c *Compare) { c.Repair = true }); err != nil || len(found) > 0 {
		t.Errorf("after the repair compare finds %+v, %v", found, err)
	}
	w.expect(order("1", "Oslo", "bob", 2))
}

// TestAnOldChangeOverwritesNothing: changes that come again, late, or in another order leave what is newer.
func TestAnOldChangeOverwritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docstore.ContainerSpec{Retention: time.Hour})
	w.put("orders", order("1", "Oslo", "ada", 1), order("2", "Oslo", "ada", 1))
	old := w.changes()
	w.put("orders", order("1", "Oslo", "ada", 2))
	w.remove("orders", "Oslo", "2")
	now := w.changes()
	w.handle(now, false)
	w.expect(order("1", "Oslo", "ada", 2))
	w.handle(old, true)
	w.expect(order("1", "Oslo", "ada", 2))
}

// changes returns the changes of the source.
func (w *world) changes() (all []feed.Change) {
	w.t.Helper()
	w.with(func(db *docstore.DB) {
		c := container(w.t, db, "orders")
		start := feed.Position{Start: feed.FromBeginning()}
		page, err := c.Read(w.t.Context(), feed.FullRange(), start, feed.ReadOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		all = page.Changes
	})
	return all
}

// handle hands changes to a handler.
func (w *world) handle(changes []feed.Change, checksAfter bool) {
	w.t.Helper()
	c, err := w.pair.open(w.t.Context(), nil, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.close()
	m, err := w.pair.mapper(c)
	if err != nil {
		w.t.Fatal(err)
	}
	h := &handler{copier: newCopier(c, m, 4), checksAfter: checksAfter, done: new(atomic.Int64)}
	h.fail = func(err error) { w.t.Error(err) }
	if err := h.Handle(w.t.Context(), &feed.Batch{LeaseToken: "-FF", Changes: changes}); err != nil {
		w.t.Error(err)
	}
}

// TestACopyKeepsTheRestOfALife: a ttl counts from the write in the target, so it is what is left.
func TestACopyKeepsTheRestOfALife(t *testing.T) {
	t.Parallel()
	on := -1
	w := newWorld(t, docstore.ContainerSpec{DefaultTTL: &on})
	written := now().Add(-100 * time.Second)
	body, expires := withRemaining([]byte(`{"id":"1","ttl": 3600 ,"n":1}`), written)
	if want := `{"id":"1","ttl": 3500 ,"n":1}`; string(body) != want || !expires.Equal(written.Add(time.Hour)) {
		t.Errorf("got %s until %v, want %s", body, expires, want)
	}
	for _, same := range []string{`{"ttl":-1}`, `{"ttl":"3600"}`, `{"a":{"ttl":5}}`, `{}`} {
		if body, expires := withRemaining([]byte(same), written); string(body) != same || !expires.IsZero() {
			t.Errorf("%s became %s until %v", same, body, expires)
		}
	}
	m := &mapper{remaining: true, paths: []pkey.Path{{"id"}}}
	_, isOver, err := m.placeOne(document{time: written}, []byte(`{"id":"1","ttl":99}`), false)
	if err != nil || !isOver {
		t.Errorf("an item whose life is over is copied: %v", err)
	}
	w.put("orders", `{"id":"1","city":"Oslo","customer":"ada","ttl":3600}`)
	if err := w.run(); err != nil {
		t.Fatal(err)
	}
	if found, err := w.compare(nil); err != nil || len(found) > 0 {
		t.Errorf("compare finds %+v, %v", found, err)
	}
}

// TestAnExpiryIsCopied: an item of the source that expires leaves the target, although the target has no time to live.
func TestAnExpiryIsCopied(t *testing.T) {
	t.Parallel()
	on := -1
	w := newWorld(t, docstore.ContainerSpec{Retention: time.Hour, DefaultTTL: &on})
	w.pair.TTL = Exact
	w.pair.Target = "docstore:" + w.dir + "#lasting"
	w.with(func(db *docstore.DB) {
		w.create(db, docstore.ContainerSpec{ID: "lasting", Paths: []string{"/customer"}})
	})
	w.put("orders", `{"id":"1","city":"Oslo","customer":"ada","ttl":2}`, order("2", "Oslo", "ada", 1))
	if err := w.run(); err != nil {
		t.Fatal(err)
	}
	if n := len(w.all("lasting")); n != 2 {
		t.Skipf("the item has expired before it was copied: %d", n) // a busy machine
	}
	for begun := time.Now(); len(w.all("lasting")) != 1; {
		if err := w.run(); err != nil || time.Since(begun) > 30*time.Second {
			t.Fatalf("the item has not left the target: %v", err)
		}
	}
}

// TestItemsWithOnePlaceAreAConflict: the second item is named, and the first stays.
func TestItemsWithOnePlaceAreAConflict(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docstore.ContainerSpec{})
	w.put("orders", order("1", "Oslo", "ada", 1), order("1", "Rome", "ada", 2), order("1", "Rome", "bob", 3))
	err := w.run()
	if err != nil { // the last version of 1 in Rome has another customer
		t.Fatal(err)
	}
	w.put("orders", order("1", "Rome", "ada", 4))
	err = w.run()
	want := regexp.MustCompile(`item "1" of partition key \["Rome"\].*conflict.*\["Oslo"\].*key \["ada"\]`)
	if err == nil || !want.MatchString(err.Error()) {
		t.Errorf("the error is %v", err)
	}
	found, err := w.compare(nil)
	if err == nil || found[0].What != conflicting || found[0].ID != "1" {
		t.Errorf("compare finds %+v, %v", found, err)
	}
	if got := w.all("copies")[`["ada"] 1`]; got != order("1", "Oslo", "ada", 1) {
		t.Errorf("the first item became %s", got)
	}
}

// TestAThrottledTargetLosesNothing: the target throttles, fails and is restarted, and everything arrives.
func TestAThrottledTargetLosesNothing(t *testing.T) {
	t.Parallel()
	server := cosmostest.NewTestServer(t)
	if _, err := server.DB.CreateDatabase(t.Context(), "shop", nil); err != nil {
		t.Fatal(err)
	}
	made, err := server.DB.CreateContainer(t.Context(), docstore.ContainerSpec{
		Database: "shop", ID: "copies", Paths: []string{"/customer"},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, docstore.ContainerSpec{})
	var bodies []string
	for i := range 200 {
		bodies = append(bodies, order(fmt.Sprint(i), "Oslo", fmt.Sprintf("c%d", i%40), i))
	}
	w.put("orders", bodies...)
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		fault := faulty.Fault{Container: "shop/copies", Method: http.MethodPost, Status: status, Times: 6}
		if status == http.StatusTooManyRequests {
			fault.SubStatus = 3200
		}
		if err := server.Faults.Add(fault); err != nil {
			t.Fatal(err)
		}
	}
	w.pair.Target = server.URL + "/shop/copies"
	if err := w.run(); err != nil {
		t.Fatal(err)
	}
	if n := made.Count(); n != 200 {
		t.Errorf("the target has %d documents, want 200", n)
	}
	if found, err := w.compare(nil); err != nil {
		t.Errorf("compare finds %+v, %v", found, err)
	}
}

// TestWhatCanNeverBeCopied: such an item ends the copy with its name, or is parked.
func TestWhatCanNeverBeCopied(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docstore.ContainerSpec{})
	w.put("orders", order("1", "Oslo", "ada", 1), order("2", "Oslo", "ada", 1))
	w.pair.Transform = []string{
		program(t, `d=$(cat); case $d in *'"id":"2"'*) exit 3;; esac; printf %s "$d"`),
	}
	if err := w.run(); err == nil || !strings.Contains(err.Error(), `item "2" of partition key ["Oslo"]`) {
		t.Errorf("the copy has ended with %v", err)
	}
	w.copy.Letters, w.copy.Name = "docstore:"+w.dir+"#letters", "parking"
	if err := w.run(); err != nil {
		t.Fatal(err)
	}
	w.expect(order("1", "Oslo", "ada", 1))
	if n := len(w.all("letters")); n != 1 {
		t.Errorf("there are %d letters, want 1", n)
	}
	found, err := w.compare(nil)
	if err == nil || len(found) != 1 || found[0].What != uncopied || found[0].Item != "2" {
		t.Errorf("compare finds %+v, %v", found, err)
	}
}

// TestTheTargetMustBeAnotherContainer: also if a server has two names.
func TestTheTargetMustBeAnotherContainer(t *testing.T) {
	t.Parallel()
	server := cosmostest.NewTestServer(t)
	w := newWorld(t, docstore.ContainerSpec{})
	w.create(server.DB, docstore.ContainerSpec{ID: "c", Paths: []string{"/id"}})
	p := Pair{Source: server.URL + "/default/c", Writers: 1}
	p.Target = strings.Replace(p.Source, "127.0.0.1", "localhost", 1)
	_, err := p.open(t.Context(), nil, nil)
	if err == nil || !strings.Contains(err.Error(), "it is the source itself") {
		t.Errorf("the error is %v", err)
	}
	missing := p
	missing.Target = server.URL + "/default/absent"
	if _, err := missing.open(t.Context(), nil, nil); !isErrNoContainer(err) {
		t.Errorf("the error is %v", err)
	}
}

// isErrNoContainer reports whether the error names a missing container.
func isErrNoContainer(err error) bool {
	return err != nil && strings.Contains(err.Error(), place.ErrNoContainer.Error())
}

// TestASourceThatIsGoneDeletesNothing: an account answers for an item of a missing container as for a missing item.
func TestASourceThatIsGoneDeletesNothing(t *testing.T) {
	t.Parallel()
	server := cosmostest.NewTestServer(t)
	w := newWorld(t, docstore.ContainerSpec{})
	for _, name := range []string{"from", "to"} {
		w.create(server.DB, docstore.ContainerSpec{ID: name, Paths: []string{"/city"}})
	}
	if _, err := container(t, server.DB, "to").Upsert(t.Context(), []byte(order("1", "Oslo", "ada", 1))); err != nil {
		t.Fatal(err)
	}
	p := Pair{Source: server.URL + "/default/from", Target: server.URL + "/default/to", Writers: 1}
	c, err := p.open(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if err := server.DB.DeleteContainer(context.Background(), "from"); err != nil {
		t.Fatal(err)
	}
	m, err := p.mapper(c)
	if err != nil {
		t.Fatal(err)
	}
	s := &subject{key: feed.Key("Oslo"), id: "1", spots: []spot{{feed.Key("Oslo"), "1"}}}
	if err := newCopier(c, m, 1).reconcile(t.Context(), []*subject{s}); err == nil {
		t.Error("a missing source was no error")
	}
	if n := container(t, server.DB, "to").Count(); n != 1 {
		t.Errorf("the target has %d documents, want 1", n)
	}
}
