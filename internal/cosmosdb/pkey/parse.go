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
		k.addComponent(epk.String(s))
		return k, nil
	}
	p := parser{in: text}
	if !p.parseArray() {
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

// parseArray parses the whole key. Text after the closing bracket is an error. Otherwise a header that a proxy has cut
// and joined could name another key.
func (p *parser) parseArray() bool {
	if !p.skipByte('[') {
		return false
	}
	p.out = append(p.out, '[')
	for more := !p.skipByte(']'); more; more = !p.skipByte(']') {
		if p.key.n > 0 {
			if !p.skipByte(',') {
				return false
			}
			p.out = append(p.out, ',')
		}
		if !p.parseComponent() {
			return false
		}
	}
	p.out = append(p.out, ']')
	p.skipSpace()
	return p.pos == len(p.in)
}

// skipSpace skips white space.
func (p *parser) skipSpace() {
	for p.pos < len(p.in) && strings.IndexByte(" \t\r\n", p.in[p.pos]) >= 0 {
		p.pos++
	}
}

// skipByte skips white space and then byte c, if c follows.
func (p *parser) skipByte(c byte) bool {
	p.skipSpace()
	if p.pos == len(p.in) || p.in[p.pos] != c {
		return false
	}
	p.pos++
	return true
}

// parseComponent parses a value, and writes its canonical form. A word ends at a comma, a bracket or white space, so
// the whole of an invalid word is refused.
func (p *parser) parseComponent() bool {
	if p.skipByte('"') {
		s, ok := p.parseString()
		p.out = rawjson.AppendString(p.out, s)
		p.key.addComponent(epk.String(s))
		return ok
	}
	// The empty object is the only object allowed: the document lacks the value.
	if p.skipByte('{') {
		p.out = append(p.out, "{}"...)
		p.key.addComponent(epk.Component{})
		return p.skipByte('}')
	}
	end := p.pos
	for end < len(p.in) && strings.IndexByte(" \t\r\n,]", p.in[end]) < 0 {
		end++
	}
	word := p.in[p.pos:end]
	switch {
	case word == "null":
		p.key.addComponent(epk.Null())
	case word == "true" || word == "false":
		p.key.addComponent(epk.Bool(word == "true"))
	default:
		if !p.parseNumber(word) {
			return false
		}
		p.pos = end
		return true
	}
	p.out = append(p.out, word...)
	p.pos = end
	return true
}

// parseNumber parses a word as a JSON number. ParseFloat alone would also accept Inf, 0x1p4 and 1_000.
func (p *parser) parseNumber(word string) bool {
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
	p.key.addComponent(epk.Number(f + 0)) // -0 and 0 are the same key
	return true
}

// parseString parses a string after its opening quote.
func (p *parser) parseString() (string, bool) {
	var b strings.Builder
	for p.pos < len(p.in) {
		c := p.in[p.pos]
		switch {
		case c == '"':
			p.pos++
			return b.String(), true
		case c == '\\':
			r, ok := p.parseEscape()
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

// parseEscape parses an escape, or two escapes that form a surrogate pair.
func (p *parser) parseEscape() (rune, bool) {
	if p.pos+1 == len(p.in) {
		return 0, false
	}
	letter := p.in[p.pos+1]
	if r, ok := escapes[letter]; ok {
		p.pos += 2
		return r, true
	}
	r, ok := p.parseHex()
	switch {
	case !ok:
		return 0, false
	case letter == 'x' && r >= utf8.RuneSelf: // a byte that is not valid UTF-8; the body also has U+FFFD there
		return utf8.RuneError, true
	case letter == 'u' && utf16.IsSurrogate(r) && strings.HasPrefix(p.in[p.pos:], `\u`):
		mark := p.pos
		low, ok := p.parseHex()
		if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
			return pair, true
		}
		p.pos = mark
	}
	return r, true
}

// parseHex parses an escape of hexadecimal digits.
func (p *parser) parseHex() (rune, bool) {
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
