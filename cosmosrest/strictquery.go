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

// refuseSort refuses a sort for which the service has no index: by a path that the indexing policy excludes, or by
// several paths without a composite index of these paths. The service's planner does not know the indexes, so only a
// query that runs is refused.
func (q *itemQuery) refuseSort(c *call) error {
	paths := q.SortPaths()
	switch {
	case c.s.o.Lenient, q.all:
		return nil
	case len(paths) == 1 && q.SortsDocuments():
		return q.refuseExcluded(paths[0].Path)
	case len(paths) < 2:
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

// refuseExcluded refuses a sort by a path that the indexing policy excludes.
func (q *itemQuery) refuseExcluded(path string) error {
	policy := indexingOf(q.cont)
	if policy.sorts(path, computedOf(q.cont)) {
		return nil
	}
	return wire.Errorf(http.StatusBadRequest, 0, wire.CodeBadRequest, "The index path corresponding to the specified "+
		"order-by item is excluded. Add %s/? to includedPaths in the indexingPolicy of container %s (now: "+
		"indexingMode %s, includedPaths %.200s, excludedPaths %.200s), or start the server with --lenient", path, q.cont.ID(),
		policy.Mode, wire.Encode(policy.Included), wire.Encode(policy.Excluded))
}

// alwaysIndexed are the paths that the service indexes in each container with an index.
var alwaysIndexed = []string{"/id", "/_ts"}

// sorts reports whether a sort by a path, such as /a/b, has an index. Wildcards of the policy do not include computed
// properties, unless the path before the wildcard names the property.
func (p *indexing) sorts(path string, computed []*sql.Computed) bool {
	if strings.EqualFold(p.Mode, "none") {
		return false
	}
	name, _, _ := strings.Cut(path[1:], "/")
	own := indexing{p.Mode, unquoted(p.Included), unquoted(p.Excluded)}
	if slices.ContainsFunc(computed, func(c *sql.Computed) bool { return c.Name() == name }) {
		beyond := func(p indexedPath) bool { return p.Path == rootPath || p.Path == oldRootPath }
		own.Included = slices.DeleteFunc(own.Included, beyond)
	}
	return slices.Contains(alwaysIndexed, path) || own.covers(path+"/?")
}

// unquoted returns paths without the quotes around their names.
func unquoted(paths []indexedPath) (all []indexedPath) {
	for _, p := range paths {
		all = append(all, indexedPath{strings.ReplaceAll(p.Path, `"`, "")})
	}
	return all
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
