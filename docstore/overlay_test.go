package docstore

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"
)

// Keys with one hash are rarer than any test could wait for, so here most have one.
func TestAnOverlayIsAMapThatGoesBack(t *testing.T) {
	db, err := Open("", Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rapid.Check(t, func(t *rapid.T) {
		o := newOverlay(db.eng, &recent{})
		o.hash = func(key []byte) uint64 { return uint64(key[1]) % 3 }
		type state struct {
			mark int
			has  map[string]string
		}
		has := map[string]string{}
		var marks []state
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			key := fmt.Sprint("z", rapid.IntRange(0, 9).Draw(t, "key"))
			switch rapid.SampledFrom([]string{"set", "set", "drop", "mark", "back"}).Draw(t, "step") {
			case "set":
				has[key] = fmt.Sprint("value ", len(o.changes))
				o.set([]byte(key), []byte(has[key]))
			case "drop":
				delete(has, key)
				o.drop([]byte(key), 0)
			case "mark":
				marks = append(marks, state{len(o.changes), maps.Clone(has)})
			case "back":
				if n := len(marks) - 1; n >= 0 {
					o.rollback(marks[n].mark)
					has, marks = marks[n].has, marks[:n]
				}
			}
			for i := range 10 {
				key := fmt.Sprint("z", i)
				want, wanted := has[key]
				if got, found, err := o.get([]byte(key)); string(got) != want && wanted || found != wanted ||
					err != nil {
					t.Fatalf("%s is %q, %v, %v, want %q, %v", key, got, found, err, want, wanted)
				}
			}
		}
	})
}
