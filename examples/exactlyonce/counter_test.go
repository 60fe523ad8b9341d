package main

import (
	"context"
	"database/sql/driver"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"modernc.org/sqlite"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// A life is a process that writes some orders and counts until it kills itself with SIGKILL: before
// or after a read, a transaction, an effect within it or a write of a lease, the first time it
// comes there, in the next round of lives the second time, and so on. The last life finishes. Then
// each order must be counted once. Lives are in virtual time, which the n-th begins n hours
// late: the leases of the one before have expired.

var lifeRounds = flag.Int("lives.rounds", 4, "how often a life ends at each point")

var points = []string{
	"before a read", "after a read", "before a transaction", "before an effect", "after an effect",
	"after a transaction",
	"before a checkpoint", "after a checkpoint",
}

// The environment of a life.
const (
	lifeDir    = "EXACTLYONCE_LIFE_DIR"
	lifeNumber = "EXACTLYONCE_LIFE" // from 1
	lifePoint  = "EXACTLYONCE_LIFE_POINT"
	lifeTimes  = "EXACTLYONCE_LIFE_TIMES" // how often it comes to the point
)

const (
	lifeOrders = 12
	lifeCities = 4
	mostTimes  = 8 // after that a round ends as the first one did
)

// left is how often this process may come to its point; the last time it dies.
var left atomic.Int64

func at(point string) {
	if point == os.Getenv(lifePoint) && left.Add(-1) == 0 {
		fmt.Println("died", point)
		self, _ := os.FindProcess(os.Getpid())
		_ = self.Kill()
		select {} // until it has
	}
}

func init() {
	sqlite.MustRegisterScalarFunction("at", 1, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value,
		error,
	) {
		at(args[0].(string))
		return nil, nil
	})
}

type mortalSource struct{ *docstore.Container }

func (s mortalSource) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page,
	error,
) {
	at("before a read")
	page, err := s.Container.Read(ctx, r, from, o)
	at("after a read")
	return page, err
}

type mortalLeases struct{ *docstore.Leases }

func (s mortalLeases) Update(ctx context.Context, l feed.Record) (feed.Record, error) {
	at("before a checkpoint")
	l, err := s.Leases.Update(ctx, l)
	at("after a checkpoint")
	return l, err
}

func TestLife(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv(lifeNumber))
	if n == 0 {
		t.Skip("it is for TestEachOrderIsCountedOnceWhereverTheProcessIsKilled")
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Duration(n) * time.Hour)
		if err := live(t.Context(), os.Getenv(lifeDir), n); err != nil {
			t.Fatal(err)
		}
	})
	fmt.Println("lived on")
}

// live writes orders, and then works until nothing is left.
func live(ctx context.Context, dir string, n int) (err error) {
	store, err := docstore.Open(filepath.Join(dir, "orders"), docstore.Options{CacheBytes: 1 << 20})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	orders, leases, err := openOrders(ctx, store)
	if err != nil {
		return err
	}
	for i := range lifeOrders {
		if _, err := orders.Upsert(ctx, fmt.Appendf(nil, `{"id":"%d-%d","city":"city-%d"}`, n, i,
			i%lifeCities)); err != nil {
			return err
		}
	}
	db, err := openTotals(filepath.Join(dir, "totals"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1) // the triggers are the connection's own
	if _, err := db.Exec(`
		CREATE TEMP TRIGGER before BEFORE INSERT ON totals BEGIN SELECT at('before an effect'); END;
		CREATE TEMP TRIGGER after AFTER INSERT ON totals BEGIN SELECT at('after an effect'); END;
		CREATE TEMP TRIGGER again AFTER UPDATE ON totals BEGIN SELECT at('after an effect'); END`); err != nil {
		return err
	}
	counter := &counter{db}
	handler := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
		at("before a transaction")
		err := counter.Handle(ctx, b)
		at("after a transaction")
		return err
	})
	p, err := changefeed.New(mortalSource{orders}, mortalLeases{leases}, handler, changefeed.Options{
		Instance: "life", Start: feed.FromBeginning(), MaxItems: 3, Concurrency: 1 + n%2*3,
	})
	if err != nil {
		return err
	}
	times, _ := strconv.Atoi(os.Getenv(lifeTimes))
	left.Store(int64(times))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	for pending := int64(1); pending > 0; {
		time.Sleep(time.Second)
		lags, err := changefeed.Estimate(ctx, orders, leases)
		if err != nil {
			return err
		}
		pending = 0
		for _, l := range lags {
			pending += l.Pending
		}
	}
	stop()
	return <-ended
}

func TestEachOrderIsCountedOnceWhereverTheProcessIsKilled(t *testing.T) {
	dir := t.TempDir()
	deaths := map[string]int{}
	lives := *lifeRounds*len(points) + 1
	for n := range lives {
		point, times := points[n%len(points)], n/len(points)%mostTimes+1
		if n == lives-1 {
			point = "at no point"
		}
		child := exec.Command(os.Args[0], "-test.run=^TestLife$", "-test.v", "-test.timeout=30s")
		child.Env = append(os.Environ(), lifeDir+"="+dir, fmt.Sprint(lifeNumber, "=", n+1), lifePoint+"="+point,
			fmt.Sprint(lifeTimes, "=", times))
		out, err := child.CombinedOutput()
		switch {
		case strings.Contains(string(out), "died "+point):
			deaths[point]++
		case err != nil || !strings.Contains(string(out), "lived on"):
			t.Fatalf("life %d: %v\n%s", n, err, out)
		}
	}
	for _, point := range points {
		if deaths[point] < min(2, *lifeRounds) {
			t.Errorf("died %s: %d of %d: the test shows less than it should", point, deaths[point], *lifeRounds)
		}
	}
	db, err := openTotals(filepath.Join(dir, "totals"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for i := range lifeCities {
		key := feed.Key(fmt.Sprint("city-", i))
		want := lives * lifeOrders / lifeCities
		if got, err := total(t.Context(), db, key); got != want || err != nil {
			t.Errorf("%s: %d orders were counted, want %d, %v", key, got, want, err)
		}
	}
}

func TestAnEarlierOwnerIsRefused(t *testing.T) {
	db, err := openTotals(filepath.Join(t.TempDir(), "totals"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	h := &counter{db}
	oslo := feed.Key("Oslo")
	batch := func(epoch int64, lsns ...int64) *feed.Batch {
		b := &feed.Batch{Epoch: epoch}
		for _, lsn := range lsns {
			b.Changes = append(b.Changes, feed.Change{ID: fmt.Sprint(lsn), PartitionKey: oslo, LSN: lsn})
		}
		return b
	}
	for _, c := range []struct {
		batch *feed.Batch
		err   error
		total int
	}{
		{batch(1, 1, 2), nil, 2},
		{batch(2, 2, 3), nil, 3},
		{batch(1, 3, 4), errFenced, 3},
		{batch(2, 4), nil, 4},
	} {
		if err := h.Handle(t.Context(), c.batch); !errors.Is(err, c.err) {
			t.Errorf("owner %d, from LSN %d: %v, want %v", c.batch.Epoch, c.batch.Changes[0].LSN, err, c.err)
		}
		if got, err := total(t.Context(), db, oslo); got != c.total || err != nil {
			t.Errorf("after owner %d: %d orders, want %d, %v", c.batch.Epoch, got, c.total, err)
		}
	}
}
