package cosmos_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/changefeed/changefeedtest"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// harness holds the client to the suites, against changefeed's own server.
func harness() changefeedtest.Harness {
	return changefeedtest.Harness{
		Virtual:   true,
		Container: monitored,
		Leases:    func(t *testing.T) changefeedtest.LeaseContainer { return leaseContainer(t, "/id") },
	}
}

func monitored(t *testing.T, want changefeedtest.Container) changefeedtest.Store {
	t.Helper()
	s := serve(t, cosmosrest.Options{PreviousImages: cosmosrest.ImagesOfAll})
	spec := docstore.ContainerSpec{ID: "items", Paths: want.Paths, Retention: want.Retention}
	if want.HashV1 {
		spec.HashVersion = 1
	}
	if want.Expiry {
		spec.DefaultTTL = new(docstore.NoDefaultTTL)
	}
	c := s.create(t, spec)
	var throttled atomic.Bool
	items := find(t, s.client(t, master, tripper(func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("A-IM") != "" && strings.HasSuffix(r.URL.Path, "/docs") &&
			throttled.CompareAndSwap(true, false) {
			return tooMany(), nil
		}
		return s.transport.RoundTrip(r)
	})), "items")
	return changefeedtest.Store{
		Source:    items,
		Committer: items,
		Split: func(t *testing.T, id string) {
			t.Helper()
			if _, err := c.Split(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		},
		Merge: func(t *testing.T, left, right string) {
			t.Helper()
			if _, err := c.Merge(t.Context(), left, right); err != nil {
				t.Fatal(err)
			}
		},
		Throttle: func(*testing.T) { throttled.Store(true) },
	}
}

// tooMany is the answer to a request that is to wait for two seconds.
func tooMany() *http.Response {
	return &http.Response{
		StatusCode: http.StatusTooManyRequests,
		Body:       io.NopCloser(strings.NewReader(`{"code":"429","message":"slow down"}`)),
		Header:     http.Header{"X-Ms-Substatus": {"3200"}, "X-Ms-Retry-After-Ms": {"2000"}},
	}
}

func leaseContainer(t *testing.T, path string) changefeedtest.LeaseContainer {
	t.Helper()
	tokens, worker := entra(t, withoutDelete...)
	s := serve(t, cosmosrest.Options{Tokens: tokens})
	s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}})
	c := s.create(t, docstore.ContainerSpec{
		ID: "leases", Paths: []string{path},
		DefaultTTL: new(docstore.NoDefaultTTL),
	})
	open := func(credential cosmos.Credential) func(t *testing.T, processor string) feed.LeaseStore {
		return func(t *testing.T, processor string) feed.LeaseStore {
			t.Helper()
			return unit(t, s.client(t, credential, nil), processor)
		}
	}
	return changefeedtest.LeaseContainer{
		Unit:          open(master),
		WithoutDelete: open(worker),
		Put: func(t *testing.T, doc json.RawMessage) {
			t.Helper()
			if err := put(t.Context(), c, string(doc)); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func TestTheSuitesHoldAgainstOurServer(t *testing.T) {
	t.Run("source", func(t *testing.T) { changefeedtest.TestSource(t, harness()) })
	t.Run("commits", func(t *testing.T) { changefeedtest.TestCommitter(t, harness()) })
	t.Run("leases", func(t *testing.T) { changefeedtest.TestLeaseStore(t, harness()) })
	t.Run("leases by partition key", func(t *testing.T) {
		h := harness()
		h.Leases = func(t *testing.T) changefeedtest.LeaseContainer { return leaseContainer(t, "/partitionKey") }
		changefeedtest.TestLeaseStore(t, h)
	})
}
