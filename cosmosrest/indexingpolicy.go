package cosmosrest

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
)

// etagPath is the path of the ETag in an indexing policy.
const etagPath = `/"_etag"/?`

// indexingPolicy is an indexing policy as clients read it: with the defaults of the service, and with members that are
// unknown here.
type indexingPolicy struct {
	members            properties // the three below are added when the policy is encoded
	mode               string     // in lower case
	included, excluded []properties
}

// settledIndexing adds to a policy, or to none, what the service adds: the mode, all paths if none is included, and the
// path of the ETag among the excluded paths. If nothing is indexed, the paths stay as they are.
func settledIndexing(said json.RawMessage) *indexingPolicy {
	policy, own := indexing{Mode: defaultIndexing.Mode}, properties{"automatic": wire.Encode(true)}
	_ = json.Unmarshal(said, &policy) // cannot fail: checked when it was received
	_ = json.Unmarshal(said, &own)
	settled := &indexingPolicy{members: own, mode: strings.ToLower(policy.Mode)}
	_ = json.Unmarshal(own["includedPaths"], &settled.included)
	_ = json.Unmarshal(own["excludedPaths"], &settled.excluded)
	if settled.mode == "none" {
		return settled
	}
	if len(policy.Included) == 0 && !slices.Contains(policy.Excluded, indexedPath{rootPath}) &&
		!slices.Contains(policy.Excluded, indexedPath{oldRootPath}) {
		settled.included = []properties{{"path": wire.Encode(rootPath)}}
	}
	if !slices.Contains(slices.Concat(policy.Included, policy.Excluded), indexedPath{etagPath}) {
		settled.excluded = append(settled.excluded, properties{"path": wire.Encode(etagPath)})
	}
	return settled
}

// encode returns the policy in the form of a version of the protocol: with or without kinds of indexes.
func (i *indexingPolicy) encode(version string) json.RawMessage {
	for _, path := range i.included {
		if wire.HasIndexKinds(version) {
			path["indexes"] = wire.Encode(oldIndexes(path["indexes"]))
		} else {
			delete(path, "indexes")
		}
	}
	i.members["indexingMode"] = wire.Encode(i.mode)
	i.members["includedPaths"] = wire.Encode(append([]properties{}, i.included...)) // [] if there is none
	i.members["excludedPaths"] = wire.Encode(append([]properties{}, i.excluded...))
	return wire.Encode(i.members)
}

// defaultIndexing is the indexing policy of a container whose client sent none.
var defaultIndexing = indexing{"consistent", []indexedPath{{rootPath}}, []indexedPath{{etagPath}}}

// indexingOf returns the indexing policy of a container, with the defaults. Most containers have no other, so their
// policies are not read.
func indexingOf(cont *docstore.Container) (policy indexing) {
	raw := cont.Spec().Meta
	if !bytes.Contains(raw, []byte(`"indexingPolicy"`)) {
		return defaultIndexing
	}
	settled := settledIndexing(readMeta(raw).Body["indexingPolicy"]).encode("")
	_ = json.Unmarshal(settled, &policy) // cannot fail: checked when it was received
	return policy
}
