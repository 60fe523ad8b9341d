package wire

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
)

// ETags and identifiers. ETags have quotes. Some clients remove the quotes in a header and others add quotes, so
// ETags are compared without them.

// Matches reports whether a condition names an ETag, with or without its quotes, or names any ETag.
func Matches(condition, etag string) bool {
	return condition == "*" || condition == etag || Quoted(condition) == etag
}

// Quoted returns an ETag with quotes.
func Quoted(etag string) string {
	if etag == "" || etag == "*" || etag[0] == '"' {
		return etag
	}
	return `"` + etag + `"`
}

// SameTag compares two ETags and ignores quotes.
func SameTag(a, b string) bool { return strings.Trim(a, `"`) == strings.Trim(b, `"`) }

// NewUUID returns a random UUID.
func NewUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, as documented
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	var text [36]byte
	hex.Encode(text[:], b[:4])
	hex.Encode(text[9:], b[4:6])
	hex.Encode(text[14:], b[6:8])
	hex.Encode(text[19:], b[8:10])
	hex.Encode(text[24:], b[10:])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}
