package pkey

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/epk"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Path is the path of a partition key or unique key, with a name for each level. Paths go only through objects.
type Path []string

// String returns the path in a form that ParsePath accepts.
func (p Path) String() string {
	var b strings.Builder
	for _, name := range p {
		b.WriteByte('/')
		if name == "" || isWildcard(name) || strings.ContainsAny(name, `/"'`) || strings.TrimSpace(name) != name {
			name = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `"`
		}
		b.WriteString(name)
	}
	return b.String()
}

// isWildcard reports whether a name is a wildcard of an indexing policy, for any name or element.
func isWildcard(name string) bool { return name == "*" || name == "?" || name == "[]" }

// ParsePath parses a path such as /address/city or /address/"zip / post code". Within quotes of either kind, a
// backslash makes the next character literal. A path to a system property is refused, because the store changes
// system properties at each write.
func ParsePath(path string) (Path, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, refuse("path %q does not begin with a slash: want one as in /tenant", path)
	}
	if !utf8.ValidString(path) {
		return nil, refuse("path %q is not UTF-8: want one as in /tenant", path)
	}
	var p Path
	for rest := path; rest != ""; {
		name, tail, err := cutSegment(rest[1:])
		if err != nil {
			return nil, fmt.Errorf("read path %q: %w", path, err)
		}
		if tail != "" && tail[0] != '/' {
			return nil, refuse("path %q goes on after a quote: want a slash there", path)
		}
		p, rest = append(p, name), tail
	}
	if service.IsSystem(p[0]) {
		return nil, refuse("path %q leads to a system property: want one of your own", path)
	}
	return p, nil
}

// cutSegment splits the first name from a path without its slash. Wildcards are refused, because only indexing
// policies have them; a real name of that form must be quoted.
func cutSegment(path string) (name, tail string, err error) {
	if path != "" && (path[0] == '"' || path[0] == '\'') {
		return cutQuoted(path)
	}
	end := strings.IndexByte(path+"/", '/')
	name, tail = path[:end], path[end:]
	switch {
	case name == "":
		return "", "", refuse("a slash has no name after it: want one as in /tenant")
	case isWildcard(name):
		return "", "", refuse("segment %s is a wildcard: want a name, or %q for a property of that name", name, name)
	}
	return name, tail, nil
}

// cutQuoted is cutSegment for a path that begins with a quote.
func cutQuoted(path string) (name, tail string, err error) {
	var b strings.Builder
	for i := 1; i < len(path); i++ {
		switch path[i] {
		case path[0]:
			return b.String(), path[i+1:], nil
		case '\\':
			if i++; i == len(path) {
				continue
			}
		}
		b.WriteByte(path[i])
	}
	return "", "", refuse("segment %s has no closing quote", path)
}

// ParsePaths parses the partition key paths of a container: a single path, or several different paths for a
// hierarchical key.
func ParsePaths(paths []string) ([]Path, error) {
	if len(paths) < 1 || len(paths) > epk.MaxLevels {
		return nil, refuse("container has %d partition key paths: want 1 to %d", len(paths), epk.MaxLevels)
	}
	var parsed []Path
	for _, path := range paths {
		p, err := ParsePath(path)
		if err != nil {
			return nil, fmt.Errorf("read partition key paths: %w", err)
		}
		if slices.ContainsFunc(parsed, func(other Path) bool { return slices.Equal(other, p) }) {
			return nil, refuse("partition key path %s comes twice: want different paths", p)
		}
		parsed = append(parsed, p)
	}
	return parsed, nil
}

// refuse returns a [feed.ErrBadRequest] with a reason.
func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", feed.ErrBadRequest, fmt.Sprintf(format, args...))
}
