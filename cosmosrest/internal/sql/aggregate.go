package sql

// Aggregates. Their rules about undefined and about types are those of the service, whose
// SDKs compute the same over the parts of several partitions.

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
	bad   bool // an argument made the result undefined
}

// add takes the argument's value in a row. All aggregates leave undefined out; SUM and AVG
// become undefined by an argument that is no number, MIN and MAX by an array or object.
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
	}
	c.count++
}

// keepExtreme keeps the least or the greatest value, of whatever type.
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

// result is the aggregate of all rows. Without any, COUNT and SUM are 0 and the others are
// undefined.
func (c *accumulator) result(agg aggregate) value {
	switch {
	case agg.name == "COUNT" || agg.name == "COUNTIF":
		return numberValue(float64(c.count))
	case c.bad:
		return value{}
	case agg.name == "SUM":
		return numberValue(c.sum.value())
	case agg.name == "AVG":
		return numberValue(c.sum.value() / float64(c.count))
	}
	return c.best
}
