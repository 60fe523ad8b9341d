package deadletters

import (
	"bytes"
	"strconv"
	"strings"
)

// staysUnaltered reports whether an account keeps a JSON document byte for byte as a member of an item. An account
// writes doubles anew (1.0 becomes 1), refuses numbers that no double can hold, and replaces half of a surrogate pair.
func staysUnaltered(doc []byte) bool {
	for i := 0; i < len(doc); {
		switch c := doc[i]; {
		case c == '"':
			end := i + 1
			for ; end < len(doc) && doc[end] != '"'; end++ {
				if doc[end] != '\\' {
					continue
				}
				end++
				if isSurrogate(doc[end:]) {
					return false
				}
			}
			i = end + 1
		case c == '-' || '0' <= c && c <= '9':
			end := i + 1
			for end < len(doc) && strings.IndexByte("0123456789+-.eE", doc[end]) >= 0 {
				end++
			}
			if !isPlainNumber(string(doc[i:end])) {
				return false
			}
			i = end
		default:
			i++
		}
	}
	return true
}

// isSurrogate reports whether an escape, after its backslash, is half of a surrogate pair. Whether the pair is whole is
// not checked.
func isSurrogate(escape []byte) bool {
	escape = bytes.ToLower(escape[:min(3, len(escape))])
	return len(escape) == 3 && bytes.HasPrefix(escape, []byte("ud")) && escape[2] > '7'
}

// isPlainNumber reports whether every JSON writer writes a number as it is: up to 15 digits, and no exponent.
func isPlainNumber(text string) bool {
	const digits = 15
	f, err := strconv.ParseFloat(text, 64)
	return err == nil && len(text) <= digits && strconv.FormatFloat(f, 'f', -1, 64) == text && text != "-0" &&
		(f == 0 || f >= 1e-4 || f <= -1e-4)
}
