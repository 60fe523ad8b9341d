package cosmos

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/epk"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// The bodies of pages are most of a client's data, so the client scans them only once: documents are slices of the page
// and share the page's memory, and only members that a change needs are decoded.

// readChanges reads the body of a page, {"_rid":…,"Documents":[…],"_count":…}. Documents are cut out and not decoded,
// because decoding would cost more than the rest of a read.
func (c *Container) readChanges(body []byte, m feed.Mode) (list []feed.Change, err error) {
	page := latestPage{c: c, body: body}
	read := page.readItem
	if m == feed.AllVersionsAndDeletes {
		read = func(s *rawjson.Scanner) (feed.Change, bool) { return c.readVersion(body, s) }
	}
	err = eachDocument(body, func(s *rawjson.Scanner) {
		from := s.Pos()
		ch, ok := read(s)
		if !ok {
			return
		}
		if list == nil { // the documents of a page are alike
			n := 1 + (len(body)-from)/(s.Pos()-from)
			list = make([]feed.Change, 0, n)
			page.texts.Grow(n * page.texts.Len())
		}
		list = append(list, ch)
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// errJSON: a text is not JSON, or has not the expected form.
var errJSON = errors.New("malformed JSON")

// eachDocument calls visit at each document of a page; visit steps over it. Pages are
// large, and answers of a service need no second validation.
func eachDocument(page []byte, visit func(*rawjson.Scanner)) error {
	s := rawjson.Scan(page, 0)
	listed := false
	for _, key := range s.Object() {
		if key.Is("Documents") {
			listed = true
			for range s.Array() {
				visit(&s)
			}
		}
	}
	if s.Bad() || !listed {
		return fmt.Errorf("page has an error near byte %d of %d: %w", s.Pos(), len(page), errJSON)
	}
	return nil
}

// item is a document, with the values that a change needs.
type item struct {
	body           []byte
	id, etag, time []byte
	lsn            int64
	keys           [epk.MaxLevels][]byte
}

// scanItem steps over a document and cuts out the LSN, which the feed adds to the stored document: a handler must
// receive the document as it was written. scanItem overwrites text.
func (c *Container) scanItem(text []byte, s *rawjson.Scanner) (it item, ok bool) {
	s.Peek()
	begin := s.Pos()
	var lsn rawjson.Span
	for from, key := range s.Object() {
		name, value := key.Name(), s.Value().Of(text)
		switch string(name) {
		case "id":
			it.id = value
		case "_etag":
			it.etag = value
		case "_ts":
			it.time = value
		case "_lsn":
			it.lsn, lsn = integer(value), rawjson.Span{From: from, To: s.Pos()}
		}
		for i, p := range c.paths {
			if string(name) == p[0] {
				it.keys[i] = rawjson.Lookup(value, p[1:]...)
			}
		}
	}
	if s.Bad() {
		return it, false
	}
	it.body = text[begin:s.Pos()]
	if lsn.To > 0 {
		it.body = rawjson.CutMember(text, rawjson.Span{From: begin, To: s.Pos()}, lsn)
	}
	return it, true
}

// keyOf returns the partition key of the document.
func (c *Container) keyOf(it *item) feed.PartitionKey { return pkey.Loose(c.paths, it.keys[:]) }

// integer decodes a whole number; for any other value the result is 0.
func integer(raw []byte) int64 {
	if n, ok := digits(raw); ok {
		return n
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		f, _ := strconv.ParseFloat(string(raw), 64) // 12.0, or no number
		return int64(f)
	}
	return n
}

// digits decodes a number that consists of a few digits, like nearly all numbers.
func digits(raw []byte) (n int64, ok bool) {
	const most = 18 // an int64 has room for any number of 18 digits
	for _, c := range raw {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, 0 < len(raw) && len(raw) <= most
}

// latestPage is a page of the feed of latest versions. The changes share the memory of their ids, keys and ETags, and
// of their bodies: otherwise each change would take half a dozen allocations.
type latestPage struct {
	c     *Container
	body  []byte
	texts strings.Builder // ids and ETags
	text  []byte          // the last of them

	keys [epk.MaxLevels][]byte // of the last document
	key  feed.PartitionKey
}

// readItem reads a document.
func (p *latestPage) readItem(s *rawjson.Scanner) (feed.Change, bool) {
	it, ok := p.c.scanItem(p.body, s)
	if !ok {
		return feed.Change{}, false
	}
	return feed.Change{
		Op: feed.OpUpsert, ID: p.keepText(it.id), PartitionKey: p.keyOf(&it), LSN: it.lsn,
		Time: time.Unix(integer(it.time), 0).UTC(), ETag: p.keepText(it.etag), Body: it.body,
	}, true
}

// keepText returns the text of a string, as a part of the texts of the page. When the builder grows, earlier strings
// stay valid, because the builder leaves the old memory to them.
func (p *latestPage) keepText(value []byte) string {
	p.text = rawjson.AppendText(p.text[:0], value)
	from := p.texts.Len()
	p.texts.Write(p.text)
	return p.texts.String()[from:]
}

// keyOf returns the partition key of a document: often the key of the previous document, because a batch writes
// documents of the same key.
func (p *latestPage) keyOf(it *item) feed.PartitionKey {
	same := func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
	if p.key == "" || !slices.EqualFunc(it.keys[:], p.keys[:], same) {
		p.keys = it.keys // before key, because keyOf clears values that cannot be part of a key
		p.key = p.c.keyOf(it)
	}
	return p.key
}

// readVersion reads an entry of the feed of all versions and deletes,
// {"current":{…},"metadata":{…},"previous":{…}}.
func (c *Container) readVersion(text []byte, s *rawjson.Scanner) (ch feed.Change, ok bool) {
	var current, previous, metadata rawjson.Span
	for _, key := range s.Object() {
		switch value := s.Value(); string(key.Name()) {
		case "current":
			current = value
		case "previous":
			previous = value
		case "metadata":
			metadata = value
		}
	}
	if s.Bad() {
		return ch, false
	}
	ch = c.readMetadata(s, metadata.Of(text))
	// The current image is read after the previous image, so that the current id and key win. If previous images are
	// not kept, a delete has id and key in the metadata.
	if it, ok := c.readImage(s, text, previous); ok {
		ch.Previous, ch.ID, ch.PartitionKey = it.body, rawjson.Text(it.id), c.keyOf(&it)
	}
	if it, ok := c.readImage(s, text, current); ok && ch.Op != feed.OpDelete {
		ch.Body, ch.ETag, ch.ID, ch.PartitionKey = it.body, rawjson.Text(it.etag), rawjson.Text(it.id), c.keyOf(&it)
	}
	return ch, !s.Bad()
}

// readImage reads an image of an item; null and {} are absent images. A broken image makes the page invalid.
func (c *Container) readImage(page *rawjson.Scanner, text []byte, at rawjson.Span) (item, bool) {
	s := rawjson.Scan(text[:at.To], at.From)
	if s.Peek() != '{' {
		return item{}, false
	}
	it, ok := c.scanItem(text, &s)
	if !ok {
		page.Fail()
	}
	return it, ok && it.id != nil
}

// readMetadata reads the metadata of a version. Only the metadata of a delete contains id and key.
func (c *Container) readMetadata(page *rawjson.Scanner, text []byte) (ch feed.Change) {
	s := rawjson.Scan(text, 0)
	for _, key := range s.Object() {
		switch value := s.Value().Of(text); string(key.Name()) {
		case "lsn":
			ch.LSN = integer(value)
		case "crts":
			ch.Time = time.Unix(integer(value), 0).UTC()
		case "operationType":
			ch.Op = opOf(rawjson.Text(value))
		case "previousImageLSN":
			ch.PreviousLSN = integer(value)
		case "timeToLiveExpired":
			ch.Expired = string(value) == "true"
		case "id":
			ch.ID = rawjson.Text(value)
		case "partitionKey":
			ch.PartitionKey = c.deletedKey(value)
		}
	}
	if s.Bad() { // also without metadata
		page.Fail()
	}
	return ch
}

// opOf reads an operation. An unknown name counts as an upsert, which promises least.
func opOf(name string) feed.Op {
	switch strings.ToLower(name) {
	case "create":
		return feed.OpCreate
	case "replace":
		return feed.OpReplace
	case "delete":
		return feed.OpDelete
	}
	return feed.OpUpsert
}

// deletedKey reads the partition key of a delete: an object with a member for each path, in the order of the paths. The
// names of the members are documented nowhere, so deletedKey tries each likely name.
func (c *Container) deletedKey(text []byte) feed.PartitionKey {
	values := make([][]byte, len(c.paths))
	for i, p := range c.paths {
		name := strings.Join(p, "/")
		for _, path := range []pkey.Path{{name}, {"/" + name}, p, {p[len(p)-1]}} {
			if values[i] = rawjson.Lookup(text, path...); values[i] != nil {
				break
			}
		}
	}
	return pkey.Loose(c.paths, values)
}
