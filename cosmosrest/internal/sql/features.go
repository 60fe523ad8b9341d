package sql

import "strings"

// missing names what a client has to be able to do for the plan and is not, in the words of the header in which clients list
// what they support.
func (info *queryInfo) missing(supports func(feature string) bool) (missing []string) {
	if supports == nil {
		return nil
	}
	aggregates, countIf := len(info.Aggregates), false
	for _, a := range info.Aggregates {
		countIf = countIf || a == aggregateTypes["COUNTIF"]
	}
	for _, a := range info.AliasToAggregate {
		if a != nil {
			aggregates++
			countIf = countIf || *a == aggregateTypes["COUNTIF"]
		}
	}
	for _, f := range []struct {
		name  string
		needs bool
	}{
		{"Aggregate", aggregates == 1},
		{"MultipleAggregates", aggregates > 1},
		{"NonValueAggregate", aggregates > 0 && !info.HasSelectValue},
		{"CountIf", countIf},
		{"Distinct", info.DistinctType != "None"},
		{"GroupBy", len(info.GroupByExpressions) > 0},
		{"OffsetAndLimit", info.Limit != nil},
		{"OrderBy", len(info.OrderBy) == 1},
		{"MultipleOrderBy", len(info.OrderBy) > 1},
		{"Top", info.Top != nil},
	} {
		if f.needs && !supports(f.name) {
			missing = append(missing, f.name)
		}
	}
	return missing
}

// unsupported is the refusal of a plan, in the service's words: SDKs' tests compare them.
func unsupported(features []string) *Error {
	lines := []string{"Query contains 1 or more unsupported features. Upgrade your SDK to a version that does support the requested features:"}
	for _, f := range features {
		lines = append(lines, "Query contained "+f+", which the calling client does not support.")
	}
	return failf(-1, "%s", strings.Join(lines, "\n"))
}
