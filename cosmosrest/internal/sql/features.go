package sql

import (
	"slices"
	"strings"
)

// Features of clients. A plan may require that the client merges rows in ways that older SDKs do not support. Each
// SDK lists its features in x-ms-cosmos-supported-query-features. If a plan needed more, the client would not fail,
// but return the internal rows of the parts to its user.

// missing returns the features that the plan needs but the client lacks, by the names in that header.
func (info *queryInfo) missing(supports func(feature string) bool) (missing []string) {
	if supports == nil {
		return nil
	}
	kinds := slices.Clone(info.Aggregates)
	for _, a := range info.AliasToAggregate {
		if a != nil {
			kinds = append(kinds, *a)
		}
	}
	aggregates, has := len(kinds), func(name string) bool { return slices.Contains(kinds, aggregateTypes[name]) }
	for _, f := range []struct {
		name  string
		needs bool
	}{
		{"Aggregate", aggregates == 1},
		{"MultipleAggregates", aggregates > 1},
		{"NonValueAggregate", aggregates > 0 && !info.HasSelectValue},
		{"CountIf", has("COUNTIF")},
		{"ListAndSetAggregate", has("MAKELIST") || has("MAKESET")},
		{"Distinct", info.DistinctType != "None"},
		{"GroupBy", len(info.GroupByExpressions) > 0},
		{"OffsetAndLimit", info.Limit != nil},
		{"NonStreamingOrderBy", info.HasNonStreamingOrderBy},
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

// unsupported returns the error for a plan that the client cannot run, in the service's words, because tests of SDKs
// compare them.
func unsupported(features []string) *Error {
	lines := []string{"Query contains 1 or more unsupported features. Upgrade your SDK to a version that does " +
		"support the requested features:"}
	for _, f := range features {
		lines = append(lines, "Query contained "+f+", which the calling client does not support.")
	}
	return failf(-1, "%s", strings.Join(lines, "\n"))
}
