package sql

import (
	"encoding/json"
	"strconv"
	"strings"
)

// compiler makes nodes of syntax. After the first error, which it keeps, its results mean nothing.
type compiler struct {
	text   string
	err    *Error
	params map[string]int // index of each parameter, by first use
	names  []binding
	slots  int
	memos  map[string]int // path into the document: index of its memo
	agg    *aggregation
	counts []count
	apart  []*plan // subqueries that read the container by themselves, inner ones first
}

// binding is a name of FROM or JOIN.
type binding struct {
	name string
	slot int
}

func (c *compiler) fail(err *Error) {
	if c.err == nil {
		c.err = err
	}
}

func (c *compiler) near(l *link) {
	op := l.Op
	if l.Not {
		op = "NOT"
	}
	c.fail(failf(l.Pos.Offset, "Syntax error, incorrect syntax near %s.", clip(c.text[l.Pos.Offset:l.Pos.Offset+len(op)])))
}

func (c *compiler) exprs(list []*expr) []node {
	nodes := make([]node, len(list))
	for i, e := range list {
		nodes[i] = c.expr(e)
	}
	return nodes
}

func (c *compiler) primary(p *primary) node {
	if p.Name != "" {
		return c.reference(p)
	}
	return c.steps(c.literal(p), p.Suffix)
}

func (c *compiler) literal(p *primary) node {
	switch {
	case p.Literal != "":
		return c.scalar(p.Literal, p.Pos.Offset)
	case p.Array != nil:
		return c.array(p.Array)
	case p.Object != nil:
		return c.object(p.Object, p.Pos.Offset)
	case p.Group.Sub != nil:
		return scalarOf{c.expression(p.Group.Sub, true)}
	case len(p.Group.list()) != 1:
		c.fail(failf(p.Pos.Offset, "Syntax error, incorrect syntax near '('."))
		return constant{}
	}
	return c.expr(p.Group.list()[0])
}

// scalar tells literals apart by how they begin.
func (c *compiler) scalar(text string, at int) node {
	switch ch := text[0]; {
	case isQuote(ch):
		return constant{textValue(c.unescape(text, at))}
	case isNumeral(ch):
		return c.number(text, at)
	case ch == '@':
		return c.param(text)
	}
	return named(text)
}

func isQuote(c byte) bool   { return c == '"' || c == '\'' }
func isNumeral(c byte) bool { return isDigit(c) || c == '.' }

// array makes a constant of constants.
func (c *compiler) array(a *arrayLit) node {
	n := arrayNode{c.exprs(a.list())}
	for _, item := range n.items {
		if _, known := item.(constant); !known {
			return n
		}
	}
	return constant{n.eval(&frame{work: maxWork})}
}

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

// number keeps the literal as it was written, if that is JSON.
func (c *compiler) number(text string, at int) node {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		c.fail(failf(at, "Syntax error, the number %s is out of range.", clip(text)))
		return constant{}
	}
	v := numberValue(f)
	if json.Valid([]byte(text)) {
		v.raw = []byte(text)
	}
	return constant{v}
}

// negative is unary minus, at once for a number.
func (c *compiler) negative(x node) node {
	if k, ok := x.(constant); ok && k.v.kind == number {
		v := numberValue(-k.v.num)
		if k.v.raw != nil && k.v.raw[0] != '-' {
			v.raw = append([]byte{'-'}, k.v.raw...)
		}
		return constant{v}
	}
	return minus{x}
}

func (c *compiler) param(name string) node {
	i, ok := c.params[name]
	if !ok {
		i = len(c.params)
		c.params[name] = i
	}
	return parameter{i}
}

func (c *compiler) object(o *objectLit, at int) node {
	var n objectNode
	seen := map[string]bool{}
	for _, m := range o.Members {
		name := m.Key
		switch {
		case isQuote(name[0]):
			name = c.unescape(name, at)
		case !isLetter(name[0]) || words[name] != 0:
			c.fail(failf(at, "Syntax error, incorrect syntax near %s.", clip(name)))
		}
		if seen[name] {
			c.duplicate(name, at)
		}
		seen[name] = true
		n.members = append(n.members, newField(name, c.expr(m.Value)))
	}
	return n
}

func (c *compiler) duplicate(name string, at int) {
	c.fail(failf(at, "The property name %s is specified more than once.", clip(name)))
}

// unescape decodes a string literal. It may stand in either kind of quotes and has the escapes of JSON, and \'.
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
			b = append(b, '\\', 'u', '0', '0', hex[ch>>4], hex[ch&0xf])
		default:
			b = append(b, ch)
		}
	}
	var s string
	if json.Unmarshal(append(b, '"'), &s) != nil {
		c.fail(failf(at, "Syntax error, invalid string literal token %s.", clip(quoted)))
	}
	return s
}

// reference is a name: of a function if it is called, else of a row.
func (c *compiler) reference(p *primary) node {
	if len(p.Suffix) > 0 && p.Suffix[0].Call != nil {
		return c.steps(c.call(p.Name, p.Suffix[0].Call, p.Pos.Offset), p.Suffix[1:])
	}
	if p.Name == "UDF" {
		c.fail(failf(p.Pos.Offset, "User-defined functions (udf.) are not supported."))
		return constant{}
	}
	slot, ok := c.resolve(p.Name)
	if !ok {
		c.unresolved(p.Name, p.Pos.Offset)
		return constant{}
	}
	n := path{slot: slot, memo: -1}
	rest := p.Suffix
	for len(rest) > 0 {
		s, ok := c.constantStep(rest[0])
		if !ok {
			break
		}
		n.steps, rest = append(n.steps, s), rest[1:]
	}
	n.memo = c.memo(n)
	c.stray(n, p)
	return c.steps(n, rest)
}

func (c *compiler) unresolved(name string, at int) {
	c.fail(failf(at, "Identifier %s could not be resolved.", clip(name)))
}

func (c *compiler) resolve(name string) (int, bool) {
	for i := len(c.names) - 1; i >= 0; i-- {
		if c.names[i].name == name {
			return c.names[i].slot, true
		}
	}
	return 0, false
}

// constantStep is .name, ["name"] or [0].
func (c *compiler) constantStep(s *suffix) (step, bool) {
	if s.Field != "" {
		return step{name: s.Field, index: -1}, true
	}
	if s.Index == nil || len(s.Index.Rest) > 0 || len(s.Index.First.Signs) > 0 || len(s.Index.First.Primary.Suffix) > 0 {
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

func (c *compiler) steps(n node, suffixes []*suffix) node {
	for _, s := range suffixes {
		switch {
		case s.Field != "":
			n = index{n, constant{textValue(s.Field)}}
		case s.Index != nil:
			n = index{n, c.expr(s.Index)}
		default:
			c.fail(failf(s.Pos.Offset, "Syntax error, incorrect syntax near '('."))
		}
	}
	return n
}

// memo gives a path into the document its place in the frame.
func (c *compiler) memo(n path) int {
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

// key is a text that two paths of one row share if and only if they are the same.
func (n path) key() string {
	var b []byte
	for _, s := range n.steps {
		if s.index < 0 {
			b = appendQuoted(b, []byte(s.name))
		} else {
			b = strconv.AppendInt(append(b, '#'), int64(s.index), 10)
		}
	}
	return string(b)
}
