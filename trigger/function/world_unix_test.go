//go:build unix

package function_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/function"
)

// world is a container of orders whose changes an app handles: its function copies them to another container.
type world struct {
	*testing.T

	orders, copies, leases *docstore.Container
	host                   *function.Host
	log                    *lines
	dir                    string

	mu    sync.Mutex
	all   []string // ids of the copies, in order
	grown chan struct{}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	app := appOf(t, "good")
	app.Timeout = time.Minute
	w := &world{T: t, dir: app.Dir, grown: make(chan struct{})}
	db, err := docstore.Open(t.TempDir(), docstore.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	for id, c := range map[string]**docstore.Container{"orders": &w.orders, "copies": &w.copies, "leases": &w.leases} {
		spec := docstore.ContainerSpec{ID: id, Paths: []string{"/city"}}
		if id == "leases" {
			spec = docstore.ContainerSpec{ID: id, Paths: []string{"/id"}, DefaultTTL: new(docstore.NoDefaultTTL)}
		}
		if *c, err = db.CreateContainer(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	w.host, w.log = start(t, app, function.HostOptions{})
	return w
}

// Upsert implements function.Upserter.
func (w *world) Upsert(ctx context.Context, document json.RawMessage) error {
	item, err := w.copies.Upsert(ctx, document)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, item.ID)
	close(w.grown)
	w.grown = make(chan struct{})
	return nil
}

// write writes an order.
func (w *world) write(id, do, text string, code int) {
	w.Helper()
	body := fmt.Sprintf(`{"id":%q,"city":"Oslo","do":%q,"text":%q,"code":%d}`, id, do, text, code)
	if _, err := w.orders.Upsert(w.Context(), []byte(body)); err != nil {
		w.Fatal(err)
	}
}

// run runs a processor until stop is called, which returns what Run has returned.
func (w *world) run() (store feed.LeaseStore, stop func() error) {
	w.Helper()
	store, err := docstore.NewLeases(w.Context(), w.leases, "copier", w.orders)
	if err != nil {
		w.Fatal(err)
	}
	f := seen()
	f.Outputs = []function.Output{{Name: "copies"}}
	handler := w.host.Handler(f, map[string]function.Upserter{"copies": w})
	p, err := changefeed.New(w.orders, store, handler, changefeed.Options{
		Start: feed.FromBeginning(), MaxItems: 4, RetryMin: time.Millisecond, RetryMax: 10 * time.Millisecond,
		Acquire: 50 * time.Millisecond, Renew: 50 * time.Millisecond, Expiration: time.Second, Drain: 20 * time.Second,
	})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	end := sync.OnceValue(func() error { cancel(); return <-ended })
	w.Cleanup(func() { _ = end() })
	return store, end
}

// awaitCopy waits for a copy, and returns all copies so far.
func (w *world) awaitCopy(id string) []string {
	w.Helper()
	late := time.After(30 * time.Second)
	for {
		w.mu.Lock()
		all, grown := slices.Clone(w.all), w.grown
		w.mu.Unlock()
		if slices.Contains(all, id) {
			return all
		}
		select {
		case <-grown:
		case <-late:
			w.Fatalf("there is no copy %s, only %q:\n%s", id, all, w.log)
		}
	}
}

// An invocation is canceled when its lease is lost, and the batch comes again to the next owner.
func TestAnInvocationEndsWhenItsLeaseIsLost(t *testing.T) {
	w := newWorld(t)
	w.write("wait", "once", filepath.Join(w.dir, "waited"), 0)
	w.write("1", "copy", "", 0)
	store, _ := w.run()
	w.log.await(t, "waiting")
	stealLease(t, store)
	w.log.await(t, "the request was canceled -FF")
	if all := w.awaitCopy("1"); !slices.Equal(all, []string{"1"}) {
		t.Errorf("got the copies %q", all)
	}
	if n := strings.Count(w.log.String(), "the program runs"); n != 1 {
		t.Errorf("the program was started %d times:\n%s", n, w.log)
	}
}

// stealLease makes somebody else the owner of the only lease.
func stealLease(t *testing.T, store feed.LeaseStore) {
	t.Helper()
	for range 100 { // the owner may write the lease meanwhile
		records, _, err := store.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(records, func(r feed.Record) bool { return r.Kind == feed.KindLease })
		if i < 0 {
			t.Fatal("there is no lease")
		}
		lease := records[i]
		lease.Owner, lease.Epoch = "thief", ""
		if _, err = store.Update(t.Context(), lease); err == nil {
			return
		}
		if !errors.Is(err, feed.ErrConflict) {
			t.Fatal(err)
		}
	}
	t.Fatal("the lease cannot be stolen")
}
