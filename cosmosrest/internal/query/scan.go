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

// A scan reads spans in the order of the key space, and each span in the order of last writes. Only in this order can
// a page end at a place that keeps its meaning: "after this LSN" stays true when documents are written, deleted, or
// moved by a split. A page is read from a single snapshot of the container.

// Scan reads the documents of a selection: those of some keys, key by key; those whose ids have a common prefix; or
// all, partition by partition. Each of these is a span. A span is read in the order of last writes, and spans come in
// the order of the key space.
//
// A page is read from a snapshot, which contains each document once. A document written between two pages
// moves to the end of its span. So the document may come again, but is never missed.
type Scan struct {
	ctx   context.Context
	meter *meter.Request
	cont  *docstore.Container
	rng   feed.Range // only documents in this range are shown

	keys   []feed.PartitionKey // the only keys, if pinned
	pinned bool
	ids    []string // the only ids of each key; nil means any
	byID   bool     // use the index of ids, with prefix
	prefix string

	snap *docstore.Snapshot // of the page; nil between pages, and for a single document
	left []span

	docs  int // number of documents read
	bytes int

	timed   bool // loading is measured, which costs two reads of the clock per document
	loading time.Duration
}

// NewScan returns a scan of a request's selection without a query, for ReadFeed.
func NewScan(m *meter.Request, cont *docstore.Container, sel Selection) *Scan {
	s := &Scan{ctx: m.Context(), meter: m, cont: cont, rng: sel.Range}
	if sel.Key != "" {
		s.keys, s.pinned = []feed.PartitionKey{sel.Key}, true
	}
	return s
}

// Read returns how many documents were read so far, and how many bytes they have.
func (s *Scan) Read() (docs, bytes int) { return s.docs, s.bytes }

// Documents fills a page with whole documents, and reports whether another page may follow. If so, next then contains
// where that page begins.
func (s *Scan) Documents(page *wire.Documents, most int, next *Continuation) (more bool, err error) {
	defer s.closeInto(&err)
	if err := s.openAt(*next); err != nil {
		return false, err
	}
	err = s.runScan(func(d document) (int, bool, error) {
		if d.skip > 0 { // a query has returned some of its rows already
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

// span is a part of a scan read in the order of last writes.
type span struct {
	rng  feed.Range
	key  feed.PartitionKey // of a scan by keys; empty if several keys have the same effective key
	part bool              // the range does not contain all documents of the key
	at   progress
}

// progress is how far a span was read: all documents up to an LSN; of the documents with the next LSN, all up to a
// given document, in the order of resource ids; and of this document, a number of combinations of the rows of FROM
// and JOIN. The LSN alone is not enough, because all documents of a batch have the same LSN.
type progress struct {
	After int64 `json:"a,omitempty"`
	// number of its resource id; in tokens of older builds "d" was a hash, and all documents of the LSN are shown again
	Doc  uint64 `json:"i,omitempty"`
	Rows int    `json:"r,omitempty"`
}

// allRows means that all rows of a document have been processed, however many there are.
const allRows = -1 // rows of a document

// document is a document that a scan has read.
type document struct {
	id   string
	key  feed.PartitionKey
	lsn  int64
	body []byte
	skip int // combinations of its rows that earlier pages have processed
}

// number returns the place of a document among the documents with its LSN.
func (d *document) number() uint64 { return sql.DocumentNumber(d.body) }

// visit processes a document. A visit returns how many combinations of the document's rows are done, or allRows, and
// whether to go on.
type visit func(d document) (rows int, more bool, err error)

// runScan visits documents until each returns false for more, or no documents are left. A span across several
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

// visitSpan visits the documents of the first unread span, and records the span's progress.
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

// inPlaces yields documents in the order of their places, from a place onward: by LSN and, if a batch has given
// several documents the same LSN, by resource id. If the document at the place has changed since, that document has a
// later LSN, but the place can still be found.
func inPlaces(docs iter.Seq2[document, error], from progress) iter.Seq2[document, error] {
	return func(yield func(document, error) bool) {
		var together []document // documents with the same LSN
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

// documentsOf yields the documents of a span written after its progress.
func (s *Scan) documentsOf(st *span) iter.Seq2[document, error] {
	switch {
	case s.byID:
		return s.items(s.snap.WithIDs(s.ctx, s.prefix, st.at.After), st.rng)
	case s.pinned && st.key != "":
		return s.ofKey(st)
	}
	return s.items(s.snap.Documents(s.ctx, st.rng, st.at.After), feed.FullRange())
}

// ofKey yields the documents of a key, or of all keys that begin with the key, in the span's range.
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

// items yields the documents of a sequence that are in a range.
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

// points yields the documents of a key with the scan's ids, in the order of last writes like all others. They must be
// looked up before they can be sorted, so if there are many, their bodies are read a second time.
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
				// The LSN is enough to sort the document.
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
const maxHeldPoints = 8 << 20 // further documents are read again

// point returns a document, or the zero document if there is none.
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

// cutSpans divides the spans of a scan at the bounds of partitions, because a feed is read from a single partition at
// a time.
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

// hashText returns a hash that is the same in every process, because continuations outlive the server.
func hashText(texts ...string) uint64 {
	h := fnv.New64a()
	for _, t := range texts {
		_, _ = h.Write([]byte(t)) // never fails
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}
