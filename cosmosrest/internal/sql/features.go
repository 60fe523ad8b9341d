package sql

import "strings"

// Features of clients. A plan asks a client to merge rows in ways that older SDKs cannot,
// and each SDK lists those that it can in x-ms-cosmos-supported-query-features. A plan
// beyond that list would not fail in the client: it would hand its user the internal rows
// of the parts.

// missing names the features that the plan needs and the client lacks, by the names in that
// header.
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

// unsupported is the refusal of a plan, in the service's words, because tests of SDKs
// compare them.
func unsupported(features []string) *Error {
	lines := []string{"Query contains 1 or more unsupported features. Upgrade your SDK to a version that does support the requested features:"}
	for _, f := range features {
		lines = append(lines, "Query contained "+f+", which the calling client does not support.")
	}
	return failf(-1, "%s", strings.Join(lines, "\n"))
}
