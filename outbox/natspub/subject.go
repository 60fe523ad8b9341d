package natspub

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"strings"

	"github.com/millrace/changefeed/internal/cloudevent"
)

// Subject returns the subject of the events of a partition key: Prefix, a dot, and the key as a single token.
//
// In the token, ASCII letters, digits and hyphens stay unchanged, and every other byte is %XX, so that no key is two
// tokens, a wildcard or an empty token. The empty key is an underscore. If the token of a key would be longer than
// 2,048 bytes, the token is an underscore and the hexadecimal SHA-256 of the key.
func (o Options) Subject(key string) string { return subject(o.withDefaults().Prefix, key) }

func subject(prefix, key string) string { return prefix + "." + token(key) }

const (
	maxToken  = 2048 // the server closes a connection that sends a line of more than 4,096 bytes, including subjects
	maxPrefix = 1024
)

func token(key string) string {
	if key == "" {
		return "_"
	}
	text := plain.Escape(key)
	if len(text) > maxToken {
		return fmt.Sprintf("_%x", sha256.Sum256([]byte(key)))
	}
	return text
}

var plain = cloudevent.PlainBytes(func(c byte) bool {
	return c == '-' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
})

// Key returns the partition key of a subject. The result is false if the subject has another prefix or the hash of a
// long key; each message contains its key in the header ce-partitionkey.
func (o Options) Key(subject string) (string, bool) {
	token, ok := strings.CutPrefix(subject, o.withDefaults().Prefix+".")
	if !ok || strings.Contains(token, ".") {
		return "", false
	}
	if strings.HasPrefix(token, "_") {
		return "", token == "_"
	}
	key, err := url.PathUnescape(token)
	return key, err == nil && key != ""
}

// covers reports whether a stream's subject accepts the subjects of prefix and a further token.
func covers(pattern, prefix string) bool {
	want := append(strings.Split(prefix, "."), "key")
	tokens := strings.Split(pattern, ".")
	for i, t := range tokens {
		switch {
		case t == ">":
			return i < len(want)
		case i >= len(want) || t != "*" && t != want[i]:
			return false
		case i == len(want)-1 && t != "*": // a single key is not all keys
			return false
		}
	}
	return len(tokens) == len(want)
}
