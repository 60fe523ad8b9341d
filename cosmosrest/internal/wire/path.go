package wire

import (
	"net/url"
	"strings"
)

// Paths. Kinds and ids alternate, so a path with an odd number of segments names a set of
// resources.

// Target is the resource that a path names: /dbs/d/colls/c/docs/i. Resources are named by
// their ids or by resource ids; which of the two it is must be found out by looking.
type Target struct {
	Kind string // type of the resource: dbs, colls, docs, ...; empty is the account
	Feed bool   // the set of them
	DB   string
	Coll string
	ID   string // of the resource itself, if it is none of the two
	Link string // what a signature covers
}

// ParsePath reads an escaped path. It tolerates a slash at the end, as the service does.
// Segments are unescaped after the path was split, because an id may contain an escaped
// slash.
func ParsePath(escaped string) (Target, error) {
	path := strings.Trim(escaped, "/")
	if path == "" {
		return Target{}, nil
	}
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if strings.IndexByte(p, '%') < 0 {
			continue
		}
		plain, err := url.PathUnescape(p)
		if err != nil {
			return Target{}, BadRequest("segment %d of the path is %q: want percent-encoded UTF-8", i+1, p)
		}
		parts[i] = plain
	}
	last := len(parts) - 1
	t := Target{Feed: len(parts)%2 == 1}
	if t.Feed {
		// A signature covers the kind of a set and the link of its owner.
		t.Kind, t.Link = parts[last], strings.Join(parts[:last], "/")
	} else {
		t.Kind, t.Link = parts[last-1], strings.Join(parts, "/")
	}
	for i := 0; i+1 < len(parts); i += 2 {
		switch parts[i] {
		case "dbs":
			t.DB = parts[i+1]
		case "colls":
			t.Coll = parts[i+1]
		default:
			t.ID = parts[i+1]
		}
	}
	if !known(parts) {
		return Target{}, NotFound(0, "the path %q names no resource of this server", escaped)
	}
	return t, nil
}

// known reports whether a path leads somewhere.
func known(parts []string) bool {
	var kinds [3]string
	if len(parts) > 2*len(kinds) {
		return false
	}
	for i := 0; i < len(parts); i += 2 {
		kinds[i/2] = parts[i]
	}
	return knownKinds[kinds]
}

// knownKinds are the kinds of resources in a path, in order.
var knownKinds = map[[3]string]bool{
	{"dbs"}:                        true,
	{"dbs", "colls"}:               true,
	{"dbs", "colls", "docs"}:       true,
	{"dbs", "colls", "pkranges"}:   true,
	{"dbs", "colls", "partitions"}: true, // where tests ask for splits and merges
	{"offers"}:                     true,
	{"backup"}:                     true, // for administrators
	{"check"}:                      true,

	// These exist in the service; operation.go says that they do not here.
	{"dbs", "users"}:                true,
	{"dbs", "users", "permissions"}: true,
	{"dbs", "clientencryptionkeys"}: true,
	{"dbs", "colls", "sprocs"}:      true,
	{"dbs", "colls", "triggers"}:    true,
	{"dbs", "colls", "udfs"}:        true,
	{"dbs", "colls", "conflicts"}:   true,
}
