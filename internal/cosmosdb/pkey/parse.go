package pkey

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/millrace/changefeed/internal/cosmosdb/epk"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// The parser is written by hand for speed, because every request has a key, and for its errors, which name the wrong
// byte. Keys of a single plain string do not need a parser.

// Parse parses a key in the form of the header x-ms-documentdb-partitionkey: a JSON array of strings, numbers,
// booleans, nulls, and {} for an absent value. Clients written in Go quote strings with Go's escapes, which are not
// JSON: \a, \x7f and \U0001f600 are accepted too.
func Parse(text string) (Key, error) {
	if s, ok := plainString(text); ok {
		k := Key{text: text}
		k.add(epk.String(s))
		return k, nil
	}
	p := parser{in: text}
	if !p.array() {
		if p.outside != "" {
			return Key{},
				refuse("component %d of partition key %.64q is the number %s, which is out of range: want one that a "+
					"float64 holds", p.key.n, text, p.outside)
		}
		return Key{},
			refuse(`partition key is %.64q, which is wrong at byte %d: want a JSON array such as ["London"], one component for each path, {} for undefined`, text, p.pos)
	}
	p.key.text = string(p.out)
	return p.key, nil
}

// parser parses the components of a key, and writes their canonical text.
type parser struct {
	in      string
	pos     int // of the next byte, or of the wrong byte after an error
	out     []byte
	key     Key
	outside string // a number outside the range of a float64
}

// array parses the whole key. Text after the closing bracket is an error. Otherwise a header that a proxy has cut and
// joined could name another key.
func (p *parser) array() bool {
	if !p.skip('[') {
		return false
	}
	p.out = append(p.out, '[')
	for more := !p.skip(']'); more; more = !p.skip(']') {
		if p.key.n > 0 {
			if !p.skip(',') {
				return false
			}
			p.out = append(p.out, ',')
		}
		if !p.component() {
			return false
		}
	}
	p.out = append(p.out, ']')
	p.space()
	return p.pos == len(p.in)
}

// space skips white space.
func (p *parser) space() {
	for p.pos < len(p.in) && strings.IndexByte(" \t\r\n", p.in[p.pos]) >= 0 {
		p.pos++
	}
}

// skip skips white space and then byte c, if c follows.
func (p *parser) skip(c byte) bool {
	p.space()
	if p.pos == len(p.in) || p.in[p.pos] != c {
		return false
	}
	p.pos++
	return true
}

// component parses a value, and writes its canonical form. A word ends at a comma, a bracket or white space, so the
// whole of an invalid word is refused.
func (p *parser) component() bool {
	if p.skip('"') {
		s, ok := p.str()
		p.out = rawjson.AppendString(p.out, s)
		p.key.add(epk.String(s))
		return ok
	}
	// The empty object is the only object allowed: the document lacks the value.
	if p.skip('{') {
		p.out = append(p.out, "{}"...)
		p.key.add(epk.Component{})
		return p.skip('}')
	}
	end := p.pos
	for end < len(p.in) && strings.IndexByte(" \t\r\n,]", p.in[end]) < 0 {
		end++
	}
	word := p.in[p.pos:end]
	switch {
	case word == "null":
		p.key.add(epk.Null())
	case word == "true" || word == "false":
		p.key.add(epk.Bool(word == "true"))
	default:
		if !p.number(word) {
			return false
		}
		p.pos = end
		return true
	}
	p.out = append(p.out, word...)
	p.pos = end
	return true
}

// number parses a word as a JSON number. ParseFloat alone would also accept Inf, 0x1p4 and 1_000.
func (p *parser) number(word string) bool {
	if word == "" || strings.IndexByte("-0123456789", word[0]) < 0 {
		return false
	}
	if _, ok := rawjson.Check([]byte(word)); !ok {
		return false
	}
	f, err := strconv.ParseFloat(word, 64)
	if err != nil {
		p.outside = word
		return false
	}
	p.out = rawjson.AppendNumber(p.out, f)
	p.key.add(epk.Number(f + 0)) // -0 and 0 are the same key
	return true
}

// str parses a string after its opening quote.
func (p *parser) str() (string, bool) {
	var b strings.Builder
	for p.pos < len(p.in) {
		c := p.in[p.pos]
		switch {
		case c == '"':
			p.pos++
			return b.String(), true
		case c == '\\':
			r, ok := p.escape()
			if !ok {
				return "", false
			}
			b.WriteRune(r) // U+FFFD if r is half of a surrogate pair
		case c < utf8.RuneSelf:
			b.WriteByte(c)
			p.pos++
		default:
			r, n := utf8.DecodeRuneInString(p.in[p.pos:])
			if r == utf8.RuneError && n == 1 {
				return "", false
			}
			b.WriteString(p.in[p.pos : p.pos+n])
			p.pos += n
		}
	}
	return "", false
}

// escapes are the one-letter escapes of JSON and of Go.
var escapes = map[byte]rune{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'a': '\a', 'v': '\v',
}

// escape parses an escape, or two escapes that form a surrogate pair.
func (p *parser) escape() (rune, bool) {
	if p.pos+1 == len(p.in) {
		return 0, false
	}
	letter := p.in[p.pos+1]
	if r, ok := escapes[letter]; ok {
		p.pos += 2
		return r, true
	}
	r, ok := p.hex()
	switch {
	case !ok:
		return 0, false
	case letter == 'x' && r >= utf8.RuneSelf: // a byte that is not valid UTF-8; the body also has U+FFFD there
		return utf8.RuneError, true
	case letter == 'u' && utf16.IsSurrogate(r) && strings.HasPrefix(p.in[p.pos:], `\u`):
		mark := p.pos
		low, ok := p.hex()
		if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
			return pair, true
		}
		p.pos = mark
	}
	return r, true
}

// hex parses an escape of hexadecimal digits.
func (p *parser) hex() (rune, bool) {
	size := map[byte]int{'x': 2, 'u': 4, 'U': 8}[p.in[p.pos+1]]
	from := p.pos + 2
	if size == 0 || from+size > len(p.in) {
		return 0, false
	}
	n, err := strconv.ParseUint(p.in[from:from+size], 16, 32)
	if err != nil || n > utf8.MaxRune {
		return 0, false
	}
	p.pos = from + size
	return rune(n), true
}
