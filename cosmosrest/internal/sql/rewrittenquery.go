package sql

import (
	"fmt"
	"strings"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// The rewritten query of a plan: the same query in a form whose rows a client can merge. The SDKs expect these forms
// (orderByItems, groupByItems, payload, item, item2).

// rewrite returns the query for a range, or "" for the original query.
func (w *rewriter) rewrite(info queryInfo) string {
	switch {
	case w.p.grouped():
		return w.groupingQuery()
	case len(w.p.order) > 0:
		return w.sortingQuery(info)
	case info.Limit != nil:
		list := w.text(w.s.List.Pos.Offset, w.s.List.EndPos.Offset)
		if w.p.distinct {
			list = "DISTINCT " + list
		}
		return "SELECT " + list + w.from() + w.where() + w.reachOfRange(info)
	}
	return ""
}

// groupingQuery returns the key of each group as groupByItems and its columns as payload. Aggregates are returned in
// parts that a client can add up. TOP and LIMIT are left out, because they count merged groups.
func (w *rewriter) groupingQuery() string {
	var payload string
	columns := w.columns()
	if w.s.List.Value != nil {
		payload = w.partialColumn(columns[0])
		if _, _, ok := aggregateOf(columns[0]); ok {
			payload = "[" + payload + "]"
		}
	} else {
		payload = w.membersOf(w.partialColumn)
	}
	head := "SELECT "
	switch {
	case len(w.p.groups) > 0:
		head += items(w.texts(w.s.Tail.Group)) + " AS groupByItems, " + payload + " AS payload"
	case w.s.List.Value != nil:
		head += "VALUE " + payload
	default:
		head += payload + " AS payload"
	}
	return head + w.from() + w.where() + w.groupBy()
}

// partialColumn returns a column for a range. An average becomes a sum and a count. MIN and MAX return in item2 how
// many values they saw, because a range without values has no item.
func (w *rewriter) partialColumn(e *expr) string {
	name, arg, ok := aggregateOf(e)
	if !ok {
		return w.expr(e)
	}
	x := w.expr(arg)
	switch name {
	case "AVG":
		return fmt.Sprintf(`{"item": {"sum": SUM(%s), "count": COUNT(%s)}}`, x, x)
	case "MIN", "MAX":
		return fmt.Sprintf(`{"item": %s(%s), "item2": {"%s": %s(%s), "count": COUNT(%s)}}`, name, x,
			strings.ToLower(name), name, x, x)
	}
	return fmt.Sprintf(`{"item": %s(%s)}`, name, x)
}

// membersOf returns the object that corresponds to a SELECT list.
func (w *rewriter) membersOf(column func(*expr) string) string {
	var all []string
	columns := w.columns()
	for i, name := range w.names() {
		all = append(all, string(rawjson.AppendString(nil, name))+": "+column(columns[i]))
	}
	return "{" + strings.Join(all, ", ") + "}"
}

// sortingQuery returns the keys as orderByItems and the row as payload, with a place for the condition by which a
// client resumes. For DISTINCT, the client removes equal rows and must then count the rows too, so TOP and LIMIT are
// left to the client.
func (w *rewriter) sortingQuery(info queryInfo) string {
	head := "SELECT "
	if info.Top != nil && !w.p.distinct {
		head += fmt.Sprintf("TOP %d ", *info.Top)
	}
	if root := w.rootName(); root != "" {
		head += root + "._rid, "
	} else {
		head += ridFunction + "() AS _rid, "
	}
	filter := " WHERE "
	if w.s.Tail.Where != nil {
		filter += "(" + w.expr(w.s.Tail.Where) + ") AND "
	}
	filter += "(" + filterPlace + ")"
	payload := w.rowName()
	switch {
	case w.s.List.Value != nil:
		payload = w.expr(w.s.List.Value)
		filter += " AND IS_DEFINED(" + payload + ")" // with VALUE, undefined makes no row
	case !w.s.List.Star:
		payload = w.membersOf(w.expr)
	}
	head += items(w.orderBy()) + " AS orderByItems, " + payload + " AS payload"
	var order []string
	for i, e := range w.orderBy() {
		if _, near := w.p.order[i].node.(closeness); !near && w.p.order[i].desc {
			e += " DESC"
		}
		order = append(order, e)
	}
	query := head + w.from() + filter + " ORDER BY " + strings.Join(order, ", ")
	if w.p.distinct {
		return query
	}
	return query + w.reachOfRange(info)
}

// ridFunction is a function only for plans. The function returns the resource id of the document if FROM gives the
// document no name.
const ridFunction = "DOCUMENT_RID"

// reachOfRange limits the rows of a range to the number that the client may need: all rows of OFFSET and LIMIT might
// come from this range.
func (w *rewriter) reachOfRange(info queryInfo) string {
	if info.Limit == nil {
		return ""
	}
	return fmt.Sprintf(" OFFSET 0 LIMIT %d", min(*info.Offset+*info.Limit, maxCount))
}

// items returns a list of keys in the form of a plan.
func items(exprs []string) string {
	return `[{"item": ` + strings.Join(exprs, `}, {"item": `) + `}]`
}

// from, where and groupBy return the clauses in the words of the query.
func (w *rewriter) from() string {
	if len(w.s.From) == 0 {
		return ""
	}
	return " FROM " + w.text(w.s.From[0].Pos.Offset, w.s.Tail.Pos.Offset)
}

func (w *rewriter) where() string {
	if w.s.Tail.Where == nil {
		return ""
	}
	return " WHERE " + w.expr(w.s.Tail.Where)
}

func (w *rewriter) groupBy() string {
	if len(w.p.groups) == 0 {
		return ""
	}
	return " GROUP BY " + strings.Join(w.texts(w.s.Tail.Group), ", ")
}

// rootName returns the alias of the document, or "".
func (w *rewriter) rootName() string {
	if ref := w.s.From[0]; ref.In == nil && ref.Sub == nil && len(ref.Path) == 0 {
		return w.rowName()
	}
	return ""
}

// rowName returns the alias of the first source, or "".
func (w *rewriter) rowName() string {
	ref := w.s.From[0]
	switch {
	case ref.In != nil:
		return ref.Name
	case ref.Alias != "":
		return ref.Alias
	}
	return ref.lastName(&compiler{})
}
