package sql

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// The compiler's operands: literals, names, paths and the steps into values.
//
// A path into the document has a memo in the frame, because a filter such as c.a = 1 OR c.a = 2 names the same path
// many times, and finding a path walks over the document's text.

// compiler makes nodes from syntax. A compiler keeps its first error and goes on. After an error its results are
// meaningless, but no caller has to check after each step.
type compiler struct {
	text   string
	err    *Error
	params map[string]int // index of each parameter, by first use
	names  []binding
	slots  int
	memos  map[string]int // path into the document to the index of its memo
	agg    *aggregation
	counts []count
	terms  []fixedTerm
	apart  []*plan // subqueries that read the container themselves, the innermost first

	comparesVectors bool // a call of VectorDistance was compiled
}

// binding is a name that FROM or JOIN has bound to a slot of the frame.
type binding struct {
	name string
	slot int
}

// failFirst keeps the first error, because the leftmost error is the most useful.
func (c *compiler) failFirst(err *Error) {
	if c.err == nil {
		c.err = err
	}
}

// failNear fails at an operator, in the service's words. The message repeats the operator as the query spells it.
func (c *compiler) failNear(l *link) {
	op := l.Op
	if l.Not {
		op = "NOT"
	}
	c.failFirst(failf(l.Pos.Offset, "Syntax error, incorrect syntax near %s.",
		clip(c.text[l.Pos.Offset:l.Pos.Offset+len(op)])))
}

// compileList compiles a list of expressions.
func (c *compiler) compileList(list []*expr) []node {
	nodes := make([]node, len(list))
	for i, e := range list {
		nodes[i] = c.compileExpr(e)
	}
	return nodes
}

// compilePrimary compiles an operand without its signs.
func (c *compiler) compilePrimary(p *primary) node {
	if p.Name != "" {
		return c.compileReference(p)
	}
	return c.compileSteps(c.compileLiteral(p), p.Suffix)
}

// compileLiteral compiles an operand that does not begin with a name. Brackets around a single expression are a
// group.
func (c *compiler) compileLiteral(p *primary) node {
	switch {
	case p.Literal != "":
		return c.compileScalar(p.Literal, p.Pos.Offset)
	case p.Array != nil:
		return c.compileArray(p.Array)
	case p.Object != nil:
		return c.compileObject(p.Object, p.Pos.Offset)
	case p.Group.Sub != nil:
		return scalarOf{c.compileExpression(p.Group.Sub, true)}
	case len(p.Group.list()) != 1:
		c.failFirst(failf(p.Pos.Offset, "Syntax error, incorrect syntax near '('."))
		return constant{}
	}
	return c.compileExpr(p.Group.list()[0])
}

// compileScalar compiles a literal token. Its first byte shows its kind.
func (c *compiler) compileScalar(text string, at int) node {
	switch ch := text[0]; {
	case isQuote(ch):
		return constant{textValue(c.unescape(text, at))}
	case isNumeral(ch):
		return c.compileNumber(text, at)
	case ch == '@':
		return c.compileParam(text)
	}
	return named(text)
}

// isQuote and isNumeral report whether a byte begins a string or a number.
func isQuote(c byte) bool   { return c == '"' || c == '\'' }
func isNumeral(c byte) bool { return isDigit(c) || c == '.' }

// compileArray compiles an array. If all elements are constants, the array is a constant too: the array is made once,
// and pins.go can read the values of ARRAY_CONTAINS([…], c.id).
func (c *compiler) compileArray(literal *arrayLit) node {
	n := arrayNode{c.compileList(literal.list())}
	for _, item := range n.items {
		if _, known := item.(constant); !known {
			return n
		}
	}
	return constant{n.eval(&frame{work: maxWork})}
}

// named compiles a literal that is a word. named cannot fail, because the lexer accepts only these words.
func named(word string) node {
	switch word {
	case "UNDEFINED":
		return constant{}
	case "NULL":
		return constant{value{kind: null}}
	default:
		return constant{boolValue(word != "FALSE")}
	}
}

// compileNumber keeps a literal's text that is valid JSON. So a whole number with more digits than a double comes
// back unchanged from a SELECT.
func (c *compiler) compileNumber(text string, at int) node {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		c.failFirst(failf(at, "Syntax error, the number %s is out of range.", clip(text)))
		return constant{}
	}
	v := numberValue(f)
	if json.Valid([]byte(text)) {
		v.raw = []byte(text)
	}
	return constant{v}
}

// compileMinus compiles unary minus. A negative number becomes a constant, because clients send such numbers in
// lists.
func (c *compiler) compileMinus(operand node) node {
	if k, ok := operand.(constant); ok && k.v.kind == number {
		v := numberValue(-k.v.num)
		if k.v.raw != nil && k.v.raw[0] != '-' {
			v.raw = append([]byte{'-'}, k.v.raw...)
		}
		return constant{v}
	}
	return minus{operand}
}

// compileParam numbers the parameters by first use; Bind sets their values.
func (c *compiler) compileParam(name string) node {
	i, ok := c.params[name]
	if !ok {
		i = len(c.params)
		c.params[name] = i
	}
	return parameter{i}
}

// compileObject compiles an object. In documents, duplicate members are kept; but as in the service, an object in the
// query's own text must not name a member twice.
func (c *compiler) compileObject(literal *objectLit, at int) node {
	var n objectNode
	seen := map[string]bool{}
	for _, property := range literal.Members {
		name := property.Key
		switch {
		case isQuote(name[0]):
			name = c.unescape(name, at)
		case !isLetter(name[0]) || words[name] != 0:
			c.failFirst(failf(at, "Syntax error, incorrect syntax near %s.", clip(name)))
		}
		if seen[name] {
			c.failDuplicate(name, at)
		}
		seen[name] = true
		n.members = append(n.members, newField(name, c.compileExpr(property.Value)))
	}
	return n
}

// failDuplicate fails because a name is used twice.
func (c *compiler) failDuplicate(name string, at int) {
	c.failFirst(failf(at, "The property name %s is specified more than once.", clip(name)))
}

// unescape decodes a string literal. A literal may use either kind of quotes, the escapes of JSON and \', and raw
// control characters. So unescape rewrites the literal as JSON and decodes the JSON.
func (c *compiler) unescape(quoted string, at int) string {
	inner := quoted[1 : len(quoted)-1]
	if !strings.Contains(inner, `\`) {
		return inner
	}
	b := []byte{'"'}
	for i := 0; i < len(inner); i++ {
		switch ch := inner[i]; {
		case ch == '\\' && inner[i+1] == '\'':
			b = append(b, '\'')
			i++
		case ch == '\\':
			b = append(b, ch, inner[i+1])
			i++
		case ch == '"':
			b = append(b, '\\', '"')
		case ch < ' ':
			b = fmt.Appendf(b, `\u%04x`, ch)
		default:
			b = append(b, ch)
		}
	}
	var text string
	if json.Unmarshal(append(b, '"'), &text) != nil {
		c.failFirst(failf(at, "Syntax error, invalid string literal token %s.", clip(quoted)))
	}
	return text
}

// compileReference compiles an operand that begins with a name: a call of a function, or a value that FROM or JOIN
// has bound. Constant steps after the name become part of the path, so a single walk finds the value. A step with a
// computed key is a separate node.
func (c *compiler) compileReference(p *primary) node {
	if len(p.Suffix) > 0 && p.Suffix[0].Call != nil {
		return c.compileSteps(c.compileCall(p.Name, p.Suffix[0].Call, p.Pos.Offset), p.Suffix[1:])
	}
	if p.Name == "UDF" {
		c.failFirst(failf(p.Pos.Offset, "User-defined functions (udf.) are not supported."))
		return constant{}
	}
	slot, ok := c.resolveName(p.Name)
	if !ok {
		c.failUnresolved(p.Name, p.Pos.Offset)
		return constant{}
	}
	n := path{slot: slot, memo: -1}
	rest := p.Suffix
	for len(rest) > 0 {
		step, ok := c.constantStep(rest[0])
		if !ok {
			break
		}
		n.steps, rest = append(n.steps, step), rest[1:]
	}
	n.memo = c.memoPlace(n)
	c.noteStray(n, p.Name, p.Suffix, p.Pos.Offset)
	return c.compileSteps(n, rest)
}

// failUnresolved fails because a name is not bound.
func (c *compiler) failUnresolved(name string, at int) {
	c.failFirst(failf(at, "Identifier %s could not be resolved.", clip(name)))
}

// resolveName returns the slot of a name. The innermost binding counts, for example in a subquery that reuses an
// alias of the outer query.
func (c *compiler) resolveName(name string) (int, bool) {
	for i := len(c.names) - 1; i >= 0; i-- {
		if c.names[i].name == name {
			return c.names[i].slot, true
		}
	}
	return 0, false
}

// constantStep returns a step with a constant key: .name, ["name"] or [0].
func (c *compiler) constantStep(s *suffix) (step, bool) {
	if s.Field != "" {
		return step{name: s.Field, index: -1}, true
	}
	if s.Index == nil || len(s.Index.Rest) > 0 || len(s.Index.First.Signs) > 0 ||
		len(s.Index.First.Primary.Suffix) > 0 {
		return step{}, false
	}
	p := s.Index.First.Primary
	if p.Literal == "" {
		return step{}, false
	}
	if isQuote(p.Literal[0]) {
		return step{name: c.unescape(p.Literal, p.Pos.Offset), index: -1}, true
	}
	i, err := strconv.ParseInt(p.Literal, 10, 32)
	return step{index: int(i)}, err == nil
}

// compileSteps compiles the steps after an operand.
func (c *compiler) compileSteps(n node, suffixes []*suffix) node {
	for _, s := range suffixes {
		switch {
		case s.Field != "":
			n = index{n, constant{textValue(s.Field)}}
		case s.Index != nil:
			n = index{n, c.compileExpr(s.Index)}
		default:
			c.failFirst(failf(s.Pos.Offset, "Syntax error, incorrect syntax near '('."))
		}
	}
	return n
}

// memoPlace returns the index of a path's memo in the frame. memoPlace returns -1 if the path needs no memo: values
// of JOIN change from row to row, so remembering them would cost more than finding them.
func (c *compiler) memoPlace(n path) int {
	if n.slot != rootSlot || len(n.steps) == 0 {
		return -1
	}
	key := n.key()
	i, ok := c.memos[key]
	if !ok {
		i = len(c.memos)
		c.memos[key] = i
	}
	return i
}

// key returns a text that is the same for two paths if and only if the paths are the same. Names are quoted in the
// text, so c.a.b and c["a.b"] differ.
func (n path) key() string {
	var b []byte
	for _, step := range n.steps {
		if step.index < 0 {
			b = rawjson.AppendString(b, step.name)
		} else {
			b = strconv.AppendInt(append(b, '#'), int64(step.index), 10)
		}
	}
	return string(b)
}
