package cosmos_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// TestADeleteEndsAWait has a feed of all versions: its readers want deletes too.
func TestADeleteEndsAWait(t *testing.T) {
	for name, own := range map[string]bool{"with a policy": true, "by the account's retention": false} {
		t.Run(name, func(t *testing.T) { deleteEndsWait(t, own) })
	}
}

func deleteEndsWait(t *testing.T, own bool) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, cosmosrest.Options{})
		spec := docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}}
		if own {
			spec.Retention = time.Hour
		} else if err := s.db.SetRetention(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		stored := s.create(t, spec)
		if err := put(t.Context(), stored, `{"id":"a","pk":"k"}`); err != nil {
			t.Fatal(err)
		}
		source := find(t, s.client(t, master, nil), "items")
		page, err := source.Read(t.Context(), feed.FullRange(), feed.Position{}, feed.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		const after = 40 * time.Second // longer than the server holds a read
		var deletion sync.WaitGroup
		defer deletion.Wait()
		deletion.Go(func() {
			time.Sleep(after)
			if err := stored.Delete(t.Context(), feed.Key("k"), "a", ""); err != nil {
				t.Errorf("Delete: %v", err)
			}
		})
		begun := time.Now()
		err = source.Wait(t.Context(), feed.FullRange(), page.Next)
		if took := time.Since(begun); err != nil || took != after {
			t.Errorf("Wait: %v after %v, want nil after %v", err, took, after)
		}
	})
}

// TestAWaitEndsBeforeItsContext lets the server answer in time, so that the connection
// can be used again, and sends nothing more.
func TestAWaitEndsBeforeItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, cosmosrest.Options{})
		s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}})
		m := &meter{to: s.transport, count: map[string]int{}}
		source := find(t, s.client(t, master, m), "items")
		enough := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 17*time.Second, enough)
		defer cancel()
		if err := source.Wait(ctx, feed.FullRange(), feed.Position{}); !errors.Is(err, enough) {
			t.Errorf("Wait: %v, want the cause", err)
		}
		if got := m.count["items feed"]; got != 1 {
			t.Errorf("%d requests, want one", got)
		}
	})
}

// TestWaitingIsPacedWhereNobodyHolds has something between us and the server that takes
// the wish away to be kept waiting: all reads are answered at once.
func TestWaitingIsPacedWhereNobodyHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, cosmosrest.Options{})
		s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}})
		s.create(t, docstore.ContainerSpec{
			ID: "leases", Paths: []string{"/id"},
			DefaultTTL: new(docstore.NoDefaultTTL),
		})
		const enough = 100
		var asked atomic.Int64
		client := s.client(t, master, tripper(func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("X-Ms-Cosmos-Max-Polling-Interval") != "" && asked.Add(1) > enough {
				return say(403, "{}"), nil
			}
			r.Header.Del("X-Ms-Cosmos-Max-Polling-Interval")
			return s.transport.RoundTrip(r)
		}))
		source := find(t, client, "items")
		leases := unit(t, client, "unit")
		_, cursor, _, err := leases.Follow(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		for name, wait := range map[string]func(ctx context.Context) error{
			"wait": func(ctx context.Context) error {
				return source.Wait(ctx, feed.FullRange(), feed.Position{})
			},
			"follow": func(ctx context.Context) error { _, _, _, err := leases.Follow(ctx, cursor); return err },
		} {
			asked.Store(0)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v, want the end of its context", name, err)
			}
			cancel()
			if n := asked.Load(); n < 50 || n > enough {
				t.Errorf("%s: %d requests in a minute, want about one a second", name, n)
			}
		}
	})
}

// waits is the part of an account's answer by which a server waits, counts and keeps versions.
const waits = `"changefeed":{"maxPollingIntervalInMs":30000,"countsPending":true,"keepsVersions":true}`

// wait waits for changes after a position, up to a minute.
func wait(t *testing.T, a *account, from feed.Position) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return a.open(t, cosmos.Options{}).Wait(ctx, feed.FullRange(), from)
}

// TestAWaitAsksForLittleAndGoesOn has a wait from now: the second request must not begin at its own now, or what came
// between the two would not be seen.
func TestAWaitAsksForLittleAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		a := &account{regions: waits, trouble: func(r *http.Request, n int) (*http.Response, error) {
			h := r.Header
			asked = append(asked,
				h.Get("If-None-Match")+" "+h.Get("x-ms-max-item-count")+" "+h.Get("x-ms-cosmos-max-polling-interval"))
			if n == 1 {
				select { // the answer takes a second longer than it is held
				case <-time.After(31 * time.Second):
					return say(304, "", "etag", `"9"`), nil
				case <-r.Context().Done():
					return nil, context.Cause(r.Context())
				}
			}
			return say(200, `{"Documents":[{"current":{"id":"a"},"metadata":{"lsn":10}}]}`, "etag", `"10"`), nil
		}}
		// What is left of the minute is asked for, less the time that the answer takes.
		if err := wait(t, a, feed.Position{}); err != nil || strings.Join(asked, ", ") != `* 1 30000, "9" 1 28500` {
			t.Errorf("asked %q, %v, want the position of the first answer in the second request", asked, err)
		}
	})
}

func TestAServerIsNotAskedToHoldARequestForHours(t *testing.T) {
	a := &account{regions: strings.Replace(waits, "30000", "36000000", 1)}
	a.trouble = func(*http.Request, int) (*http.Response, error) {
		return say(200, `{"Documents":[{"current":{"id":"a"},"metadata":{"lsn":10}}]}`, "etag", `"10"`), nil
	}
	source := a.open(t, cosmos.Options{})
	if err := source.Wait(t.Context(), feed.FullRange(), feed.At(`"9"`)); err != nil {
		t.Fatal(err)
	}
	if got := a.log[len(a.log)-1].Header.Get("x-ms-cosmos-max-polling-interval"); got != "600000" {
		t.Errorf("the server is to hold a request for %s ms, want 10 minutes", got)
	}
}

// Its reader finds out what there is to read, or why nothing can be read.
func TestAWaitEndsWhereTheReaderMustLook(t *testing.T) {
	for name, c := range map[string]struct {
		from    feed.Position
		trouble func(*http.Request, int) (*http.Response, error)
		asked   int
	}{
		"from the beginning": {feed.Position{Start: feed.FromBeginning()}, refuse(always, 500), 0},
		"from a time":        {feed.Position{Start: feed.FromTime(time.Unix(7, 0))}, refuse(always, 500), 0},
		"a position that the retention has passed": {feed.At(`"5"`), tooOld("older than"), 1},
	} {
		a := &account{regions: waits, trouble: c.trouble}
		if err := wait(t, a, c.from); err != nil || len(a.asked) != c.asked {
			t.Errorf("%s: %v after %d requests, want none after %d", name, err, len(a.asked), c.asked)
		}
	}
}

// TestAzureIsPolled has an account that says nothing of waiting.
func TestAzureIsPolled(t *testing.T) {
	items := (&account{}).open(t, cosmos.Options{})
	if err := items.Wait(t.Context(), feed.FullRange(), feed.Position{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Wait: %v, want %v", err, errors.ErrUnsupported)
	}
}
