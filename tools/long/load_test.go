package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

var (
	loadFor  = flag.Duration("load.for", 0, "how long the mixed load lasts; 0 is a few hundred writes")
	loadRate = flag.Int("load.rate", 0, "writes a second, at most; 0 is as many as possible")
)

const (
	loadWriters = 8 // half of them over HTTP
	loadDocs    = 500
	loadWrites  = 60 // of each writer, when no time is given
	loadRanges  = 8  // partitions, at most
	loadApart   = 90 // writes between two changes of the partitions
	loadWait    = 2 * time.Minute
)

// TestAMixedLoadMissesNothing has a store and a server in this process do everything at once: writes of all kinds in
// process and over HTTP, feeds of both modes, processors that come and go, queries, splits, merges, backups. Every
// acknowledged version must have been seen by everybody whom it concerns, each read must have found the newest version,
// and, when it lasts for some minutes, memory and goroutines must not grow.
func TestAMixedLoadMissesNothing(t *testing.T) {
	before := settledGoroutines(t, 0)
	w := newLoad(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var beside sync.WaitGroup
	for _, task := range []func(context.Context) error{
		w.readVersions, w.readLatest, w.processor("one"),
		w.processor("two"), w.comeAndGo, w.reshape, w.points, w.queries, w.backups, w.watch,
	} {
		beside.Go(func() {
			if err := task(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
				stop()
			}
		})
	}
	w.write(ctx, t)
	w.catchUp(ctx, t)
	stop()
	beside.Wait()
	w.close(t)
	if err := w.ledger.verdict(); err != nil {
		t.Error(err)
	}
	if after := settledGoroutines(t, before); after > before {
		t.Errorf("%d goroutines, %d before", after, before)
	}
	t.Log(w.ledger)
	t.Logf("%d splits and merges, %d point reads, %d queries, %d backups, %d starts of processors", w.reshaped.Load(),
		w.looked.Load(), w.queried.Load(), w.copied.Load(), w.started.Load())
	w.judgeMemory(t)
}

// load is the system, and everything that is done to it.
type load struct {
	dir    string
	db     *docstore.DB
	docs   *docstore.Container
	web    *httptest.Server
	client *cosmos.Client
	remote *cosmos.Container
	leases *cosmos.Container
	ledger *ledger
	samples

	reshaped, looked, queried, copied, started atomic.Int64
}

func newLoad(t *testing.T) *load {
	t.Helper()
	w := &load{dir: t.TempDir(), ledger: newLedger()}
	var err error
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w.db, err = docstore.Open(filepath.Join(w.dir, "store"), docstore.Options{CacheBytes: 8 << 20})
	must(err)
	_, err = w.db.CreateDatabase(t.Context(), "db", nil)
	must(err)
	w.docs, err = w.db.CreateContainer(t.Context(), docstore.ContainerSpec{
		Database: "db", ID: "docs", Paths: []string{"/pk"}, DefaultTTL: new(docstore.NoDefaultTTL),
		Retention: 3 * time.Minute,
	})
	must(err)
	_, err = w.db.CreateContainer(t.Context(), docstore.ContainerSpec{
		Database: "db", ID: "leases",
		Paths: []string{"/id"}, DefaultTTL: new(docstore.NoDefaultTTL),
	})
	must(err)
	server, err := cosmosrest.New(w.db, cosmosrest.Options{
		Lenient: true, Throughput: cosmosrest.Unlimited,
		Ending: t.Context(),
	})
	must(err)
	w.web = httptest.NewServer(server)
	w.client, err = cosmos.Open(t.Context(), w.web.URL, cosmos.Key(cosmosrest.EmulatorKey), cosmos.Options{})
	must(err)
	w.remote, err = w.client.Container(t.Context(), "db", "docs")
	must(err)
	w.leases, err = w.client.Container(t.Context(), "db", "leases")
	must(err)
	return w
}

func (w *load) close(t *testing.T) {
	t.Helper()
	w.client.Close()
	w.web.Client().CloseIdleConnections()
	w.web.Close()
	if err := errors.Join(w.db.Check(), w.db.Close()); err != nil {
		t.Error(err)
	}
}

// change is one write of a writer.
type change struct {
	kind    kind
	version int
}

type kind int

const (
	upsert kind = iota
	mortal      // with a time to live
	remove
)

// write has all writers write until it is enough.
func (w *load) write(ctx context.Context, t *testing.T) {
	t.Helper()
	if *loadFor > 0 {
		limited, cancel := context.WithTimeout(ctx, *loadFor)
		defer cancel()
		ctx = limited
	}
	var writers sync.WaitGroup
	for n := range loadWriters {
		writers.Go(func() {
			if err := w.writer(ctx, n); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
}

// writer writes its own documents. Its last write is finished whatever the time, so that its outcome is known.
func (w *load) writer(ctx context.Context, n int) error {
	var to feed.Committer = w.docs
	if n%2 == 1 {
		to = w.remote
	}
	rnd := rand.New(rand.NewPCG(uint64(n), 1))
	var pace <-chan time.Time
	if *loadRate > 0 {
		ticker := time.NewTicker(time.Second * loadWriters / time.Duration(*loadRate))
		defer ticker.Stop()
		pace = ticker.C
	}
	for version := 1; *loadFor > 0 || version <= loadWrites; version++ {
		if err := w.one(context.WithoutCancel(ctx), to, fmt.Sprintf("w%d-%d", n, rnd.IntN(loadDocs)),
			change{kindOf(rnd.IntN(20)), version}, rnd.IntN(1500)); err != nil {
			return err
		}
		if pace != nil {
			select {
			case <-pace:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return nil
		}
	}
	return nil
}

func kindOf(n int) kind {
	switch n {
	case 0, 1:
		return remove
	case 2:
		return mortal
	}
	return upsert
}

// one writes a document and, one time in eight, another one of the same key with it.
func (w *load) one(ctx context.Context, to feed.Committer, id string, c change, pad int) error {
	ids := []string{id}
	if c.version%8 == 0 {
		ids = append(ids, id+"+")
	}
	var writes []feed.Write
	for _, each := range ids {
		write := feed.Write{Op: feed.WriteUpsert, Body: fmt.Appendf(nil, `{"id":%q,"pk":%q,"v":%d,"pad":"%0*d"}`, each,
			id, c.version, pad, 0)}
		if c.kind == mortal {
			write.Body = append(write.Body[:len(write.Body)-1], `,"ttl":1}`...)
		}
		if c.kind == remove {
			write = feed.Write{Op: feed.WriteDelete, ID: each}
		}
		writes = append(writes, write)
	}
	w.ledger.begin(ids...)
	results, err := to.Commit(ctx, feed.Key(id), writes)
	if c.kind == remove && errors.Is(err, feed.ErrNotFound) {
		if len(ids) > 1 { // one of the two was not there, so that neither was deleted
			return w.undone(ids)
		}
		w.ledger.unwritten(id)
		return nil
	}
	if err != nil {
		return fmt.Errorf("write %v: %w", ids, err)
	}
	for i, r := range results {
		w.ledger.written(ids[i], r.LSN, c)
	}
	return nil
}

func (w *load) undone(ids []string) error {
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	for _, id := range ids {
		w.ledger.docs[id].done++
	}
	return nil
}

// reshape splits the partition in which a boundary lies, or merges the two beside it, again and again. The boundaries
// are few, because leases are not merged when partitions are.
func (w *load) reshape(ctx context.Context) error {
	cuts := feed.FullRange().Cut(loadRanges)[1:]
	apart := loadApart
	if *loadFor > 0 {
		apart *= 20
	}
	next := apart
	return every(ctx, 20*time.Millisecond, func() error {
		if w.ledger.writes() < next {
			return nil
		}
		next += apart
		w.reshaped.Add(1)
		return w.toggle(ctx, cuts[rand.IntN(len(cuts))].Min)
	})
}

// toggle makes a boundary or takes it away.
func (w *load) toggle(ctx context.Context, cut string) error {
	parts, err := w.docs.Partitions(ctx)
	if err != nil {
		return err
	}
	for i, p := range parts {
		switch {
		case p.Range.Min == cut:
			_, err = w.docs.Merge(ctx, parts[i-1].ID, p.ID)
			return err
		case p.Range.Holds(cut):
			_, err = w.docs.SplitAt(ctx, p.ID, cut)
			return err
		}
	}
	return fmt.Errorf("no partition holds %s", cut)
}

// every does something again and again until ctx ends.
func every(ctx context.Context, d time.Duration, do func() error) error {
	ticker := time.NewTicker(d)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := do(); err != nil {
				return err
			}
		}
	}
}

// points reads documents by their ids.
func (w *load) points(ctx context.Context) error {
	return every(ctx, 2*time.Millisecond, func() error {
		id := anyID()
		before, ok := w.ledger.settled(id)
		if !ok {
			return nil
		}
		it, err := w.docs.Item(ctx, feed.Key(id), id)
		if err != nil && !errors.Is(err, feed.ErrNotFound) {
			return err
		}
		w.ledger.found("a point read", id, before, versionOf(it.Body))
		w.looked.Add(1)
		return nil
	})
}

func anyID() string { return fmt.Sprintf("w%d-%d", rand.IntN(loadWriters), rand.IntN(loadDocs)) }

// versionOf is 0 when there is no body.
func versionOf(body []byte) int {
	var doc struct{ V int }
	_ = json.Unmarshal(body, &doc)
	return doc.V
}

// backups copies the store and checks the copy.
func (w *load) backups(ctx context.Context) error {
	return every(ctx, max(*loadFor/30, 300*time.Millisecond), func() error {
		dir := filepath.Join(w.dir, "copy")
		if err := w.db.Backup(ctx, dir); err != nil {
			return fmt.Errorf("back up: %w", err)
		}
		db, err := docstore.Open(dir, docstore.Options{CacheBytes: 1 << 20})
		if err != nil {
			return fmt.Errorf("open the backup: %w", err)
		}
		w.copied.Add(1)
		return errors.Join(db.Check(), db.Close(), os.RemoveAll(dir))
	})
}
