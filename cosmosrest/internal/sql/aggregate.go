package sql

import "slices"

// Aggregates. Their rules for undefined values and for types are the service's, because its SDKs compute the same
// aggregates over the parts of several partitions.

// aggregate is an aggregate function in a query.
type aggregate struct {
	name string
	arg  node
}

// accumulator is the state of an aggregate over the rows of a group.
type accumulator struct {
	count int64
	sum   exactSum
	best  value
	bad   bool            // an argument has made the result undefined
	held  int             // bytes of the list
	list  []byte          // elements of MAKELIST and MAKESET, each after a comma
	seen  map[string]bool // canonical texts of the elements of MAKESET
}

// add adds the argument's value in a row. All aggregates ignore undefined. SUM and AVG become undefined if an
// argument is not a number; MIN and MAX, if an argument is an array or object.
func (c *accumulator) add(agg aggregate, v value) {
	if v.kind == undefined {
		return
	}
	switch agg.name {
	case "COUNTIF":
		if v.kind != isTrue {
			return
		}
	case "SUM", "AVG":
		if v.kind != number {
			c.bad = true
			return
		}
		c.sum.include(v.float())
	case "MIN", "MAX":
		c.keepExtreme(agg.name == "MIN", v)
	case "MAKELIST", "MAKESET":
		c.listValue(agg.name == "MAKESET", v)
	}
	c.count++
}

// keepExtreme keeps the smallest or the largest value; values may have different types.
func (c *accumulator) keepExtreme(least bool, v value) {
	if v.kind >= array {
		c.bad = true
		return
	}
	if c.best.kind != undefined {
		if diff := order(v, c.best); diff == 0 || diff < 0 != least {
			return
		}
	}
	c.best = own(v)
}

// listValue appends a value to the list of MAKELIST, or of MAKESET if the value is new.
func (c *accumulator) listValue(once bool, v value) {
	if once {
		key := canonical(v)
		if c.seen[key] {
			return
		}
		if c.seen == nil {
			c.seen = map[string]bool{}
		}
		c.seen[key] = true
		c.held += keySize + len(key)
	}
	before := len(c.list)
	c.list = v.appendJSON(append(c.list, ','))
	c.held += len(c.list) - before
}

// listed returns the list of MAKELIST and MAKESET, in the order of the rows.
func (c *accumulator) listed() value {
	if len(c.list) == 0 {
		return compositeValue([]byte("[]"))
	}
	list := append(slices.Clone(c.list), ']')
	list[0] = '['
	return compositeValue(list)
}

// result returns the aggregate of all rows. If there are no rows, COUNT and SUM are 0, and the others are undefined.
func (c *accumulator) result(agg aggregate) value {
	switch {
	case agg.name == "COUNT" || agg.name == "COUNTIF":
		return numberValue(float64(c.count))
	case agg.name == "MAKELIST" || agg.name == "MAKESET":
		return c.listed()
	case c.bad:
		return value{}
	case agg.name == "SUM":
		return numberValue(c.sum.value())
	case agg.name == "AVG":
		return numberValue(c.sum.value() / float64(c.count))
	}
	return c.best
}
