package rawjson

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns the text of a string value; for any other value, "". As in encoding/json, half of a surrogate pair
// becomes U+FFFD.
func Text(value []byte) string {
	if len(value) == 0 || value[0] != '"' {
		return ""
	}
	return string(Unquote(value))
}

// Unquote is [Text] for a value known to be a string, as bytes. If the string has no escapes, as usual, the bytes are
// those of the value itself.
func Unquote(value []byte) []byte {
	if len(value) < 2 {
		return nil
	}
	inner := value[1 : len(value)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	return appendUnescaped(nil, inner)
}

// AppendText appends [Text].
func AppendText(dst, value []byte) []byte {
	if len(value) < 2 || value[0] != '"' {
		return dst
	}
	return appendUnescaped(dst, value[1:len(value)-1])
}

// unescapes are the one-letter escapes.
var unescapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// appendUnescaped appends the text of a string without its quotes. appendUnescaped copies everything except escapes.
func appendUnescaped(dst, inner []byte) []byte {
	for {
		i := bytes.IndexByte(inner, '\\')
		if i < 0 || i+1 == len(inner) {
			return append(dst, inner...)
		}
		dst, inner = append(dst, inner[:i]...), inner[i:]
		if c := unescapes[inner[1]]; c != 0 {
			dst, inner = append(dst, c), inner[2:]
			continue
		}
		r, size := unescapeRune(inner)
		if size == 0 {
			dst, inner = append(dst, '\\'), inner[1:]
			continue
		}
		dst, inner = utf8.AppendRune(dst, r), inner[size:]
	}
}

const unicodeEscape = len(`\u0000`)

// unescapeRune reads an escape of four digits, or two such escapes that form a surrogate pair, and returns its size;
// 0 if the text is not an escape.
func unescapeRune(text []byte) (r rune, size int) {
	r, ok := unicodeAt(text)
	if !ok {
		return 0, 0
	}
	if utf16.IsSurrogate(r) {
		if low, ok := unicodeAt(text[unicodeEscape:]); ok {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				return pair, 2 * unicodeEscape
			}
		}
		r = utf8.RuneError
	}
	return r, unicodeEscape
}

func unicodeAt(text []byte) (rune, bool) {
	if len(text) < unicodeEscape || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	return hex4(text[2:])
}

// hex4 parses four hexadecimal digits.
func hex4(text []byte) (r rune, ok bool) {
	if len(text) < 4 {
		return 0, false
	}
	for _, c := range text[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// AppendString appends a text as a JSON string, as in encoding/json without its escapes for HTML, so a text has only
// a single form.
func AppendString[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' {
				i++
				continue
			}
			dst = appendEscaped(append(dst, s[from:i]...), c)
			i++
			from = i
			continue
		}
		r, n := utf8.DecodeRuneInString(string(s[i:min(len(s), i+utf8.UTFMax)]))
		switch {
		case r == utf8.RuneError && n == 1:
			dst = append(append(dst, s[from:i]...), `\ufffd`...)
			from = i + n
		case r == '\u2028' || r == '\u2029': // line ends in JavaScript, but not in JSON
			dst = append(append(dst, s[from:i]...), `\u202`...)
			dst = append(dst, digits[r&0xF])
			from = i + n
		}
		i += n
	}
	return append(append(dst, s[from:]...), '"')
}

// PlainPrefix returns the number of bytes up to the first that is not ASCII, or that a JSON string must escape.
func PlainPrefix(text []byte) int { return plain(text, 0) }

const digits = "0123456789abcdef"

// appendEscaped appends the escape of a byte that is not allowed in a string.
func appendEscaped(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	return append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&0xF])
}

// As in JavaScript, numbers below smallestPlain, and from biggestPlain onward, are written with an exponent.
const (
	smallestPlain = 1e-6
	biggestPlain  = 1e21
)

// AppendNumber appends a finite number as in encoding/json and JavaScript: the shortest text that parses to the same
// float64. Zero has no sign, because -0 and 0 are equal and must have the same text.
func AppendNumber(dst []byte, f float64) []byte {
	if f == 0 {
		return append(dst, '0')
	}
	if a := math.Abs(f); a >= smallestPlain && a < biggestPlain {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	if n := len(dst); n >= 4 && dst[n-4] == 'e' && dst[n-3] == '-' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1] // e-09 becomes e-9
		dst = dst[:n-1]
	}
	return dst
}

// The digits with which the service writes a double.
const (
	fewDigits      = 15 // if they are enough to read the same double again
	allDigits      = 17
	exponentDigits = 3
)

// AppendDouble appends a finite number as the service stores doubles: 15 digits if they are the same number, otherwise
// 17, and at least three digits for an exponent. Zero has no sign.
func AppendDouble(dst []byte, f float64) []byte {
	if f == 0 {
		return append(dst, '0')
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'g', fewDigits, 64)
	if same, err := strconv.ParseFloat(string(dst[start:]), 64); err != nil || same != f {
		dst = strconv.AppendFloat(dst[:start], f, 'g', allDigits, 64)
	}
	at := bytes.IndexByte(dst[start:], 'e')
	if at < 0 {
		return dst
	}
	for digits := start + at + len("e+"); len(dst)-digits < exponentDigits; {
		dst = slices.Insert(dst, digits, '0')
	}
	return dst
}
