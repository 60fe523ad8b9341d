package sql

import "encoding/json"

// Pins: to which values a filter confines a path, found in the compiled WHERE before
// anything is read.
//
// A query that names an id or a partition key is answered by point lookups instead of a
// scan. The analysis may miss a pin, which costs a scan; it must never claim one that a
// matching document does not meet, since that document would be missing from the answer.

// Pins returns the values to which WHERE confines a path of a document, and whether it
// confines it to scalars at all: by =, IN, IS_NULL or ARRAY_CONTAINS, in a term of an AND,
// or in every term of an OR. A document with another value there, or with none, makes no
// row; with one of these it still may not.
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

// Pinned is Pins where WHERE leaves a single value.
func (b *Bound) Pinned(path []string) (json.RawMessage, bool) {
	values, ok := b.Pins(path)
	if !ok || len(values) != 1 {
		return nil, false
	}
	return values[0], true
}

// IDs returns the ids that a document may have to make a row, and whether WHERE confines them.
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

// IDPrefix returns the beginning that the id of a document must have to make a row, by
// STARTSWITH(c.id, …). The lease containers of processors are read by such queries.
func (b *Bound) IDPrefix() (string, bool) {
	return b.idPrefix(b.q.plan.where)
}

// idPrefix looks for the prefix in an expression. In an AND any term will do; in an OR none
// does.
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
		// The third argument is whether case does not count. Then ids with the same
		// prefix are not neighbours in the store, so nothing is gained.
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
		// Some write the value first.
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

// pinsOfCall knows IS_NULL(path) and ARRAY_CONTAINS(@values, path).
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

// pinsOfAny is for AND: the shortest list of any term, because each list alone confines the
// path.
func (b *Bound) pinsOfAny(terms []node, path []string) (best []value, found bool) {
	for _, term := range terms {
		if v, ok := b.pinsOf(term, path); ok && (!found || len(v) < len(best)) {
			best, found = v, true
		}
	}
	return best, found
}

// pinsOfAll is for OR: the values of all terms, if all confine the path.
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

// appendNew appends the values that are not there yet, by canonical text, so that no
// document is looked up twice.
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

// scalarValues are the values of list if operand is the path and all of them are known scalars. An
// undefined literal equals nothing, so it is left out; an undefined parameter is not known
// yet.
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

// knownValue is the value of a literal or a parameter, else undefined.
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
