package migration

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// A print is the fingerprint of a document. Documents of the same members, in the same order and with the same values,
// have the same print, however an account writes their numbers, texts and spaces: 1.0 is 1, but 9007199254740993 is not
// 9007199254740992.
type print [16]byte

// fingerprint returns the print of a document without system properties, and without an adjusted ttl.
func fingerprint(body []byte, withoutTTL bool) (p print) {
	text := make([]byte, 0, len(body))
	text = append(text, '{')
	for key, value := range rawjson.Members(body) {
		if service.IsSystem(key.Name()) || withoutTTL && key.Is("ttl") {
			continue
		}
		text = appendMember(text, key, value)
	}
	sum := sha256.Sum256(append(text, '}'))
	copy(p[:], sum[:])
	return p
}

// number returns 8 bytes of the print, for sums.
func (p print) number() uint64 { return binary.LittleEndian.Uint64(p[:8]) }

// appendMember appends a member in its canonical form.
func appendMember(dst []byte, key rawjson.Key, value []byte) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	return appendValue(append(appendText(dst, key), ':'), value)
}

// appendValue appends a value in its canonical form.
func appendValue(dst, value []byte) []byte {
	value = bytes.TrimSpace(value)
	if len(value) == 0 {
		return dst
	}
	switch value[0] {
	case '{':
		dst = append(dst, '{')
		for key, member := range rawjson.Members(value) {
			dst = appendMember(dst, key, member)
		}
		return append(dst, '}')
	case '[':
		dst = append(dst, '[')
		for element := range rawjson.Elements(value) {
			dst = append(appendValue(dst, element), ',')
		}
		return append(dst, ']')
	case '"':
		return appendText(dst, value)
	case 't', 'f', 'n':
		return append(dst, value...)
	}
	return appendNumber(dst, string(value))
}

// appendText appends a string: escapes do not count, except those of surrogates, which may be halves.
func appendText(dst, text []byte) []byte {
	if bytes.IndexByte(text, '\\') < 0 || bytes.Contains(bytes.ToLower(text), []byte(`\ud`)) {
		return append(dst, text...)
	}
	return rawjson.AppendString(dst, rawjson.Unquote(text))
}

const maxPlain = 20 // digits of an integer that was written with a point or an exponent

// appendNumber appends a number by its value, with all digits.
func appendNumber(dst []byte, text string) []byte {
	if !strings.ContainsAny(text, ".eE") && text != "-0" {
		return append(dst, text...) // JSON has no other form of an integer
	}
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	e, err := strconv.Atoi(strings.TrimPrefix(cmp.Or(exponent, "0"), "+"))
	if err != nil {
		return append(dst, text...) // no account keeps such a number
	}
	sign, digits := "", mantissa
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	whole, fraction, _ := strings.Cut(digits, ".")
	e -= len(fraction)
	digits = strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return append(dst, '0')
	}
	short := strings.TrimRight(digits, "0")
	e += len(digits) - len(short)
	if e >= 0 && len(short)+e <= maxPlain {
		return append(append(append(dst, sign...), short...), strings.Repeat("0", e)...)
	}
	return strconv.AppendInt(append(append(append(dst, sign...), short...), 'e'), int64(e), 10)
}
