package migration

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// raced is a copier whose source is on a server, so that a test can act while it is read.
type raced struct {
	*world
	*copier

	opened    *containers
	whileRead atomic.Pointer[func()] // is called once, by the next read of an item of the source, before its answer
}

// newRaced makes a source with the documents of some orders, and an empty target.
func newRaced(t *testing.T, bodies ...string) *raced {
	t.Helper()
	server := cosmostest.NewTestServer(t)
	w := newWorld(t, docstore.ContainerSpec{})
	w.create(server.DB, docstore.ContainerSpec{ID: "from", Paths: []string{"/city"}})
	for _, body := range bodies {
		if _, err := container(t, server.DB, "from").Upsert(t.Context(), []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	r := &raced{world: w}
	w.pair.Source = r.before(server.URL) + "/default/from"
	opened, err := w.pair.open(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := w.pair.mapper(opened)
	if err != nil {
		t.Fatal(err)
	}
	r.copier, r.opened = newCopier(opened, m, 4), opened
	return r
}

// before returns the address of a server that calls whileRead and then passes each request on.
func (r *raced) before(server string) string {
	r.t.Helper()
	to, err := url.Parse(server)
	if err != nil {
		r.t.Fatal(err)
	}
	pass := httputil.NewSingleHostReverseProxy(to) // keeps the Host, so the account says that it is here
	gate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodGet && strings.HasPrefix(q.URL.Path, "/dbs/default/colls/from/docs/") {
			if act := r.whileRead.Swap(nil); act != nil {
				(*act)()
			}
		}
		pass.ServeHTTP(w, q)
	}))
	r.t.Cleanup(gate.Close)
	return gate.URL
}

// write writes to the target, as another instance would.
func (r *raced) write(body string) {
	r.t.Helper()
	if _, err := r.opened.target.Local.Upsert(r.t.Context(), []byte(body)); err != nil {
		r.t.Error(err)
	}
}

// during calls act while f reads an item of the source.
func (r *raced) during(f, act func()) {
	r.t.Helper()
	r.whileRead.Store(&act)
	f()
	if r.whileRead.Swap(nil) != nil {
		r.t.Error("no item of the source was read: the test shows nothing")
	}
}

// expectAfterClose compares the target, which a store opens once at a time.
func (r *raced) expectAfterClose(want ...string) {
	r.t.Helper()
	if err := r.opened.close(); err != nil {
		r.t.Fatal(err)
	}
	r.expect(want...)
}

// TestWhatIsWrittenMeanwhileIsNotReplaced: somebody else writes an item of the target after it was read, at once or
// while the source is read, and at a place where there was nothing. What they have written stays until the copier has
// looked again.
func TestWhatIsWrittenMeanwhileIsNotReplaced(t *testing.T) {
	t.Parallel()
	was, newest := order("1", "Oslo", "ada", 1), order("1", "Oslo", "ada", 9)
	for name, tt := range map[string]struct{ isThere, whileReading, isGone bool }{
		"replaced after the look":  {isThere: true},
		"replaced during the look": {isThere: true, whileReading: true},
		"created after the look":   {},
		"created during the look":  {whileReading: true},
		"deleted from the source":  {isThere: true, isGone: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var bodies []string
			if !tt.isGone {
				bodies = []string{order("1", "Oslo", "ada", 2)}
			}
			r := newRaced(t, bodies...)
			if tt.isThere {
				r.write(was)
			}
			s := &subject{key: feed.Key("Oslo"), id: "1"}
			places := [][]spot{{{feed.Key("ada"), "1"}}}
			var looks []*look
			look := func() {
				var err error
				if looks, err = r.look(t.Context(), []*subject{s}, places); err != nil {
					t.Error(err)
				}
			}
			act := func() { r.write(newest) }
			if tt.whileReading {
				r.during(look, act)
			} else {
				look()
				act()
			}
			again, err := r.writeLooks(t.Context(), looks)
			if err != nil || len(again) != 1 || again[0] != s {
				t.Errorf("again are %v, %v, want the item", again, err)
			}
			r.expectAfterClose(newest)
		})
	}
}

// TestARepairKeepsWhatIsWrittenMeanwhile: a document that no item has is deleted only as it was seen.
func TestARepairKeepsWhatIsWrittenMeanwhile(t *testing.T) {
	t.Parallel()
	r := newRaced(t)
	r.write(order("1", "Oslo", "ada", 1))
	at := spot{feed.Key("ada"), "1"}
	c := &candidate{at: at, both: &both{}, hasTarget: true, items: []*subject{{key: feed.Key("Oslo"), id: "1"}}}
	w := &comparison{Compare: &Compare{Pair: r.pair}, copier: r.copier}
	remove := func() {
		if err := w.removeSurplus(t.Context(), c); err != nil {
			t.Error(err)
		}
	}
	r.during(remove, func() { r.write(order("1", "Oslo", "ada", 2)) })
	if n := w.deleted.Load(); n != 0 {
		t.Errorf("%d documents were deleted", n)
	}
	has, err := r.opened.target.read(t.Context(), at.key, at.id, "", true)
	if err != nil || !has.exists() {
		t.Fatalf("what was written meanwhile is gone: %v", err)
	}
	remove() // nobody writes now
	r.expectAfterClose()
}

// TestAnItemThatMovesKeepsThePlaceOfAnother: an item has left its place, which another item has taken.
func TestAnItemThatMovesKeepsThePlaceOfAnother(t *testing.T) {
	t.Parallel()
	moved, other := order("1", "Oslo", "eve", 2), order("1", "Rome", "ada", 1)
	r := newRaced(t, moved, other)
	r.write(other)
	s := &subject{key: feed.Key("Oslo"), id: "1", spots: []spot{{feed.Key("ada"), "1"}}}
	if err := r.reconcile(t.Context(), []*subject{s}); err != nil || s.err != nil {
		t.Errorf("%v, %v", err, s.err)
	}
	r.expectAfterClose(moved, other)
}

// TestAnItemThatMovesTwiceLeavesNothing: each place between two copies is left.
func TestAnItemThatMovesTwiceLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docstore.ContainerSpec{Retention: time.Hour})
	w.put("orders", order("1", "Oslo", "ada", 1))
	if err := w.run(); err != nil {
		t.Fatal(err)
	}
	w.put("orders", order("1", "Oslo", "bob", 2), order("1", "Oslo", "eve", 3))
	if err := w.run(); err != nil {
		t.Fatal(err)
	}
	w.expect(order("1", "Oslo", "eve", 3))
}

// TestADeleteBeforeItsCreateLasts: an old change creates nothing that the source has deleted meanwhile, and what it has
// in another version becomes that one.
func TestADeleteBeforeItsCreateLasts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docstore.ContainerSpec{Retention: time.Hour})
	w.put("orders", order("1", "Oslo", "ada", 1), order("2", "Oslo", "ada", 1), order("3", "Oslo", "ada", 1))
	old := w.changes()
	w.remove("orders", "Oslo", "1")
	w.put("orders", order("2", "Oslo", "ada", 2))
	w.handle(old, true)
	w.expect(order("2", "Oslo", "ada", 2), order("3", "Oslo", "ada", 1))
}

// TestALagInBetweenBeginsAnew: the lag must be 0 for the whole time, without a break.
func TestALagInBetweenBeginsAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &measure{r: &running{Copy: &Copy{Steady: time.Minute}}, now: Progress{Phase: copying}}
		for i, step := range []struct {
			isZero bool
			want   string
			steady float64
		}{
			{false, copying, 0},
			{true, following, 0},
			{true, following, 40},
			{false, following, 0},
			{true, following, 0},
			{true, following, 40},
			{true, ready, 80},
			{false, following, 0},
			{true, following, 0},
		} {
			m.setPhase(step.isZero)
			if m.now.Phase != step.want || m.now.Steady != step.steady {
				t.Errorf("step %d: %s for %v s, want %s for %v", i, m.now.Phase, m.now.Steady, step.want, step.steady)
			}
			time.Sleep(40 * time.Second)
		}
	})
}

// TestARefusedDocumentDoesNotStopTheOthers: the target refuses one document of a transaction. It is parked, and the
// others are copied.
func TestARefusedDocumentDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docstore.ContainerSpec{})
	w.put("orders", order("1", "Oslo", "ada", 1), order("2", "Oslo", "ada", 1))
	opened, err := w.pair.open(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := w.pair.mapper(opened)
	if err != nil {
		t.Fatal(err)
	}
	m.transform = shellTransform(t, fmt.Sprintf(`sed 's/"id":"2"/"id":"%01024d"/'`, 0))
	h := &handler{copier: newCopier(opened, m, 4), parks: true, done: new(atomic.Int64)}
	var changes []feed.Change
	for _, id := range []string{"1", "2"} {
		item, err := opened.source.Local.Item(t.Context(), feed.Key("Oslo"), id)
		if err != nil {
			t.Fatal(err)
		}
		changes = append(changes, feed.Change{
			PartitionKey: feed.Key("Oslo"), ID: id, Body: item.Body, ETag: item.ETag, Time: item.Time,
		})
	}
	failed, ok := h.Handle(t.Context(), &feed.Batch{LeaseToken: "-FF", Changes: changes}).(*feed.Failure)
	if !ok || failed.Outage || len(failed.Items) != 1 || failed.Items[1] == nil {
		t.Errorf("the failure is %+v, want one of the second change", failed)
	}
	if err := opened.close(); err != nil {
		t.Fatal(err)
	}
	w.expect(order("1", "Oslo", "ada", 1))
}
