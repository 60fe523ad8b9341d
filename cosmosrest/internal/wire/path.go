package wire

import (
	"net/url"
	"slices"
	"strings"
)

// Paths. Kinds and ids alternate, so a path with an odd number of segments names a set of resources.

// Target is the resource that a path names: /dbs/d/colls/c/docs/i. A path contains either ids or resource ids; only a
// lookup shows which.
type Target struct {
	Kind string // type of the resource: dbs, colls, docs, ...; empty means the account
	Feed bool   // the path names the set of resources
	DB   string
	Coll string
	User string // id of a user, also if the resource is one of the user's permissions
	ID   string // id of a resource other than a database, container or user
	Link string // the text that a signature covers
}

// ParsePath parses an escaped path. Like the service, ParsePath accepts a slash at the end. The segments are
// unescaped after the split, because an id may contain an escaped slash.
func ParsePath(escaped string) (Target, error) {
	path := strings.Trim(escaped, "/")
	if path == "" {
		return Target{}, nil
	}
	var room [2 * deepest]string
	parts := room[:0]
	for p := range strings.SplitSeq(path, "/") {
		parts = append(parts, p)
	}
	// Most paths have no escapes, and their links are substrings of them.
	if strings.IndexByte(path, '%') >= 0 {
		if err := unescape(parts); err != nil {
			return Target{}, err
		}
		path = strings.Join(parts, "/")
	}
	last := len(parts) - 1
	t := Target{Feed: len(parts)%2 == 1}
	if t.Feed {
		// For a set, a signature covers its kind and the link of its owner.
		t.Kind, t.Link = parts[last], strings.TrimSuffix(path[:len(path)-len(parts[last])], "/")
	} else {
		t.Kind, t.Link = parts[last-1], path
	}
	for i := 0; i+1 < len(parts); i += 2 {
		switch parts[i] {
		case "dbs":
			t.DB = parts[i+1]
		case "colls":
			t.Coll = parts[i+1]
		case "users":
			t.User = parts[i+1]
		default:
			t.ID = parts[i+1]
		}
	}
	if !known(parts) {
		if belowItem(parts) {
			return Target{}, NotFound(0, NoResource+": the path %q goes on after an item. An id with a slash cannot be "+
				"in a path", escaped)
		}
		return Target{}, BadRequest("Request url is invalid. The path %q names no resource of this server", escaped)
	}
	return t, nil
}

// unescape replaces segments by their unescaped text.
func unescape(parts []string) error {
	for i, p := range parts {
		plain, err := url.PathUnescape(p)
		if err != nil {
			return BadRequest("segment %d of the path is %q: want percent-encoded UTF-8", i+1, p)
		}
		parts[i] = plain
	}
	return nil
}

// deepest is the largest number of kinds in a path.
const deepest = 3

// known reports whether a path has a known sequence of kinds.
func known(parts []string) bool {
	var kinds [deepest]string
	if len(parts) > 2*deepest {
		return false
	}
	for i := 0; i < len(parts); i += 2 {
		kinds[i/2] = parts[i]
	}
	return slices.Contains(knownKinds, kinds)
}

// belowItem reports whether a path goes on after an item, as when a client writes the id a/b as it is. Attachments are
// not served.
func belowItem(parts []string) bool {
	return len(parts) > 2*deepest && parts[0] == "dbs" && parts[2] == "colls" && parts[4] == "docs" &&
		parts[6] != "attachments"
}

// knownKinds are the known sequences of kinds. The most frequent come first; this is faster than a map.
var knownKinds = [][deepest]string{
	{"dbs", "colls", "docs"},
	{"dbs", "colls", "pkranges"},
	{"dbs", "colls"},
	{"dbs"},
	{"dbs", "colls", "partitions"}, // for tests that ask for splits and merges
	{"dbs", "colls", "operations"}, // such as partitionkeydelete
	{"dbs", "colls", "conflicts"},
	{"dbs", "users"},
	{"dbs", "users", "permissions"},
	{"offers"},
	{"addresses"}, // asked for by clients in direct mode
	{"backup"},    // for administrators
	{"check"},

	// These exist in the service; operation.go answers that this server does not have them.
	{"dbs", "clientencryptionkeys"},
	{"dbs", "colls", "sprocs"},
	{"dbs", "colls", "triggers"},
	{"dbs", "colls", "udfs"},
}
