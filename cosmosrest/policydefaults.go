package cosmosrest

import (
	"encoding/json"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// What the service adds to the policies of a container, and which policies it refuses because they contradict each
// other.

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
