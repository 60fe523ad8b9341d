package cosmosrest

import (
	"errors"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/sql"
)

const (
	usualRows    = 100     // of a page that asks for no number
	maxPageBytes = 4 << 20 // of a page; a larger row comes alone

	// maxPageTime bounds the search for the rows of a page; what was found by then is
	// the page.
	maxPageTime = 5 * time.Second
)

// pageRows is how many rows a page of a query or of ReadFeed may have; 0 is any number.
func (c *call) pageRows() (int, error) {
	if c.header(headerMaxItems) == "" {
		return usualRows, nil
	}
	return c.maxItems()
}

// rowPage is a page of rows in the making.
type rowPage struct {
	b             *feedBody
	max           int // rows; 0 is any number
	k             *continuation
	offset, limit int64
	skip, seen    int // rows of the present document: to leave out, so far
}

// errFull ends a document's rows: the page has no room for the next one, or the query
// has all it wants.
var errFull = errors.New("page is full")

// fill takes documents until the page is full, or there are no more rows.
func (p *rowPage) fill(s *scan, bound *sql.Bound, begun time.Time) (more bool, err error) {
	err = s.run(func(d record) (int, bool, error) {
		p.skip, p.seen = d.skip, 0
		err := bound.Rows(d.body, p.emit)
		if errors.Is(err, errFull) {
			more = !p.done()
			return p.seen, false, nil
		}
		if s.docs > 1 && time.Since(begun) > maxPageTime { // the first may be one that was read for the page before
			more = true
		}
		return p.seen, !more, err
	})
	return more, err
}

func (p *rowPage) emit(row []byte) error {
	switch {
	case p.seen < p.skip:
		p.seen++
		return nil
	case p.k.Skipped < p.offset:
		p.seen++
		p.k.Skipped++
		return nil
	case !p.b.fits(row):
		return errFull
	}
	p.b.add(row)
	p.seen++
	p.k.Taken++
	if p.b.count == p.max || p.done() {
		return errFull
	}
	return nil
}

// done tells that the query has all the rows that it wants.
func (p *rowPage) done() bool { return p.limit >= 0 && p.k.Taken >= p.limit }

// fits tells whether a row has room in a page.
func (b *feedBody) fits(row []byte) bool {
	return b.count == 0 || len(b.text)+len(row) < maxPageBytes
}
