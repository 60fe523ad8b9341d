package docstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// TestAWriteThatRacesWithCloseIsAnswered queues a write at the moment when the committer
// has ended already and its caller has not yet seen that.
func TestAWriteThatRacesWithCloseIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := docstore.Open("", docstore.Options{InMemory: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if err := db.SubmitLate(t.Context()); !errors.Is(err, docstore.ErrClosed) {
			t.Errorf("got %v, want %v", err, docstore.ErrClosed)
		}
	})
}

// TestReadersAndWritersEndWhenTheStoreIsClosed closes stores below readers and writers:
// each gets its answer or ErrClosed, and nobody hangs or finds the engine gone.
func TestReadersAndWritersEndWhenTheStoreIsClosed(t *testing.T) {
	for range 3 {
		db, err := docstore.Open("", docstore.Options{InMemory: true})
		if err != nil {
			t.Fatal(err)
		}
		c := container(t, db, docstore.ContainerSpec{})
		upsert(t, c, "0", "p", 0)
		var work sync.WaitGroup
		begun := make(chan struct{}, 12)
		until := func(f func(i int) error) {
			work.Go(func() {
				for i := 0; ; i++ {
					err := f(i)
					if i == 0 {
						begun <- struct{}{}
					}
					if err == nil {
						continue
					}
					if !errors.Is(err, docstore.ErrClosed) {
						t.Errorf("got %v, want %v", err, docstore.ErrClosed)
					}
					return
				}
			})
		}
		for w := range 3 {
			until(func(i int) error {
				_, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"%d-%d","pk":"p"}`, w, i%10))
				return err
			})
			until(func(int) error {
				_, err := c.Item(t.Context(), feed.Key("p"), "0")
				return err
			})
			until(func(int) error {
				_, err := c.Read(t.Context(), feed.FullRange(), feed.Position{Start: feed.FromBeginning()},
					feed.ReadOptions{MaxItems: 5})
				return err
			})
			until(func(int) error { return db.Check() })
		}
		for range cap(begun) {
			<-begun
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		work.Wait()
		if t.Failed() {
			return
		}
	}
}

// TestASplitWhoseCallerWentAwayLeavesNothing cancels a split that waits for its turn.
func TestASplitWhoseCallerWentAwayLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := docstore.Open("", docstore.Options{InMemory: true})
		if err != nil {
			t.Fatal(err)
		}
		c := container(t, db, docstore.ContainerSpec{})
		release := db.Hold()
		ctx, cancel := context.WithCancel(t.Context())
		var split sync.WaitGroup
		split.Go(func() { _, err = c.Split(ctx, "0") })
		synctest.Wait()
		cancel()
		synctest.Wait()
		release()
		split.Wait()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("split: %v, want %v", err, context.Canceled)
		}
		if made, err := c.Split(t.Context(), "0"); err != nil || len(made) != 2 {
			t.Errorf("split again: %v, %v", made, err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}
