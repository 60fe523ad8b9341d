package docstore_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// batchOf is a transaction of a key: n documents of a size, x0 first.
func batchOf(pk string, n, size int) []feed.Write {
	pad := strings.Repeat("x", size)
	writes := make([]feed.Write, n)
	for i := range writes {
		writes[i] = feed.Write{Body: fmt.Appendf(nil, `{"id":"x%d","pk":%q,"pad":"%s"}`, i, pk, pad)}
	}
	return writes
}

// TestATransactionIsMovedWhole moves large transactions after a split, group by group,
// and reads the feed after each.
func TestATransactionIsMovedWhole(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{Retention: time.Hour},
		func(t *testing.T, db *docstore.DB, c *docstore.Container) {
			split(t, c)
			synctest.Wait() // the sweeper has seen to it, and rests for a second
			for range 2 {
				if _, err := c.Commit(t.Context(), feed.Key("a"), batchOf("a", 100, 20_000)); err != nil {
					t.Fatal(err)
				}
			}
			split(t, c)
			moves := 0
			for more := true; more; moves++ {
				inOrder(t, c)
				var err error
				if more, err = db.MoveSome(c); err != nil {
					t.Fatal(err)
				}
			}
			if moves < 3 {
				t.Errorf("all was moved in %d steps, too few for this test", moves)
			}
		})
}

// split cuts every partition in two.
func split(t *testing.T, c *docstore.Container) {
	t.Helper()
	parts, err := c.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		if _, err := c.Split(t.Context(), p.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// inOrder checks that each transaction is in both feeds from its first write on.
func inOrder(t *testing.T, c *docstore.Container) {
	t.Helper()
	for mode, want := range map[feed.Mode]int{feed.LatestVersion: 100, feed.AllVersionsAndDeletes: 200} {
		n := 0
		parts, err := c.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			all, _ := drain(t, c, p.Range, feed.At("0"), feed.ReadOptions{Mode: mode})
			for i, ch := range all {
				if id := fmt.Sprint("x", i%100); ch.ID != id {
					t.Fatalf("mode %v: change %d is of %s, want %s", mode, i, ch.ID, id)
				}
			}
			n += len(all)
		}
		if n != want {
			t.Fatalf("mode %v: %d changes, want %d", mode, n, want)
		}
	}
}

// TestALogOfSeveralMovesIsMovedToItsEnd has more in a log than one group of moves takes.
func TestALogOfSeveralMovesIsMovedToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, docstore.Options{InMemory: true}.Resting())
		c := container(t, db, docstore.ContainerSpec{})
		keys := []string{"a", "b", "c", "d"}
		for _, pk := range keys {
			if _, err := c.Commit(t.Context(), feed.Key(pk), batchOf(pk, 100, 6_000)); err != nil {
				t.Fatal(err)
			}
		}
		split(t, c)
		db.Sweep(c)
		n := 0
		for _, p := range db.Stats().Containers[0].Partitions {
			got, _ := drain(t, c, p.Range, feed.At("0"), feed.ReadOptions{})
			if n += len(got); p.Logs != 1 {
				t.Errorf("partition %s reads %d logs after the sweeper has come by", p.ID, p.Logs)
			}
		}
		if n != 100*len(keys) {
			t.Errorf("%d documents are left of %d", n, 100*len(keys))
		}
	})
}
