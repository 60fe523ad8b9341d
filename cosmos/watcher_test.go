package cosmos_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// Who watches a unit before it has leases sees them, also if the unit is made by another name of this machine: in the
// next listing, and in the feed of the leases.
func TestAWatcherSeesANewUnitMadeByAnotherName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, cosmosrest.Options{})
		items := s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/city"}})
		records := s.create(t, docstore.ContainerSpec{ID: "leases", Paths: []string{"/id"}})
		open := func(endpoint string) *cosmos.Leases {
			client, err := cosmos.Open(t.Context(), endpoint, master,
				cosmos.Options{Transport: &http.Client{Transport: s.transport}})
			if err != nil {
				t.Fatal(err)
			}
			return unit(t, client, "orders")
		}
		direct := func() *docstore.Leases {
			leases, err := docstore.NewLeases(t.Context(), records, "orders", items)
			if err != nil {
				t.Fatal(err)
			}
			return leases
		}
		type watcher interface {
			feed.LeaseStore
			feed.Follower
			Prefix() string
		}
		listing := map[string]watcher{"localhost": open("http://localhost:8081"), "the store": direct()}
		following := map[string]watcher{"localhost": open("http://localhost:8081"), "the store": direct()}
		cursors := map[string]string{}
		for name, w := range following {
			_, cursor, _, err := w.Follow(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			cursors[name] = cursor
		}
		made := open("http://127.0.0.1:8081")
		lease := feed.Record{Kind: feed.KindLease, Token: "-FF", Range: feed.FullRange(), Version: 1}
		if _, err := made.Create(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		for name, w := range listing {
			found, _, err := w.List(t.Context())
			if err != nil || len(found) != 1 || found[0].Err != nil || w.Prefix() != made.Prefix() {
				t.Errorf("%s lists %v, %v under %q, want the lease under %q", name, found, err, w.Prefix(), made.Prefix())
			}
		}
		for name, w := range following {
			found, _, _, err := w.Follow(t.Context(), cursors[name])
			if err != nil || len(found) != 1 || found[0].Err != nil || w.Prefix() != made.Prefix() {
				t.Errorf("%s follows %v, %v under %q, want the lease under %q", name, found, err, w.Prefix(), made.Prefix())
			}
		}
	})
}
