package sql

import (
	"fmt"
	"strings"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// The rewritten query of a plan: the same query in a form whose rows a client can merge. The SDKs expect these forms
// (orderByItems, groupByItems, payload, item, item2).

// rewrite returns the query for a range, or "" for the original query. Equal rows may come from several ranges, so a
// client counts the rows of DISTINCT itself.
func (w *rewriter) rewrite(info queryInfo) string {
	counted := info.Top != nil || info.Limit != nil
	switch {
	case w.p.grouped():
		return w.groupingQuery()
	case len(w.p.order) > 0:
		return w.sortingQuery(info)
	case w.p.distinct && (counted || info.DCountInfo != nil):
		return "SELECT DISTINCT " + w.list(w.s) + w.fromClause(w.s) + w.whereClause(w.s)
	case info.Limit != nil:
		return "SELECT " + w.list(w.s) + w.fromClause(w.s) + w.whereClause(w.s) + w.reachOfRange(info)
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
	query := head + w.fromClause(w.s) + w.whereClause(w.s) + w.groupClause(w.s)
	if len(w.p.groups) == 0 {
		return query // a single row needs no order
	}
	return query + w.orderClause(w.s)
}

// partialColumn returns a column for a range. An average becomes a sum and a count. MIN and MAX return in item2 how
// many values they saw, because a range without values has no item.
func (w *rewriter) partialColumn(e *expr) string {
	name, arg, ok := aggregateOf(e)
	if !ok {
		return w.expr(e)
	}
	x, whole := w.expr(arg), w.expr(e)
	switch name {
	case "AVG":
		return fmt.Sprintf(`{"item": {"sum": SUM(%s), "count": COUNT(%s)}}`, x, x)
	case "MIN", "MAX":
		return fmt.Sprintf(`{"item": %s, "item2": {"%s": %s, "count": COUNT(%s)}}`, whole, strings.ToLower(name), whole,
			x)
	}
	return `{"item": ` + whole + `}`
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
	filter := "(" + filterPlace + ")"
	if w.s.Tail.Where != nil {
		filter = "(" + w.expr(w.s.Tail.Where) + " AND " + filter + ")"
	}
	payload := w.rowName()
	switch {
	case w.s.List.Value != nil:
		payload = w.expr(w.s.List.Value)
		filter = "(" + filter + " AND IS_DEFINED(" + payload + "))" // with VALUE, undefined makes no row
	case !w.s.List.Star:
		payload = w.membersOf(w.expr)
	}
	query := head + items(w.orderBy()) + " AS orderByItems, " + payload + " AS payload" + w.fromClause(w.s) +
		"\nWHERE " + filter + w.orderClause(w.s)
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
	return fmt.Sprintf("\nOFFSET 0 LIMIT %d", min(*info.Offset+*info.Limit, maxCount))
}

// items returns a list of keys in the form of a plan.
func items(exprs []string) string {
	return `[{"item": ` + strings.Join(exprs, `}, {"item": `) + `}]`
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
