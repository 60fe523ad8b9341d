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

// A scan reads spans in the order of the key space, and each span in the order of creation, as the service does. A
// page can end at any place in this order: "created after this document" stays true when documents are written,
// deleted, or moved by a split. A page is read from a single snapshot of the container.

// Scan reads the documents of a selection: those of some keys, key by key; those with some ids, or whose ids have a
// common prefix; or all, partition by partition. Each of these is a span. A span is read in the order of creation, and
// spans come in the order of the key space.
//
// A page is read from a snapshot, which contains each document once. A document keeps its place when it is written
// between two pages, so it comes once.
type Scan struct {
	ctx   context.Context
	meter *meter.Request
	cont  *docstore.Container
	rng   feed.Range // only documents in this range are shown

	keys   []feed.PartitionKey // the only keys, if pinned
	pinned bool
	ids    []string // the only ids of each key, or of all keys if none is pinned; nil means any
	byID   bool     // use the index of ids, with prefix
	prefix string

	anyOrder bool // rows depend on each other, so documents may come in the order that is fastest to read

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

// span is a part of a scan read in the order of creation.
type span struct {
	rng  feed.Range
	key  feed.PartitionKey // of a scan by keys; empty if several keys have the same effective key
	part bool              // the range does not contain all documents of the key
	at   progress
}

// progress is how far a span was read: all documents up to a number, and of the document with this number a number of
// combinations of the rows of FROM and JOIN.
type progress struct {
	Number int64 `json:"b,omitempty"` // number of the resource id; see [docstore.Item]
	Rows   int   `json:"r,omitempty"`

	// In tokens of older builds, which read documents in the order of their last writes: all documents up to this LSN
	// have been read, and of the next LSN those before this number. Later tokens keep both, so the client gets the
	// rest.
	After int64  `json:"a,omitempty"`
	Doc   uint64 `json:"i,omitempty"`
}

// begin returns the number after which the documents of a span are still to be read.
func (p *progress) begin() int64 {
	if p.Number > 0 && p.Rows != allRows {
		return p.Number - 1
	}
	return p.Number
}

// convert adapts the progress of an older build. The rest of the rows of a document comes with the whole document.
func (p *progress) convert() {
	if p.Number == 0 && p.Doc > 0 {
		if p.Rows == allRows {
			p.Doc++
		}
		p.Rows = 0
	}
}

// wasRead reports whether a document came on a page of an older build.
func (p *progress) wasRead(d *document) bool {
	return d.lsn <= p.After || d.lsn == p.After+1 && uint64(d.number) < p.Doc
}

// allRows means that all rows of a document have been processed, however many there are.
const allRows = -1 // rows of a document

// document is a document that a scan has read.
type document struct {
	id     string
	key    feed.PartitionKey
	lsn    int64
	number int64 // of its resource id
	body   []byte
	skip   int // combinations of its rows that earlier pages have processed
}

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
	from := st.at
	var begun time.Time
	if s.timed {
		begun = time.Now()
	}
	for d, err := range s.documentsOf(st) {
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
		if s.anyOrder && from.Number > 0 && d.number == 0 {
			d.number = int64(sql.DocumentNumber(d.body))
		}
		if from.wasRead(&d) || d.number > 0 && d.number <= from.begin() {
			continue
		}
		if d.number == from.Number {
			d.skip = from.Rows
		}
		done, more, err := each(d)
		if err != nil {
			return false, err
		}
		if !s.anyOrder {
			st.at.Number, st.at.Rows = d.number, done
		}
		if !more {
			return false, nil
		}
		if s.timed {
			begun = time.Now()
		}
	}
	return true, nil
}

// documentsOf yields the documents of a span created after its progress.
func (s *Scan) documentsOf(st *span) iter.Seq2[document, error] {
	switch {
	case s.byID:
		return s.items(s.snap.WithIDs(s.ctx, s.prefix, st.at.begin()), st.rng)
	case s.pinned && st.key != "":
		return s.ofKey(st)
	}
	if s.ids != nil {
		return s.items(s.snap.Named(s.ctx, st.rng, s.ids, st.at.begin()), feed.FullRange())
	}
	if s.anyOrder {
		return s.items(s.snap.Unordered(s.ctx, st.rng), feed.FullRange())
	}
	return s.items(s.snap.Documents(s.ctx, st.rng, st.at.begin()), feed.FullRange())
}

// ofKey yields the documents of a key, or of all keys that begin with the key, in the span's range.
func (s *Scan) ofKey(st *span) iter.Seq2[document, error] {
	if s.ids != nil {
		return s.points(st.key, st.at.begin())
	}
	in := feed.FullRange()
	if st.part {
		in = st.rng
	}
	return s.items(s.snap.Logical(s.ctx, st.key, st.at.begin()), in)
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
	return document{id: it.ID, key: it.Key, lsn: it.LSN, number: it.Number, body: it.Body}
}

// points yields the documents of a key with the scan's ids, in the order of creation like all others. Documents up to a
// number are left out, because an earlier page has counted them. They must be looked up before they can be sorted, so
// if there are many, their bodies are read a second time.
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
			case d.number <= after: // or the document does not exist
				continue
			}
			if bodies += len(d.body); bodies > maxHeldPoints {
				// The number is enough to sort the document.
				d.body = nil
			}
			found = append(found, d)
		}
		slices.SortStableFunc(found, func(a, b document) int { return cmp.Compare(a.number, b.number) })
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
