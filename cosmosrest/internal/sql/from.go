package sql

import "slices"

// FROM and JOIN bind names to slots of the frame.
//
// The alias of the container is bound to the document's own slot and needs no source: a plan without sources visits
// each document once. Every other collection, such as a path into the document, the elements of an array or the rows
// of a subquery, is a source with its own slot.

// compileSources compiles the sources of a SELECT. The number of joins is limited, because the numbers of rows
// multiply.
func (c *compiler) compileSources(p *plan, refs []*sourceRef) {
	if len(refs) > maxJoins {
		c.failFirst(failf(refs[maxJoins].Pos.Offset, "The SQL query exceeded the maximum number of joins. The allowed "+
			"limit is %d.", maxJoins-1))
		return
	}
	for i, ref := range refs {
		p.inputs++
		c.compileSource(p, ref, i == 0 && len(c.names) == 0)
	}
}

// compileSource compiles a source and binds its alias. root is true for the first source of the outermost query: only
// there may a name mean the container. If a subquery in this place collects or limits rows, that subquery must end
// before the query begins, so the subquery becomes the plan's base.
func (c *compiler) compileSource(p *plan, ref *sourceRef, root bool) {
	from, alias := ref, ref.Alias
	if ref.In != nil {
		if from = ref.In; ref.Sub != nil || len(ref.Path) > 0 || from.Alias != "" || from.In != nil {
			c.failFirst(failf(ref.Pos.Offset, "Syntax error, incorrect syntax near 'IN'."))
			return
		}
		// In `t IN c.tags` the alias comes first, in the place of a path. The parser reads the alias as the name of a
		// path, because the IN comes later.
		alias = ref.Name
	}
	if alias == "" {
		alias = from.lastName(c)
	}
	src := source{each: ref.In != nil}
	if from.Sub != nil {
		src.sub = c.compileSubquery(from.Sub)
		// If a subquery has no FROM, IN visits the elements of its value. With a FROM, IN visits the rows of the
		// subquery, as without IN.
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

// compileCollection compiles the path after FROM, JOIN or IN; plain reports whether the path is the whole document.
// As in the service, any name may mean the container: `FROM root` and `FROM anything` are the same.
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
	if ok { // the name is bound by an outer query
		c.noteStray(at, ref.Name, ref.Path, ref.Pos.Offset)
	}
	return at, !ok && len(at.steps) == 0
}

// lastName returns the alias of a source without an explicit alias: the last name of its path.
func (r *sourceRef) lastName(c *compiler) string {
	if len(r.Path) == 0 {
		return r.Name
	}
	step, _ := c.constantStep(r.Path[len(r.Path)-1])
	return step.name
}

// bindName binds a name to a slot. A name may hide a name of an outer query, but must be unique within a FROM.
func (c *compiler) bindName(name string, slot int, ref *sourceRef) {
	if name == "" {
		return
	}
	if slices.ContainsFunc(c.names[c.agg.names:], func(other binding) bool { return other.name == name }) {
		c.failFirst(failf(ref.Pos.Offset, "The input alias %s is specified more than once in the FROM clause.",
			clip(name)))
	}
	c.names = append(c.names, binding{name, slot})
}

// maxJoins limits the sources of a query, FROM included.
const maxJoins = 32 // FROM and JOIN of a query
