package cosmosrest

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// What the service adds to the policies of a container, and which policies it refuses because they contradict each
// other.

// etagPath is the path of the ETag in an indexing policy.
const etagPath = `/"_etag"/?`

// indexingDefaults returns the defaults of an indexing policy: all paths except the ETag.
func indexingDefaults(p properties) properties {
	included, excluded := []indexedPath{{rootPath}}, []indexedPath{{etagPath}}
	var policy indexing
	_ = json.Unmarshal(p["indexingPolicy"], &policy) // cannot fail: checked when it was received
	if strings.EqualFold(policy.Mode, "none") {
		included, excluded = []indexedPath{}, []indexedPath{}
	}
	return properties{
		"indexingMode": wire.Encode("consistent"), "automatic": wire.Encode(true),
		"includedPaths": wire.Encode(included), "excludedPaths": wire.Encode(excluded),
	}
}

// excludeETag adds the path of the ETag to the excluded paths, as the service does. If nothing is indexed, nothing is
// excluded.
func (p properties) excludeETag() {
	policy, own := indexing{}, properties{}
	_ = json.Unmarshal(p["indexingPolicy"], &policy) // cannot fail: checked when it was received
	_ = json.Unmarshal(p["indexingPolicy"], &own)
	if strings.EqualFold(policy.Mode, "none") || slices.Contains(slices.Concat(policy.Included, policy.Excluded),
		indexedPath{etagPath}) {
		return
	}
	var excluded []json.RawMessage // paths may have members that are unknown here
	_ = json.Unmarshal(own["excludedPaths"], &excluded)
	own["excludedPaths"] = wire.Encode(append(excluded, wire.Encode(indexedPath{etagPath})))
	p["indexingPolicy"] = wire.Encode(own)
}

// conflictPolicy is the checked part of a conflict resolution policy.
type conflictPolicy struct {
	Mode string `json:"mode"`
}

// conflictDefaults returns the defaults of a conflict resolution policy. A procedure of the client's own needs no path.
// There is only a single region, so conflicts never occur; clients only read the policy.
func conflictDefaults(p properties) properties {
	var policy conflictPolicy
	_ = json.Unmarshal(p["conflictResolutionPolicy"], &policy) // cannot fail: checked when it was received
	path := "/_ts"
	if strings.EqualFold(policy.Mode, "Custom") {
		path = ""
	}
	return properties{
		"mode": wire.Encode("LastWriterWins"), "conflictResolutionPath": wire.Encode(path),
		"conflictResolutionProcedure": wire.Encode(""),
	}
}

// checkAgreement refuses properties that contradict each other.
func (p properties) checkAgreement() error {
	if p["ttlPropertyPath"] != nil && p["defaultTtl"] == nil {
		return wire.BadRequest("ttlPropertyPath is %s and defaultTtl is missing: want both, or no ttlPropertyPath",
			p["ttlPropertyPath"])
	}
	return p.decodeMember("conflictResolutionPolicy", "an object", &conflictPolicy{})
}
