package sql_test

import (
	"math"
	"math/big"
	"slices"
	"strings"
)

// eval is the value of a term in a row.
func (c *container) eval(t *term, s *scope) any {
	switch t.op {
	case "literal", "parameter":
		return t.value
	case "name":
		v, _ := s.find(t.text)
		return v
	case "exists":
		return len(c.rows(t.sub, s)) > 0
	case "all":
		return c.strict(t.sub, s)
	case "scalar":
		return one(c.strict(t.sub, s))
	case "aggregate":
		return c.aggregate(t, s)
	}
	kids := make([]any, len(t.kids))
	for i, k := range t.kids {
		kids[i] = c.eval(k, s)
	}
	if t.op == "call" {
		return call(t.text, kids)
	}
	v := operate(t, kids)
	if t.not {
		return negation(v)
	}
	return v
}

// strict are the rows of a subquery, whose order matters.
func (c *container) strict(q *query, s *scope) []any {
	before := c.loose
	c.loose = false
	rows := c.rows(q, s)
	if c.loose && len(rows) > 1 {
		panic(unclear{"rows in the order of hashes"})
	}
	c.loose = before
	if rows == nil {
		return []any{}
	}
	return rows
}

func one(rows []any) any {
	switch len(rows) {
	case 0:
		return undefined
	case 1:
		return rows[0]
	}
	panic(unclear{"several rows where one value is wanted"})
}

func operate(t *term, kids []any) any {
	switch t.op {
	case "member", "element":
		return inside(kids[0], kids[1])
	case "prefix":
		return prefix(t.text, kids[0])
	case "infix":
		return infix(t.text, kids[0], kids[1])
	case "choice":
		if kids[0] == true {
			return kids[1]
		}
		return kids[2]
	case "in":
		v := any(false)
		for _, item := range kids[1:] {
			v = infix("OR", v, infix("=", kids[0], item))
		}
		return v
	case "between":
		return infix("AND", infix(">=", kids[0], kids[1]), infix("<=", kids[0], kids[2]))
	case "like":
		return like(kids)
	case "array":
		return slices.DeleteFunc(append([]any{}, kids...), func(v any) bool { return v == undefined })
	}
	object := map[string]any{}
	for i, name := range t.names {
		if kids[i] != undefined {
			object[name] = kids[i]
		}
	}
	return object
}

// inside is a member of an object or an element of an array.
func inside(v, key any) any {
	switch v := v.(type) {
	case map[string]any:
		if name, ok := key.(string); ok {
			if m, found := v[name]; found {
				return m
			}
		}
	case []any:
		if n, ok := whole(key); ok && n >= 0 && n < len(v) {
			return v[n]
		}
	}
	return undefined
}

// whole is the value of a whole number, or one beyond all lengths.
func whole(v any) (int, bool) {
	f, ok := v.(float64)
	return int(math.Max(-1e9, math.Min(f, 1e9))), ok && f == math.Floor(f)
}

func negation(v any) any {
	if b, ok := v.(bool); ok {
		return !b
	}
	return undefined
}

func prefix(op string, v any) any {
	if op == "NOT" {
		return negation(v)
	}
	f, ok := v.(float64)
	if !ok {
		return undefined
	}
	switch op {
	case "-":
		return -f
	case "~":
		return float64(^bits(f))
	}
	return f
}

func infix(op string, a, b any) any {
	switch op {
	case "AND", "OR":
		return decide(op == "OR", a, b)
	case "??":
		if a == undefined {
			return b
		}
		return a
	case "||":
		x, ok := a.(string)
		y, ok2 := b.(string)
		if !ok || !ok2 {
			return undefined
		}
		return x + y
	case "=", "!=", "<>", "<", "<=", ">", ">=":
		return compare(op, a, b)
	}
	x, ok := a.(float64)
	y, ok2 := b.(float64)
	if !ok || !ok2 {
		return undefined
	}
	f := arithmetic(op, x, y)
	if number(f) == undefined {
		panic(unclear{"a row with a number that JSON cannot write is refused, and a test of its own says when"})
	}
	return f
}

// decide is OR or AND: the value that decides wins, then what is no boolean.
func decide(decides bool, a, b any) any {
	_, known := a.(bool)
	_, known2 := b.(bool)
	switch {
	case a == decides || b == decides:
		return decides
	case !known || !known2:
		return undefined
	}
	return !decides
}

// compare tells values of different types apart, but has no order between them, and none of arrays and objects.
func compare(op string, a, b any) any {
	if a == undefined || b == undefined {
		return undefined
	}
	switch op {
	case "=":
		return same(a, b)
	case "!=", "<>":
		return !same(a, b)
	}
	kind := func(v any) int {
		if k := typeOf(v); k != isTrue {
			return k
		}
		return isFalse
	}
	if kind(a) != kind(b) || kind(a) >= isArray {
		return undefined
	}
	d := (&container{}).rank(a, b)
	return map[string]bool{"<": d < 0, "<=": d <= 0, ">": d > 0, ">=": d >= 0}[op]
}

// beyondDoubles tells of whole numbers of 64 bits that a double may not have room for.
func beyondDoubles(x float64) bool {
	return x == math.Trunc(x) && math.Abs(x) >= 1<<53 && math.Abs(x) < 1<<64
}

// number is undefined where JSON has no number.
func number(f float64) any {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return undefined
	}
	return f
}

func arithmetic(op string, x, y float64) float64 {
	if beyondDoubles(x) || beyondDoubles(y) || strings.Contains("+-*", op) && beyondDoubles(x*y) {
		panic(unclear{"whole numbers with more digits than a double has"})
	}
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "/":
		return x / y
	case "%":
		return math.Mod(x, y)
	case "&":
		return float64(bits(x) & bits(y))
	case "|":
		return float64(bits(x) | bits(y))
	case "^":
		return float64(bits(x) ^ bits(y))
	}
	by := uint32(bits(y)) & 31
	switch op {
	case "<<":
		return float64(bits(x) << by)
	case ">>":
		return float64(bits(x) >> by)
	}
	return float64(uint32(bits(x)) >> by)
}

// bits is the number as JavaScript's operators on bits see it: the last 32 of its whole part.
func bits(f float64) int32 {
	const all = 1 << 32
	f = math.Trunc(f)
	f -= math.Floor(f/all) * all // exact: a power of two
	return int32(uint32(f))
}

// aggregate folds the rows of a group.
func (c *container) aggregate(t *term, s *scope) any {
	for s.rows == nil {
		s = s.up
	}
	var values []any
	for _, row := range s.rows {
		if v := c.eval(t.kids[0], row); v != undefined {
			values = append(values, v)
		}
	}
	switch t.text {
	case "COUNT":
		return float64(len(values))
	case "COUNTIF":
		return float64(len(slices.DeleteFunc(values, func(v any) bool { return v != true })))
	case "MAKELIST":
		return append([]any{}, values...)
	case "MAKESET":
		return once(values, func(any) bool { return true })
	case "MIN", "MAX":
		return extreme(t.text == "MIN", values)
	}
	exact := new(big.Float).SetPrec(4000) // of any sum of numbers
	for _, v := range values {
		f, ok := v.(float64)
		if !ok {
			return undefined
		}
		exact.Add(exact, new(big.Float).SetFloat64(f))
	}
	sum, _ := exact.Float64()
	if t.text == "AVG" {
		sum /= float64(len(values))
	}
	return number(sum)
}

// extreme is the least or the greatest scalar; among arrays and objects there is none.
func extreme(least bool, values []any) any {
	best := any(undefined)
	for i, v := range values {
		if typeOf(v) >= isArray {
			return undefined
		}
		if d := (&container{}).rank(v, best); i == 0 || d < 0 && least || d > 0 && !least {
			best = v
		}
	}
	return best
}
