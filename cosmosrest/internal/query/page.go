package query

import (
	"errors"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/sql"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// maxPageTime bounds the search for the rows of a page; what was found by then is the page.
const maxPageTime = 5 * time.Second

// page is a page of rows in the making.
type page struct {
	docs          *wire.Documents
	bound         *sql.Bound
	max           int // rows; 0 is any number
	k             *Continuation
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
func (p *page) fill(s *Scan, begun time.Time) (more bool, err error) {
	err = s.run(func(d document) (int, bool, error) {
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

func (p *page) emit(row []byte) error {
	switch {
	case p.bound.Combination() <= p.skip:
		return nil
	case p.k.Skipped < p.offset:
		p.k.Skipped++
		return nil
	case p.max > 0 && p.docs.Count() == p.max, !p.docs.Fits(row):
		return errFull
	}
	p.docs.Add(row)
	p.k.Taken++
	if p.done() {
		return errEnough
	}
	return nil
}

// done reports that the query has all the rows that it wants.
func (p *page) done() bool { return p.limit >= 0 && p.k.Taken >= p.limit }
