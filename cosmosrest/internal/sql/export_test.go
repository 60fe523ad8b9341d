package sql

import (
	"encoding/json"
	"maps"
	"slices"
)

// QueryInfo is what a plan says of a query.
type QueryInfo = queryInfo

// FilterPlace is where a client writes its filter into a rewritten query.
const FilterPlace = filterPlace

// PlanOf is the plan of a query for a client that can do everything.
func PlanOf(b *Bound) (QueryInfo, error) {
	raw, err := b.Plan(nil, nil)
	if err != nil {
		return QueryInfo{}, err
	}
	var plan queryPlan
	err = json.Unmarshal(raw, &plan)
	return plan.Info, err
}

// Merge merges the rows of several ranges as a client does.
func Merge(info QueryInfo, parts [][]string) []string {
	var rows [][]value
	for _, part := range parts {
		var some []value
		for _, text := range part {
			some = append(some, documentValue([]byte(text)))
		}
		rows = append(rows, some)
	}
	var out []string
	for _, row := range merge(info, rows) {
		out = append(out, string(row.json()))
	}
	return out
}

// Functions are the names of the built-in functions, in order. Those for the queries of plans are not among them.
func Functions() []string {
	names := append(slices.Collect(maps.Keys(functions)), "DOCUMENTID", "FULLTEXTSCORE", "IIF", "RRF", "VECTORDISTANCE")
	names = append(names, slices.Collect(maps.Keys(aggregateTypes))...)
	names = slices.DeleteFunc(names, func(name string) bool { return name[0] == '_' })
	slices.Sort(names)
	return names
}

// WrittenDown are the expressions whose values are written down.
func WrittenDown() (list []string) {
	for _, e := range expressions {
		list = append(list, e.expr)
	}
	return list
}

// PinsOf returns the values to which the filter of a query limits a path.
func PinsOf(b *Bound, path []string) (values []json.RawMessage, ok bool) {
	keys, ok := b.Keys([][]string{path}, maxAlternatives)
	for _, key := range keys {
		values = append(values, key[0])
	}
	return values, ok
}

// Rendered returns a query in the form of the service's planner.
func Rendered(text string) (string, error) {
	q, err := Parse(text)
	if err != nil {
		return "", err
	}
	return renderer{q}.selectText(q.statement()), nil
}
