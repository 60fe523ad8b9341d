package cosmos_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// A unit over HTTP has caught up when the changes before the call are handled, in spite of a split, and of leases that
// share a partition.
func TestAUnitOfAnAccountCatchesUp(t *testing.T) {
	s := serve(t, cosmosrest.Options{})
	stored := s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}, Ranges: 2})
	s.create(t, docstore.ContainerSpec{ID: "leases", Paths: []string{"/id"}, DefaultTTL: new(docstore.NoDefaultTTL)})
	client := s.client(t, master, nil)
	var handled atomic.Int64
	p, err := changefeed.New(find(t, client, "items"), unit(t, client, "unit"), feed.HandlerFunc(
		func(_ context.Context, b *feed.Batch) error {
			handled.Add(int64(len(b.Changes)))
			return nil
		}), changefeed.Options{Start: feed.FromBeginning(), MinLeases: 4, MaxItems: 10})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := put(t.Context(), stored, fmt.Sprintf(`{"id":"%d","pk":"k%d"}`, i, i)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	within, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.CaughtUp(within); err != nil || handled.Load() != 100 {
		t.Errorf("%v with %d handled, want 100", err, handled.Load())
	}
	stop()
	if err := <-ran; err != nil {
		t.Error(err)
	}

	parts, err := stored.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stored.Split(t.Context(), parts[0].ID); err != nil {
		t.Fatal(err)
	}
	fresh := find(t, s.client(t, master, nil), "items")
	if err := changefeed.CaughtUp(within, fresh, unit(t, client, "unit")); err != nil {
		t.Errorf("%v after a split without new changes, want none", err)
	}
	if err := put(t.Context(), stored, `{"id":"last","pk":"last"}`); err != nil {
		t.Fatal(err)
	}
	short, end := context.WithCancel(t.Context())
	defer end()
	err = changefeed.CaughtUp(short, fresh, &impatient{LeaseStore: unit(t, client, "unit"), end: end})
	if !errors.Is(err, context.Canceled) || !strings.Contains(fmt.Sprint(err), "of no instance is at ") {
		t.Errorf("%v, want the end of the context and the lease that is behind", err)
	}
}

// impatient is a lease store whose caller gives up when it lists the leases again.
type impatient struct {
	feed.LeaseStore
	end   context.CancelFunc
	lists int
}

func (s *impatient) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	if s.lists++; s.lists > 1 {
		s.end()
	}
	return s.LeaseStore.List(ctx)
}
