package query

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"iter"
	"slices"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/meter"
	"github.com/millrace/changefeed/cosmosrest/internal/sql"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// Scans. The order of a scan is that of last writes, within spans in the order of the key
// space, because it is the only order in which a page can end at a place that still means
// the same later: "after this LSN" stays true when documents are written, deleted, or moved
// by a split. A page is read from one snapshot of the container.

// Scan reads the documents of a selection: those of some keys key after key, those whose
// ids begin alike, or else partition after partition. Each such span is read in the order
// of last writes, and the spans come in the order of the key space.
//
// A page is read from a snapshot, in which each document is once. A document that is written
// between two pages moves to the end of its span. So it may come again, and is never missed.
type Scan struct {
	ctx   context.Context
	meter *meter.Request
	cont  *docstore.Container
	rng   feed.Range // no others are shown

	keys   []feed.PartitionKey // the only ones, if pinned
	pinned bool
	ids    []string // the only ones of each key; nil is any
	byID   bool     // by the index of ids, those with the prefix
	prefix string

	snap *docstore.Snapshot // of the page; nil between pages, and for a single document
	left []span

	docs  int // that were read
	bytes int

	timed   bool // loading is measured, which costs two looks at the clock for each document
	loading time.Duration
}

// NewScan is a scan of a request's selection, without a query: for ReadFeed.
func NewScan(m *meter.Request, cont *docstore.Container, sel Selection) *Scan {
	s := &Scan{ctx: m.Context(), meter: m, cont: cont, rng: sel.Range}
	if sel.Key != "" {
		s.keys, s.pinned = []feed.PartitionKey{sel.Key}, true
	}
	return s
}

// Read is how many documents were read so far, and how many bytes they have.
func (s *Scan) Read() (docs, bytes int) { return s.docs, s.bytes }

// Documents fills a page with whole documents, and reports whether another page may follow;
// next says then where that begins.
func (s *Scan) Documents(page *wire.Documents, most int, next *Continuation) (more bool, err error) {
	defer s.closeInto(&err)
	if err := s.openAt(*next); err != nil {
		return false, err
	}
	err = s.runScan(func(d document) (int, bool, error) {
		if d.skip > 0 { // by a query, which has rows of it
			return allRows, true, nil
		}
		if most > 0 && page.Count() == most || !page.Fits(d.body) {
			more = true
			return 0, false, nil
		}
		page.Add(d.body)
		return allRows, true, nil
	})
	if more {
		s.saveProgress(next)
	}
	return more, err
}

// span is a part of a scan, read without interruption in the order of last writes.
type span struct {
	rng  feed.Range
	key  feed.PartitionKey // of a scan by keys; empty if several have this one effective key
	part bool              // not all that begins with the key is in the range
	at   progress
}

// progress is how far a span was read: all documents up to an LSN; of those with the next
// LSN, all up to one document in the order of resource ids; and of that document so many combinations of the rows of
// FROM and JOIN. A batch gives all its documents one LSN, so the LSN alone would not do.
type progress struct {
	After int64  `json:"a,omitempty"`
	Doc   uint64 `json:"i,omitempty"` // number of its resource id; "d" was a hash in tokens of older builds, which show all of the LSN again
	Rows  int    `json:"r,omitempty"`
}

// allRows says that a document is done with, however many rows it has.
const allRows = -1 // of a document

// document is a document that a scan has read.
type document struct {
	id   string
	key  feed.PartitionKey
	lsn  int64
	body []byte
	skip int // combinations of its rows that earlier pages are done with
}

// number is the place of a document among those of its LSN.
func (d *document) number() uint64 { return sql.DocumentNumber(d.body) }

// visit takes a document, and returns how many combinations of its rows are done, or
// allRows, and whether to go on.
type visit func(d document) (rows int, more bool, err error)

// runScan visits documents until each has enough or none is left. A span that goes across several
// partitions is read in parts.
func (s *Scan) runScan(each visit) error {
	for len(s.left) > 0 {
		more, err := s.visitSpan(each)
		switch {
		case errors.Is(err, feed.ErrGone):
			s.cutSpans()
		case err != nil || !more:
			return err
		default:
			s.left = s.left[1:]
		}
	}
	return nil
}

// visitSpan visits the documents of the first span that is left, and notes its progress.
func (s *Scan) visitSpan(each visit) (more bool, err error) {
	st := &s.left[0]
	var begun time.Time
	if s.timed {
		begun = time.Now()
	}
	var last document
	rows := 0
	defer func() {
		if last.body != nil {
			st.at = progress{After: last.lsn - 1, Doc: last.number(), Rows: rows}
		}
	}()
	for d, err := range inPlaces(s.documentsOf(st), st.at) {
		if err != nil {
			return false, err
		}
		if s.timed {
			s.loading += time.Since(begun)
		}
		if s.ctx.Err() != nil {
			return false, context.Cause(s.ctx)
		}
		s.docs++
		s.bytes += len(d.body)
		if err := s.meter.Work(meter.DocWork + len(d.body)); err != nil {
			return false, err
		}
		done, more, err := each(d)
		if err != nil {
			return false, err
		}
		if last, rows = d, done; !more {
			return false, nil
		}
		if s.timed {
			begun = time.Now()
		}
	}
	return true, nil
}

// inPlaces has documents in the order of their places, from a place on: by LSN and, where a batch has given several the same,
// by resource id. So the place is found also when the document that was there has changed since, which has a later LSN then.
func inPlaces(docs iter.Seq2[document, error], from progress) iter.Seq2[document, error] {
	return func(yield func(document, error) bool) {
		var together []document // of one LSN
		release := func() bool {
			if len(together) > 1 {
				slices.SortStableFunc(together, func(a, b document) int { return cmp.Compare(a.number(), b.number()) })
			}
			for _, d := range together {
				if d.lsn == from.After+1 && from.Doc != 0 {
					switch n := d.number(); {
					case n < from.Doc || n == from.Doc && from.Rows == allRows:
						continue
					case n == from.Doc:
						d.skip = from.Rows
					}
				}
				if !yield(d, nil) {
					return false
				}
			}
			together = together[:0]
			return true
		}
		for d, err := range docs {
			if len(together) > 0 && (err != nil || d.lsn != together[0].lsn) && !release() {
				return
			}
			if err == nil {
				together = append(together, d)
			} else if !yield(d, err) {
				return
			}
		}
		release()
	}
}

// documentsOf are those of a span that were written after its progress.
func (s *Scan) documentsOf(st *span) iter.Seq2[document, error] {
	switch {
	case s.byID:
		return s.items(s.snap.WithIDs(s.ctx, s.prefix, st.at.After), st.rng)
	case s.pinned && st.key != "":
		return s.ofKey(st)
	}
	return s.items(s.snap.Documents(s.ctx, st.rng, st.at.After), feed.FullRange())
}

// ofKey are the documents of a key, or of all keys that begin with it, in the span's range.
func (s *Scan) ofKey(st *span) iter.Seq2[document, error] {
	if s.ids != nil {
		return s.points(st.key, st.at.After)
	}
	in := feed.FullRange()
	if st.part {
		in = st.rng
	}
	return s.items(s.snap.Logical(s.ctx, st.key, st.at.After), in)
}

// items are those of a sequence that lie in a range.
func (s *Scan) items(all iter.Seq2[docstore.Item, error], in feed.Range) iter.Seq2[document, error] {
	return func(yield func(document, error) bool) {
		for it, err := range all {
			if err == nil && in != feed.FullRange() {
				place, failed := s.cont.Locate(s.ctx, it.Key)
				if failed == nil && !in.Holds(place) {
					continue
				}
				err = failed
			}
			if !yield(documentOf(it), err) {
				return
			}
		}
	}
}

func documentOf(it docstore.Item) document {
	return document{id: it.ID, key: it.Key, lsn: it.LSN, body: it.Body}
}

// points are the documents of a key with the scan's ids, in the order of last writes like
// all others. They must be looked up before they can be sorted, so the bodies of many are
// read a second time.
func (s *Scan) points(key feed.PartitionKey, after int64) iter.Seq2[document, error] {
	return func(yield func(document, error) bool) {
		var found []document
		bodies := 0
		for _, id := range s.ids {
			d, err := s.point(key, id)
			switch {
			case err != nil:
				yield(d, err)
				return
			case d.lsn <= after:
				continue
			}
			if bodies += len(d.body); bodies > maxHeldPoints {
				// Its LSN is enough to sort it.
				d.body = nil
			}
			found = append(found, d)
		}
		slices.SortStableFunc(found, func(a, b document) int { return cmp.Compare(a.lsn, b.lsn) })
		for _, d := range found {
			var err error
			if d.body == nil {
				d, err = s.point(key, d.id)
			}
			if (err != nil || d.body != nil) && !yield(d, err) {
				return
			}
		}
	}
}

// maxHeldPoints is how many bytes of documents are held while all ids are looked up.
const maxHeldPoints = 8 << 20 // bytes of documents that are kept while all are looked up; others are read again

// point is a document, or the zero document if there is none.
func (s *Scan) point(key feed.PartitionKey, id string) (document, error) {
	read := s.cont.Item
	if s.snap != nil {
		read = s.snap.Item
	}
	it, err := read(s.ctx, key, id)
	if errors.Is(err, feed.ErrNotFound) {
		return document{}, nil
	}
	return documentOf(it), err
}

// cutSpans divides the spans of a scan at the bounds of partitions, since a feed is read from one
// partition at a time.
func (s *Scan) cutSpans() {
	var left []span
	for _, st := range s.left {
		for _, p := range s.snap.Partitions() {
			if r := st.rng.Intersect(p.Range).Intersect(s.rng); !r.Empty() {
				left = append(left, span{rng: r, at: st.at})
			}
		}
	}
	s.left = left
}

// hashText is a hash that is the same in every process, because continuations outlive the
// server.
func hashText(texts ...string) uint64 {
	h := fnv.New64a()
	for _, t := range texts {
		_, _ = h.Write([]byte(t)) // never fails
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}
