package sql

import "github.com/millrace/changefeed/internal/cosmosdb/rawjson"

// Expressions that make arrays, objects and rows, and subqueries used as values.
//
// Composites are written as JSON text at once. Most of them are a column of a result, which is sent as text; the few
// that an expression reads are walked like a document.

// arrayNode is [a, b]. As in the service, undefined elements are left out.
type arrayNode struct{ items []node }

func (n arrayNode) eval(f *frame) value {
	out := arrayWriter{f: f}
	for _, item := range n.items {
		out.add(item.eval(f))
	}
	return out.value()
}

// maxComposite limits an array or object that a query makes, in bytes: several documents. Without a limit, nested
// calls of ARRAY_CONCAT of an array with itself would double the array until the memory is full.
const maxComposite = 16 << 20

// leavesOut reports whether a row leaves out a value because it is undefined. As in the service, a query fails if its
// rows have a number that JSON cannot write, such as 1/0.
func (f *frame) leavesOut(v value) bool {
	if v.kind == undefined && v.num != 0 {
		err := failf(-1, "The response content contains a numeric value that cannot be represented in JSON (e.g. "+
			"Infinity and NaN).")
		err.Sub = subNotInJSON
		f.failWith(err)
	}
	return v.kind == undefined
}

// subNotInJSON is the service's sub-status for a number that JSON cannot write.
const subNotInJSON = 4001

// hasRoom reports whether a value can be added to an array or object of so many bytes, and spends the work of writing
// the value.
func (f *frame) hasRoom(size int, v value) bool {
	n := len(v.raw) + len(v.text)
	if size+n > maxComposite {
		f.failWith(failf(-1, "The query makes a value of more than %d MB.", maxComposite>>20))
	}
	return f.spendWork(writeWork + n)
}

// arrayWriter writes the JSON of an array. A comma comes before each element; at the end, the bracket replaces the
// first comma.
type arrayWriter struct {
	f *frame
	b []byte
}

// add appends a value, unless it is undefined.
func (w *arrayWriter) add(v value) {
	if w.f.leavesOut(v) || !w.f.hasRoom(len(w.b), v) {
		return
	}
	w.b = append(w.b, ',')
	w.b = v.appendJSON(w.b)
}

// value returns the array, or undefined after a failure.
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

// objectNode is {"a": x}, or a row of a SELECT list. Undefined members are left out.
type objectNode struct{ members []field }

// field is a member of an objectNode.
type field struct {
	name   string
	quoted []byte // the name as JSON, followed by the colon
	node   node
}

// newField makes a member. newField quotes the name once, not for each row.
func newField(name string, n node) field {
	return field{name, append(rawjson.AppendString(nil, name), ':'), n}
}

func (n objectNode) eval(f *frame) value {
	// Room for a small row; most rows are small.
	b := make([]byte, 0, 64)
	for _, field := range n.members {
		v := field.node.eval(f)
		if f.leavesOut(v) || !f.hasRoom(len(b), v) {
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

// groupKey and aggregated replace, in SELECT, an expression of GROUP BY and an aggregate. When SELECT is evaluated,
// the group has both values.
type groupKey struct{ index int }

func (n groupKey) eval(f *frame) value { return f.keys[n.index] }

type aggregated struct{ index int }

func (n aggregated) eval(f *frame) value { return f.aggregates[n.index] }

// existsNode is EXISTS(subquery). The evaluation stops at the first row.
type existsNode struct{ plan *plan }

func (n existsNode) eval(f *frame) value {
	found := false
	n.plan.eachResult(f, func(value) bool {
		found = true
		return false
	})
	return boolValue(found)
}

// arrayOf is ARRAY(subquery): with all rows.
type arrayOf struct{ plan *plan }

func (n arrayOf) eval(f *frame) value {
	out := arrayWriter{f: f}
	n.plan.eachResult(f, func(v value) bool {
		out.add(v)
		return f.err == nil
	})
	return out.value()
}

// scalarOf is (subquery): the value of its first row, or undefined if there are no rows.
type scalarOf struct{ plan *plan }

func (n scalarOf) eval(f *frame) value {
	var first value
	n.plan.eachResult(f, func(v value) bool {
		first = v
		return false
	})
	return first
}
