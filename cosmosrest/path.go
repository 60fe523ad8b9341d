package cosmosrest

import (
	"net/http"
	"net/url"
	"strings"
)

// target is what a path names: /dbs/d/colls/c/docs/i. Resources are named by ids or by
// resource ids.
type target struct {
	kind string // type of the resource: dbs, colls, docs, ...; empty is the account
	feed bool   // the set of them, not one
	db   string
	coll string
	id   string // of the resource itself, if it is none of the two
	link string // what a signature covers
}

// parsePath reads an escaped path. It tolerates a slash at the end.
func parsePath(escaped string) (target, error) {
	path := strings.Trim(escaped, "/")
	if path == "" {
		return target{}, nil
	}
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if strings.IndexByte(p, '%') < 0 {
			continue
		}
		plain, err := url.PathUnescape(p)
		if err != nil {
			return target{}, badRequest("segment %d of the path is %q: want percent-encoded UTF-8", i+1, p)
		}
		parts[i] = plain
	}
	last := len(parts) - 1
	t := target{feed: len(parts)%2 == 1}
	if t.feed {
		t.kind, t.link = parts[last], strings.Join(parts[:last], "/")
	} else {
		t.kind, t.link = parts[last-1], strings.Join(parts, "/")
	}
	for i := 0; i+1 < len(parts); i += 2 {
		switch parts[i] {
		case "dbs":
			t.db = parts[i+1]
		case "colls":
			t.coll = parts[i+1]
		default:
			t.id = parts[i+1]
		}
	}
	if !known(parts) {
		return target{}, newFault(http.StatusNotFound, 0, "NotFound", "the path %q names no resource of this server", escaped)
	}
	return t, nil
}

// known tells the paths that lead somewhere: the kinds of resources in them, in order.
func known(parts []string) bool {
	var kinds []string
	for i := 0; i < len(parts); i += 2 {
		kinds = append(kinds, parts[i])
	}
	switch path := strings.Join(kinds, "/"); path {
	case "dbs", "dbs/colls", "dbs/colls/docs", "dbs/colls/pkranges", "offers", adminPath:
		return true
	default:
		// These exist in the service; operation.go says that they do not here.
		return strings.HasPrefix(path, "dbs/users") || path == "dbs/colls/sprocs" || path == "dbs/colls/triggers" ||
			path == "dbs/colls/udfs" || path == "dbs/colls/conflicts" || path == "dbs/clientencryptionkeys"
	}
}

// adminPath is the kind of path under which tests ask for splits and merges: POST
// /dbs/d/colls/c/partitions.
const adminPath = "dbs/colls/partitions"
