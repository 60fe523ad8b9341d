package sql

// The service's limits of a query. A strict server refuses a query beyond them. Microsoft's page of limits, its earlier
// versions and the service's account document have different numbers. These are the largest, so no query is refused
// that the service may serve. The length of a query, maxQuery, is a limit of every server. AND and OR have none: the
// account document and old versions of the page name some, but SDKs that read many items at once send a thousand of
// each and more.
const (
	strictJoins   = 10     // of a query with its subqueries
	strictInItems = 16_000 // of a single IN
)

// queryCounts counts what the service limits, in a query with its subqueries.
type queryCounts struct{ joins, mostItems int }

// addLists notes the longest list of IN in a flat expression.
func (n *queryCounts) addLists(links []*link) {
	for _, l := range links {
		if l.Op == "IN" && l.Right.Primary.Group != nil {
			n.mostItems = max(n.mostItems, len(l.Right.Primary.Group.list()))
		}
	}
}

// refused returns an error for each limit that a query exceeds. The sentence about joins is the service's; the one
// about IN is unknown.
func (n *queryCounts) refused(text string) (all []*Error) {
	for _, limit := range []struct {
		count, most int
		what        string
	}{{n.joins, strictJoins, "joins"}, {n.mostItems, strictInItems, "items in an IN expression"}} {
		if limit.count > limit.most {
			err := failf(0, "The SQL query exceeded the maximum number of %s. The allowed limit is %d. The query has %d.",
				limit.what, limit.most, limit.count)
			err.End = len(text)
			all = append(all, err)
		}
	}
	return all
}
