package changefeed_test

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// Records in all partitions of the lease container are heard of, in their last versions,
// and with the same cursor after one of the partitions has split.
func TestALeaseContainerOfSeveralPartitionsIsFollowed(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.container = w.create(docstore.ContainerSpec{
			ID: "wide", Paths: []string{"/id"}, Ranges: 4,
			DefaultTTL: new(docstore.NoDefaultTTL),
		})
		w.leases = w.unit("unit")
		ranges := feed.FullRange().Cut(16)
		for _, r := range ranges {
			if _, err := w.leases.Create(t.Context(), feed.Record{
				Kind: feed.KindLease, Version: 1, Token: r.String(),
				Range: r,
			}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, cursor, _, err := w.leases.Follow(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, owner := range []string{"a", "b", "c"} {
			for _, l := range w.records(feed.KindLease) {
				l.Owner = owner
				if _, err := w.leases.Update(t.Context(), l); err != nil {
					t.Fatal(err)
				}
			}
			if owner == "a" {
				continue // the next version of each comes on top
			}
			heard := map[string]string{}
			for len(heard) < len(ranges) {
				changed, next, _, err := w.leases.Follow(ctx, cursor)
				if err != nil {
					t.Fatalf("%d of %d records of %s: %v", len(heard), len(ranges), owner, err)
				}
				for _, l := range changed {
					heard[l.Token] = l.Owner
				}
				cursor = next
			}
			for token, last := range heard {
				if last != owner {
					t.Errorf("lease %s is heard to be %q's, want %q", token, last, owner)
				}
			}
			parts, err := w.container.Partitions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.container.Split(t.Context(), parts[1].ID); err != nil {
				t.Fatal(err)
			}
		}
	})
}
