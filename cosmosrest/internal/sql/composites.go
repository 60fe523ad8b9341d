package sql

import "github.com/millrace/changefeed/internal/cosmosdb/rawjson"

// Expressions that make arrays, objects and rows, and subqueries that stand where a value
// may.
//
// Composites are written as JSON text at once: most are a column of a result, which is sent
// as text, and the few that are looked into are walked over like a document.

// arrayNode is [a, b]. Undefined elements are left out, as in the service.
type arrayNode struct{ items []node }

func (n arrayNode) eval(f *frame) value {
	out := arrayWriter{f: f}
	for _, item := range n.items {
		out.add(item.eval(f))
	}
	return out.value()
}

// maxComposite bounds an array or object that a query makes, in bytes: several documents.
// Without a bound, ARRAY_CONCAT of an array with itself, nested, would double until memory
// ends.
const maxComposite = 16 << 20

// hasRoom reports whether a value can be added to an array or object of so many bytes, and
// spends the work of writing it.
func (f *frame) hasRoom(size int, v value) bool {
	n := len(v.raw) + len(v.text)
	if size+n > maxComposite {
		f.failWith(failf(-1, "The query makes a value of more than %d MB.", maxComposite>>20))
	}
	return f.spendWork(writeWork + n)
}

// arrayWriter makes the JSON of an array. Each element is written after a comma; the first
// comma turns into the bracket at the end.
type arrayWriter struct {
	f *frame
	b []byte
}

// add appends a value, unless it is undefined.
func (w *arrayWriter) add(v value) {
	if v.kind == undefined || !w.f.hasRoom(len(w.b), v) {
		return
	}
	w.b = append(w.b, ',')
	w.b = v.appendJSON(w.b)
}

// value is the array, undefined after a failure.
func (w *arrayWriter) value() value {
	if w.f.err != nil {
		return value{}
	}
	if len(w.b) == 0 {
		return compositeValue([]byte("[]"))
	}
	w.b[0] = '['
	return compositeValue(append(w.b, ']'))
}

// objectNode is {"a": x}, and a row of a SELECT list. Undefined members are left out.
type objectNode struct{ members []field }

// field is a member of an objectNode.
type field struct {
	name   string
	quoted []byte // the name as JSON with the colon
	node   node
}

// newField makes a member. Its name is quoted here, once, and not for each row.
func newField(name string, n node) field {
	return field{name, append(rawjson.AppendString(nil, name), ':'), n}
}

func (n objectNode) eval(f *frame) value {
	// Room for a small row, which most are.
	b := make([]byte, 0, 64)
	for _, field := range n.members {
		v := field.node.eval(f)
		if v.kind == undefined || !f.hasRoom(len(b), v) {
			continue
		}
		b = append(append(b, ','), field.quoted...)
		b = v.appendJSON(b)
	}
	if f.err != nil {
		return value{}
	}
	if len(b) == 0 {
		return compositeValue([]byte("{}"))
	}
	b[0] = '{'
	return compositeValue(append(b, '}'))
}

// groupKey and aggregated stand in SELECT for an expression of GROUP BY and for an
// aggregate: by the time SELECT is evaluated, the group has both.
type groupKey struct{ index int }

func (n groupKey) eval(f *frame) value { return f.keys[n.index] }

type aggregated struct{ index int }

func (n aggregated) eval(f *frame) value { return f.aggregates[n.index] }

// existsNode is EXISTS(subquery). It stops at the first row.
type existsNode struct{ plan *plan }

func (n existsNode) eval(f *frame) value {
	found := false
	n.plan.eachResult(f, func(value) bool {
		found = true
		return false
	})
	return boolValue(found)
}

// arrayOf is ARRAY(subquery): all rows.
type arrayOf struct{ plan *plan }

func (n arrayOf) eval(f *frame) value {
	out := arrayWriter{f: f}
	n.plan.eachResult(f, func(v value) bool {
		out.add(v)
		return f.err == nil
	})
	return out.value()
}

// scalarOf is (subquery): its row, undefined if it has none. Of several rows it is the
// first.
type scalarOf struct{ plan *plan }

func (n scalarOf) eval(f *frame) value {
	var first value
	n.plan.eachResult(f, func(v value) bool {
		first = v
		return false
	})
	return first
}
