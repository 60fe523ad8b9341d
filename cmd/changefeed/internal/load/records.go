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
// Input whose first character is [ is an array, all else is lines, and what comes after
// the end of an array is lines again. Only one document is in memory at a time.
//
// A line is a document, whatever is in it, so a bad one costs nothing but itself. An
// element of an array ends at the comma or bracket after it, which a bad element may
// not have: a missing brace makes it swallow all that follows. So an element that spans
// several lines and is no JSON is cut before the first line that begins as its own line
// did: with the same indentation and a brace.

// A record is the text of one document of the input.
type record struct {
	line    int    // that it begins on, counted from 1
	element int    // of the array, counted from 1; 0 for a line
	text    []byte // without the space around it
	size    int64  // more than text has when there was too much to keep
	err     error  // why this cannot be a document, whatever the text is
	next    point  // where reading goes on
}

// A point is where the reading of an input can go on.
type point struct {
	Offset  int64 `json:"offset"`
	Line    int   `json:"line"`
	Array   bool  `json:"array"`   // within one
	Element int   `json:"element"` // the last one that was read
	Indent  int   `json:"indent"`  // of the line
	Leading bool  `json:"leading"` // only space comes before on the line
}

// The limits of a splitter.
const (
	maxKept   = 32 << 20 // bytes of one text
	maxSearch = 4 << 20  // bytes after which a broken element is cut; above the largest document
	readSize  = 128 << 10
)

// Why a record cannot be a document.
var (
	errUnclosed = errors.New("the array does not end: is the input cut short?")
	errHuge     = errors.New("too large to be read: want at most 2 MB")
)

// A splitter cuts input into records. Their texts share its buffers, which are never
// written twice.
type splitter struct {
	in     io.Reader
	buf    []byte // read and not consumed
	failed error  // of the last read; io.EOF at the end
	at     point  // of buf[0]
	most   int    // bytes of a text that are kept
}

// newSplitter cuts input that begins at a point.
func newSplitter(in io.Reader, at point) (*splitter, error) {
	s := &splitter{in: in, at: at, most: maxKept}
	// Only the beginning of an input shows its form. When it goes on, the point has
	// that.
	if at.Offset > 0 {
		return s, nil
	}
	s.at.Line, s.at.Leading = 1, true
	for len(s.buf) < len(magics[0].bytes) && s.more() {
	}
	for _, m := range magics {
		if bytes.HasPrefix(s.buf, []byte(m.bytes)) {
			return nil, fmt.Errorf("read input: it is %s: want JSON in UTF-8, as from %s FILE | changefeed import -", m.form, m.reader)
		}
	}
	if mark := []byte("\xef\xbb\xbf"); bytes.HasPrefix(s.buf, mark) {
		s.consume(len(mark))
	}
	if c, ok := s.space(); ok && c == '[' {
		s.consume(1)
		s.at.Array = true
	}
	return s, nil
}

// magics are the first bytes of what people take for JSON, the longest first.
var magics = []struct{ bytes, form, reader string }{
	{"\x28\xb5\x2f\xfd", "zstd", "zstd -dc"},
	{"\x1f\x8b", "gzip", "gzip -dc"},
	{"\xff\xfe", "UTF-16", "iconv -f UTF-16 -t UTF-8"},
	{"\xfe\xff", "UTF-16", "iconv -f UTF-16 -t UTF-8"},
}

// next is the next record; io.EOF after the last.
func (s *splitter) next() (record, error) {
	for {
		c, ok := s.space()
		switch {
		case !ok && s.failed != io.EOF:
			return record{}, fmt.Errorf("read input: %w", s.failed)
		// Once, and as a record: all elements before it are good, and are written.
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
			return s.record(), nil
		}
	}
}

// record takes the text at the position.
func (s *splitter) record() record {
	r := record{line: s.at.Line}
	trim := " \t\r\n"
	if s.at.Array {
		s.at.Element++
		r.element = s.at.Element
		trim += "," // is in the text of a broken element
	}
	text, size := s.take(&scan{array: s.at.Array, indent: s.at.Indent})
	r.text, r.size = bytes.TrimRight(text, trim), size
	if size > int64(len(text)) {
		r.err = errHuge
	} else {
		r.size = int64(len(r.text))
	}
	r.next = s.at
	return r
}

// take consumes a text, and returns what can be kept of it and its size.
func (s *splitter) take(c *scan) (text []byte, size int64) {
	// The search ends at the end of the text, at the end of the input, or so far after
	// a place where another element may begin that this one cannot be a document any
	// more.
	for !c.run(s.buf) && (c.other == 0 || c.pos < maxSearch) && s.more() {
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

// space steps over white space, and returns the character after it.
func (s *splitter) space() (c byte, ok bool) {
	for {
		rest := bytes.TrimLeft(s.buf, " \t\r\n")
		s.consume(len(s.buf) - len(rest))
		if len(rest) > 0 {
			return rest[0], true
		}
		if !s.more() {
			return 0, false
		}
	}
}

// consume steps over the first n bytes.
func (s *splitter) consume(n int) {
	taken := s.buf[:n]
	s.buf = s.buf[n:]
	s.at.Offset += int64(n)
	if i := bytes.LastIndexByte(taken, '\n'); i >= 0 {
		s.at.Line += bytes.Count(taken, []byte("\n"))
		s.at.Indent, s.at.Leading = 0, true
		taken = taken[i+1:]
	}
	// Line and indentation are kept up here, where all input passes, because a search
	// for them backwards would need input that is gone.
	if s.at.Leading {
		blank := len(taken) - len(bytes.TrimLeft(taken, " \t"))
		s.at.Indent += blank
		s.at.Leading = blank == len(taken)
	}
}

// more reads more input, and reports whether there was some.
func (s *splitter) more() bool {
	if s.failed != nil {
		return false
	}
	// A new buffer, never the beginning of the old one: texts that were cut out of it are on
	// their way.
	if cap(s.buf)-len(s.buf) < readSize/2 {
		s.buf = append(make([]byte, 0, 2*len(s.buf)+readSize), s.buf...)
	}
	n, err := s.in.Read(s.buf[len(s.buf):cap(s.buf)])
	s.buf = s.buf[:len(s.buf)+n]
	s.failed = err
	return n > 0 || err == nil
}

// A scan looks for the end of a text, in as many steps as the text comes in.
type scan struct {
	array  bool // else the text is a line
	indent int  // of the line that it begins on

	pos     int
	depth   int
	quoted  bool
	escaped bool
	line    margin
	alone   bool // the first line is a brace alone, so that nested lines can be known by their indentation only
	other   int  // where another element may begin, if this one is broken
}

// margin is the space before the first character of a line.
type margin struct {
	isOpen bool // no character has come yet
	comma  bool // some write the comma before the element
	blank  int  // the space, up to the comma
	begun  int  // where the line begins
}

// run goes on to the end of the text, and reports whether it came to it.
func (c *scan) run(text []byte) (ended bool) {
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

// step looks at one character.
func (c *scan) step(text []byte) (ended bool) {
	char := text[c.pos]
	if c.line.isOpen {
		c.begin(char)
	}
	switch {
	case char == '\n': // no string spans lines
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

// begin looks at a character before which only space comes on its line.
func (c *scan) begin(char byte) {
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
