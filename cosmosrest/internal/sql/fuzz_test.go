package sql

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const deepest = 4 // levels of a document, which is an array or an object

// drawJSON draws a value as text, with blanks and escapes where JSON allows them.
func drawJSON(t *rapid.T, depth int) string {
	pad := func() string { return rapid.SampledFrom([]string{"", "", " ", "\n\t"}).Draw(t, "pad") }
	first, last := 0, 4
	if depth > 0 {
		last = 6
	}
	if depth == deepest {
		first = 5
	}
	switch rapid.IntRange(first, last).Draw(t, "kind") {
	case 0:
		return "null"
	case 1:
		return strconv.FormatBool(rapid.Bool().Draw(t, "bool"))
	case 2:
		return rapid.SampledFrom([]string{"0", "-1.50", "1e3", "12345678901234567890"}).Draw(t, "number")
	case 3, 4:
		return drawString(t)
	case 5:
		var items []string
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			items = append(items, pad()+drawJSON(t, depth-1)+pad())
		}
		return "[" + strings.Join(items, ",") + pad() + "]"
	}
	var members []string
	for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom(keys), 0, 3, rapid.ID).Draw(t, "keys") {
		members = append(members, pad()+spell(t, key)+pad()+":"+pad()+drawJSON(t, depth-1)+pad())
	}
	return "{" + strings.Join(members, ",") + pad() + "}"
}

var keys = []string{"a", "b", "", `"`, `\`, `\\`, `\u0061`, "é", "a]b}", "line\n"}

func drawString(t *rapid.T) string {
	return spell(t, rapid.SampledFrom([]string{"", "x", `q"q`, `back\`, `\"`, "[{,:", "é😀", "\x01"}).Draw(t, "string"))
}

// spell writes a string as JSON, plainly or with every character escaped.
func spell(t *rapid.T, s string) string {
	if !rapid.Bool().Draw(t, "escaped") {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	b := []byte{'"'}
	for _, r := range s {
		if r > math.MaxUint16 {
			b = append(b, string(r)...)
			continue
		}
		b = append(b, `\u`+strings.Repeat("0", 4-len(strconv.FormatInt(int64(r), 16)))+strconv.FormatInt(int64(r),
			16)...)
	}
	return string(append(b, '"'))
}

func TestPathsAgreeWithDecoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := drawJSON(t, deepest)
		var decoded any
		if err := json.Unmarshal([]byte(doc), &decoded); err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		query, want, found := "c", decoded, true
		for range rapid.IntRange(0, 4).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "index") {
				i := rapid.IntRange(0, 3).Draw(t, "element")
				query += "[" + strconv.Itoa(i) + "]"
				items, _ := want.([]any)
				if found = found && i < len(items); found {
					want = items[i]
				}
			} else {
				key := rapid.SampledFrom(keys).Draw(t, "key")
				query += "[" + spell(t, key) + "]"
				members, _ := want.(map[string]any)
				value, ok := members[key]
				found, want = found && ok, value
			}
		}
		comparePath(t, doc, "SELECT VALUE "+query+" FROM c", want, found)
	})
}

func comparePath(t *rapid.T, doc, query string, want any, found bool) {
	q, err := Parse(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	b, err := q.Bind(nil)
	if err != nil {
		t.Fatal(err)
	}
	got, rows := any(nil), 0
	err = b.Rows([]byte(doc), func(row []byte) error {
		rows++
		if _, isNumber := want.(float64); !isNumber && !strings.Contains(doc, string(row)) {
			t.Errorf("%s of %s: %s is not of the document's text", query, doc, row)
		}
		return json.Unmarshal(row, &got)
	})
	if err != nil {
		t.Fatal(err)
	}
	if (rows == 1) != found || found && canonicalJSON(t, got) != canonicalJSON(t, want) {
		t.Fatalf("%s of %s: %d rows, %v; decoding finds %v, %v", query, doc, rows, got, found, want)
	}
}

func canonicalJSON(t *rapid.T, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Order is total, and equality is that of canonical texts.
func TestOrderIsTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var values []value
		for range 3 {
			values = append(values, documentValue([]byte(drawJSON(t, 2))))
		}
		a, b, c := values[0], values[1], values[2]
		if order(a, b) > 0 != (order(b, a) < 0) || (order(a, b) == 0) != (order(b, a) == 0) {
			t.Fatalf("%s and %s: %d and %d", a.raw, b.raw, order(a, b), order(b, a))
		}
		if equal(a, b) != (canonical(a) == canonical(b)) || equal(a, b) != (order(a, b) == 0) {
			t.Fatalf("%s and %s: equal %v, order %d, canonical %s and %s", a.raw, b.raw, equal(a, b), order(a, b),
				canonical(a), canonical(b))
		}
		slices.SortFunc(values, order)
		if order(values[0], values[1]) > 0 || order(values[1], values[2]) > 0 || order(values[0], values[2]) > 0 {
			t.Fatalf("%s, %s and %s have no order", a.raw, b.raw, c.raw)
		}
	})
}

// FuzzQuery runs any query over any document: it may fail with an Error, and with nothing else; rows are JSON if the
// document is.
func FuzzQuery(f *testing.F) {
	for _, q := range queries {
		f.Add(q.query, families[0])
	}
	for i, e := range expressions {
		if i%4 == 0 {
			f.Add("SELECT VALUE "+e.expr+" FROM c", sample)
		}
	}
	for _, doc := range []string{"", "{", "[", `{"a"`, `{"a":`, `{"a":"`, `"\`, "]", `{"a":}`, "{\"tags\":[,]}"} {
		f.Add("SELECT c.a, t FROM c JOIN t IN c.tags ORDER BY c.a", doc)
		f.Add("SELECT DISTINCT VALUE c FROM c", doc)
	}
	f.Fuzz(func(t *testing.T, query, doc string) {
		q, err := parse(query, false)
		if err != nil {
			checkError(t, err)
			return
		}
		b, err := q.Bind([]Parameter{{"@two", []byte("2")}, {"@one", []byte("1")}})
		if err != nil {
			checkError(t, err)
			return
		}
		b.Keys([][]string{{"id"}, {"a"}}, 100)
		b.IDs()
		b.IDPrefix()
		_, err = b.Plan(nil, nil)
		checkError(t, err)
		emit := func(row []byte) error {
			if json.Valid([]byte(doc)) && !json.Valid(row) {
				t.Errorf("%s of %s: row %s", query, doc, row)
			}
			return nil
		}
		if b.Streams() {
			checkError(t, b.Rows([]byte(doc), emit))
			return
		}
		r := b.NewRun()
		if err := r.Add([]byte(doc)); err != nil {
			checkError(t, err)
			return
		}
		rows, err := r.Finish()
		checkError(t, err)
		for _, row := range rows {
			if err := emit(row.JSON); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func checkError(t *testing.T, err error) {
	t.Helper()
	if _, ok := err.(*Error); err != nil && !ok {
		t.Errorf("error is a %T: %v", err, err)
	}
}
