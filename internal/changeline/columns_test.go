package changeline

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/changefeed/feed"
)

// Columns say the same as the lines of the changes.
func TestColumnsSayWhatLinesSay(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for n := range 200 {
		changes := randomChanges(rng, n%7)
		text, err := AppendColumns(nil, changes)
		if err != nil {
			t.Fatal(err)
		}
		var columns map[string][]any
		if err := json.Unmarshal(text, &columns); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for i, c := range changes {
			line, err := Append(nil, feed.FullRange(), &c, "")
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]any{}
			if err := json.Unmarshal(line, &want); err != nil {
				t.Fatal(err)
			}
			delete(want, "range")
			got := map[string]any{"op": "upsert"}
			for name, column := range columns {
				if len(column) != len(changes) {
					t.Fatalf("%s has %d values of %d changes", name, len(column), len(changes))
				}
				if v := column[i]; v != nil && v != false && (name != "previous_lsn" || v != 0.0) {
					got[name] = v
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("change %d of %s (-line +columns):\n%s", i, text, diff)
			}
		}
	}
}

// randomChanges returns changes of both modes, with all members and without.
func randomChanges(rng *rand.Rand, n int) (changes []feed.Change) {
	isAll := rng.IntN(2) == 0
	for i := range n {
		c := feed.Change{
			LSN: rng.Int64N(1 << 40), ID: fmt.Sprintf("item \"%d\" ü", i), PartitionKey: feed.Key("a\nb", rng.IntN(9)),
			Time: time.Unix(rng.Int64N(1<<32), rng.Int64N(1e9)).UTC(), Body: []byte(`{ "id": "x", "n": [1, null] }`),
		}
		if isAll {
			c.Op = []feed.Op{feed.OpCreate, feed.OpReplace, feed.OpDelete}[rng.IntN(3)]
			if c.Op == feed.OpDelete {
				c.Body, c.Expired = nil, rng.IntN(2) == 0
			}
			if rng.IntN(2) == 0 {
				c.Previous, c.PreviousLSN = []byte(`{"id":"x"}`), 1+rng.Int64N(1<<40)
			}
		}
		changes = append(changes, c)
	}
	return changes
}

func TestColumnsLeaveOutWhatNoChangeHas(t *testing.T) {
	changes := []feed.Change{{LSN: 4, ID: "a", PartitionKey: feed.Key("k"), Body: []byte(`{}`)}}
	text, err := AppendColumns([]byte("x"), changes)
	const want = `x{"lsn":[4],"time":["0001-01-01T00:00:00Z"],"id":["a"],"key":[["k"]],"document":[{}]}`
	if string(text) != want || err != nil {
		t.Errorf("got %s, %v, want %s", text, err, want)
	}
}

func TestADocumentThatIsNotJSONIsNoColumn(t *testing.T) {
	changes := []feed.Change{{PartitionKey: feed.Key("k"), Body: []byte("{\n\x00")}}
	if text, err := AppendColumns(nil, changes); err == nil {
		t.Errorf("got %s, want an error", text)
	}
}
