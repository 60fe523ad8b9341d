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

// indexingDefaults returns the defaults of an indexing policy: all paths. The ETag is excluded by settlePaths, because
// the client may have included it.
func indexingDefaults(p properties) properties {
	included := defaultIndexing.Included
	var policy indexing
	_ = json.Unmarshal(p["indexingPolicy"], &policy) // cannot fail: checked when it was received
	if strings.EqualFold(policy.Mode, "none") {
		included = []indexedPath{}
	}
	return properties{
		"indexingMode": wire.Encode(defaultIndexing.Mode), "automatic": wire.Encode(true),
		"includedPaths": wire.Encode(included), "excludedPaths": wire.Encode([]indexedPath{}),
	}
}

// settlePaths writes an indexing policy as the service answers it: the mode in lower case, all paths if none is
// included, and the path of the ETag among the excluded paths. If nothing is indexed, the paths stay as they are.
func (p properties) settlePaths() {
	policy, own := indexing{}, properties{}
	_ = json.Unmarshal(p["indexingPolicy"], &policy) // cannot fail: checked when it was received
	_ = json.Unmarshal(p["indexingPolicy"], &own)
	mode := strings.ToLower(policy.Mode)
	own["indexingMode"] = wire.Encode(mode)
	if mode == "none" {
		p["indexingPolicy"] = wire.Encode(own)
		return
	}
	var included, excluded []properties // paths may have members that are unknown here
	_ = json.Unmarshal(own["includedPaths"], &included)
	_ = json.Unmarshal(own["excludedPaths"], &excluded)
	if len(included) == 0 && !slices.Contains(policy.Excluded, indexedPath{rootPath}) &&
		!slices.Contains(policy.Excluded, indexedPath{oldRootPath}) {
		included = []properties{{"path": wire.Encode(rootPath)}}
	}
	if !slices.Contains(slices.Concat(policy.Included, policy.Excluded), indexedPath{etagPath}) {
		excluded = append(excluded, properties{"path": wire.Encode(etagPath)})
	}
	own["includedPaths"], own["excludedPaths"] = wire.Encode(append([]properties{}, included...)), wire.Encode(excluded)
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
	return p.checkChoices()
}

// checkChoices refuses values in policies of which the service knows only a few.
func (p properties) checkChoices() error {
	var conflicts conflictPolicy
	if err := p.decodeMember("conflictResolutionPolicy", "an object", &conflicts); err != nil {
		return err
	}
	var space struct {
		Type string `json:"type"`
	}
	if err := p.decodeMember("geospatialConfig", "an object", &space); err != nil {
		return err
	}
	switch strings.ToLower(conflicts.Mode) {
	case "", "lastwriterwins", "custom":
	default:
		return wire.BadRequest("conflictResolutionPolicy.mode is %.100q: want LastWriterWins or Custom", conflicts.Mode)
	}
	switch strings.ToLower(space.Type) {
	case "", "geography", "geometry":
	default:
		return wire.BadRequest("geospatialConfig.type is %.100q: want Geography or Geometry", space.Type)
	}
	return nil
}
