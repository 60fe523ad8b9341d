package sql

// Pins are the values to which a filter limits a path. They are found in the compiled WHERE before any document is
// read.
//
// A filter limits a path by =, IN, LIKE without wildcards, IS_NULL, IS_BOOL, ABS, ARRAY_CONTAINS, by the path itself as
// a condition, or by the WHERE of a subquery with a row, in a term of an AND, or in every term of an OR. A document
// with another value at the path, or with none, makes no row. A document with such a value may still make no row. If
// no document makes a row, there are no values.
//
// A query that names an id or a partition key is answered by point lookups instead of a scan. The analysis may miss a
// pin, which costs a scan. But the analysis must never return a pin that a matching document does not satisfy,
// because that document would be missing from the answer.

// IDs returns the only ids that a document may have to make a row; ok is false if WHERE does not limit the ids.
func (b *Bound) IDs() ([]string, bool) {
	ids := []string{}
	where := b.q.plan.filter()
	if where == nil {
		return ids, false
	}
	values, ok := b.pinsOf(where, []string{"id"})
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
		if n.fn != functions["STARTSWITH"] || !b.isPath(n.args[0], []string{"id"}) {
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
