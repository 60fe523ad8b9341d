package docstore

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/internal/epk"
)

// ContainerSpec says what a container is like. Only TTL, Retention and Meta can be
// changed later, with [DB.ReplaceContainer].
type ContainerSpec struct {
	ID string

	// Database is where it belongs; empty is [DefaultDatabase].
	Database string `json:",omitempty"`

	// Paths are the partition key paths, as in "/city"; up to three make a hierarchical
	// key.
	Paths []string

	// HashVersion is how keys are hashed: 2, the default, or 1. A hierarchical key has 2.
	HashVersion int

	// DefaultTTL is the time to live of documents, in seconds. Nil turns expiry off,
	// [NoDefaultTTL] leaves it to the documents' own property ttl.
	DefaultTTL *int

	// UniqueKeys are sets of paths whose values no two documents of one logical
	// partition share.
	UniqueKeys [][]string

	// Retention is how long all versions and deletes are kept; 0 is what
	// [DB.SetRetention] says and, if that says nothing, the last version only: then the
	// feed of all versions cannot be read.
	Retention time.Duration

	// Ranges is the number of physical partitions to begin with; 0 is one.
	Ranges int

	// Meta is the caller's own; the store keeps it and does not read it.
	Meta json.RawMessage `json:",omitempty"`
}

// NoDefaultTTL is the DefaultTTL of a container in which documents expire by their own
// property ttl only.
const NoDefaultTTL = -1

const (
	maxRanges     = 1000
	maxUniqueKeys = 10
	maxName       = 255
)

// newLayout checks a specification and reads its paths.
func newLayout(s ContainerSpec) (*layout, error) {
	l := &layout{spec: s, logs: map[uint32]*changelog{}, marked: s.Retention > 0}
	if err := l.spec.check(); err != nil {
		return nil, err
	}
	var err error
	if l.paths, err = parseKeyPaths(s.Paths); err != nil {
		return nil, err
	}
	for _, set := range s.UniqueKeys {
		var paths []keyPath
		for _, text := range set {
			p, err := parseKeyPath(text)
			if err != nil {
				return nil, fmt.Errorf("read unique key: %w", err)
			}
			paths = append(paths, p)
		}
		l.unique = append(l.unique, paths)
	}
	switch {
	case len(s.Paths) > 1:
		l.kind = epk.MultiHash
	case l.spec.HashVersion == 1:
		l.kind = epk.HashV1
	default:
		l.kind = epk.HashV2
	}
	l.byID = slices.Equal(s.Paths, []string{"/id"}) || slices.Equal(s.Paths, []string{"/partitionKey"})
	return l, nil
}

// check refuses what no container can be, and fills in the defaults.
func (s *ContainerSpec) check() error {
	if s.HashVersion == 0 {
		s.HashVersion = 2
	}
	if s.Ranges == 0 {
		s.Ranges = 1
	}
	if s.Database == "" {
		s.Database = DefaultDatabase
	}
	if err := checkName("container id", s.ID); err != nil {
		return err
	}
	if err := checkName("database id", s.Database); err != nil {
		return err
	}
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
	for _, set := range s.UniqueKeys {
		if len(set) == 0 {
			return refuse("unique key has no paths: want at least one, as in /email")
		}
	}
	return nil
}

// name is the container's name within the store.
func (s *ContainerSpec) name() string { return s.Database + "/" + s.ID }

// shortName is name without the default database.
func (s *ContainerSpec) shortName() string {
	if s.Database == DefaultDatabase {
		return s.ID
	}
	return s.name()
}

// expiry is when a version with this commit time and ttl of its own expires, in Unix
// milliseconds; 0 is never.
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

// expired tells a version whose time is up.
func (s *ContainerSpec) expired(time int64, ttl int, now int64) bool {
	at := s.expiry(time, ttl)
	return at != 0 && at <= now
}
