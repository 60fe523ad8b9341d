package docstore

import (
	"fmt"
	"testing"

	"github.com/millrace/changefeed/feed"
)

// What the committer remembers of slots is what the engine has, and no more than fits.
func TestRecentSlotsAreThoseOfTheEngine(t *testing.T) {
	db, err := Open("", Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	make := func(id string) *Container {
		c, err := db.CreateContainer(t.Context(), ContainerSpec{ID: id, Paths: []string{"/id"}})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	a, b := make("a"), make("b")
	agree := func(want int) {
		t.Helper()
		err := db.committer.runAlone(t.Context(), func(g *group) error {
			size := 0
			for key, slot := range g.recent.slots {
				value := slot.value
				size += slotCost(len(key), len(value))
				if stored, found, err := db.eng.Get(nil, []byte(key)); err != nil || !found ||
					string(stored) != string(value) {
					t.Errorf("slot %q is %q, want %q, %v", key, value, stored, err)
				}
			}
			if len(g.recent.slots) != want || size != g.recent.size {
				t.Errorf("%d slots of %d bytes, said to be %d, want %d slots", len(g.recent.slots), size, g.recent.size,
					want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 30 {
		for _, c := range []*Container{a, b} {
			if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"%d","n":%d}`, i%10, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	agree(20)
	if err := a.Delete(t.Context(), feed.Key("3"), "3", ""); err != nil {
		t.Fatal(err)
	}
	agree(19)
	if err := db.DeleteContainer(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	agree(0)

	var r recent
	g := &group{}
	r.noteGroup(g)
	for i := range 2 * maxRecent / 100 {
		g.changes = []change{{key: fmt.Appendf(nil, "%c%040d", tableDoc, i), value: []byte{}}}
		r.noteGroup(g)
	}
	if r.size > maxRecent || r.size < maxRecent/2 || len(r.slots) != r.size/slotCost(len(fmt.Sprintf("d%040d", 0)), 0) {
		t.Errorf("%d slots take %d bytes, want %d at most", len(r.slots), r.size, maxRecent)
	}
}
