package cosmos_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// splitting is a transport that calls then once, after the answer to a read of a feed that the server could hold.
type splitting struct {
	then func()
	on   atomic.Bool
}

func (s *splitting) Do(r *http.Request) (*http.Response, error) {
	a, err := http.DefaultClient.Do(r)
	if err == nil && a.StatusCode == 200 && r.Header.Get("A-Im") != "" &&
		r.Header.Get("X-Ms-Cosmos-Max-Polling-Interval") != "" && s.on.CompareAndSwap(true, false) {
		s.then()
	}
	return a, err
}

// followedUnit is a unit whose lease container is on a server.
func followedUnit(t *testing.T, o cosmos.Options, lo cosmos.LeaseOptions) (*docstore.Container, *cosmos.Leases) {
	t.Helper()
	srv := cosmostest.NewTestServer(t)
	lc, err := srv.DB.CreateContainer(t.Context(), docstore.LeaseSpec("leases"))
	if err == nil {
		_, err = srv.DB.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "orders", Paths: []string{"/pk"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	client, err := cosmos.Open(t.Context(), srv.URL, cosmos.Key(srv.Key), o)
	if err != nil {
		t.Fatal(err)
	}
	leases, err := client.Container(t.Context(), "default", "leases")
	if err != nil {
		t.Fatal(err)
	}
	orders, err := client.Container(t.Context(), "default", "orders")
	if err != nil {
		t.Fatal(err)
	}
	s, err := cosmos.OpenLeases(t.Context(), leases, "mailer", orders, lo)
	if err != nil {
		t.Fatal(err)
	}
	return lc, s
}

// A lease container is split while the changes after the first one are gathered.
func TestAFollowerHasTheStoresTimeWhenTheLeasesAreSplit(t *testing.T) {
	tr := &splitting{}
	lc, s := followedUnit(t, cosmos.Options{Transport: tr}, cosmos.LeaseOptions{})
	tr.then = func() {
		if _, err := lc.Split(t.Context(), "0"); err != nil {
			t.Error(err)
		}
	}
	_, cursor, _, err := s.Follow(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), feed.Record{
		Kind: feed.KindHost, Token: "a", Owner: "a",
		Timestamp: time.Now(),
	}); err != nil {
		t.Fatal(err)
	}
	tr.on.Store(true)
	_, _, now, err := s.Follow(t.Context(), cursor)
	if err != nil || now.IsZero() || time.Since(now).Abs() > time.Minute {
		t.Errorf("Follow says that it is %v at the store, %v", now, err)
	}
}

// The partitions of a lease container are cut anew across those of a cursor.
func TestACursorOutlivesPartitionsThatAreCutAnew(t *testing.T) {
	lc, s := followedUnit(t, cosmos.Options{}, cosmos.LeaseOptions{FollowEvery: time.Second})
	parts, err := lc.Split(t.Context(), "0")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for i := range 40 {
		r, err := s.Create(t.Context(), feed.Record{
			Kind: feed.KindHost, Token: fmt.Sprint("a", i), Owner: "a",
			Timestamp: time.Now(),
		})
		if err != nil {
			t.Fatal(err)
		}
		epk, err := lc.Locate(t.Context(), feed.Key(r.ID))
		if err != nil {
			t.Fatal(err)
		}
		if parts[0].Range.Holds(epk) {
			want[r.ID] = true
		}
	}
	// The first range was followed to its beginning, the second to the end.
	cursor := fmt.Sprintf(`{%q:"\"0\"",%q:"\"40\""}`, parts[0].Range, parts[1].Range)
	left, err := lc.Split(t.Context(), parts[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	right, err := lc.Split(t.Context(), parts[1].ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lc.Merge(t.Context(), left[1].ID, right[0].ID); err != nil {
		t.Fatal(err)
	}
	changed, _, _, err := s.Follow(t.Context(), cursor)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range changed {
		delete(want, r.ID)
	}
	if len(want) > 0 {
		t.Errorf("%d records of the first range are missing", len(want))
	}
}
