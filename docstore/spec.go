package docstore

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/internal/cosmosdb/epk"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
)

// ContainerSpec describes a container. You can change DefaultTTL, Retention and Meta later with
// [DB.ReplaceContainer]. The other fields are fixed, because they determine how documents are stored.
type ContainerSpec struct {
	ID string

	// Database is the database of the container; empty means [DefaultDatabase].
	Database string `json:",omitempty"`

	// Paths are the partition key paths, such as "/city". Two or three paths make a hierarchical key. Paths must not
	// lead to system properties.
	Paths []string

	// HashVersion is the version of the partition key hash: 2, the default, or 1, which containers of old SDKs have.
	// A hierarchical key always uses version 2.
	HashVersion int

	// DefaultTTL is the time to live of documents, in seconds. Nil turns expiry off. With [NoDefaultTTL], documents
	// expire only if they have a property ttl.
	DefaultTTL *int

	// UniqueKeys are sets of paths. No two documents of a logical partition have the same values at all paths of a
	// set.
	UniqueKeys [][]string

	// Retention is how long all versions and deletes are kept. If Retention is 0, the retention of [DB.SetRetention]
	// counts. If that is not set either, only last versions are kept, and you cannot read the feed of all versions.
	Retention time.Duration

	// Ranges is the number of physical partitions at the beginning. 0 means a single partition; the maximum is 1,000.
	Ranges int

	// Meta is your own data. The store keeps Meta and never reads it. The server stores indexing policies and similar
	// settings there.
	Meta json.RawMessage `json:",omitempty"`
}

// NoDefaultTTL as DefaultTTL turns expiry on only for documents with a property ttl. Use NoDefaultTTL for lease
// containers, so presence records expire and leases do not.
const NoDefaultTTL = -1

const (
	// Names have the service's limits. The number of ranges is limited because each range has a log, a gate and
	// counts in memory.
	maxRanges     = 1000
	maxUniqueKeys = 10
	maxName       = 255
)

// newLayout returns the layout of a new container, without partitions. The layout keeps the parsed paths, because
// every write needs them and parsing costs more than hashing.
func newLayout(spec ContainerSpec) (*layout, error) {
	spec = spec.clone()
	l := &layout{spec: spec, logs: map[uint32]*changelog{}, marked: spec.Retention > 0}
	if err := l.spec.check(); err != nil {
		return nil, err
	}
	var err error
	if l.paths, err = pkey.ParsePaths(spec.Paths); err != nil {
		return nil, err
	}
	for _, set := range spec.UniqueKeys {
		var paths []pkey.Path
		for _, text := range set {
			path, err := pkey.ParsePath(text)
			if err != nil {
				return nil, fmt.Errorf("read unique key: %w", err)
			}
			paths = append(paths, path)
		}
		l.unique = append(l.unique, paths)
	}
	switch {
	case len(spec.Paths) > 1:
		l.kind = epk.MultiHash
	case l.spec.HashVersion == 1:
		l.kind = epk.HashV1
	default:
		l.kind = epk.HashV2
	}
	l.byID = slices.Equal(spec.Paths, []string{"/id"}) || slices.Equal(spec.Paths, []string{"/partitionKey"})
	return l, nil
}

// clone returns a copy that shares no memory. The store keeps a specification, and its caller may reuse the slices.
func (s *ContainerSpec) clone() ContainerSpec {
	c := *s
	c.Paths, c.Meta, c.UniqueKeys = slices.Clone(s.Paths), slices.Clone(s.Meta), slices.Clone(s.UniqueKeys)
	for i, set := range c.UniqueKeys {
		c.UniqueKeys[i] = slices.Clone(set)
	}
	if s.DefaultTTL != nil {
		c.DefaultTTL = new(*s.DefaultTTL)
	}
	return c
}

// check sets the defaults and refuses an invalid specification. The error names the field, the value and the wanted
// values.
func (s *ContainerSpec) check() error {
	s.HashVersion = cmp.Or(s.HashVersion, 2)
	s.Ranges = cmp.Or(s.Ranges, 1)
	s.Database = cmp.Or(s.Database, DefaultDatabase)
	if err := checkName("container id", s.ID); err != nil {
		return err
	}
	if err := checkName("database id", s.Database); err != nil {
		return err
	}
	if slices.ContainsFunc(s.UniqueKeys, func(paths []string) bool { return len(paths) == 0 }) {
		return refuse("unique key has no paths: want at least one, as in /email")
	}
	return s.checkLimits()
}

// checkLimits refuses numbers that are out of range.
func (s *ContainerSpec) checkLimits() error {
	switch {
	case s.HashVersion != 1 && s.HashVersion != 2:
		return refuse("hash version is %d: want 1 or 2", s.HashVersion)
	case s.HashVersion == 1 && len(s.Paths) > 1:
		return refuse("hash version is 1 with %d partition key paths: want 2", len(s.Paths))
	case s.DefaultTTL != nil && (*s.DefaultTTL == 0 || *s.DefaultTTL < NoDefaultTTL || *s.DefaultTTL > maxTTL):
		return refuse("default ttl is %d: want whole seconds from 1 to %d, or -1", *s.DefaultTTL, maxTTL)
	case s.Retention < 0:
		return refuse("retention is %v: want 0 or more", s.Retention)
	case s.Ranges < 0 || s.Ranges > maxRanges:
		return refuse("ranges is %d: want 1 to %d", s.Ranges, maxRanges)
	case len(s.UniqueKeys) > maxUniqueKeys:
		return refuse("container has %d unique keys: want at most %d", len(s.UniqueKeys), maxUniqueKeys)
	}
	return nil
}

// name returns database/id. The name is unique in the store, because ids contain no slash.
func (s *ContainerSpec) name() string { return s.Database + "/" + s.ID }

// shortName returns name without the default database, as for [DB.Container].
func (s *ContainerSpec) shortName() string {
	if s.Database == DefaultDatabase {
		return s.ID
	}
	return s.name()
}

// expiry returns when a version expires, in Unix milliseconds; 0 means never. The version was committed at time and
// has a property ttl in seconds; 0 means no ttl. As in the service, a document's ttl counts only if the container has
// a default.
func (s *ContainerSpec) expiry(time int64, ttl int) int64 {
	switch {
	case s.DefaultTTL == nil || ttl < 0:
		return 0
	case ttl > 0:
		return time + int64(ttl)*1000
	case *s.DefaultTTL > 0:
		return time + int64(*s.DefaultTTL)*1000
	}
	return 0
}

// expired reports whether a version is past its expiry at now.
func (s *ContainerSpec) expired(time int64, ttl int, now int64) bool {
	at := s.expiry(time, ttl)
	return at != 0 && at <= now
}
