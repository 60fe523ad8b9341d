package query

import (
	"container/list"
	"sync"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/sql"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/feed"
)

// Rows that depend on each other are computed all at once, and kept while the client fetches their pages, within
// limits. They are only a cache: if rows were dropped, they are computed again from the continuation's place, so a
// client never has to begin again.

// The rows of a query that sorts, groups or counts are computed all at once. They are kept while their pages are
// fetched, within these limits; dropped rows are computed again.
const (
	maxResults     = 64               // queries whose rows are kept
	maxResultBytes = 64 << 20         // of all kept rows
	resultLife     = 60 * time.Second // since the last page
)

// Results keeps the rows of queries whose pages are being fetched. The zero value is ready to use.
type Results struct {
	mu    sync.Mutex
	list  list.List // of *result, the most recently used first
	bytes int
}

// result contains the rows of a query.
type result struct {
	name  string
	query uint64
	rows  []sql.Row
	bytes int
	used  time.Time
}

// Kept returns how many bytes of how many queries are kept.
func (r *Results) Kept() (bytes, queries int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes, r.list.Len()
}

// getRows returns the rows of a query stored under a name. The query must be the same too, because names
// are in continuations, and a client may send any continuation.
func (r *Results) getRows(name string, query uint64) ([]sql.Row, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expireUnread()
	for e := r.list.Front(); e != nil; e = e.Next() {
		if found, ok := e.Value.(*result); ok && found.name == name && found.query == query {
			found.used = time.Now()
			r.list.MoveToFront(e)
			return found.rows, true
		}
	}
	return nil, false
}

// putRows stores rows. To make room, putRows drops the least recently used rows.
func (r *Results) putRows(name string, query uint64, rows []sql.Row) {
	made := &result{name: name, query: query, rows: rows, used: time.Now()}
	for i := range rows {
		made.bytes += rows[i].Held()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expireUnread()
	if made.bytes > maxResultBytes {
		return
	}
	r.list.PushFront(made)
	r.bytes += made.bytes
	for r.list.Len() > maxResults || r.bytes > maxResultBytes {
		r.dropElement(r.list.Back())
	}
}

// removeRows drops the rows of a name after the last page was fetched.
func (r *Results) removeRows(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := r.list.Front(); e != nil; e = e.Next() {
		if found, ok := e.Value.(*result); ok && found.name == name {
			r.dropElement(e)
			return
		}
	}
}

// expireUnread drops rows that were not requested for some time, because clients abandon queries without notice.
func (r *Results) expireUnread() {
	for e := r.list.Back(); e != nil; e = r.list.Back() {
		if found, ok := e.Value.(*result); !ok || time.Since(found.used) < resultLife {
			return
		}
		r.dropElement(e)
	}
}

// dropElement removes rows from the list and subtracts their bytes.
func (r *Results) dropElement(e *list.Element) {
	if gone, ok := r.list.Remove(e).(*result); ok {
		r.bytes -= gone.bytes
	}
}

// pageOfAll fills a page of a query whose rows depend on each other. pageOfAll continues at a place among the rows.
// This also works if the rows are no longer kept, or have changed: after a split, only the rows of a single range, or
// with another filter, other rows.
func (q *Query) pageOfAll(docs *wire.Documents) (more bool, err error) {
	sorted := q.sortingHash()
	if err := q.From.checkOrder(sorted); err != nil {
		return false, err
	}
	kept := q.results
	rows, ok := kept.getRows(q.From.Result, q.hash())
	// If the rows are still kept, the page begins at a row number. If they must be computed again, the computation
	// leaves out the rows before the place.
	begin := min(q.From.Rows, len(rows))
	if !ok {
		if rows, err = q.computeRows(); err != nil {
			return false, err
		}
		begin = 0
	}
	n := begin
	for n < len(rows) && (q.Max == 0 || docs.Count() < q.Max) && docs.Fits(rows[n].JSON) {
		docs.Add(rows[n].JSON)
		n++
	}
	if n == len(rows) {
		kept.removeRows(q.From.Result)
		return false, nil
	}
	place := rows[n-1].Place()
	q.From.Place, q.From.Sorted = &place, sorted
	q.From.Rows, q.From.Taken = n, q.From.Taken+int64(n-begin)
	if !ok {
		q.From.Result = wire.NewUUID()
		kept.putRows(q.From.Result, q.hash(), rows)
	}
	return true, nil
}

// computeRows runs the query over the whole selection, in a single snapshot, so each document counts once.
func (q *Query) computeRows() (rows []sql.Row, err error) {
	q.bound.Until(q.scan.ctx)
	defer q.scan.closeInto(&err)
	q.scan.anyOrder = true
	if err := q.scan.openAt(q.From); err != nil {
		return nil, err
	}
	if err := q.resumeAfterPage(); err != nil {
		return nil, err
	}
	run := q.bound.NewRun()
	held := 0
	err = q.scan.runScan(func(d document) (int, bool, error) {
		err := run.AddRest(d.body, d.skip)
		if now := run.Held(); err == nil && now != held {
			err = q.meter.Hold(now - held)
			held = now
		}
		return allRows, true, err
	})
	if err != nil {
		return nil, err
	}
	return run.Finish()
}

// resumeAfterPage makes the rows begin after the place where the last page ended. If the token had no room for the
// sort keys of that row, resumeAfterPage searches its document, in the whole key space, because after a split the
// document may be in the other range.
func (q *Query) resumeAfterPage() error {
	if q.From.Place == nil {
		return nil
	}
	err := q.bound.After(*q.From.Place, q.From.Taken)
	if err != nil || !q.bound.Unsettled() {
		return err
	}
	s := *q.scan
	s.rng = feed.FullRange()
	if err := s.beginAt(Continuation{}); err != nil {
		return err
	}
	err = s.runScan(func(d document) (int, bool, error) { return allRows, !q.bound.Settle(d.body), nil })
	q.scan.docs, q.scan.bytes = s.docs, s.bytes
	return err
}
