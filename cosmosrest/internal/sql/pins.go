package sql

import "encoding/json"

// Pins are the values to which a filter limits a path. They are found in the compiled WHERE before any document is
// read.
//
// A query that names an id or a partition key is answered by point lookups instead of a scan. The analysis may miss a
// pin, which costs a scan. But the analysis must never return a pin that a matching document does not satisfy,
// because that document would be missing from the answer.

// Pins returns the values to which WHERE limits a path of a document; ok is false if WHERE does not limit the path to
// scalars. WHERE limits a path by =, IN, IS_NULL or ARRAY_CONTAINS, in a term of an AND, or in every term of an OR. A
// document with another value at the path, or with none, makes no row. A document with such a value may still make no
// row.
func (b *Bound) Pins(path []string) ([]json.RawMessage, bool) {
	values, ok := b.pinsOf(b.q.plan.where, path)
	if !ok {
		return nil, false
	}
	out := make([]json.RawMessage, len(values))
	for i, v := range values {
		out[i] = v.appendJSON(nil)
	}
	return out, true
}

// Pinned is Pins if WHERE allows only a single value.
func (b *Bound) Pinned(path []string) (json.RawMessage, bool) {
	values, ok := b.Pins(path)
	if !ok || len(values) != 1 {
		return nil, false
	}
	return values[0], true
}

// IDs returns the only ids that a document may have to make a row; ok is false if WHERE does not limit the ids.
func (b *Bound) IDs() ([]string, bool) {
	values, ok := b.pinsOf(b.q.plan.where, []string{"id"})
	ids := []string{}
	for _, v := range values {
		if v.kind == str {
			ids = append(ids, string(v.bytes()))
		}
	}
	return ids, ok
}

// IDPrefix returns the prefix that a document's id must have to make a row, from STARTSWITH(c.id, …). Processors read
// their lease containers with such queries.
func (b *Bound) IDPrefix() (string, bool) {
	return b.idPrefix(b.q.plan.where)
}

// idPrefix searches the prefix in an expression. In an AND, any term may have the prefix; an OR has none.
func (b *Bound) idPrefix(n node) (string, bool) {
	switch n := n.(type) {
	case logic:
		for _, term := range n.terms {
			if prefix, ok := b.idPrefix(term); ok && n.decides == isFalse {
				return prefix, true
			}
		}
	case call:
		if n.fn != functions["STARTSWITH"] || !isPath(n.args[0], []string{"id"}) {
			return "", false
		}
		prefix := b.knownValue(n.args[1])
		// If the third argument is true, case is ignored. Then ids with the same prefix are not neighbours in the
		// store, so the prefix does not help.
		exact := len(n.args) == 2 || b.knownValue(n.args[2]).kind == isFalse
		if prefix.kind == str && exact {
			return string(prefix.bytes()), true
		}
	}
	return "", false
}

// pinsOf is Pins for an expression.
func (b *Bound) pinsOf(n node, path []string) ([]value, bool) {
	switch n := n.(type) {
	case logic:
		if n.decides == isFalse {
			return b.pinsOfAny(n.terms, path)
		}
		return b.pinsOfAll(n.terms, path)
	case compare:
		if n.op != "=" {
			return nil, false
		}
		// Some queries write the value first.
		if isPath(n.r, path) {
			n.l, n.r = n.r, n.l
		}
		return b.scalarValues(n.l, []node{n.r}, path)
	case inList:
		return b.scalarValues(n.x, n.list, path)
	case call:
		return b.pinsOfCall(n, path)
	}
	return nil, false
}

// pinsOfCall returns the pins of IS_NULL(path) and ARRAY_CONTAINS(@values, path).
func (b *Bound) pinsOfCall(n call, path []string) ([]value, bool) {
	switch n.fn {
	case functions["IS_NULL"]:
		return []value{{kind: null}}, isPath(n.args[0], path)
	case functions["ARRAY_CONTAINS"]:
		known := b.knownValue(n.args[0])
		if known.kind != array {
			return nil, false
		}
		var list []node
		for _, v := range b.f.elementsOf(known) {
			list = append(list, constant{v})
		}
		return b.scalarValues(n.args[1], list, path)
	}
	return nil, false
}

// pinsOfAny returns the pins of an AND: the shortest list of any term, because each list alone limits the path.
func (b *Bound) pinsOfAny(terms []node, path []string) (best []value, found bool) {
	for _, term := range terms {
		if v, ok := b.pinsOf(term, path); ok && (!found || len(v) < len(best)) {
			best, found = v, true
		}
	}
	return best, found
}

// pinsOfAll returns the pins of an OR: the values of all terms, if every term limits the path.
func (b *Bound) pinsOfAll(terms []node, path []string) ([]value, bool) {
	var all []value
	seen := map[string]bool{}
	for _, term := range terms {
		values, ok := b.pinsOf(term, path)
		if !ok {
			return nil, false
		}
		all = appendNew(all, values, seen)
	}
	return all, true
}

// appendNew appends the values whose canonical text is not in the list yet, so no document is looked up twice.
func appendNew(all, values []value, seen map[string]bool) []value {
	for _, v := range values {
		key := string(appendCanonical(nil, v, 0))
		if !seen[key] {
			seen[key] = true
			all = append(all, v)
		}
	}
	return all
}

// scalarValues returns the values of list if operand is the path and all values are known scalars. An undefined
// literal equals no value, so such a literal is left out. An undefined parameter is not known yet.
func (b *Bound) scalarValues(operand node, list []node, path []string) ([]value, bool) {
	if !isPath(operand, path) {
		return nil, false
	}
	var values []value
	for _, n := range list {
		v := b.knownValue(n)
		if v.kind >= array {
			return nil, false
		}
		if _, literal := n.(constant); v.kind != undefined {
			values = append(values, v)
		} else if !literal {
			return nil, false
		}
	}
	return appendNew(nil, values, map[string]bool{}), true
}

// knownValue returns the value of a literal or a parameter. For any other node the result is undefined.
func (b *Bound) knownValue(n node) value {
	switch n.(type) {
	case constant, parameter:
		return n.eval(&b.f)
	}
	return value{}
}

// isPath reports whether n is this path of the document.
func isPath(n node, names []string) bool {
	p, ok := n.(path)
	if !ok || p.slot != rootSlot || len(p.steps) != len(names) {
		return false
	}
	for i, step := range p.steps {
		if step.index >= 0 || step.name != names[i] {
			return false
		}
	}
	return true
}
