package sql

import (
	"bytes"
	"math"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Evaluation of expressions. Each kind of expression is a node with a single method. Undefined is a value like
// others, and each node decides how to handle undefined.
//
// The rules are the service's. If its documentation does not define a rule, the tests of its SDKs do. obvious_test.go
// contains a second, slow evaluator, and random queries are run by both.

// node is a compiled expression. All runs of a query share its nodes, so a node never changes; all state is in the
// frame.
type node interface{ eval(f *frame) value }

// constant is a literal.
type constant struct{ v value }

func (n constant) eval(*frame) value { return n.v }

// parameter is a @name. Bind has put its value into the frame.
type parameter struct{ index int }

func (n parameter) eval(f *frame) value { return f.params[n.index] }

// path is a value within a document, or within a value of a JOIN.
type path struct {
	slot  int
	steps []step
	memo  int // index into frame.memo, or -1
}

// step is the name of a member, or the index of an element.
type step struct {
	name  string
	index int // -1 for a name
}

// eval returns the value. If the path was evaluated before in this document, the value comes from the memo.
func (n path) eval(f *frame) value {
	if n.memo < 0 {
		return n.find(f)
	}
	// A condition often names a path several times, as in c.a > 1 AND c.a < 9. Finding a path walks over the
	// document, so each path is found only once. Each document has a new round, so the memos need not be cleared.
	m := &f.memo[n.memo]
	if m.round != f.round {
		*m = memo{f.round, n.find(f).decode()}
	}
	return m.v
}

// find walks down the path. A computed property takes the place of a member of the same name. The cost of each step is
// the text that the step may have to walk over.
func (n path) find(f *frame) value {
	v, steps := f.slots[n.slot], n.steps
	if f.computed != nil && n.slot == rootSlot && len(steps) > 0 && steps[0].index < 0 {
		if c := f.computed[steps[0].name]; c != nil {
			v, steps = c.of(f, v), steps[1:]
		}
	}
	for _, step := range steps {
		if !f.spendWork(len(v.raw)) {
			return value{}
		}
		if v = step.of(v); v.kind == undefined {
			return v
		}
	}
	return v
}

// of applies the step to a value. In an array, a name finds nothing; in an object, an index finds nothing.
func (s step) of(v value) value {
	var raw []byte
	switch {
	case s.index < 0 && v.kind == object:
		raw = rawjson.Lookup(v.raw, s.name)
	case s.index >= 0 && v.kind == array:
		raw = rawjson.Element(v.raw, s.index)
	}
	return rawValue(raw)
}

// index is a step with a computed key.
type index struct{ base, key node }

func (n index) eval(f *frame) value {
	base, key := n.base.eval(f), n.key.eval(f)
	if !f.spendWork(len(base.raw)) {
		return value{}
	}
	switch key.kind {
	case str:
		return step{name: string(key.bytes()), index: -1}.of(base)
	case number:
		// An array in a document cannot have more elements, and a larger number might not fit into an int.
		if i := key.float(); i >= 0 && i == math.Trunc(i) && i <= math.MaxInt32 {
			return step{index: int(i)}.of(base)
		}
	}
	return value{}
}

// not is NOT x. As in the service, the result is undefined if x is not a boolean.
type not struct{ x node }

func (n not) eval(f *frame) value {
	v := n.x.eval(f)
	if !v.isBool() {
		return value{}
	}
	return boolValue(v.kind == isFalse)
}

// logic is a chain of AND or of OR. If a term has the deciding value (false for AND, true for OR), that is the
// result. Otherwise, if a term is undefined, the result is undefined: `false AND undefined` is false, `true AND
// undefined` is undefined.
type logic struct {
	decides kind
	terms   []node
}

func (n logic) eval(f *frame) value {
	// An undefined term does not end the loop, because a later term may decide.
	all := true
	for _, term := range n.terms {
		v := term.eval(f)
		if v.kind == n.decides {
			return v
		}
		all = all && v.isBool()
	}
	if !all {
		return value{}
	}
	return boolValue(n.decides == isFalse)
}

// compare is a comparison. As in the service, = and != compare values of any two types, and values of different types
// differ. The order of two types, or of two arrays or objects, is undefined.
type compare struct {
	op   string
	l, r node
}

func (n compare) eval(f *frame) value {
	left, right := n.l.eval(f), n.r.eval(f)
	if left.kind == undefined || right.kind == undefined || !f.spendWork(costToCompare(left, right)) {
		return value{}
	}
	return compareValues(n.op, left, right)
}

// costToCompare returns the work of a comparison. If the types are equal, the work depends on the size of the values;
// otherwise the work is constant, because the types decide.
func costToCompare(left, right value) int {
	if left.kind != right.kind || left.kind < str {
		return opWork
	}
	work := slowWork
	if left.kind >= array {
		work = deepWork
	}
	return opWork + work*(len(left.raw)+len(right.raw))
}

// compareValues compares two defined values.
func compareValues(op string, left, right value) value {
	switch op {
	case "=":
		return boolValue(equal(left, right))
	case "!=", "<>":
		return boolValue(!equal(left, right))
	}
	sameType := left.kind == right.kind || left.isBool() && right.isBool()
	if !sameType || left.kind >= array {
		return value{}
	}
	diff := order(left, right)
	switch op {
	case "<":
		return boolValue(diff < 0)
	case "<=":
		return boolValue(diff <= 0)
	case ">":
		return boolValue(diff > 0)
	default:
		return boolValue(diff >= 0)
	}
}

// inList is x IN (…). Like an OR of comparisons, the result is undefined, not false, if an element is undefined and
// no element is equal.
type inList struct {
	x    node
	list []node
}

func (n inList) eval(f *frame) value {
	// x is decoded once, because x is compared with each element.
	x := n.x.eval(f).decode()
	if x.kind == undefined {
		return value{}
	}
	unknown := false
	for _, item := range n.list {
		v := item.eval(f)
		if v.kind == undefined {
			unknown = true
		} else if f.spendWork(costToCompare(x, v)) && equal(x, v) {
			return boolValue(true)
		}
	}
	if unknown {
		return value{}
	}
	return boolValue(false)
}

// minus is unary minus; plus requires a number and returns the number unchanged; complement is ~x.
type minus struct{ x node }

func (n minus) eval(f *frame) value {
	v := n.x.eval(f)
	if v.kind != number {
		return value{}
	}
	v = v.decode()
	if exact, ok := exactly("-", numberValue(0), v); ok {
		return exact
	}
	return numberValue(-v.num)
}

type plus struct{ x node }

func (n plus) eval(f *frame) value {
	if v := n.x.eval(f); v.kind == number {
		return v
	}
	return value{}
}

type complement struct{ x node }

func (n complement) eval(f *frame) value {
	if v := n.x.eval(f); v.kind == number {
		return numberValue(float64(^toInt32(v.float())))
	}
	return value{}
}

// arithmetic is an operator on two numbers, or || on two strings. With other operands the result is undefined.
type arithmetic struct {
	op   string
	l, r node
}

func (n arithmetic) eval(f *frame) value {
	left, right := n.l.eval(f), n.r.eval(f)
	if n.op == "||" {
		if left.kind != str || right.kind != str {
			return value{}
		}
		return f.madeText(bytes.Join([][]byte{left.bytes(), right.bytes()}, nil))
	}
	if left.kind != number || right.kind != number || !f.spendWork(opWork) {
		return value{}
	}
	left, right = left.decode(), right.decode()
	if exact, ok := exactly(n.op, left, right); ok {
		return exact
	}
	return computedValue(calculate(n.op, left.num, right.num))
}

// calculate applies an operator to two numbers. The result may be a number that JSON cannot write, such as 1/0.
func calculate(op string, left, right float64) float64 {
	switch op {
	case "+":
		return left + right
	case "-":
		return left - right
	case "*":
		return left * right
	case "/":
		return left / right
	case "%":
		return math.Mod(left, right)
	}
	a, b := toInt32(left), toInt32(right)
	switch op {
	case "&":
		return float64(a & b)
	case "|":
		return float64(a | b)
	case "^":
		return float64(a ^ b)
	case "<<":
		return float64(a << (uint32(b) % 32))
	case ">>":
		return float64(a >> (uint32(b) % 32))
	default: // >>>
		return float64(uint32(a) >> (uint32(b) % 32))
	}
}

// toInt32 converts a number for the bitwise operators, which work as in JavaScript: modulo 2³².
func toInt32(f float64) int32 {
	return int32(uint32(int64(math.Mod(math.Trunc(f), 1<<32))))
}

// maxText limits a string that a query makes, in bytes: the size of a document.
const maxText = service.MaxItem

// madeText returns a string that the query made. If the string is longer than a document may be, the result is
// undefined.
func (f *frame) madeText(text []byte) value {
	if len(text) > maxText || !f.spendWork(len(text)) {
		return value{}
	}
	return value{kind: str, decoded: true, text: text}
}

// conditional is cond ? then : otherwise, and IIF. The first branch is taken only if cond is true.
type conditional struct{ cond, then, otherwise node }

func (n conditional) eval(f *frame) value {
	if n.cond.eval(f).kind == isTrue {
		return n.then.eval(f)
	}
	return n.otherwise.eval(f)
}

// coalesce is l ?? r: if l is undefined, the result is r. null is a defined value.
type coalesce struct{ l, r node }

func (n coalesce) eval(f *frame) value {
	if v := n.l.eval(f); v.kind != undefined {
		return v
	}
	return n.r.eval(f)
}
