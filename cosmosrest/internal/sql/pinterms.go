package sql

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// Pins of the terms of a filter: the values that a path may have if the term is true.

// filter returns the WHERE that documents must satisfy; nil if there is none. If FROM has a subquery that ends before
// the plan begins, only the subquery reads documents.
func (p *plan) filter() node {
	for p.base != nil {
		p = p.base
	}
	return p.where
}

// pinsOf returns the values that a path may have if an expression is true.
func (b *Bound) pinsOf(n node, path []string) ([]value, bool) {
	switch n := n.(type) {
	case logic:
		if n.decides == isFalse {
			return b.pinsOfAny(n.terms, path)
		}
		return b.pinsOfAll(n.terms, path)
	case compare:
		return b.pinsOfComparison(n, path)
	case inList:
		if values, ok := b.knownValues(n.x, n.list, path); ok {
			return values, true
		}
	case like:
		if values, ok := b.pinsOfLike(n, path); ok {
			return values, true
		}
	case call:
		if values, ok := b.pinsOfCall(n, path); ok {
			return values, true
		}
	case existsNode:
		return b.pinsOfRows(n.plan, path)
	case scalarOf:
		return b.pinsOfRows(n.plan, path)
	case not:
		if b.isPath(n.x, path) {
			return []value{boolValue(false)}, true
		}
	}
	if b.isPath(n, path) {
		return []value{boolValue(true)}, true
	}
	return nil, b.isNever(n)
}

// pinsOfComparison returns the pins of an =, and those of a subquery in any comparison: if the subquery has no row,
// the comparison is undefined.
func (b *Bound) pinsOfComparison(n compare, path []string) ([]value, bool) {
	if n.op == "=" {
		for _, sides := range [][2]node{{n.l, n.r}, {n.r, n.l}} { // some queries write the value first
			if values, ok := b.knownValues(sides[0], sides[1:], path); ok {
				return values, true
			}
			if values, ok := b.pinsOfAbsolute(sides[0], sides[1], path); ok {
				return values, true
			}
		}
	}
	for _, side := range []node{n.l, n.r} {
		if sub, ok := side.(scalarOf); ok {
			if values, ok := b.pinsOfRows(sub.plan, path); ok {
				return values, true
			}
		}
	}
	return nil, b.isNever(n)
}

// pinsOfAbsolute returns the pins of ABS(path) = number.
func (b *Bound) pinsOfAbsolute(operand, size node, path []string) ([]value, bool) {
	abs, ok := operand.(call)
	if !ok || abs.fn != functions["ABS"] || !b.isPath(abs.args[0], path) {
		return nil, false
	}
	v := b.knownValue(size)
	if v.kind != number {
		return nil, false
	}
	if v.float() < 0 {
		return nil, true
	}
	return appendNew(nil, []value{numberValue(v.float()), numberValue(-v.float())}, map[string]bool{}), true
}

// pinsOfLike returns the pins of a LIKE whose pattern has no wildcards.
func (b *Bound) pinsOfLike(n like, path []string) ([]value, bool) {
	pattern := b.knownValue(n.pattern)
	if !b.isPath(n.x, path) || pattern.kind != str {
		return nil, false
	}
	escape := utf8.RuneError
	if n.escape != nil {
		e := b.knownValue(n.escape)
		if e.kind != str || utf8.RuneCount(e.bytes()) != 1 {
			return nil, false
		}
		escape, _ = utf8.DecodeRune(e.bytes())
	}
	var text bytes.Buffer
	for _, w := range wildcards([]rune(string(pattern.bytes())), escape) {
		if w.any || w.set != nil {
			return nil, false
		}
		text.WriteRune(w.char)
	}
	return []value{textValue(text.String())}, true
}

// pinsOfRows returns the pins of a subquery that has a row. Its own alias may name the same document. A subquery with
// groups has a row even if it reads nothing.
func (b *Bound) pinsOfRows(p *plan, path []string) ([]value, bool) {
	if p.apart != 0 || p.base != nil || p.grouped() || p.where == nil {
		return nil, false
	}
	known := b.aliases
	defer func() { b.aliases = known }()
	for _, src := range p.sources {
		if !src.each && src.sub == nil && b.isPath(src.node, nil) {
			b.aliases = append(b.aliases, src.slot)
		}
	}
	return b.pinsOf(p.where, path)
}

// pinsOfCall returns the pins of IS_NULL(path), IS_BOOL(path) and ARRAY_CONTAINS(@values, path).
func (b *Bound) pinsOfCall(n call, path []string) ([]value, bool) {
	switch n.fn {
	case functions["IS_NULL"]:
		return []value{{kind: null}}, b.isPath(n.args[0], path)
	case functions["IS_BOOL"]:
		return []value{boolValue(false), boolValue(true)}, b.isPath(n.args[0], path)
	case functions["ARRAY_CONTAINS"]:
		return b.pinsOfContains(n, path)
	}
	return nil, false
}

// pinsOfContains returns the pins of ARRAY_CONTAINS(@values, path). With a third argument an object need not be
// equal, so only scalars are pins.
func (b *Bound) pinsOfContains(n call, path []string) ([]value, bool) {
	known := b.knownValue(n.args[0])
	if known.kind != array {
		return nil, false
	}
	var list []node
	for _, v := range b.f.elementsOf(known) {
		if v.kind >= array && len(n.args) > 2 {
			return nil, false
		}
		list = append(list, constant{v})
	}
	return b.knownValues(n.args[1], list, path)
}

// pinsOfAny returns the pins of an AND: the values that every term with pins allows.
func (b *Bound) pinsOfAny(terms []node, path []string) (best []value, found bool) {
	for _, term := range terms {
		v, ok := b.pinsOf(term, path)
		switch {
		case ok && found:
			best = commonValues(best, v)
		case ok:
			best, found = v, true
		}
	}
	return best, found
}

// commonValues returns the values of a list that are also in another list.
func commonValues(list, other []value) []value {
	allowed := map[string]bool{}
	for _, v := range other {
		allowed[string(appendCanonical(nil, v, 0))] = true
	}
	var common []value
	for _, v := range list {
		if allowed[string(appendCanonical(nil, v, 0))] {
			common = append(common, v)
		}
	}
	return common
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

// knownValues returns the values of list if operand is the path and all values are known. An undefined
// literal equals no value, so such a literal is left out. An undefined parameter is not known yet.
func (b *Bound) knownValues(operand node, list []node, path []string) ([]value, bool) {
	if !b.isPath(operand, path) {
		return nil, false
	}
	var values []value
	for _, n := range list {
		v := b.knownValue(n)
		if _, literal := n.(constant); v.kind != undefined {
			values = append(values, v)
		} else if !literal {
			return nil, false
		}
	}
	return appendNew(nil, values, map[string]bool{}), true
}

// knownValue returns the value of an expression of literals and parameters. For any other expression the result is
// undefined.
func (b *Bound) knownValue(n node) value {
	switch n.(type) {
	case constant, parameter:
		return n.eval(&b.f)
	}
	v, _ := b.fixedValue(n)
	return v
}

// fixedValue evaluates an expression that depends on nothing but constants and parameters; ok is false for any other
// expression, and if the evaluation fails.
func (b *Bound) fixedValue(n node) (v value, ok bool) {
	if !needsNoDocument(n) {
		return value{}, false
	}
	f := frame{params: b.f.params, work: maxWork, now: b.f.now}
	v = n.eval(&f)
	return v, f.err == nil
}

// isNever reports whether an expression is never true, whatever the document is: FALSE, or a comparison of two
// constants.
func (b *Bound) isNever(n node) bool {
	v, ok := b.fixedValue(n)
	return ok && v.kind != isTrue
}

// needsNoDocument reports whether an expression depends on nothing but constants and parameters. Functions without
// arguments may return another value each time, or cost nothing to evaluate, so no such function counts.
func needsNoDocument(n node) bool {
	switch n := n.(type) {
	case constant, parameter:
		return true
	case compare:
		return needsNoDocument(n.l) && needsNoDocument(n.r)
	case arithmetic:
		return needsNoDocument(n.l) && needsNoDocument(n.r)
	case not:
		return needsNoDocument(n.x)
	case minus:
		return needsNoDocument(n.x)
	case like:
		return needsNoDocument(n.x) && needsNoDocument(n.pattern) && (n.escape == nil || needsNoDocument(n.escape))
	case inList:
		return needsNoDocument(n.x) && needNoDocument(n.list)
	case logic:
		return needNoDocument(n.terms)
	case arrayNode:
		return needNoDocument(n.items)
	case objectNode:
		for _, member := range n.members {
			if !needsNoDocument(member.node) {
				return false
			}
		}
		return true
	case call:
		return len(n.args) > 0 && needNoDocument(n.args)
	}
	return false
}

// needNoDocument reports whether no expression needs a document.
func needNoDocument(list []node) bool {
	for _, n := range list {
		if !needsNoDocument(n) {
			return false
		}
	}
	return true
}

// isPath reports whether n is this path of the document, by the document's own name or by an alias of a subquery.
func (b *Bound) isPath(n node, names []string) bool {
	p, ok := n.(path)
	if !ok || p.slot != rootSlot && !slices.Contains(b.aliases, p.slot) || len(p.steps) != len(names) {
		return false
	}
	for i, step := range p.steps {
		if step.index >= 0 || step.name != names[i] {
			return false
		}
	}
	return true
}
