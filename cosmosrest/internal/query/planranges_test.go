package query

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cosmosrest/internal/meter"
	"github.com/millrace/changefeed/cosmosrest/internal/sql"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// keyedDocument is a document with the values at its key's paths; "" is a missing value.
type keyedDocument struct {
	text string
	epk  string
}

// keyValues are values of documents and of filters, so that filters let documents pass.
var keyValues = []string{`1`, `2`, `-1`, `1.5`, `0`, `"a"`, `"a%"`, `"A"`, `""`, `true`, `false`, `null`, ""}

// drawFilter draws a filter about the paths c.a, c.b and c.d.
func drawFilter(r *rand.Rand, depth int) string {
	if depth > 0 {
		one, two := drawFilter(r, depth-1), drawFilter(r, depth-1)
		switch r.IntN(8) {
		case 0, 1, 2:
			return "(" + one + " AND " + two + ")"
		case 3, 4, 5:
			return "(" + one + " OR " + two + ")"
		case 6:
			return "(NOT " + one + ")"
		}
	}
	path := "c." + []string{"a", "a", "a", "b", "b", "d"}[r.IntN(6)]
	value := func() string {
		if v := keyValues[r.IntN(len(keyValues))]; v != "" {
			return v
		}
		return []string{"undefined", "@one", "{}", "[1]", "c.x"}[r.IntN(5)]
	}
	switch r.IntN(14) {
	case 0:
		return path + " IN (" + value() + ", " + value() + ")"
	case 1:
		return "ARRAY_CONTAINS([" + value() + ", " + value() + "], " + path + ")"
	case 2:
		return "ABS(" + path + ") = " + value()
	case 3:
		return []string{"IS_NULL(", "IS_BOOL(", "IS_DEFINED(", "IS_STRING("}[r.IntN(4)] + path + ")"
	case 4:
		return path + " LIKE " + []string{"'a'", "'a%'", "'a!%' ESCAPE '!'", "''"}[r.IntN(4)]
	case 5:
		return path
	case 6:
		return value() + " = " + value()
	case 7:
		return path + []string{" != ", " >= ", " < "}[r.IntN(3)] + value()
	case 8:
		return path + " BETWEEN " + value() + " AND " + value()
	case 9:
		return "EXISTS(SELECT VALUE 1 FROM c d WHERE " + strings.Replace(path, "c.", "d.", 1) + " = " + value() + ")"
	case 10:
		return "c.x = (SELECT VALUE d.x FROM c d WHERE " + strings.Replace(path, "c.", "d.", 1) + " = " + value() + ")"
	case 11:
		return value() + " = " + path
	}
	return path + " = " + value()
}

// newKeyed is a container whose key has these paths, and documents for many keys.
func newKeyed(t *testing.T, r *rand.Rand, version int, paths ...string) (*docstore.Container, []keyedDocument) {
	t.Helper()
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	cont, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "c", Paths: paths, HashVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	var docs []keyedDocument
	for i := range 50 {
		var text strings.Builder
		fmt.Fprintf(&text, `{"id":"%d","x":1`, i)
		var key []any
		for j, name := range []string{"a", "b", "d"} {
			var v any = feed.Undefined
			if raw := keyValues[r.IntN(len(keyValues))]; raw != "" {
				fmt.Fprintf(&text, `,%q:%s`, name, raw)
				if err := json.Unmarshal([]byte(raw), &v); err != nil {
					t.Fatal(err)
				}
			}
			if j < len(paths) {
				key = append(key, v)
			}
		}
		place, err := cont.LogicalPartition(feed.Key(key...))
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, keyedDocument{text.String() + "}", place.Range().Min})
	}
	return cont, docs
}

// No plan asks fewer partitions than needed: whatever the filter is, the ranges of the plan contain the effective
// partition key of each document that passes the filter.
func TestTheRangesOfAPlanContainEachMatchingKey(t *testing.T) {
	r := rand.New(rand.NewPCG(27, 1))
	for _, form := range []struct {
		version int
		paths   []string
	}{{1, []string{"/a"}}, {2, []string{"/a"}}, {2, []string{"/a", "/b"}}, {2, []string{"/a", "/b", "/d"}}} {
		cont, docs := newKeyed(t, r, form.version, form.paths...)
		narrow, found := 0, 0
		for range 200 {
			filter := drawFilter(r, 1+r.IntN(3))
			b, ranges := rangesOf(t, cont, filter)
			isNarrow := ranges[0].Min != "" || ranges[0].Max != "FF"
			if isNarrow {
				narrow++
			}
			for _, doc := range docs {
				if !passes(t, b, doc.text) {
					continue
				}
				if !covered(ranges, doc.epk) {
					t.Fatalf("%s at %s of a container by %v passes %s, but the plan has the ranges %v", doc.text, doc.epk,
						form.paths, filter, ranges)
				}
				if isNarrow {
					found++
				}
			}
		}
		if narrow < 40 || found < 40 {
			t.Errorf("by %v: only %d plans are narrow, and %d documents pass these", form.paths, narrow, found)
		}
	}
}

// rangesOf returns the ranges of the plan of a query with this filter, and the query.
func rangesOf(t *testing.T, cont *docstore.Container, filter string) (*sql.Bound, []sql.KeyRange) {
	t.Helper()
	m := meter.NewLoad().Request(t.Context())
	defer m.End()
	q, err := New(cont, Selection{Range: feed.FullRange()}, Text{
		Query:      "SELECT VALUE 1 FROM c WHERE " + filter,
		Parameters: []sql.Parameter{{Name: "@one", Value: []byte("1")}},
	}, &m, &Results{})
	if err != nil {
		t.Fatalf("%s: %v", filter, err)
	}
	ranges, err := q.planRanges()
	if err != nil || len(ranges) == 0 {
		t.Fatalf("%s: ranges %v: %v", filter, ranges, err)
	}
	return q.bound, ranges
}

// passes reports whether the query makes a row of a document.
func passes(t *testing.T, b *sql.Bound, doc string) (some bool) {
	t.Helper()
	if err := b.Rows([]byte(doc), func([]byte) error {
		some = true
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return some
}

// covered reports whether one of the ranges contains an effective partition key.
func covered(ranges []sql.KeyRange, epk string) bool {
	for _, span := range ranges {
		if span.Min <= epk && (epk < span.Max || span.Min == span.Max && epk == span.Min) {
			return true
		}
	}
	return false
}
