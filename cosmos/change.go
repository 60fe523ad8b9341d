package cosmos

import (
	"fmt"
	"strings"
	"time"

	"github.com/millrace/changefeed"
)

// changes reads the body of a page, {"_rid":…,"Documents":[…],"_count":…}. Documents
// are cut out and not decoded, because decoding would cost more than all the rest of a
// read.
func (c *Container) changes(body []byte, m changefeed.Mode) (list []changefeed.Change, err error) {
	read := c.item
	if m == changefeed.AllVersionsAndDeletes {
		read = c.version
	}
	each := scanner{text: body}
	each.documents(func() {
		ch, ok := read(&each)
		if ok {
			list = append(list, ch)
		}
	})
	if each.bad {
		return nil, fmt.Errorf("page has an error near byte %d of %d: %w", each.at, len(body), errJSON)
	}
	return list, nil
}

// documents calls visit at each document of a page; visit steps over it.
func (s *scanner) documents(visit func()) {
	listed := false
	s.list('{', '}', func() {
		name := s.str()
		if !s.take(':') {
			return
		}
		if string(name) == `"Documents"` {
			listed = true
			s.array(visit)
			return
		}
		s.value()
	})
	s.bad = s.bad || !listed
}

// item is a document, with the values that a change needs.
type item struct {
	body      []byte
	id, etag  []byte
	lsn, time []byte
	keys      [][]byte
}

// scanItem steps over a document and cuts out the LSN, which the feed adds to the
// stored document: a handler must get the document as it was written. It overwrites
// text.
func (c *Container) scanItem(s *scanner) (it item, ok bool) {
	it.keys = make([][]byte, len(c.paths))
	if s.peek() != '{' {
		s.bad = true
		return it, false
	}
	from := s.at
	var lsn member
	s.object(func(m member) {
		switch string(m.name) {
		case "id":
			it.id = m.value
		case "_etag":
			it.etag = m.value
		case "_ts":
			it.time = m.value
		case "_lsn":
			it.lsn, lsn = m.value, m
		}
		for i, p := range c.paths {
			if string(m.name) == p[0] {
				it.keys[i] = lookup(m.value, p[1:])
			}
		}
	})
	if s.bad {
		return it, false
	}
	it.body = s.text[from:s.at]
	if it.lsn != nil {
		it.body = cut(s.text, from, s.at, lsn)
	}
	return it, true
}

// cut removes a member from the object at text[from:to]. At the end of the object,
// where the service puts the LSN, a brace over the comma is enough; elsewhere the
// object is copied.
func cut(text []byte, from, to int, m member) []byte {
	after := scanner{text: text, at: m.to}
	switch last := after.peek() == '}'; {
	case last && m.comma >= 0:
		text[m.comma] = '}'
		return text[from : m.comma+1 : m.comma+1]
	case last:
		return []byte("{}")
	case m.comma >= 0:
		return append(append(make([]byte, 0, to-from), text[from:m.comma]...), text[m.to:to]...)
	}
	return append(append(make([]byte, 0, to-from), text[from:m.from]...), text[after.at+1:to]...)
}

// item reads a document of the feed of latest versions.
func (c *Container) item(s *scanner) (changefeed.Change, bool) {
	it, ok := c.scanItem(s)
	if !ok {
		return changefeed.Change{}, false
	}
	// The text of the LSN lies after the cut and is still there.
	return changefeed.Change{
		Op: changefeed.OpUpsert, ID: unquote(it.id), PartitionKey: keyOf(it.keys), LSN: integer(it.lsn),
		Time: time.Unix(integer(it.time), 0).UTC(), ETag: unquote(it.etag), Body: it.body,
	}, true
}

// version reads an entry of the feed of all versions and deletes,
// {"current":{…},"metadata":{…},"previous":{…}}.
func (c *Container) version(s *scanner) (ch changefeed.Change, ok bool) {
	if s.peek() != '{' {
		s.bad = true
		return ch, false
	}
	var current, previous, metadata []byte
	s.object(func(m member) {
		switch string(m.name) {
		case "current":
			current = m.value
		case "previous":
			previous = m.value
		case "metadata":
			metadata = m.value
		}
	})
	if s.bad || len(metadata) == 0 || metadata[0] != '{' {
		s.bad = true
		return ch, false
	}
	ch = c.metadata(s, metadata)
	if it, ok := c.image(s, previous); ok {
		ch.Previous, ch.ID, ch.PartitionKey = it.body, unquote(it.id), keyOf(it.keys)
	}
	if it, ok := c.image(s, current); ok && ch.Op != changefeed.OpDelete {
		ch.Body, ch.ETag, ch.ID, ch.PartitionKey = it.body, unquote(it.etag), unquote(it.id), keyOf(it.keys)
	}
	return ch, !s.bad
}

// image reads an image of an item; null and {} are absent images.
func (c *Container) image(of *scanner, text []byte) (item, bool) {
	if len(text) == 0 || text[0] != '{' {
		return item{}, false
	}
	s := scanner{text: text}
	it, ok := c.scanItem(&s)
	of.bad = of.bad || s.bad
	return it, ok && it.id != nil
}

// metadata reads the metadata of a version. Only those of a delete have id and key.
func (c *Container) metadata(of *scanner, text []byte) (ch changefeed.Change) {
	s := scanner{text: text}
	s.object(func(m member) {
		switch string(m.name) {
		case "lsn":
			ch.LSN = integer(m.value)
		case "crts":
			ch.Time = time.Unix(integer(m.value), 0).UTC()
		case "operationType":
			ch.Op = opOf(unquote(m.value))
		case "previousImageLSN":
			ch.PreviousLSN = integer(m.value)
		case "timeToLiveExpired":
			ch.Expired = string(m.value) == "true"
		case "id":
			ch.ID = unquote(m.value)
		case "partitionKey":
			ch.PartitionKey = c.deletedKey(m.value)
		}
	})
	of.bad = of.bad || s.bad
	return ch
}

func opOf(name string) changefeed.Op {
	switch strings.ToLower(name) {
	case "create":
		return changefeed.OpCreate
	case "replace":
		return changefeed.OpReplace
	case "delete":
		return changefeed.OpDelete
	}
	return changefeed.OpUpsert
}

// deletedKey reads the partition key of a delete: an object with a member for each
// path, in the order of the paths. How the members are named is documented nowhere, so
// each likely name is tried.
func (c *Container) deletedKey(text []byte) changefeed.PartitionKey {
	values := make([][]byte, len(c.paths))
	for i, p := range c.paths {
		name := strings.Join(p, "/")
		for _, path := range []keyPath{{name}, {"/" + name}, p, {p[len(p)-1]}} {
			if values[i] = lookup(text, path); values[i] != nil {
				break
			}
		}
	}
	return keyOf(values)
}
