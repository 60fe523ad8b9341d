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
	bound         *sql.Bound
	max           int // rows; 0 is any number
	k             *continuation
	offset, limit int64
	skip          int // combinations of the present document that earlier pages are done with
}

// errFull ends a document's rows at one that the page has no room for, errEnough when the
// query has all it wants.
var (
	errFull   = errors.New("page is full")
	errEnough = errors.New("query has all its rows")
)

// fill takes documents until a row is left for another page, or there are no more rows: a
// client may take the word that another page follows for a row.
func (p *rowPage) fill(s *scan, begun time.Time) (more bool, err error) {
	err = s.run(func(d record) (int, bool, error) {
		p.skip = d.skip
		err := p.bound.Rows(d.body, p.emit)
		switch {
		case errors.Is(err, errFull):
			more = true
			return p.bound.Combination() - 1, false, nil
		case errors.Is(err, errEnough):
			return allRows, false, nil
		case s.docs > 1 && time.Since(begun) > maxPageTime: // the first may be one that was read for the page before
			more = true
		}
		return allRows, !more, err
	})
	return more, err
}

func (p *rowPage) emit(row []byte) error {
	switch {
	case p.bound.Combination() <= p.skip:
		return nil
	case p.k.Skipped < p.offset:
		p.k.Skipped++
		return nil
	case p.max > 0 && p.b.count == p.max, !p.b.fits(row):
		return errFull
	}
	p.b.add(row)
	p.k.Taken++
	if p.done() {
		return errEnough
	}
	return nil
}

// done tells that the query has all the rows that it wants.
func (p *rowPage) done() bool { return p.limit >= 0 && p.k.Taken >= p.limit }

// fits tells whether a row has room in a page.
func (b *feedBody) fits(row []byte) bool {
	return b.count == 0 || len(b.text)+len(row) < maxPageBytes
}
