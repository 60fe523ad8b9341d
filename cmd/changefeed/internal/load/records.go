package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// How input is cut into documents
//
// If the first character of the input is [, the input is an array. Otherwise the input is lines. After the end of an
// array, the input is lines again. Only a single document is in memory at a time.
//
// A line is a document, whatever its content, so an invalid line affects no other document. An element of an array
// ends at the next comma or bracket. An invalid element may have no such end: if a brace is missing, the element
// would contain the whole rest of the input. So an element that spans several lines and is not JSON is cut before the
// first line that begins like its own first line: with the same indentation and a brace.

// A record is the text of a document of the input.
type record struct {
	line    int    // of its beginning, counted from 1
	element int    // in the array, counted from 1; 0 for a line
	text    []byte // without the surrounding white space
	size    int64  // greater than the size of text if the text was too large to keep
	err     error  // why this is no document, whatever the text is
	next    point  // where reading continues
}

// A point is a place at which reading of an input can continue.
type point struct {
	Offset  int64 `json:"offset"`
	Line    int   `json:"line"`
	Array   bool  `json:"array"`   // within an array
	Element int   `json:"element"` // number of the last element that was read
	Indent  int   `json:"indent"`  // of the line
	Leading bool  `json:"leading"` // only white space comes before on the line
}

// The limits of a splitter.
const (
	maxKept   = 32 << 20 // bytes of a text that are kept
	maxSearch = 4 << 20  // bytes after which a broken element is cut; greater than the largest document
	readSize  = 128 << 10
)

// The reasons why a record is no document.
var (
	errUnclosed = errors.New("the array does not end: is the input cut short?")
	errHuge     = errors.New("too large to be read: want at most 2 MB")
)

// A splitter cuts input into records. The texts of the records share its buffers, which are never overwritten.
type splitter struct {
	in     io.Reader
	buf    []byte // bytes read but not consumed
	failed error  // by the last read; io.EOF at the end
	at     point  // place of buf[0]
	most   int    // bytes of a text that are kept
}

// newSplitter cuts input that begins at a point.
func newSplitter(in io.Reader, at point) (*splitter, error) {
	s := &splitter{in: in, at: at, most: maxKept}
	// Only the beginning of an input shows its form. If reading continues at a point, the point contains the form.
	if at.Offset > 0 {
		return s, nil
	}
	s.at.Line, s.at.Leading = 1, true
	for len(s.buf) < len(magics[0].bytes) && s.readMore() {
	}
	for _, m := range magics {
		if bytes.HasPrefix(s.buf, []byte(m.bytes)) {
			return nil, fmt.Errorf("read input: it is %s: want JSON in UTF-8, as from %s FILE | changefeed import -",
				m.form, m.reader)
		}
	}
	if mark := []byte("\xef\xbb\xbf"); bytes.HasPrefix(s.buf, mark) {
		s.consume(len(mark))
	}
	if c, ok := s.skipSpace(); ok && c == '[' {
		s.consume(1)
		s.at.Array = true
	}
	return s, nil
}

// magics are the first bytes of formats that are mistaken for JSON, the longest first.
var magics = []struct{ bytes, form, reader string }{
	{"\x28\xb5\x2f\xfd", "zstd", "zstd -dc"},
	{"\x1f\x8b", "gzip", "gzip -dc"},
	{"\xff\xfe", "UTF-16", "iconv -f UTF-16 -t UTF-8"},
	{"\xfe\xff", "UTF-16", "iconv -f UTF-16 -t UTF-8"},
}

// next returns the next record, or io.EOF after the last.
func (s *splitter) next() (record, error) {
	for {
		c, ok := s.skipSpace()
		switch {
		case !ok && s.failed != io.EOF:
			return record{}, fmt.Errorf("read input: %w", s.failed)
		// This is reported once, as a record, because all elements before are valid and are written.
		case !ok && s.at.Array:
			s.at.Array = false
			return record{line: s.at.Line, element: s.at.Element + 1, err: errUnclosed, next: s.at}, nil
		case !ok:
			return record{}, io.EOF
		case s.at.Array && c == ',':
			s.consume(1)
		case s.at.Array && c == ']':
			s.consume(1)
			s.at.Array = false
		default:
			return s.takeRecord(), nil
		}
	}
}

// takeRecord reads the text at the position.
func (s *splitter) takeRecord() record {
	r := record{line: s.at.Line}
	trim := " \t\r\n"
	if s.at.Array {
		s.at.Element++
		r.element = s.at.Element
		trim += "," // the text of a broken element may end with a comma
	}
	text, size := s.takeText(&scan{array: s.at.Array, indent: s.at.Indent})
	r.text, r.size = bytes.TrimRight(text, trim), size
	if size > int64(len(text)) {
		r.err = errHuge
	} else {
		r.size = int64(len(r.text))
	}
	r.next = s.at
	return r
}

// takeText consumes a text. take returns the part that is kept, and the size of the whole text.
func (s *splitter) takeText(c *scan) (text []byte, size int64) {
	// The search ends at the end of the text or of the input. If another element may begin at some place, the search
	// also ends so far after this place that the present element is too large for a document.
	for !c.findEnd(s.buf) && (c.other == 0 || c.pos < maxSearch) && s.readMore() {
		if c.pos > s.most {
			if size == 0 {
				text = s.buf[:s.most:s.most]
			}
			size += int64(c.pos)
			s.consume(c.pos)
			c.pos = 0
		}
	}
	end := c.pos
	if c.other > 0 && !json.Valid(s.buf[:end]) {
		end = c.other
	}
	if size == 0 {
		kept := min(end, s.most)
		text = s.buf[:kept:kept]
	}
	size += int64(end)
	s.consume(end)
	return text, size
}

// skipSpace skips white space, and returns the next character.
func (s *splitter) skipSpace() (c byte, ok bool) {
	for {
		rest := bytes.TrimLeft(s.buf, " \t\r\n")
		s.consume(len(s.buf) - len(rest))
		if len(rest) > 0 {
			return rest[0], true
		}
		if !s.readMore() {
			return 0, false
		}
	}
}

// consume consumes the first n bytes.
func (s *splitter) consume(n int) {
	taken := s.buf[:n]
	s.buf = s.buf[n:]
	s.at.Offset += int64(n)
	if i := bytes.LastIndexByte(taken, '\n'); i >= 0 {
		s.at.Line += bytes.Count(taken, []byte("\n"))
		s.at.Indent, s.at.Leading = 0, true
		taken = taken[i+1:]
	}
	// Line and indentation are counted here, where all input passes, because a later search backwards would need
	// bytes that are no longer in memory.
	if s.at.Leading {
		blank := len(taken) - len(bytes.TrimLeft(taken, " \t"))
		s.at.Indent += blank
		s.at.Leading = blank == len(taken)
	}
}

// readMore reads more input, and reports whether there was any.
func (s *splitter) readMore() bool {
	if s.failed != nil {
		return false
	}
	// This allocates a new buffer and never reuses the old one, because texts cut from the old buffer are still being
	// written.
	if cap(s.buf)-len(s.buf) < readSize/2 {
		s.buf = append(make([]byte, 0, 2*len(s.buf)+readSize), s.buf...)
	}
	n, err := s.in.Read(s.buf[len(s.buf):cap(s.buf)])
	s.buf = s.buf[:len(s.buf)+n]
	s.failed = err
	return n > 0 || err == nil
}

// A scan searches the end of a text. A scan can continue when more of the text has been read.
type scan struct {
	array  bool // otherwise the text is a line
	indent int  // of the first line

	pos     int
	depth   int
	quoted  bool
	escaped bool
	line    margin
	alone   bool // the first line contains only a brace, so nested lines are recognized only by their indentation
	other   int  // where another element may begin, if the present element is broken
}

// margin is the space before the first character of a line.
type margin struct {
	isOpen bool // the position is before the first character of the line
	comma  bool // a comma was found before the element, as in some inputs
	blank  int  // width of the white space before the comma
	begun  int  // where the line begins
}

// findEnd continues the search, and reports whether the end of the text was reached.
func (c *scan) findEnd(text []byte) (ended bool) {
	if !c.array {
		if end := bytes.IndexByte(text[c.pos:], '\n'); end >= 0 {
			c.pos += end
			return true
		}
		c.pos = len(text)
		return false
	}
	for ; c.pos < len(text); c.pos++ {
		if c.step(text) {
			return true
		}
	}
	return false
}

// step processes a character.
func (c *scan) step(text []byte) (ended bool) {
	char := text[c.pos]
	if c.line.isOpen {
		c.stepInMargin(char)
	}
	switch {
	case char == '\n': // strings do not span lines
		c.alone = c.alone || c.line.begun == 0 && len(bytes.TrimSpace(text[:c.pos])) == 1
		c.quoted, c.escaped = false, false
		c.line = margin{isOpen: true, begun: c.pos + 1}
	case c.escaped:
		c.escaped = false
	case char == '\\':
		c.escaped = c.quoted
	case char == '"':
		c.quoted = !c.quoted
	case c.quoted:
	case char == '{' || char == '[':
		c.depth++
	case c.depth == 0:
		return char == ',' || char == ']'
	case char == '}' || char == ']':
		c.depth--
	}
	return false
}

// stepInMargin processes a character that only white space precedes on its line.
func (c *scan) stepInMargin(char byte) {
	switch char {
	case ' ', '\t':
		if !c.line.comma {
			c.line.blank++
		}
	case ',':
		c.line.comma = true
	case '\r', '\n':
	default:
		c.line.isOpen = false
		told := c.indent > 0 || !c.alone
		if char == '{' && c.other == 0 && c.depth > 0 && c.line.blank == c.indent && told {
			c.other = c.line.begun
		}
	}
}
