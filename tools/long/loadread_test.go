package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/feed"
)

// readVersions follows the feed of all versions and deletes in the store.
func (w *load) readVersions(ctx context.Context) error {
	o := changefeed.PullOptions{Follow: true, ReadOptions: feed.ReadOptions{Mode: feed.AllVersionsAndDeletes}}
	for page, err := range changefeed.Pull(ctx, w.docs, feed.FullRange(), feed.At("0"), o) {
		if err != nil {
			return fmt.Errorf("read all versions: %w", err)
		}
		w.ledger.versions(page.Changes)
	}
	return nil
}

// readLatest follows the feed of the latest versions over HTTP.
func (w *load) readLatest(ctx context.Context) error {
	from := feed.Position{Start: feed.FromBeginning()}
	for page, err := range changefeed.Pull(ctx, w.remote, feed.FullRange(), from,
		changefeed.PullOptions{Follow: true}) {
		if err != nil {
			return fmt.Errorf("read the latest versions: %w", err)
		}
		w.ledger.latest("pull", page.Changes)
	}
	return nil
}

// processor is an instance over HTTP. All instances are of one unit.
func (w *load) processor(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		leases, err := cosmos.OpenLeases(ctx, w.leases, "load", w.remote, cosmos.LeaseOptions{})
		if err != nil {
			return err
		}
		p, err := changefeed.New(w.remote, leases, feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			w.ledger.latest("processor", b.Changes)
			return nil
		}), changefeed.Options{
			Instance: name, Start: feed.FromBeginning(), Acquire: time.Second, Renew: 5 * time.Second,
			Expiration: 20 * time.Second,
			Hooks:      changefeed.Hooks{Error: func(_ context.Context, err *feed.Error) { w.ledger.reported(err) }},
		})
		if err != nil {
			return err
		}
		w.started.Add(1)
		return p.Run(ctx)
	}
}

// comeAndGo runs an instance for a while, and another after it.
func (w *load) comeAndGo(ctx context.Context) error {
	for ctx.Err() == nil {
		some, cancel := context.WithTimeout(ctx, max(*loadFor/60, time.Second))
		err := w.processor("three")(some)
		ended := some.Err() != nil
		cancel()
		if err != nil && !ended {
			return err
		}
	}
	return nil
}

// queries asks for single documents, and for a sum over all of them.
func (w *load) queries(ctx context.Context) error {
	return every(ctx, 20*time.Millisecond, func() error {
		w.queried.Add(1)
		id := anyID()
		before, ok := w.ledger.settled(id)
		if !ok {
			return w.countAll(ctx)
		}
		key := string(feed.Key(id))
		rows,
			err := w.query(ctx,
			`{"query":"SELECT c.v FROM c WHERE c.pk = @pk AND c.id = @pk","parameters":[{"name":"@pk","value":"`+id+`"}]}`, key)
		if err != nil {
			return err
		}
		version := 0
		if len(rows) > 0 {
			version = versionOf(rows[0])
		}
		w.ledger.found("a query", id, before, version)
		return nil
	})
}

func (w *load) countAll(ctx context.Context) error {
	rows, err := w.query(ctx, `{"query":"SELECT VALUE COUNT(1) FROM c"}`, "")
	if err != nil {
		return err
	}
	var n int
	if len(rows) != 1 || json.Unmarshal(rows[0], &n) != nil || n > 2*loadWriters*loadDocs {
		return fmt.Errorf("a count of all documents: %s", rows)
	}
	return nil
}

// query asks the server, in one key or in all.
func (w *load) query(ctx context.Context, body, key string) ([]json.RawMessage, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.web.URL+"/dbs/db/colls/docs/docs",
		strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	date := time.Now().UTC().Format(http.TimeFormat)
	r.Header.Set("Content-Type", "application/query+json")
	r.Header.Set("x-ms-documentdb-isquery", "true")
	r.Header.Set("x-ms-date", date)
	r.Header.Set("Authorization", signature("post\ndocs\ndbs/db/colls/docs\n"+strings.ToLower(date)+"\n\n"))
	if key != "" {
		r.Header.Set("x-ms-documentdb-partitionkey", key)
	} else {
		r.Header.Set("x-ms-documentdb-query-enablecrosspartition", "true")
	}
	answer, err := w.web.Client().Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var rows struct {
		Documents []json.RawMessage
		Message   string
	}
	if err := json.NewDecoder(answer.Body).Decode(&rows); err != nil || answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("query %s: status %d, %s, %w", body, answer.StatusCode, rows.Message, err)
	}
	return rows.Documents, nil
}

func signature(text string) string {
	secret, _ := base64.StdEncoding.DecodeString(cosmosrest.EmulatorKey) // a constant
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write([]byte(text)) // never fails
	return url.QueryEscape("type=master&ver=1.0&sig=" + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

// catchUp waits until everybody has seen everything, or nothing more is seen for long.
func (w *load) catchUp(ctx context.Context, t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(ctx, loadWait, errors.New("not everything was seen in time"))
	defer cancel()
	_ = every(ctx, 20*time.Millisecond, func() error {
		if len(w.ledger.missing("pull", "processor")) == 0 {
			cancel()
		}
		return nil
	})
	left := w.ledger.missing("pull", "processor")
	if len(left) > 0 {
		t.Errorf("%v: %d are missing, such as\n%s", context.Cause(ctx), len(left),
			strings.Join(left[:min(len(left), 10)], "\n"))
	}
}

// samples are what the process took, from time to time.
type samples struct {
	mu         sync.Mutex
	heap       []float64 // MB that are alive
	goroutines []float64
	disk       []float64 // MB
}

const fewestSamples = 30

// watch takes samples while the load lasts.
func (w *load) watch(ctx context.Context) error {
	return every(ctx, max(*loadFor/60, 300*time.Millisecond), func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		w.heap = append(w.heap, float64(m.HeapAlloc)/1e6)
		w.goroutines = append(w.goroutines, float64(runtime.NumGoroutine()))
		w.disk = append(w.disk, float64(w.db.Stats().DiskBytes)/1e6)
		return nil
	})
}

// judgeMemory compares the last third of the time with the second, because the first one fills caches and retention.
func (w *load) judgeMemory(t *testing.T) {
	t.Helper()
	for name, of := range map[string][]float64{"MB of heap": w.heap, "goroutines": w.goroutines, "MB on disk": w.disk} {
		n := len(of)
		if n < fewestSamples || *loadFor < 10*time.Minute {
			continue
		}
		then, now := median(of[n/3:2*n/3]), median(of[2*n/3:])
		t.Logf("%s: %.0f, then %.0f (at most %.0f)", name, then, now, slices.Max(of))
		if now > then*1.2+10 {
			t.Errorf("%s grow: %.0f", name, of)
		}
	}
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

// settledGoroutines is how many there are, once no more than wanted are left or they have had time to end.
func settledGoroutines(t *testing.T, wanted int) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_ = every(ctx, time.Millisecond, func() error {
		if n = runtime.NumGoroutine(); n <= wanted || wanted == 0 {
			cancel()
		}
		return nil
	})
	return n
}
