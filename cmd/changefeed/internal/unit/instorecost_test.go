package unit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// A search does not open a lease store for each pair of containers. Documents of users that are as large as those of a
// container with leases never are, are not read to the end.
func TestASearchCostsLittle(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	const containers = 150
	for i := range containers {
		spec := docstore.ContainerSpec{ID: fmt.Sprint("c", i), Paths: []string{"/id"}}
		c, err := db.CreateContainer(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		write := feed.Write{Op: feed.WriteUpsert, Body: []byte(`{"id":"ada@lovelace.example"}`)}
		if _, err := c.Commit(t.Context(), feed.Key("ada@lovelace.example"), []feed.Write{write}); err != nil {
			t.Fatal(err)
		}
	}
	allocated := testing.AllocsPerRun(1, func() {
		if found, err := FindIn(t.Context(), db); err != nil || len(found) != 0 {
			t.Errorf("found %v, %v", found, err)
		}
	})
	if most := 10.0 * containers * containers; allocated > most {
		t.Errorf("a search of %d containers makes %v allocations, want at most %v", containers, allocated, most)
	}
}

func TestLargeDocumentsAreNotReadToTheEnd(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c, err := db.CreateContainer(t.Context(), docstore.LeaseSpec("leases"))
	if err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", 1_500_000)
	for n := range mostRead/len(large) + 1 {
		id := fmt.Sprint("large.", n)
		body := fmt.Appendf(nil, `{"id":%q,"text":%q}`, id, large)
		if _, err := c.Commit(t.Context(), feed.Key(id), []feed.Write{{Op: feed.WriteUpsert, Body: body}}); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			continue
		}
		if ids, err := idsOf(t.Context(), c); err != nil || len(ids) != 1 {
			t.Fatalf("of one document there are %d ids, %v", len(ids), err)
		}
	}
	if ids, err := idsOf(t.Context(), c); err != nil || len(ids) != 0 {
		t.Errorf("%d ids, %v", len(ids), err)
	}
}
