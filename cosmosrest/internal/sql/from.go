package sql

import "slices"

// FROM and JOIN: names are bound to slots of the frame.
//
// The alias of the container itself is bound to the document's own slot and needs no
// source: the evaluation of a plan without sources visits each document once. Everything
// else, such as a path into the document, the elements of an array or the rows of a
// subquery, is a source with a slot of its own.

// from compiles the sources of a SELECT. The number of joins is bounded because rows
// multiply.
func (c *compiler) from(p *plan, refs []*sourceRef) {
	if len(refs) > maxJoins {
		c.fail(failf(refs[maxJoins].Pos.Offset, "The query has more than %d JOINs.", maxJoins-1))
		return
	}
	for i, ref := range refs {
		p.inputs++
		c.source(p, ref, i == 0 && len(c.names) == 0)
	}
}

// source compiles one source and binds its alias. root says that it is the first source of
// a query that is in no other: only there can a name stand for the container. A subquery
// there that collects rows or counts them must end before the query begins, so it becomes
// the plan's base.
func (c *compiler) source(p *plan, ref *sourceRef, root bool) {
	from, alias := ref, ref.Alias
	if ref.In != nil {
		if from = ref.In; ref.Sub != nil || len(ref.Path) > 0 || from.Alias != "" || from.In != nil {
			c.fail(failf(ref.Pos.Offset, "Syntax error, incorrect syntax near 'IN'."))
			return
		}
		// In `t IN c.tags` the alias comes first, where a path would begin. The parser
		// takes it for the name of a path, as it has not seen the IN yet.
		alias = ref.Name
	}
	if alias == "" {
		alias = from.lastName(c)
	}
	src := source{each: ref.In != nil}
	if from.Sub != nil {
		src.sub = c.subquery(from.Sub)
		// IN visits the elements of the value of a subquery that has no FROM. Of any
		// other it visits the rows, as without IN.
		src.each = src.each && src.sub.inputs == 0 && from.Sub.List.Value != nil
		if root && (src.sub.collects() || src.sub.limits()) {
			p.base = src.sub
		}
	} else if n, plain := c.collection(from, root); plain && !src.each {
		c.bind(alias, rootSlot, ref)
		return
	} else {
		src.node = n
	}
	c.slots++
	src.slot = c.slots
	p.sources = append(p.sources, src)
	c.bind(alias, src.slot, ref)
}

// collection compiles the path after FROM, JOIN or IN; plain reports that it is the whole
// document. Any name can stand for the container, as in the service: `FROM root` and `FROM
// anything` are the same.
func (c *compiler) collection(ref *sourceRef, root bool) (n node, plain bool) {
	slot, ok := c.resolve(ref.Name)
	if !ok && !root {
		c.unresolved(ref.Name, ref.Pos.Offset)
	}
	at := path{slot: slot, memo: -1}
	for _, s := range ref.Path {
		step, ok := c.constantStep(s)
		if !ok {
			c.fail(failf(s.Pos.Offset, "Syntax error, a path after FROM or JOIN has names and numbers only."))
		}
		at.steps = append(at.steps, step)
	}
	at.memo = c.memo(at)
	if ok { // in a subquery, of which another query has bound the name
		c.stray(at, ref.Name, ref.Path, ref.Pos.Offset)
	}
	return at, !ok && len(at.steps) == 0
}

// lastName is the alias of a source that has none: the last name of its path.
func (r *sourceRef) lastName(c *compiler) string {
	if len(r.Path) == 0 {
		return r.Name
	}
	step, _ := c.constantStep(r.Path[len(r.Path)-1])
	return step.name
}

// bind gives a slot its name. A name may hide that of an outer query, but within one FROM
// it is unique.
func (c *compiler) bind(name string, slot int, ref *sourceRef) {
	if name == "" {
		return
	}
	if slices.ContainsFunc(c.names[c.agg.names:], func(other binding) bool { return other.name == name }) {
		c.fail(failf(ref.Pos.Offset, "The input alias %s is specified more than once in the FROM clause.", clip(name)))
	}
	c.names = append(c.names, binding{name, slot})
}

// maxJoins bounds the sources of a query, FROM included.
const maxJoins = 32 // FROM and JOIN of one query
