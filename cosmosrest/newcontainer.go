package cosmosrest

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
)

// What the service refuses in a new container alone. A container that exists keeps such properties: they cannot be
// changed, or containers from before the rule may have them.

// maxUniquePaths is the number of paths of a unique key in the service.
const maxUniquePaths = 16

// checkNew refuses properties that a new container cannot have.
func (p properties) checkNew(s docstore.ContainerSpec) error {
	for _, path := range s.Paths {
		if at := badPlace(path); at >= 0 {
			return wire.BadRequest("The partition key component definition path '%s' could not be accepted, failed near "+
				"position '%d'. Partition key paths must contain only valid characters and not contain a trailing slash or "+
				"wildcard character. partitionKey.paths has %q: want names after single slashes, in quotes if they have "+
				`blanks or one of %s, as in /"my name"`, path, at, path, onlyQuoted)
		}
	}
	for i, key := range s.UniqueKeys {
		if n := len(key); n > maxUniquePaths {
			return wire.BadRequest("uniqueKeyPolicy.uniqueKeys[%d].paths has %d paths: want at most %d", i, n, maxUniquePaths)
		}
	}
	var policy indexing
	if err := p.decodeMember("indexingPolicy", "an object", &policy); err != nil {
		return err
	}
	if strings.EqualFold(policy.Mode, lazyMode) {
		return wire.BadRequest("indexingPolicy.indexingMode is %s: want consistent or none. The service has lazy indexes "+
			"only in accounts that had one in June 2020", policy.Mode)
	}
	return nil
}

// onlyQuoted are the characters that the service accepts within quotes alone. Its list is not public: a name with a
// character that nobody is known to have seen refused is accepted.
const onlyQuoted = "[]*?.+@"

// badPlace returns the byte of a partition key path that the service does not accept, or -1.
func badPlace(path string) int {
	var quote rune
	escaped, fresh := false, true // fresh: a slash stands before
	for at, r := range path {
		switch {
		case quote != 0:
			if r == quote && !escaped {
				quote = 0
			}
			escaped = r == '\\' && !escaped
		case at == 0 && r != '/', at > 0 && fresh && r == '/', unicode.IsSpace(r), strings.ContainsRune(onlyQuoted, r):
			return at
		case fresh && (r == '"' || r == '\''):
			quote = r
		}
		fresh = quote == 0 && r == '/'
	}
	if fresh {
		_, last := utf8.DecodeLastRuneInString(path)
		return len(path) - last
	}
	return -1
}
