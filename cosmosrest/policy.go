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

// The properties of a container: their effect in the store, the service's checks, and the defaults.

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
	systemPath = "/_partitionKey"                    // of a container that was created without a partition key
	maxLevels  = 3                                   // of a hierarchical partition key
	maxRetain  = 10 * 365 * 24 * 60                  // minutes
	wantKey    = `{"paths":["/pk"],"kind":"Hash"}`   // for messages
	wantUnique = `{"uniqueKeys":[{"paths":["/a"]}]}` // for messages
)

// checkSpec checks a container's properties, and returns those affecting the store. On a lenient server the partition
// key may be missing; the container then gets the key given by the service to such containers.
func (p properties) checkSpec(lenient bool) (s docstore.ContainerSpec, err error) {
	if s.ID, err = p.id(); err != nil {
		return s, err
	}
	if p["partitionKey"] == nil && lenient {
		p["partitionKey"] = wire.Encode(partitionKey{
			Paths: []string{systemPath}, Kind: kindHash, Version: 2,
			SystemKey: true,
		})
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
	if !lenient {
		if err = p.checkSearch(); err != nil {
			return s, err
		}
	}
	if err = p.checkAgreement(); err != nil {
		return s, err
	}
	_, err = p.computed()
	return s, err
}

// isKeyless reports whether a container has the key that is given to containers made without one.
func isKeyless(cont *docstore.Container) bool {
	return slices.Equal(cont.Spec().Paths, []string{systemPath})
}

// versionNumbers maps the Java SDK's spelling of partition key versions to numbers.
var versionNumbers = map[string]string{`"V1"`: "1", `"V2"`: "2"}

// numberVersion replaces the version of the partition key by the number, which all SDKs can read.
func (p properties) numberVersion() {
	var key properties
	if json.Unmarshal(p["partitionKey"], &key) != nil {
		return // partitionKey reports the error
	}
	if number := versionNumbers[string(key["version"])]; number != "" {
		key["version"] = json.RawMessage(number)
		p["partitionKey"] = wire.Encode(key)
	}
}

// noKeyYet is what the service says of a container without a partition key in a database with a throughput. It says
// the same of other databases here.
const noKeyYet = "Shared throughput collection should have a partition key"

// partitionKey parses the definition of the partition key. Without a version, keys are hashed by version 1, as in the
// service for old clients. Hierarchical keys have only version 2.
func (p properties) partitionKey() (paths []string, hashVersion int, err error) {
	var key partitionKey
	if p["partitionKey"] == nil {
		return nil, 0, wire.BadRequest(noKeyYet+". partitionKey is missing: want one such as %s", wantKey)
	}
	if err := p.decodeMember("partitionKey", wantKey, &key); err != nil {
		return nil, 0, err
	}
	n := len(key.Paths)
	// If the kind is missing and there are several paths, the key must be hierarchical.
	multi := strings.EqualFold(key.Kind, kindMulti) || key.Kind == "" && n > 1
	switch {
	case n > maxLevels:
		err = wire.BadRequest("Too many partition key paths. partitionKey.paths has %d paths: want 1 to %d", n, maxLevels)
	case n == 0:
		err = wire.BadRequest("partitionKey.paths has 0 paths: want 1 to %d", maxLevels)
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

// defaultTTL returns the default time to live in seconds, or nil.
func (p properties) defaultTTL() (seconds *int, err error) {
	return seconds, p.decodeMember("defaultTtl", "whole seconds above 0, or -1", &seconds)
}

// feedPolicy is a change feed policy.
type feedPolicy struct {
	Minutes int64 `json:"retentionDuration"`
}

// retention returns how long all versions and deletes are kept, according to the change feed policy.
func (p properties) retention() (time.Duration, error) {
	var policy feedPolicy
	if err := p.decodeMember("changeFeedPolicy", `whole minutes, as in {"retentionDuration":10}`, &policy); err != nil {
		return 0, err
	}
	if policy.Minutes < 0 || policy.Minutes > maxRetain {
		return 0, wire.BadRequest("changeFeedPolicy.retentionDuration is %d: want 0 to %d minutes", policy.Minutes,
			maxRetain)
	}
	return time.Duration(policy.Minutes) * time.Minute, nil
}

// uniquePolicy is a unique key policy.
type uniquePolicy struct {
	Keys []uniqueKey `json:"uniqueKeys"`
}

// uniqueKey is a set of paths. In a logical partition, no two items may have the same values at all of them.
type uniqueKey struct {
	Paths []string `json:"paths"`
}

// uniqueKeys returns the sets of paths of the unique key policy.
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

// indexing is the checked part of an indexing policy. The server has no indexes for a policy to change, so a policy has
// no other effect.
type indexing struct {
	Mode     string        `json:"indexingMode"`
	Included []indexedPath `json:"includedPaths"`
	Excluded []indexedPath `json:"excludedPaths"`
}

// indexedPath is an included or excluded path.
type indexedPath struct {
	Path string `json:"path"`
}

// lazyMode is the mode of old containers whose index was built later. New containers cannot have it (newcontainer.go).
const lazyMode = "lazy"

// Paths meaning all paths.
const (
	rootPath    = "/*"
	oldRootPath = "/" // an old spelling, which the service still accepts
)

// checkIndexing refuses an indexing policy that the service would refuse.
func (p properties) checkIndexing() error {
	var policy indexing
	if err := p.decodeMember("indexingPolicy", `an object such as {"indexingMode":"consistent","automatic":true}`,
		&policy); err != nil {
		return err
	}
	all := slices.Concat(policy.Included, policy.Excluded)
	for _, path := range all {
		if !strings.HasPrefix(path.Path, "/") {
			return wire.BadRequest("indexingPolicy has the path %q: want one that begins with /", path.Path)
		}
	}
	switch mode := strings.ToLower(policy.Mode); {
	case !slices.Contains([]string{"", "consistent", lazyMode, "none"}, mode):
		return wire.BadRequest("indexingPolicy.indexingMode is %q: want consistent or none", policy.Mode)
	case mode != "none" && len(policy.Included) > 0 && !slices.Contains(all, indexedPath{rootPath}) &&
		!slices.Contains(all, indexedPath{oldRootPath}):
		return wire.BadRequest("indexingPolicy has no path %s: want it among includedPaths or excludedPaths", rootPath)
	}
	return nil
}

// unchanged refuses properties that would move documents or make existing documents invalid. As in the service, a
// missing unique key policy counts as a change.
func unchanged(old, next docstore.ContainerSpec, p properties) error {
	switch {
	case next.ID != old.ID:
		return wire.BadRequest("id is %q: want %q, it cannot be changed", next.ID, old.ID)
	case !slices.Equal(next.Paths, old.Paths) || next.HashVersion != old.HashVersion:
		return wire.BadRequest("partitionKey is %s: want paths %q and version %d, it cannot be changed",
			p["partitionKey"], old.Paths, old.HashVersion)
	case !slices.EqualFunc(next.UniqueKeys, old.UniqueKeys, slices.Equal):
		return wire.Errorf(http.StatusForbidden, 0, wire.CodeForbidden,
			"The unique index cannot be modified. To change the unique index, remove the collection and re-create a "+
				"new one. "+
				"uniqueKeyPolicy is %s: want %s", cmp.Or(string(p["uniqueKeyPolicy"]), "missing"), uniquePolicyOf(old))
	}
	return nil
}

// describe returns a container as clients of a version of the protocol see it: its specification, and other properties
// that the client sent.
func describe(s docstore.ContainerSpec, said properties, protocol string) properties {
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
	p["indexingPolicy"] = settledIndexing(p["indexingPolicy"]).encode(protocol)
	p.complete("conflictResolutionPolicy", conflictDefaults(p))
	p.complete("geospatialConfig", properties{"type": wire.Encode("Geography")})
	return p
}

// complete adds missing defaults to a member. A present member must be an object.
func (p properties) complete(name string, defaults properties) {
	own := properties{}
	_ = json.Unmarshal(p[name], &own) // cannot fail: checked when it was received
	all := maps.Clone(defaults)
	maps.Copy(all, own)
	p[name] = wire.Encode(all)
}

// keyDefaults returns the defaults of a partition key.
func keyDefaults(s docstore.ContainerSpec) properties {
	if len(s.Paths) == 1 {
		return properties{"kind": wire.Encode(kindHash)}
	}
	return properties{"kind": wire.Encode(kindMulti), "version": wire.Encode(s.HashVersion)}
}

// uniquePolicyOf returns the unique key policy of a specification.
func uniquePolicyOf(s docstore.ContainerSpec) json.RawMessage {
	policy := uniquePolicy{Keys: []uniqueKey{}}
	for _, set := range s.UniqueKeys {
		policy.Keys = append(policy.Keys, uniqueKey{set})
	}
	return wire.Encode(policy)
}
