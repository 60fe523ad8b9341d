package cosmosrest

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// The form of an indexing policy in replies. Until 2018 each path had kinds of indexes. Later versions of the protocol
// leave the kinds out, although clients may still send them.

// pathIndex is an index of a path, in an old policy.
type pathIndex struct {
	Kind      string `json:"kind"`
	DataType  string `json:"dataType"`
	Precision *int   `json:"precision,omitempty"`
}

// precisions are the precisions of indexes that name none.
var precisions = map[string]int{"range": -1, "hash": 3}

// shapeIndexing gives the indexing policy the form of a version of the protocol. In every version the mode is in lower
// case, and a policy that names no path at all includes all paths.
func (p properties) shapeIndexing(version string) {
	policy, own := indexing{}, properties{}
	_ = json.Unmarshal(p["indexingPolicy"], &policy) // cannot fail: checked when it was received
	_ = json.Unmarshal(p["indexingPolicy"], &own)
	if policy.Mode != "" {
		own["indexingMode"] = wire.Encode(strings.ToLower(policy.Mode))
	}
	isRoot := func(path indexedPath) bool { return path.Path == rootPath || path.Path == oldRootPath }
	var included []properties
	_ = json.Unmarshal(own["includedPaths"], &included)
	if len(included) == 0 && !strings.EqualFold(policy.Mode, "none") && !slices.ContainsFunc(policy.Excluded, isRoot) {
		included = []properties{{"path": wire.Encode(rootPath)}}
	}
	for _, path := range included {
		if wire.HasIndexKinds(version) {
			path["indexes"] = wire.Encode(oldIndexes(path["indexes"]))
		} else {
			delete(path, "indexes")
		}
	}
	if included != nil {
		own["includedPaths"] = wire.Encode(included)
	}
	p["indexingPolicy"] = wire.Encode(own)
}

// oldIndexes returns the indexes of a path with those that old versions of the service add: numbers and texts always
// have one.
func oldIndexes(said json.RawMessage) (all []pathIndex) {
	if json.Unmarshal(said, &all) != nil {
		all = nil // without effect on documents, so another shape counts as missing
	}
	for _, dataType := range []string{"String", "Number"} {
		if !slices.ContainsFunc(all, func(i pathIndex) bool { return strings.EqualFold(i.DataType, dataType) }) {
			all = append(all, pathIndex{Kind: "Range", DataType: dataType})
		}
	}
	for i := range all {
		if n, ok := precisions[strings.ToLower(all[i].Kind)]; ok && all[i].Precision == nil {
			all[i].Precision = &n
		}
	}
	return all
}
