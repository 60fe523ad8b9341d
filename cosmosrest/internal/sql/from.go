package sql

import "slices"

// FROM and JOIN: names are bound to slots of the frame.
//
// The alias of the container itself is bound to the document's own slot and needs no
// source: the evaluation of a plan without sources visits each document once. Everything
// else, such as a path into the document, the elements of an array or the rows of a
// subquery, is a source with a slot of its own.

// compileSources compiles the sources of a SELECT. The number of joins is bounded because rows
// multiply.
func (c *compiler) compileSources(p *plan, refs []*sourceRef) {
	if len(refs) > maxJoins {
		c.failFirst(failf(refs[maxJoins].Pos.Offset, "The query has more than %d JOINs.", maxJoins-1))
		return
	}
	for i, ref := range refs {
		p.inputs++
		c.compileSource(p, ref, i == 0 && len(c.names) == 0)
	}
}

// compileSource compiles one source and binds its alias. root says that it is the first source of
// a query that is in no other: only there can a name stand for the container. A subquery
// there that collects rows or counts them must end before the query begins, so it becomes
// the plan's base.
func (c *compiler) compileSource(p *plan, ref *sourceRef, root bool) {
	from, alias := ref, ref.Alias
	if ref.In != nil {
		if from = ref.In; ref.Sub != nil || len(ref.Path) > 0 || from.Alias != "" || from.In != nil {
			c.failFirst(failf(ref.Pos.Offset, "Syntax error, incorrect syntax near 'IN'."))
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
		src.sub = c.compileSubquery(from.Sub)
		// IN visits the elements of the value of a subquery that has no FROM. Of any
		// other it visits the rows, as without IN.
		src.each = src.each && src.sub.inputs == 0 && from.Sub.List.Value != nil
		if root && (src.sub.collectsRows() || src.sub.limits()) {
			p.base = src.sub
		}
	} else if n, plain := c.compileCollection(from, root); plain && !src.each {
		c.bindName(alias, rootSlot, ref)
		return
	} else {
		src.node = n
	}
	c.slots++
	src.slot = c.slots
	p.sources = append(p.sources, src)
	c.bindName(alias, src.slot, ref)
}

// compileCollection compiles the path after FROM, JOIN or IN; plain reports that it is the whole
// document. Any name can stand for the container, as in the service: `FROM root` and `FROM
// anything` are the same.
func (c *compiler) compileCollection(ref *sourceRef, root bool) (n node, plain bool) {
	slot, ok := c.resolveName(ref.Name)
	if !ok && !root {
		c.failUnresolved(ref.Name, ref.Pos.Offset)
	}
	at := path{slot: slot, memo: -1}
	for _, s := range ref.Path {
		step, ok := c.constantStep(s)
		if !ok {
			c.failFirst(failf(s.Pos.Offset, "Syntax error, a path after FROM or JOIN has names and numbers only."))
		}
		at.steps = append(at.steps, step)
	}
	at.memo = c.memoPlace(at)
	if ok { // in a subquery, of which another query has bound the name
		c.noteStray(at, ref.Name, ref.Path, ref.Pos.Offset)
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

// bindName gives a slot its name. A name may hide that of an outer query, but within one FROM
// it is unique.
func (c *compiler) bindName(name string, slot int, ref *sourceRef) {
	if name == "" {
		return
	}
	if slices.ContainsFunc(c.names[c.agg.names:], func(other binding) bool { return other.name == name }) {
		c.failFirst(failf(ref.Pos.Offset, "The input alias %s is specified more than once in the FROM clause.", clip(name)))
	}
	c.names = append(c.names, binding{name, slot})
}

// maxJoins bounds the sources of a query, FROM included.
const maxJoins = 32 // FROM and JOIN of one query
