package query

import (
	"container/list"
	"sync"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/sql"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/feed"
)

// Rows that depend on each other are computed at once, and held while their pages are
// fetched, within bounds. They are a cache and nothing more: rows that were dropped are
// computed again from the continuation's place, so a client never has to begin anew.

// The rows of a query that sorts, groups or counts are computed at once. While its pages
// are fetched they are kept, within bounds; rows that were dropped are computed again.
const (
	maxResults     = 64               // queries whose rows are kept
	maxResultBytes = 64 << 20         // of all rows that are kept
	resultLife     = 60 * time.Second // since the last page
)

// Results are the rows of queries whose pages are being fetched. The zero value is ready.
type Results struct {
	mu    sync.Mutex
	list  list.List // of *result, the last used in front
	bytes int
}

// result is the rows of one query.
type result struct {
	name  string
	query uint64
	rows  []sql.Row
	bytes int
	used  time.Time
}

// Kept is how many bytes of how many queries are held.
func (r *Results) Kept() (bytes, queries int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes, r.list.Len()
}

// getRows returns the rows of a query that were put under a name. The query must be the same as
// well: names travel in continuations, which any client may send.
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

// putRows holds rows, and drops the least recently used ones for them.
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

// removeRows drops the rows of a name whose last page was fetched.
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

// expireUnread drops the rows that nobody has asked for in a while: clients abandon queries
// without a word.
func (r *Results) expireUnread() {
	for e := r.list.Back(); e != nil; e = r.list.Back() {
		if found, ok := e.Value.(*result); !ok || time.Since(found.used) < resultLife {
			return
		}
		r.dropElement(e)
	}
}

// dropElement takes rows out of the list and out of the account.
func (r *Results) dropElement(e *list.Element) {
	if gone, ok := r.list.Remove(e).(*result); ok {
		r.bytes -= gone.bytes
	}
}

// pageOfAll fills a page of a query whose rows depend on each other. It goes on at a place
// among them, also where the rows are no longer held, or are others: those of one of the
// ranges of a split, or those that pass another filter.
func (q *Query) pageOfAll(docs *wire.Documents) (more bool, err error) {
	sorted := q.sortingHash()
	if err := q.From.checkOrder(sorted); err != nil {
		return false, err
	}
	kept := q.results
	rows, ok := kept.getRows(q.From.Result, q.hash())
	// Where rows are still held, the page begins at a number. If they have to be
	// computed again, those before its place are left out already.
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

// computeRows runs the query over the whole selection, in one snapshot: so each document counts once.
func (q *Query) computeRows() (rows []sql.Row, err error) {
	q.bound.Until(q.scan.ctx)
	defer q.scan.closeInto(&err)
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

// resumeAfterPage has the rows begin after the place where the last page ended. If the token had no
// room for the keys of that row, its document is looked for, which after a split may be in
// the other range.
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
