package cosmos_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// A storm is a round tripper that troubles requests until it is over. What befalls them
// is drawn from a seed.
type storm struct {
	to   http.RoundTripper
	over atomic.Bool
	mu   sync.Mutex
	rng  *rand.Rand
	hits map[string]int
}

func newStorm(to http.RoundTripper, seed uint64) *storm {
	return &storm{to: to, rng: rand.New(rand.NewPCG(seed, 1)), hits: map[string]int{}}
}

// draw chooses a trouble, none for most requests.
func (s *storm) draw(feed bool) (trouble string, delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	troubles := []string{
		"429", "429 for long", "449", "503", "lost", "refused", "slow", "410", "502", "cut", "short",
		"empty", "html", "stall",
	}
	if n := s.rng.IntN(60); n < len(troubles) && (troubles[n] != "410" || feed) {
		trouble = troubles[n]
	}
	s.hits[trouble]++
	return trouble, time.Duration(s.rng.IntN(3000)) * time.Millisecond
}

func (s *storm) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.over.Load() || !strings.Contains(r.URL.Path, "/docs") {
		return s.to.RoundTrip(r)
	}
	trouble, delay := s.draw(r.Header.Get("A-IM") != "")
	switch trouble {
	case "429":
		return troubled(429, "X-Ms-Retry-After-Ms", "80"), nil
	case "429 for long":
		return troubled(429, "X-Ms-Retry-After-Ms", "4000"), nil
	case "449":
		return troubled(449, "X-Ms-Substatus", "0"), nil
	case "503":
		return troubled(503, "X-Ms-Substatus", "0"), nil
	case "410":
		return troubled(410, "X-Ms-Substatus", "1002"), nil
	case "502":
		return page(502), nil
	case "html": // the page of a proxy that wants a password
		return page(200), nil
	case "refused":
		return nil, refusedDial
	case "slow", "stall":
		if trouble == "stall" {
			delay = 30 * time.Second
		}
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	resp, err := s.to.RoundTrip(r)
	if err != nil {
		return resp, err
	}
	switch trouble {
	case "lost":
		_, _ = io.Copy(io.Discard, resp.Body) // it is lost all the same
		resp.Body.Close()
		return nil, &net.OpError{Op: "read", Err: errors.New("connection reset")}
	case "cut": // in the middle of the body, and the reader is told
		resp.Body = halved(resp, io.ErrUnexpectedEOF)
	case "short": // the same, and nobody says so
		resp.Body = halved(resp, io.EOF)
	case "empty":
		resp.Body = halved(&http.Response{Body: http.NoBody}, io.EOF)
	}
	return resp, err
}

// halved is the first half of an answer, and then an error.
func halved(resp *http.Response, end error) io.ReadCloser {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		end = err
	}
	return io.NopCloser(io.MultiReader(bytes.NewReader(body[:len(body)/2]), iotest.ErrReader(end)))
}

// page is what a proxy says to people.
func page(status int) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"text/html"}},
		Body: io.NopCloser(strings.NewReader("<html>\r\n<body><h1>Welcome to the network</h1></body></html>")),
	}
}

func troubled(status int, header, value string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{header: {value}},
		Body: io.NopCloser(strings.NewReader(`{"code":"Trouble","message":"on purpose"}`)),
	}
}

// A ledger notes what handlers got, and checks the order of each lease.
type ledger struct {
	t    *testing.T
	mu   sync.Mutex
	seen map[string]int64 // LSN of each item
	last map[string]int64 // LSN of each lease of each instance, since it was acquired
}

func (l *ledger) handle(_ context.Context, b *feed.Batch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	lease := b.Instance + " " + b.LeaseToken
	for _, ch := range b.Changes {
		if ch.LSN < l.last[lease] {
			l.t.Errorf("lease %s: LSN %d after %d", lease, ch.LSN, l.last[lease])
		}
		l.last[lease] = ch.LSN
		l.seen[ch.ID] = max(l.seen[ch.ID], ch.LSN)
	}
	return nil
}

func (l *ledger) acquired(instance string) func(context.Context, feed.Lease) {
	return func(_ context.Context, lease feed.Lease) {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.last, instance+" "+lease.Token)
	}
}

// missing are the items whose last version nobody got.
func (l *ledger) missing(want map[string]int64) (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, lsn := range want {
		if l.seen[id] < lsn {
			list = append(list, id)
		}
	}
	return list
}

// TestProcessorsInAStorm runs two instances behind HTTP faults while items are written
// and partitions are split and merged: nothing is lost, and each lease is in order.
func TestProcessorsInAStorm(t *testing.T) {
	for _, push := range []bool{true, false} {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("push %v seed %d", push, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { inAStorm(t, push, seed) })
			})
		}
	}
}

func inAStorm(t *testing.T, push bool, seed uint64) {
	s := serve(t, cosmosrest.Options{})
	items := s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}, Ranges: 2})
	s.create(t, docstore.ContainerSpec{ID: "leases", Paths: []string{"/id"}, DefaultTTL: new(docstore.NoDefaultTTL)})
	var via http.RoundTripper = s.transport
	if !push {
		via = polled(via)
	}
	weather := newStorm(via, seed)
	book := &ledger{t: t, seen: map[string]int64{}, last: map[string]int64{}}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for _, instance := range []string{"a", "b"} {
		running.Go(func() { process(ctx, t, s.client(t, master, weather), instance, book) })
	}
	want := write200(t, items)
	weather.over.Store(true)
	deadline := time.Now().Add(3 * time.Minute)
	for missing := book.missing(want); len(missing) > 0; missing = book.missing(want) {
		if time.Sleep(time.Second); time.Now().After(deadline) {
			t.Fatalf("%d of %d items are missing, such as %s", len(missing), len(want), missing[0])
		}
	}
	weather.mu.Lock()
	defer weather.mu.Unlock()
	for _, trouble := range []string{
		"429", "449", "503", "lost", "refused", "slow", "410", "502", "cut", "short",
		"empty", "html", "stall",
	} {
		if weather.hits[trouble] == 0 {
			t.Errorf("nothing was hit by %s: %v", trouble, weather.hits)
		}
	}
}

// process runs one instance.
func process(ctx context.Context, t *testing.T, client *cosmos.Client, instance string, book *ledger) {
	items, err := client.Container(ctx, docstore.DefaultDatabase, "items")
	if err != nil {
		t.Error(err)
		return
	}
	container, err := client.Container(ctx, docstore.DefaultDatabase, "leases")
	if err != nil {
		t.Error(err)
		return
	}
	leases, err := cosmos.OpenLeases(ctx, container, "unit", items, cosmos.LeaseOptions{})
	if err != nil {
		t.Error(err)
		return
	}
	p, err := changefeed.New(items, leases, feed.HandlerFunc(book.handle), changefeed.Options{
		Instance: instance, Start: feed.FromBeginning(), MaxItems: 7, MinLeases: 4,
		Hooks: changefeed.Hooks{Acquired: book.acquired(instance), Error: func(context.Context, *feed.Error) {}},
	})
	if err != nil {
		t.Error(err)
		return
	}
	for ctx.Err() == nil { // the storm may hit the start
		if err := p.Run(ctx); err != nil {
			time.Sleep(time.Second)
		}
	}
}

// write200 writes items for some minutes, and splits and merges on the way. It returns
// the LSN of each item's last version.
func write200(t *testing.T, items *docstore.Container) map[string]int64 {
	t.Helper()
	want := map[string]int64{}
	for i := range 200 {
		id := fmt.Sprint("i", i%60)
		it, err := items.Upsert(t.Context(), fmt.Appendf(nil, `{"id":%q,"pk":"k%d","n":%d}`, id, i%60, i))
		if err != nil {
			t.Fatal(err)
		}
		want[id] = it.LSN
		time.Sleep(time.Second)
		switch i {
		case 50, 90:
			reshape(t, items, false)
		case 140:
			reshape(t, items, true)
		}
	}
	return want
}

// reshape splits the first partition, or merges it with the second.
func reshape(t *testing.T, items *docstore.Container, merge bool) {
	t.Helper()
	parts, err := items.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if merge {
		_, err = items.Merge(t.Context(), parts[0].ID, parts[1].ID)
	} else {
		_, err = items.Split(t.Context(), parts[0].ID)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// polled hides that the server can hold reads, as if it were Azure.
func polled(to http.RoundTripper) http.RoundTripper {
	return tripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/" {
			return say(200, "{}"), nil
		}
		return to.RoundTrip(r)
	})
}
