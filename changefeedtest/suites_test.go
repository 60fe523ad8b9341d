package changefeedtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/millrace/changefeed/changefeedtest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// embedded is the harness of the embedded store, in virtual time.
func embedded() changefeedtest.Harness {
	return changefeedtest.Harness{
		Virtual:   true,
		Container: monitored,
		Leases:    leaseContainer,
		Lacks:     []changefeedtest.Ability{changefeedtest.Throttling, changefeedtest.DeleteRights},
	}
}

// open is a store in memory that is checked at the end of the test.
func open(t *testing.T) *docstore.DB {
	t.Helper()
	db, err := docstore.Open("", docstore.Options{InMemory: true, CacheBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Check(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func create(t *testing.T, db *docstore.DB, spec docstore.ContainerSpec) *docstore.Container {
	t.Helper()
	c, err := db.CreateContainer(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func monitored(t *testing.T, want changefeedtest.Container) changefeedtest.Store {
	t.Helper()
	spec := docstore.ContainerSpec{ID: "items", Paths: want.Paths, Retention: want.Retention}
	if want.HashV1 {
		spec.HashVersion = 1
	}
	if want.Expiry {
		spec.DefaultTTL = new(docstore.NoDefaultTTL)
	}
	c := create(t, open(t), spec)
	return changefeedtest.Store{
		Source:    c,
		Committer: c,
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
	}
}

func leaseContainer(t *testing.T) changefeedtest.LeaseContainer {
	t.Helper()
	return leasesAt(t, "/id")
}

// leasesAt is a lease container with a partition key path.
func leasesAt(t *testing.T, path string) changefeedtest.LeaseContainer {
	t.Helper()
	db := open(t)
	items := create(t, db, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}})
	leases := create(t, db, docstore.ContainerSpec{
		ID: "leases", Paths: []string{path},
		DefaultTTL: new(docstore.NoDefaultTTL),
	})
	return changefeedtest.LeaseContainer{
		Unit: func(t *testing.T, processor string) feed.LeaseStore {
			t.Helper()
			store, err := docstore.NewLeases(t.Context(), leases, processor, items)
			if err != nil {
				t.Fatal(err)
			}
			return store
		},
		Put: func(t *testing.T, doc json.RawMessage) {
			t.Helper()
			if _, err := leases.Upsert(t.Context(), doc); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func TestTheSuitesHoldForTheEmbeddedStore(t *testing.T) {
	t.Run("source", func(t *testing.T) { changefeedtest.TestSource(t, embedded()) })
	t.Run("leases", func(t *testing.T) { changefeedtest.TestLeaseStore(t, embedded()) })
	t.Run("leases by partition key", func(t *testing.T) {
		h := embedded()
		h.Leases = func(t *testing.T) changefeedtest.LeaseContainer { return leasesAt(t, "/partitionKey") }
		changefeedtest.TestLeaseStore(t, h)
	})
	t.Run("commits", func(t *testing.T) { changefeedtest.TestCommitter(t, embedded()) })
}

func TestTheSuitesHoldOutsideABubble(t *testing.T) {
	t.Parallel() // its tests wait in real time
	h := embedded()
	h.Virtual = false
	h.Lacks = append(h.Lacks, changefeedtest.PassingTime)
	t.Run("source", func(t *testing.T) { changefeedtest.TestSource(t, h) })
	t.Run("leases", func(t *testing.T) { changefeedtest.TestLeaseStore(t, h) })
	t.Run("commits", func(t *testing.T) { changefeedtest.TestCommitter(t, h) })
}

// plain is a committer without patches.
type plain struct{ *docstore.Container }

func (p plain) Commit(ctx context.Context, key feed.PartitionKey, writes []feed.Write) ([]feed.Result, error) {
	for i, w := range writes {
		if w.Op == feed.WritePatch {
			return nil, &feed.WriteError{Index: i, Write: w, Err: feed.ErrBadRequest}
		}
	}
	return p.Container.Commit(ctx, key, writes)
}

// keeps is a source that keeps every version, so that no position is too old.
type keeps struct{ *docstore.Container }

func (k keeps) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
	page, err := k.Container.Read(ctx, r, from, o)
	if errors.Is(err, feed.ErrTooOld) {
		return feed.Page{Next: from}, nil
	}
	return page, err
}

// A store may lack patches and a retention that ends, and show all versions all the same.
func TestTheSuitesHoldForAStoreWithoutPatchesAndRetention(t *testing.T) {
	h := embedded()
	h.Lacks = append(h.Lacks, changefeedtest.Patching, changefeedtest.Retention)
	h.Container = func(t *testing.T, want changefeedtest.Container) changefeedtest.Store {
		s := monitored(t, want)
		c, _ := s.Source.(*docstore.Container)
		s.Source, s.Committer = keeps{c}, plain{c}
		return s
	}
	t.Run("source", func(t *testing.T) { changefeedtest.TestSource(t, h) })
	t.Run("commits", func(t *testing.T) { changefeedtest.TestCommitter(t, h) })
}

// bare is a source and committer whose items have no system properties.
type bare struct{ *docstore.Container }

func (b bare) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
	page, err := b.Container.Read(ctx, r, from, o)
	for i := range page.Changes {
		c := &page.Changes[i]
		c.Body, c.Previous = bared(c.Body), bared(c.Previous)
	}
	return page, err
}

func (b bare) Commit(ctx context.Context, key feed.PartitionKey, writes []feed.Write) ([]feed.Result, error) {
	results, err := b.Container.Commit(ctx, key, writes)
	for i := range results {
		results[i].Body = bared(results[i].Body)
	}
	return results, err
}

// bared is an item without its system properties.
func bared(body json.RawMessage) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil {
		return body
	}
	for name := range members {
		if strings.HasPrefix(name, "_") {
			delete(members, name)
		}
	}
	bare, _ := json.Marshal(members)
	return bare
}

// The _etag and _ts in an item are the service's way, and not every store's.
func TestTheSuitesHoldForAStoreWithoutSystemProperties(t *testing.T) {
	h := embedded()
	h.Lacks = append(h.Lacks, changefeedtest.SystemProperties)
	h.Container = func(t *testing.T, want changefeedtest.Container) changefeedtest.Store {
		s := monitored(t, want)
		c, _ := s.Source.(*docstore.Container)
		s.Source, s.Committer = bare{c}, bare{c}
		return s
	}
	t.Run("source", func(t *testing.T) { changefeedtest.TestSource(t, h) })
	t.Run("commits", func(t *testing.T) { changefeedtest.TestCommitter(t, h) })
}
