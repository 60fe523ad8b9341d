package cosmosrest

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
)

// The properties of a container: their meaning for the store, the checks of the service,
// and the defaults that it fills in.

// partitionKey is the definition of a container's partition key.
type partitionKey struct {
	Paths     []string `json:"paths"`
	Kind      string   `json:"kind,omitempty"`
	Version   int      `json:"version,omitempty"`
	SystemKey bool     `json:"systemKey,omitempty"`
}

const (
	kindHash   = "Hash"
	kindMulti  = "MultiHash"
	systemPath = "/_partitionKey"                    // of a container that was made without a partition key
	maxLevels  = 3                                   // of a hierarchical partition key
	maxRetain  = 10 * 365 * 24 * 60                  // minutes
	wantKey    = `{"paths":["/pk"],"kind":"Hash"}`   // for messages
	wantUnique = `{"uniqueKeys":[{"paths":["/a"]}]}` // for messages
)

// checkSpec checks a container's properties, and returns those that the store acts on. On a
// lenient server a container may lack a partition key; it gets the one that the service
// gives to such containers.
func (p properties) checkSpec(lenient bool) (s docstore.ContainerSpec, err error) {
	if s.ID, err = p.id(); err != nil {
		return s, err
	}
	if p["partitionKey"] == nil && lenient {
		p["partitionKey"] = wire.Encode(partitionKey{Paths: []string{systemPath}, Kind: kindHash, Version: 2, SystemKey: true})
	}
	p.numberVersion()
	if s.Paths, s.HashVersion, err = p.partitionKey(); err != nil {
		return s, err
	}
	if s.DefaultTTL, err = p.defaultTTL(); err != nil {
		return s, err
	}
	if s.Retention, err = p.retention(); err != nil {
		return s, err
	}
	if s.UniqueKeys, err = p.uniqueKeys(); err != nil {
		return s, err
	}
	if err = p.checkIndexing(); err != nil {
		return s, err
	}
	return s, p.checkObjects("conflictResolutionPolicy", "geospatialConfig")
}

// versionNumbers are the versions of a partition key as the Java SDK sends them.
var versionNumbers = map[string]string{`"V1"`: "1", `"V2"`: "2"}

// numberVersion turns the version of the partition key into the number that all SDKs read.
func (p properties) numberVersion() {
	var key properties
	if json.Unmarshal(p["partitionKey"], &key) != nil {
		return // partitionKey says what is wrong
	}
	if number := versionNumbers[string(key["version"])]; number != "" {
		key["version"] = json.RawMessage(number)
		p["partitionKey"] = wire.Encode(key)
	}
}

// partitionKey reads the definition of the partition key. Without a version keys are hashed
// as in version 1, as the service does for old clients; hierarchical keys have version 2
// only.
func (p properties) partitionKey() (paths []string, hashVersion int, err error) {
	var key partitionKey
	if p["partitionKey"] == nil {
		return nil, 0, wire.BadRequest("partitionKey is missing: want one such as %s", wantKey)
	}
	if err := p.decodeMember("partitionKey", wantKey, &key); err != nil {
		return nil, 0, err
	}
	n := len(key.Paths)
	// Without a kind, several paths can only be a hierarchical key.
	multi := strings.EqualFold(key.Kind, kindMulti) || key.Kind == "" && n > 1
	switch {
	case n == 0 || n > maxLevels:
		err = wire.BadRequest("partitionKey.paths has %d paths: want 1 to %d", n, maxLevels)
	case !multi && key.Kind != "" && !strings.EqualFold(key.Kind, kindHash):
		err = wire.BadRequest("partitionKey.kind is %q: want Hash or MultiHash", key.Kind)
	case !multi && n > 1:
		err = wire.BadRequest("partitionKey.kind is Hash with %d paths: want one path, or MultiHash", n)
	case key.Version < 0 || key.Version > 2:
		err = wire.BadRequest("partitionKey.version is %d: want 1 or 2", key.Version)
	case multi && key.Version == 1:
		err = wire.BadRequest("partitionKey.version is 1 with the kind MultiHash: want 2")
	case multi:
		return key.Paths, 2, nil
	}
	return key.Paths, max(key.Version, 1), err
}

// defaultTTL is the default time to live in seconds; nil for none.
func (p properties) defaultTTL() (seconds *int, err error) {
	return seconds, p.decodeMember("defaultTtl", "whole seconds above 0, or -1", &seconds)
}

// feedPolicy is a change feed policy.
type feedPolicy struct {
	Minutes int64 `json:"retentionDuration"`
}

// retention is for how long the change feed policy keeps all versions and deletes.
func (p properties) retention() (time.Duration, error) {
	var policy feedPolicy
	if err := p.decodeMember("changeFeedPolicy", `whole minutes, as in {"retentionDuration":10}`, &policy); err != nil {
		return 0, err
	}
	if policy.Minutes < 0 || policy.Minutes > maxRetain {
		return 0, wire.BadRequest("changeFeedPolicy.retentionDuration is %d: want 0 to %d minutes", policy.Minutes, maxRetain)
	}
	return time.Duration(policy.Minutes) * time.Minute, nil
}

// uniquePolicy is a unique key policy.
type uniquePolicy struct {
	Keys []uniqueKey `json:"uniqueKeys"`
}

// uniqueKey is a set of paths whose values together must differ in a logical partition.
type uniqueKey struct {
	Paths []string `json:"paths"`
}

// uniqueKeys are the sets of paths of the unique key policy.
func (p properties) uniqueKeys() (sets [][]string, err error) {
	var policy uniquePolicy
	if err := p.decodeMember("uniqueKeyPolicy", wantUnique, &policy); err != nil {
		return nil, err
	}
	for _, key := range policy.Keys {
		sets = append(sets, key.Paths)
	}
	return sets, nil
}

// indexing is the part of an indexing policy that is checked. The server has no indexes to
// choose, so a policy changes nothing else.
type indexing struct {
	Mode     string        `json:"indexingMode"`
	Included []indexedPath `json:"includedPaths"`
	Excluded []indexedPath `json:"excludedPaths"`
}

// indexedPath is a path that is indexed, or is not.
type indexedPath struct {
	Path string `json:"path"`
}

// Paths that stand for everything.
const (
	rootPath    = "/*"
	oldRootPath = "/" // as it was written in the beginning, which the service still takes
)

// checkIndexing refuses an indexing policy that the service would refuse.
func (p properties) checkIndexing() error {
	var policy indexing
	if err := p.decodeMember("indexingPolicy", `an object such as {"indexingMode":"consistent","automatic":true}`, &policy); err != nil {
		return err
	}
	all := slices.Concat(policy.Included, policy.Excluded)
	for _, path := range all {
		if !strings.HasPrefix(path.Path, "/") {
			return wire.BadRequest("indexingPolicy has the path %q: want one that begins with /", path.Path)
		}
	}
	switch mode := strings.ToLower(policy.Mode); {
	case !slices.Contains([]string{"", "consistent", "lazy", "none"}, mode):
		return wire.BadRequest("indexingPolicy.indexingMode is %q: want consistent or none", policy.Mode)
	case mode != "none" && len(policy.Included) > 0 && !slices.Contains(all, indexedPath{rootPath}) && !slices.Contains(all, indexedPath{oldRootPath}):
		return wire.BadRequest("indexingPolicy has no path %s: want it among includedPaths or excludedPaths", rootPath)
	}
	return nil
}

// checkObjects refuses members that are there and are no objects.
func (p properties) checkObjects(names ...string) error {
	for _, name := range names {
		if err := p.decodeMember(name, "an object", &properties{}); err != nil {
			return err
		}
	}
	return nil
}

// unchanged refuses properties that would move documents or forbid existing ones. A unique
// key policy that the client leaves out counts as changed, as in the service.
func unchanged(old, next docstore.ContainerSpec, p properties) error {
	switch {
	case next.ID != old.ID:
		return wire.BadRequest("id is %q: want %q, it cannot be changed", next.ID, old.ID)
	case !slices.Equal(next.Paths, old.Paths) || next.HashVersion != old.HashVersion:
		return wire.BadRequest("partitionKey is %s: want paths %q and version %d, it cannot be changed", p["partitionKey"], old.Paths, old.HashVersion)
	case !slices.EqualFunc(next.UniqueKeys, old.UniqueKeys, slices.Equal):
		return wire.Errorf(http.StatusForbidden, 0, wire.CodeForbidden, "The unique index cannot be modified. To change the unique index, remove the collection and re-create a new one. "+
			"uniqueKeyPolicy is %s: want %s", cmp.Or(string(p["uniqueKeyPolicy"]), "missing"), uniquePolicyOf(old))
	}
	return nil
}

// describe is a container's specification as clients see it, with all else that they said
// of it.
func describe(s docstore.ContainerSpec, said properties) properties {
	p := properties{}
	maps.Copy(p, said)
	if p["partitionKey"] == nil {
		p["partitionKey"] = wire.Encode(partitionKey{Paths: s.Paths, Version: s.HashVersion})
	}
	p.complete("partitionKey", keyDefaults(s))
	delete(p, "defaultTtl")
	if s.DefaultTTL != nil {
		p["defaultTtl"] = wire.Encode(*s.DefaultTTL)
	}
	if said, err := p.retention(); err != nil || said != s.Retention {
		p["changeFeedPolicy"] = wire.Encode(feedPolicy{int64(s.Retention.Minutes())})
	}
	if p["uniqueKeyPolicy"] == nil && len(s.UniqueKeys) > 0 {
		p["uniqueKeyPolicy"] = uniquePolicyOf(s)
	}
	p.complete("indexingPolicy", indexingDefaults(p))
	p.complete("conflictResolutionPolicy", conflictDefaults)
	p.complete("geospatialConfig", properties{"type": wire.Encode("Geography")})
	return p
}

// complete adds the defaults that a member lacks. The member is an object if it is there.
func (p properties) complete(name string, defaults properties) {
	own := properties{}
	_ = json.Unmarshal(p[name], &own) // was checked when it came
	all := maps.Clone(defaults)
	maps.Copy(all, own)
	p[name] = wire.Encode(all)
}

// keyDefaults are those of a partition key.
func keyDefaults(s docstore.ContainerSpec) properties {
	if len(s.Paths) == 1 {
		return properties{"kind": wire.Encode(kindHash)}
	}
	return properties{"kind": wire.Encode(kindMulti), "version": wire.Encode(s.HashVersion)}
}

// indexingDefaults are those of an indexing policy: everything but the ETag.
func indexingDefaults(p properties) properties {
	included, excluded := []indexedPath{{rootPath}}, []indexedPath{{`/"_etag"/?`}}
	var policy indexing
	_ = json.Unmarshal(p["indexingPolicy"], &policy) // was checked when it came
	if strings.EqualFold(policy.Mode, "none") {
		included, excluded = []indexedPath{}, []indexedPath{}
	}
	return properties{
		"indexingMode": wire.Encode("consistent"), "automatic": wire.Encode(true),
		"includedPaths": wire.Encode(included), "excludedPaths": wire.Encode(excluded),
	}
}

// conflictDefaults are those of a conflict resolution policy. There is one region, so
// nothing conflicts; clients only read them.
var conflictDefaults = properties{
	"mode": wire.Encode("LastWriterWins"), "conflictResolutionPath": wire.Encode("/_ts"), "conflictResolutionProcedure": wire.Encode(""),
}

// uniquePolicyOf is the unique key policy of a specification.
func uniquePolicyOf(s docstore.ContainerSpec) json.RawMessage {
	policy := uniquePolicy{Keys: []uniqueKey{}}
	for _, set := range s.UniqueKeys {
		policy.Keys = append(policy.Keys, uniqueKey{set})
	}
	return wire.Encode(policy)
}
