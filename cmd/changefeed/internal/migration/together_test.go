package migration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/changeline"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// texts returns the documents of a container without system properties, by partition key of /customer and id.
func texts(ctx context.Context, c *docstore.Container) (map[string]string, error) {
	all := map[string]string{}
	for item, err := range c.Items(ctx, feed.FullRange(), "") {
		if err != nil {
			return nil, err
		}
		body, err := changeline.WithoutSystem(item.Body)
		if err != nil {
			return nil, err
		}
		all[item.ID] = string(body)
	}
	return all, nil
}

// TestSeveralInstancesCopyTogether: three processes with the same command share the work while items are written, moved
// and deleted, and the target has what the source has.
func TestSeveralInstancesCopyTogether(t *testing.T) {
	t.Parallel()
	server := cosmostest.NewTestServer(t)
	w := &world{t: t}
	w.create(server.DB, docstore.ContainerSpec{ID: "from", Paths: []string{"/city"}, Ranges: 4, Retention: time.Hour})
	w.create(server.DB, docstore.ContainerSpec{ID: "to", Paths: []string{"/customer"}, Ranges: 2})
	from, to := container(t, server.DB, "from"), container(t, server.DB, "to")
	write := func(n int) {
		id, city := fmt.Sprint(n%100), fmt.Sprint("city", n%100%7)
		writes := []feed.Write{{Body: []byte(order(id, city, fmt.Sprint("c", rand.IntN(3)), n))}}
		if n > 300 && n%5 == 0 {
			writes = []feed.Write{{Op: feed.WriteDelete, ID: id}}
		}
		if _, err := from.Commit(t.Context(), feed.Key(city), writes); err != nil && !errors.Is(err, feed.ErrNotFound) {
			t.Error(err)
		}
	}
	for n := range 200 {
		write(n)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for i := range 3 {
		running.Go(func() {
			c := Copy{
				Pair: Pair{
					Source: server.URL + "/default/from", Target: server.URL + "/default/to",
					Writers: 8, TTL: Remaining,
					SourceAccount: place.Settings{Key: server.Key}, TargetAccount: place.Settings{Key: server.Key},
				},
				Instance: fmt.Sprint("copier", i), Expiration: 2 * time.Second, Log: silent(), Say: func(string) {},
				Exit: func() {}, Report: report.New(report.Text, new(written)),
			}
			if err := c.Run(ctx); err != nil {
				t.Errorf("instance %d: %v", i, err)
			}
		})
	}
	await(t, "leases of every instance", func() error { return everyInstanceOwns(ctx, server.DB) })
	for n := 200; n < 600; n++ {
		write(n)
	}
	await(t, "the same documents", func() error {
		want, err := texts(ctx, from)
		if err != nil {
			return err
		}
		got, err := texts(ctx, to)
		if err == nil && !maps.Equal(got, want) {
			err = fmt.Errorf("%d documents in the target, %d in the source, or they differ", len(got), len(want))
		}
		return err
	})
	stop()
	running.Wait()
}

// everyInstanceOwns returns an error unless each instance has a lease.
func everyInstanceOwns(ctx context.Context, db *docstore.DB) error {
	leases, err := db.Container("leases")
	if err != nil {
		return err
	}
	missing := map[string]bool{`"Owner":"copier0"`: true, `"Owner":"copier1"`: true, `"Owner":"copier2"`: true}
	for item, err := range leases.Items(ctx, feed.FullRange(), "") {
		if err != nil {
			return err
		}
		for owner := range missing {
			if strings.Contains(string(item.Body), owner) && !strings.Contains(item.ID, deletesSuffix) {
				delete(missing, owner) // the unit of the deletes is the first of two that an instance starts
			}
		}
	}
	if len(missing) > 0 { // an instance that still starts when the test ends would report that
		return fmt.Errorf("no lease has %v", slices.Sorted(maps.Keys(missing)))
	}
	return nil
}

// await waits until check returns nil, at most for a minute.
func await(t *testing.T, what string, check func() error) {
	t.Helper()
	err := check()
	for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); err = check() {
		select {
		case <-t.Context().Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err != nil {
		t.Fatalf("not within a minute: %s: %v", what, err)
	}
}

// TestTheMemoryOfACompareIsBounded: four times as many documents do not need more memory, because no document is kept,
// and the records of both sides are in files.
func TestTheMemoryOfACompareIsBounded(t *testing.T) {
	if detector.On || !docstore.OffHeap {
		t.Skip("without cgo, and in half of all runs with the race detector, the engine has its cache in the live heap, " +
			"so the heap grows with the documents up to docstore.Options.CacheBytes")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(40)) // so that the live heap is known often
	const few, padding = 1000, 4000
	all := uint64(2 * 4 * few * padding)
	// Whatever is made during a collection counts as live, and on a busy machine a collection is long. So a peak may be
	// too high by chance, but never too low.
	for range 3 {
		little, much := peakOfCompare(t, few, padding), peakOfCompare(t, 4*few, padding)
		t.Logf("live heap of %d bytes at most for %d documents of %d bytes, of %d for %d", little, few, padding, much, 4*few)
		if much <= little+all/4 {
			return
		}
	}
	t.Error("the memory grows with the documents")
}

// peakOfCompare returns the largest live heap while two containers with so many documents are compared.
func peakOfCompare(t *testing.T, documents, padding int) uint64 {
	t.Helper()
	w := newWorld(t, docstore.ContainerSpec{})
	w.with(func(db *docstore.DB) {
		for _, name := range []string{"orders", "copies"} {
			fill(t, container(t, db, name), documents, padding)
		}
	})
	return peakOf(t, func() {
		if differences, err := w.compare(nil); err != nil || len(differences) > 0 {
			t.Errorf("%d differences, %v", len(differences), err)
		}
	})
}

// fill writes documents in transactions of 50.
func fill(t *testing.T, c *docstore.Container, documents, padding int) {
	t.Helper()
	pad := strings.Repeat("x", padding)
	for from := 0; from < documents; from += 50 {
		var writes []feed.Write
		for n := from; n < from+50; n++ {
			body := fmt.Appendf(nil, `{"id":"%d","city":"Oslo","customer":"Oslo","pad":%q}`, n, pad)
			writes = append(writes, feed.Write{Body: body})
		}
		if _, err := c.Commit(t.Context(), feed.Key("Oslo"), writes); err != nil {
			t.Fatal(err)
		}
	}
}

// peakOf returns the largest live heap of the collections during f, without what was live before.
func peakOf(t *testing.T, f func()) (peak uint64) {
	t.Helper()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	runtime.GC()
	metrics.Read(live)
	before := live[0].Value.Uint64()
	done := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-done:
				tick.Stop()
				return
			case <-tick.C:
			}
			metrics.Read(live)
			if now := live[0].Value.Uint64(); now > before {
				peak = max(peak, now-before)
			}
		}
	})
	f()
	close(done)
	looking.Wait()
	return peak
}
