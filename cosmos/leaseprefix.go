package cosmos

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// The prefix of the ids of a unit's documents contains the host of the account. On this machine a host has several
// names, so a unit may have been made under another one.

// findOtherNames searches for records of the unit under other names of this machine and under the names of Java's older
// processor. findOtherNames searches once, so that a listing reads a single range of ids.
func (s *Leases) findOtherNames(ctx context.Context) error {
	prefixes := s.unit.Searched()
	if own := s.unit.Prefixes(); len(own) == 1 {
		prefixes = prefixes[1:] // List sees the present records
	}
	found := map[string][]byte{}
	err := unthrottled(ctx, func() error {
		_, err := s.queryPrefixes(ctx, prefixes, func(it item) { found[rawjson.Text(it.id)] = slices.Clone(it.body) })
		return err
	})
	if err != nil {
		return err
	}
	ids := slices.Sorted(maps.Keys(found))
	s.prefix.Learn(ids...)
	var strange []feed.Record
	for _, id := range ids {
		if record, ok := s.unit.Record(s.Prefix(), id, found[id]); ok && !s.isOwn(id) {
			strange = append(strange, record)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strange = strange
	return nil
}

// databaseRID returns the database's part of a container's resource id, its first 4
// bytes.
func databaseRID(rid string) (string, error) {
	b, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(rid, "-", "/"))
	if err != nil || len(b) < 4 {
		return "", fmt.Errorf("resource id of the monitored container is %q: want base64 of 4 bytes or more", rid)
	}
	return strings.ReplaceAll(base64.StdEncoding.EncodeToString(b[:4]), "/", "-"), nil
}

// Prefix returns the common prefix of the ids of the unit's documents: the prefix of a .NET processor with this name
// and account. If a unit was made under another name of this machine, such as localhost for 127.0.0.1, the unit keeps
// this prefix, because a second prefix would make a second unit. As long as a unit has no leases, its prefix may
// change.
func (s *Leases) Prefix() string { return s.prefix.String() }

// Searched returns the prefixes that [OpenLeases] searches for: the prefixes of other names of this machine, and of
// Java's older processor. If records have another prefix than [Leases.Prefix], they are listed with Err set.
func (s *Leases) Searched() []string { return s.unit.Searched() }
