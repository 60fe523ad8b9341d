package cosmosrest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/sql"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// Queries that the service refuses although this server can compute them. A lenient server runs these queries.

// refuseStrictly refuses the query if the service's planner does.
func (q *itemQuery) refuseStrictly(c *call) error {
	if c.s.o.Lenient {
		return nil
	}
	return q.Refused()
}

// refuseSort refuses a sort by several paths without a composite index of these paths. The service's planner does not
// know the indexes, so only a query that runs is refused.
func (q *itemQuery) refuseSort(c *call) error {
	paths := q.SortPaths()
	if c.s.o.Lenient || len(paths) < 2 {
		return nil
	}
	var policy struct {
		Composite [][]compositePath `json:"compositeIndexes"`
	}
	// A policy of another shape has no composite indexes.
	_ = json.Unmarshal(readMeta(q.cont.Spec().Meta).Body["indexingPolicy"], &policy)
	if slices.ContainsFunc(policy.Composite, func(index []compositePath) bool { return servesSort(index, paths) }) {
		return nil
	}
	return wire.Errorf(http.StatusBadRequest, 0, wire.CodeBadRequest, "The order by query does not have a "+
		"corresponding composite index that it can be served from. Add compositeIndexes with %s to the "+
		"indexingPolicy of container %s, or start the server with --lenient", wantedIndex(paths), q.cont.ID())
}

// compositePath is a path of a composite index.
type compositePath struct {
	Path  string `json:"path"`
	Order string `json:"order,omitempty"`
}

func (p compositePath) isDescending() bool { return strings.EqualFold(p.Order, "descending") }

// servesSort reports whether a composite index has exactly these paths, in the same directions or all in the opposite
// directions.
func servesSort(index []compositePath, paths []sql.SortPath) bool {
	if len(index) != len(paths) {
		return false
	}
	opposite := index[0].isDescending() != paths[0].Desc
	for i, path := range paths {
		own := strings.TrimSuffix(strings.ReplaceAll(index[i].Path, `"`, ""), "/?")
		if own != path.Path || index[i].isDescending() != path.Desc != opposite {
			return false
		}
	}
	return true
}

// wantedIndex returns the composite index that a sort needs.
func wantedIndex(paths []sql.SortPath) string {
	var index []compositePath
	for _, path := range paths {
		order := "ascending"
		if path.Desc {
			order = "descending"
		}
		index = append(index, compositePath{path.Path, order})
	}
	return string(wire.Encode(index))
}
