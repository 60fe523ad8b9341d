package cosmosrest

import (
	"container/list"
	"context"
	"encoding/json"
	"hash/maphash"
	"net/http"
	"sync"
	"time"

	"github.com/millrace/changefeed"
)

// The rows of a query that sorts, groups or counts are computed at once. While its pages
// are fetched they are kept, within bounds; rows that were dropped are computed again.
const (
	maxResults     = 64               // queries whose rows are kept
	maxResultBytes = 64 << 20         // of all rows that are kept
	resultLife     = 60 * time.Second // since the last page
	rowOverhead    = 24               // bytes of a row besides its text

	maxHeldRows = 512 << 20 // bytes that queries hold while they are computed, together
	seenCost    = 16        // bytes for a document that has been seen
	holdPause   = time.Second

	maxCompute = 60 * time.Second // to compute the rows; then it is a 408
)

// results are the rows of queries whose pages are being fetched. The zero value is
// ready.
type results struct {
	mu    sync.Mutex
	list  list.List // of *keptRows, the one used last in front
	bytes int
}

// keptRows are the rows of one query.
type keptRows struct {
	name  string
	query uint64
	rows  []json.RawMessage
	bytes int
	used  time.Time
}

// get are the rows of a query that were kept under a name.
func (r *results) get(name string, query uint64) ([]json.RawMessage, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire()
	for e := r.list.Front(); e != nil; e = e.Next() {
		if found, ok := e.Value.(*keptRows); ok && found.name == name && found.query == query {
			found.used = time.Now()
			r.list.MoveToFront(e)
			return found.rows, true
		}
	}
	return nil, false
}

// put keeps rows, and drops others for them.
func (r *results) put(name string, query uint64, rows []json.RawMessage) {
	made := &keptRows{name: name, query: query, rows: rows, used: time.Now()}
	for _, row := range rows {
		made.bytes += len(row) + rowOverhead
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire()
	if made.bytes > maxResultBytes {
		return
	}
	r.list.PushFront(made)
	r.bytes += made.bytes
	for r.list.Len() > maxResults || r.bytes > maxResultBytes {
		r.drop(r.list.Back())
	}
}

// remove forgets the rows of a name whose last page was fetched.
func (r *results) remove(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := r.list.Front(); e != nil; e = e.Next() {
		if found, ok := e.Value.(*keptRows); ok && found.name == name {
			r.drop(e)
			return
		}
	}
}

// expire forgets the rows that nobody has asked for in a while.
func (r *results) expire() {
	for e := r.list.Back(); e != nil; e = r.list.Back() {
		if found, ok := e.Value.(*keptRows); !ok || time.Since(found.used) < resultLife {
			return
		}
		r.drop(e)
	}
}

func (r *results) drop(e *list.Element) {
	if gone, ok := r.list.Remove(e).(*keptRows); ok {
		r.bytes -= gone.bytes
	}
}

// pageOfAll fills a page of a query whose rows depend on each other. Behind a split, a
// client goes on with one continuation in several ranges: the first of them has the rows
// that are left.
func (q *query) pageOfAll(b *feedBody) (more bool, err error) {
	if q.from.Rows > 0 {
		if !q.scan.rng.Holds(q.from.Min) {
			return false, nil
		}
		q.scan.rng = changefeed.Range{Min: q.from.Min, Max: q.from.Max}
	}
	kept := &q.c.s.results
	rows, ok := kept.get(q.from.Result, q.from.Query)
	if !ok {
		if rows, err = q.compute(); err != nil {
			return false, err
		}
	}
	n := min(q.from.Rows, len(rows))
	for n < len(rows) && (q.max == 0 || b.count < q.max) && b.fits(rows[n]) {
		b.add(rows[n])
		n++
	}
	if n == len(rows) {
		kept.remove(q.from.Result)
		return false, nil
	}
	q.from.Rows, q.from.Min, q.from.Max = n, q.scan.rng.Min, q.scan.rng.Max
	if !ok {
		q.from.Result = newUUID()
		kept.put(q.from.Result, q.from.Query, rows)
	}
	return true, nil
}

// compute runs the query over the whole selection. A document that is written meanwhile
// counts once.
func (q *query) compute() ([]json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(q.c.ctx, maxCompute)
	defer cancel()
	q.scan.ctx = ctx
	q.bound.Until(ctx)
	if err := q.scan.begin(continuation{}); err != nil {
		return nil, err
	}
	run := q.bound.NewRun()
	held := 0
	defer func() { q.c.s.held.Add(-int64(held)) }()
	seed := maphash.MakeSeed()
	seen := map[uint64]struct{}{}
	err := q.scan.run(func(d record) (int, bool, error) {
		if !q.scan.pinned && !q.scan.byID {
			var h maphash.Hash
			h.SetSeed(seed)
			_, _ = h.WriteString(string(d.key)) // never fails
			_, _ = h.WriteString(d.id)
			if _, again := seen[h.Sum64()]; again {
				return 0, true, nil
			}
			seen[h.Sum64()] = struct{}{}
		}
		err := run.Add(d.body)
		if now := run.Held() + seenCost*len(seen); err == nil && now != held {
			err = q.hold(now - held)
			held = now
		}
		return 0, true, err
	})
	if err != nil {
		return nil, err
	}
	return run.Finish()
}

// hold accounts for bytes more that a query holds. When all together hold too much, it is
// a 429: others will be done soon.
func (q *query) hold(more int) error {
	if q.c.s.held.Add(int64(more)) <= maxHeldRows {
		return nil
	}
	f := newFault(http.StatusTooManyRequests, subThrottled, codeTooManyRequests,
		"The queries that sort, group or count hold more than %d MB together. Try again in %v", maxHeldRows>>20, holdPause)
	f.after = holdPause
	return f
}
