package sql_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// draw makes random documents, and random queries that fit them well enough for rows to come.
type draw struct {
	*rand.Rand
	scope []string // names that a path may begin with
	deep  int      // subqueries around
	flat  bool     // none within
	used  *int     // names of parameters and of rows
}

func newDraw(seed uint64) *draw { return &draw{Rand: rand.New(rand.NewPCG(seed, 11)), used: new(int)} }

// name is one that is not used yet.
func (d *draw) name(begin string) string {
	*d.used++
	return begin + strconv.Itoa(*d.used)
}

func pick[T any](d *draw, of ...T) T { return of[d.IntN(len(of))] }

func (d *draw) chance(percent int) bool { return d.IntN(100) < percent }

var (
	numerals = []string{
		"0", "1", "2", "3", "1.0", "-1", "0.5", "-0", "-1.5", "2.5", "10", "1e2", "5", "7", "31", "33",
		"2147483648", "-2147483649", "4294967297", "9007199254740993", "12345678901234567890", "1e300", "5e-324",
	}
	strange = []string{
		"", "a", "b", "ab", "abc", "ABC", "aba", "é", "É", "😀", "z", "1", "true", "null", " a\t", "a b",
		"a%b", "a_b", `q"q'`, `\`, "line\n", "[1]", `{"a":1}`, "\u00a0x\u2003",
	}
	shapes = []string{"id", "k", "n", "m", "s", "b", "t", "l", "o", "kids", "é x", "value"}
)

// scalar is a number, string, boolean or null, as a JSON text.
func (d *draw) scalar() string {
	switch d.IntN(10) {
	case 0:
		return "null"
	case 1, 2:
		return pick(d, "true", "false")
	case 3, 4, 5:
		return d.text()
	}
	return d.numeral()
}

// numeral prefers the usual ones.
func (d *draw) numeral() string { return numerals[min(d.IntN(len(numerals)), d.IntN(len(numerals)))] }

func (d *draw) text() string {
	way := d.IntN(2) * 2
	return quote(strange[min(d.IntN(len(strange)), d.IntN(len(strange)))], way)
}

func (d *draw) list(item func() string) string {
	var items []string
	for range d.IntN(4) {
		items = append(items, item())
	}
	return "[" + strings.Join(items, pick(d, ",", " , ")) + "]"
}

// any is a JSON text.
func (d *draw) any(depth int) string {
	if depth == 0 || d.chance(60) {
		return d.scalar()
	}
	if d.chance(50) {
		return d.list(func() string { return d.any(depth - 1) })
	}
	return d.object(depth-1, "p", "q", "n", "é x")
}

func (d *draw) object(depth int, names ...string) string {
	var members []string
	for _, name := range names {
		if d.chance(60) {
			members = append(members, quote(name, d.IntN(2)*2)+pick(d, ":", " : ")+d.any(depth))
		}
	}
	d.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	if len(members) > 0 && d.chance(5) {
		members = append(members, `"p":0`) // perhaps a second time
	}
	return "{" + strings.Join(members, pick(d, ",", ",\n ")) + "}"
}

// usual is what a member of a document has most of the time.
func (d *draw) usual(name string) string {
	switch name {
	case "k":
		return pick(d, `"x"`, `"y"`, "1")
	case "n":
		return d.numeral()
	case "m":
		return d.scalar()
	case "s", "é x":
		return d.text()
	case "b":
		return pick(d, "true", "false")
	case "t":
		return d.list(d.scalar)
	case "l":
		return d.list(d.numeral)
	case "o":
		return d.object(2, "p", "q", "n", "o")
	case "kids":
		return d.list(func() string { return d.object(1, "n", "s", "t", "p") })
	}
	return d.any(2)
}

// documents are those of a container. They are read in another order than they were created in, unless they are of no
// service, which says when.
func (d *draw) documents() (docs []document) {
	created := d.chance(70)
	for i := range max(d.IntN(8), d.IntN(4)) {
		var members []string
		for _, name := range shapes[1:] {
			switch {
			case d.chance(70):
				members = append(members, quote(name, d.IntN(2)*2)+":"+d.usual(name))
			case d.chance(30):
				members = append(members, quote(name, 0)+":"+d.any(2))
			}
		}
		d.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		members = append(members, fmt.Sprintf(`"id":%q`, pick(d, "a", "b", "ab")+strconv.Itoa(i)))
		doc := document{}
		if created {
			doc.born = i + 1
			members = append(members, fmt.Sprintf(`"_rid":%q,"_ts":1`, rid(uint64(i+1))))
		}
		doc.text = "{" + strings.Join(members, ", ") + "}"
		if err := json.Unmarshal([]byte(doc.text), &doc.value); err != nil {
			panic(err)
		}
		docs = append(docs, doc)
	}
	d.Shuffle(len(docs), func(i, j int) { docs[i], docs[j] = docs[j], docs[i] })
	return docs
}

// rid is a resource id, which ends in the number of the document.
func rid(n uint64) string {
	b := binary.LittleEndian.AppendUint64([]byte{1, 2, 3, 4, 5, 6, 7, 128}, n)
	return strings.ReplaceAll(base64.StdEncoding.EncodeToString(b), "/", "-")
}

// literal has a JSON text, or undefined, as a literal or a parameter.
func (d *draw) literal(text string) *term {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		v = undefined
	}
	if d.chance(15) && v != undefined {
		return &term{op: "parameter", text: d.name("@p"), value: v}
	}
	switch v := v.(type) {
	case string:
		text = quote(v, d.IntN(3))
	case []any, map[string]any:
		return d.composite(v)
	case float64:
		if d.chance(50) {
			text = strings.Replace(text, "0.", ".", 1)
		}
	default:
		text = pick(d, text, strings.ToUpper(text))
	}
	return &term{op: "literal", text: text, value: v}
}

// composite writes an array or object of a document as a query does.
func (d *draw) composite(v any) *term {
	part := func(v any) *term {
		b, _ := json.Marshal(v) // always marshals
		return d.literal(string(b))
	}
	if list, ok := v.([]any); ok {
		t := &term{op: "array"}
		for _, item := range list {
			t.kids = append(t.kids, part(item))
		}
		return t
	}
	object, _ := v.(map[string]any)
	t := &term{op: "object"}
	for name := range object {
		t.names = append(t.names, name)
	}
	slices.Sort(t.names)
	for _, name := range t.names {
		t.kids = append(t.kids, part(object[name]))
	}
	return t
}

// path is a member of one of the names in scope.
func (d *draw) path(names ...string) *term {
	if len(d.scope) == 0 {
		return d.literal("undefined")
	}
	t := &term{op: "name", text: d.scope[len(d.scope)-1-min(d.IntN(len(d.scope)), d.IntN(len(d.scope)))]}
	if t.text[0] != 'c' && d.chance(50) { // not a document
		return t
	}
	t = member(d, t, pick(d, names...))
	for d.chance(15) {
		if d.chance(70) {
			t = member(d, t, pick(d, "p", "q", "n", "o", "none"))
		} else {
			t = &term{op: "element", kids: []*term{t, d.literal(pick(d, "0", "0", "1", "2"))}}
		}
	}
	return t
}

func member(d *draw, of *term, name string) *term {
	text := "." + name
	if name == "value" || strings.Contains(name, " ") || d.chance(20) {
		text = "[" + quote(name, d.IntN(3)) + "]"
	}
	return &term{op: "member", text: text, kids: []*term{of, {op: "literal", value: name}}}
}
