package cosmosrest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// Index metrics: the indexes that the service would use for a query. This server has no indexes of paths, so the
// metrics follow from the query's conditions and from the indexing policy.

// indexUse is the second version of the index metrics.
type indexUse struct {
	UtilizedIndexes, PotentialIndexes indexLists
}

type indexLists struct {
	SingleIndexes    []singleIndex
	CompositeIndexes []struct{}
}

type singleIndex struct{ IndexSpec string }

// indexMetrics returns the indexes of the paths by which the query filters and sorts, in the second version of the
// index metrics: JSON in which clients replace percent escapes.
func (q *itemQuery) indexMetrics() string {
	policy := indexingOf(q.cont)
	empty := indexLists{[]singleIndex{}, []struct{}{}}
	use := indexUse{UtilizedIndexes: empty, PotentialIndexes: empty}
	for _, path := range q.FilterPaths() {
		if policy.covers(path) {
			use.UtilizedIndexes.SingleIndexes = append(use.UtilizedIndexes.SingleIndexes, singleIndex{path})
		} else {
			use.PotentialIndexes.SingleIndexes = append(use.PotentialIndexes.SingleIndexes, singleIndex{path})
		}
	}
	return headerText(strings.ReplaceAll(string(wire.Encode(use)), "/", `\/`))
}

// covers reports whether a path such as /a/b/? is indexed: the longest path of the policy that contains it decides.
func (p *indexing) covers(path string) bool {
	if strings.EqualFold(p.Mode, "none") {
		return false
	}
	longest := func(all []indexedPath) int {
		length := -1
		for _, own := range all {
			head, wild := strings.CutSuffix(own.Path, "*")
			if own.Path == path || (wild || own.Path == oldRootPath) && strings.HasPrefix(path, head) {
				length = max(length, len(head))
			}
		}
		return length
	}
	return longest(p.Included) > longest(p.Excluded)
}

// headerText escapes bytes that a header cannot have, and those that would end or begin an escape.
func headerText(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' || slices.Contains([]byte("%+"), c) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
