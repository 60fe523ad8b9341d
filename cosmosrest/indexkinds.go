package cosmosrest

import (
	"encoding/json"
	"slices"
	"strings"
)

// Kinds of indexes in an indexing policy. Until 2018 each path had them. Later versions of the protocol leave them out,
// although clients may still send them.

// pathIndex is an index of a path, in an old policy.
type pathIndex struct {
	Kind      string `json:"kind"`
	DataType  string `json:"dataType"`
	Precision *int   `json:"precision,omitempty"`
}

// precisions are the precisions of indexes that name none.
var precisions = map[string]int{"range": -1, "hash": 3}

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
