package changefeed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/fleet"
	"github.com/millrace/changefeed/internal/proof/rewriter"
)

// world is a monitored container and its leases in an embedded store, in virtual time.
type world struct {
	t         *testing.T
	db        *docstore.DB
	orders    *docstore.Container
	container *docstore.Container // of the leases
	leases    *docstore.Leases    // of the unit "unit"
}

// TestMain lets garbage pile up: with a heap of 4 MB, as small worlds have it, nearly half
// of the processor time went into 5,000 collections.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// inWorld runs a test in a bubble of virtual time.
func inWorld(t *testing.T, ranges int, test func(t *testing.T, w *world)) {
	t.Helper()
	inWorldOf(t, docstore.ContainerSpec{Ranges: ranges}, test)
}

func inWorldOf(t *testing.T, spec docstore.ContainerSpec, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db, err := docstore.Open("", docstore.Options{InMemory: true, CacheBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		w := &world{t: t, db: db}
		spec.ID, spec.Paths = "orders", []string{"/city"}
		w.orders = w.create(spec)
		w.container = w.create(docstore.LeaseSpec("leases"))
		w.leases = w.unit("unit")
		test(t, w)
		w.nothingIsRewritten()
		if err := errors.Join(db.Check(), db.Close()); err != nil {
			t.Error(err)
		}
	})
}

// nothingIsRewritten fails the test if a document among the leases has a text that another program may take for a time
// or a number, and write in another form.
func (w *world) nothingIsRewritten() {
	w.t.Helper()
	page, err := w.container.Read(w.t.Context(), feed.FullRange(), feed.Position{Start: feed.FromBeginning()},
		feed.ReadOptions{})
	if err != nil {
		return // the test has deleted or split the container
	}
	for _, doc := range page.Changes {
		var record struct{ Properties map[string]string }
		if json.Unmarshal(doc.Body, &record) != nil {
			continue // the test has made it
		}
		for name, text := range record.Properties {
			if like := rewriter.LooksLike(text); like != "" {
				w.t.Errorf("%s of %s is %q, which looks like a %s", name, doc.ID, text, like)
			}
		}
	}
}

func (w *world) create(spec docstore.ContainerSpec) *docstore.Container {
	w.t.Helper()
	c, err := w.db.CreateContainer(w.t.Context(), spec)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) unit(name string) *docstore.Leases {
	w.t.Helper()
	leases, err := docstore.NewLeases(w.t.Context(), w.container, name, w.orders)
	if err != nil {
		w.t.Fatal(err)
	}
	return leases
}

// put writes version n of an item and returns its LSN.
func (w *world) put(city, id string, n int) int64 {
	w.t.Helper()
	results, err := w.orders.Commit(w.t.Context(), feed.Key(city), []feed.Write{upsert(city, id, n)})
	if err != nil {
		w.t.Fatal(err)
	}
	return results[0].LSN
}

func upsert(city, id string, n int) feed.Write {
	body, _ := json.Marshal(map[string]any{"id": id, "city": city, "n": n})
	return feed.Write{Op: feed.WriteUpsert, ID: id, Body: body}
}

// fill writes n items, one for each of n cities.
func (w *world) fill(n int) {
	for i := range n {
		w.put(fmt.Sprintf("city-%d", i), "item", i)
	}
}

// records lists the unit's records of one kind.
func (w *world) records(kind feed.Kind) []feed.Record {
	w.t.Helper()
	records, _, err := w.leases.List(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return slices.DeleteFunc(records, func(l feed.Record) bool { return l.Kind != kind })
}

// record finds a record by its id.
func (w *world) record(id string) (feed.Record, bool) {
	w.t.Helper()
	records, _, err := w.leases.List(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	i := slices.IndexFunc(records, func(r feed.Record) bool { return r.ID == id })
	if i < 0 {
		return feed.Record{}, false
	}
	return records[i], true
}

// owners counts the leases of each owner.
func (w *world) owners() map[string]int {
	n := map[string]int{}
	for _, l := range w.records(feed.KindLease) {
		n[l.Owner]++
	}
	return n
}

// pending is the unit's lag in changes.
func (w *world) pending() (total int64) {
	w.t.Helper()
	lags, err := changefeed.Estimate(w.t.Context(), w.orders, w.leases)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, l := range lags {
		total += l.Pending
	}
	return total
}

// lag is that of the only lease.
func (w *world) lag() changefeed.Lag {
	w.t.Helper()
	lags, err := changefeed.Estimate(w.t.Context(), w.orders, w.leases)
	if err != nil || len(lags) != 1 {
		w.t.Fatalf("lags %+v, %v, want one", lags, err)
	}
	return lags[0]
}

// tally is a handler that remembers what it was given.
type tally struct {
	mu       sync.Mutex
	seen     map[string][]int64 // LSNs by key and id
	attempts []int
	order    []int64
	changes  []feed.Change
	before   func(ctx context.Context, b *feed.Batch) error // may fail the batch
}

func (y *tally) Handle(ctx context.Context, b *feed.Batch) error {
	y.mu.Lock()
	y.attempts = append(y.attempts, b.Attempt)
	y.mu.Unlock()
	if y.before != nil {
		if err := y.before(ctx, b); err != nil {
			return err
		}
	}
	return y.record(b)
}

// record remembers a batch.
func (y *tally) record(b *feed.Batch) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.seen == nil {
		y.seen = map[string][]int64{}
	}
	for _, c := range b.Changes {
		name := string(c.PartitionKey) + c.ID
		y.seen[name] = append(y.seen[name], c.LSN)
		y.order = append(y.order, c.LSN)
		y.changes = append(y.changes, c)
	}
	return nil
}

// times is how often an item was seen, named by its key and id.
func (y *tally) times(name string) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return len(y.seen[name])
}

// items is how many items were seen, and how many deliveries came on top.
func (y *tally) items() (items, again int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, lsns := range y.seen {
		items++
		again += len(lsns) - 1
	}
	return items, again
}

// renewAsForeigner has another kind of processor own a lease, and renew it until end is called.
func (w *world) renewAsForeigner() (end func()) {
	ctx, stop := context.WithCancel(w.t.Context())
	var host sync.WaitGroup
	host.Go(func() {
		for ctx.Err() == nil {
			lease := w.records(feed.KindLease)[0]
			lease.Owner, lease.Epoch = "net", ""
			_, err := w.leases.Update(ctx, lease)
			if errors.Is(err, feed.ErrConflict) { // an instance has written the lease at the same time
				continue
			}
			if err != nil && ctx.Err() == nil {
				w.t.Error(err)
			}
			time.Sleep(10 * time.Second)
		}
	})
	return func() {
		stop()
		host.Wait()
	}
}

// process is one running instance.
type process struct {
	cancel context.CancelFunc
	done   chan error
	wire   *fleet.Wire
	errs   *errorLog

	processor *changefeed.Processor
}

// errCutOff is the error of a call that did not reach the lease store.
var errCutOff = fleet.ErrCutOff

// errorLog collects what Hooks.Error is told.
type errorLog struct {
	mu   sync.Mutex
	errs []*feed.Error
}

func (e *errorLog) add(_ context.Context, err *feed.Error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.errs = append(e.errs, err)
}

func (e *errorLog) find(target error) *feed.Error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, err := range e.errs {
		if errors.Is(err, target) {
			return err
		}
	}
	return nil
}

// run starts an instance.
func (w *world) run(name string, h feed.Handler, o changefeed.Options) *process {
	w.t.Helper()
	return w.runOn(w.leases, name, h, o)
}

func (w *world) runOn(leases *docstore.Leases, name string, h feed.Handler, o changefeed.Options) *process {
	w.t.Helper()
	p := &process{
		done: make(chan error, 1), wire: fleet.NewWire(w.t.Context(), leases, &fleet.Requests{}),
		errs: &errorLog{},
	}
	o.Instance = name
	o.Hooks.Error = p.errs.add
	processor, err := changefeed.New(w.orders, p.wire, h, o)
	if err != nil {
		w.t.Fatal(err)
	}
	p.processor = processor
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(w.t.Context())
	go func() { p.done <- processor.Run(ctx) }()
	return p
}

// stop ends an instance gracefully.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.cancel()
	if err := <-p.done; err != nil {
		t.Errorf("Run returned %v", err)
	}
}

// kill ends an instance without a goodbye: its leases stay as they are.
func (p *process) kill(t *testing.T) {
	t.Helper()
	p.wire.Cut()
	p.stop(t)
}
