package query

import (
	"errors"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/sql"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// Pages of a streaming query: each document's rows are emitted as soon as the document is read.

// maxPageTime limits the search for the rows of a page, because a filter may match nothing in millions of documents,
// and clients give up. As in the service, the rows found so far are then the page.
const maxPageTime = 5 * time.Second

// page is a page of rows that is being filled.
type page struct {
	docs          *wire.Documents
	bound         *sql.Bound
	max           int // rows; 0 means any number
	k             *Continuation
	offset, limit int64
	skip          int // combinations of the present document that earlier pages have processed
}

// errFull ends a document at the first row that does not fit in the page. errEnough ends a document when the query
// has all its rows.
var (
	errFull   = errors.New("page is full")
	errEnough = errors.New("query has all its rows")
)

// fillPage reads documents until a row is left for another page, or there are no more rows. fillPage always looks for
// this further row, because JavaScript's SDK expects a further row after a continuation.
func (p *page) fillPage(s *Scan, begun time.Time) (more bool, err error) {
	err = s.runScan(func(d document) (int, bool, error) {
		p.skip = d.skip
		err := p.bound.Rows(d.body, p.emitRow)
		switch {
		case errors.Is(err, errFull):
			more = true
			return p.bound.Combination() - 1, false, nil
		case errors.Is(err, errEnough):
			return allRows, false, nil
		// the first document may have been read for the previous page too
		case s.docs > 1 && time.Since(begun) > maxPageTime:
			more = true
		}
		return allRows, !more, err
	})
	return more, err
}

// emitRow adds a row, unless the row was on an earlier page or is skipped by OFFSET.
func (p *page) emitRow(row []byte) error {
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
	if p.hasAllRows() {
		return errEnough
	}
	return nil
}

// hasAllRows reports whether the query has all its rows.
func (p *page) hasAllRows() bool { return p.limit >= 0 && p.k.Taken >= p.limit }
