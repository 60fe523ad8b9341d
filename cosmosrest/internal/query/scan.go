package query

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"iter"
	"slices"
	"strconv"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmosrest/internal/meter"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/service"
)

// Scan reads the documents of a selection: those of some keys one key after the other, those whose ids begin alike, or
// else partition after partition. Each such span is read in the order of the last writes, so that a page can say where
// it ended: after an LSN. The spans come in the order of the key space.
//
// A document that is written while the pages are read moves to the end of its span. So it may come again; it is not
// missed.
type Scan struct {
	ctx   context.Context
	meter *meter.Request
	cont  *docstore.Container
	rng   changefeed.Range // no others are shown

	keys   []changefeed.PartitionKey // the only ones, if pinned
	pinned bool
	ids    []string // the only ones of each key; nil is any
	byID   bool     // by the index of ids, those with the prefix
	prefix string

	head int64 // newest LSN when the scan began
	left []span

	docs  int // that were read
	bytes int
}

// NewScan is a scan of what a request selects.
func NewScan(m *meter.Request, cont *docstore.Container, sel Selection) *Scan {
	s := &Scan{ctx: m.Context(), meter: m, cont: cont, rng: sel.Range}
	if sel.Key != "" {
		s.keys, s.pinned = []changefeed.PartitionKey{sel.Key}, true
	}
	return s
}

// Read is how many documents were read, and how many bytes they have.
func (s *Scan) Read() (docs, bytes int) { return s.docs, s.bytes }

// Documents fills a page with whole documents, and reports whether another page may follow; then next says from where.
func (s *Scan) Documents(page *wire.Documents, most int, next *Continuation) (more bool, err error) {
	if err := s.begin(*next); err != nil {
		return false, err
	}
	err = s.run(func(d document) (int, bool, error) {
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
		s.save(next)
	}
	return more, err
}

// span is a part of a scan.
type span struct {
	rng  changefeed.Range
	key  changefeed.PartitionKey // of a scan by keys; empty if several have this one effective key
	part bool                    // not all that begins with the key is in the range
	at   progress
}

// progress is how far a span was read: the documents up to an LSN, those of the next LSN up
// to one, and of that so many combinations of the rows of FROM and JOIN.
type progress struct {
	After int64  `json:"a,omitempty"`
	Doc   uint64 `json:"d,omitempty"` // hash of its id
	Rows  int    `json:"r,omitempty"`
}

const allRows = -1 // of a document

// document is one that a scan has read.
type document struct {
	id   string
	key  changefeed.PartitionKey
	lsn  int64
	body []byte
	skip int // combinations of its rows that earlier pages are done with
}

// visit takes a document, and returns how many combinations of its rows it is done with,
// or allRows, and whether to go on.
type visit func(d document) (rows int, more bool, err error)

const (
	minChunk = 16 // documents that are read at once
	maxChunk = 1000
)

// run visits documents until each has enough or none is left.
func (s *Scan) run(each visit) error {
	for len(s.left) > 0 {
		more, err := s.visitSpan(each)
		switch {
		case errors.Is(err, changefeed.ErrGone): // a split came between
			if err := s.cut(); err != nil {
				return err
			}
		case err != nil || !more:
			return err
		default:
			s.left = s.left[1:]
		}
	}
	return nil
}

func (s *Scan) visitSpan(each visit) (more bool, err error) {
	st := &s.left[0]
	for d, err := range unseen(s.documents(st), st.at) {
		if err != nil {
			return false, err
		}
		if s.ctx.Err() != nil {
			return false, context.Cause(s.ctx)
		}
		s.docs++
		s.bytes += len(d.body)
		if err := s.meter.Work(meter.DocWork + len(d.body)); err != nil {
			return false, err
		}
		rows, more, err := each(d)
		if err != nil {
			return false, err
		}
		if d.lsn <= s.head || !s.pinned && !s.byID { // an index has later ones out of order
			st.at = progress{After: d.lsn - 1, Doc: hashText(d.id), Rows: rows}
		}
		if !more {
			return false, nil
		}
	}
	return true, nil
}

// unseen leaves out those documents of one LSN that earlier pages have. When the last of these has changed since, it is
// not among them, and where the page ended is not known: then all are shown.
func unseen(docs iter.Seq2[document, error], at progress) iter.Seq2[document, error] {
	if at.Doc == 0 {
		return docs
	}
	return func(yield func(document, error) bool) {
		var together []document
		release := func() bool {
			if i := slices.IndexFunc(together, func(d document) bool { return hashText(d.id) == at.Doc }); i >= 0 {
				if together = together[i:]; at.Rows == allRows {
					together = together[1:]
				} else {
					together[0].skip = at.Rows
				}
			}
			for _, d := range together {
				if !yield(d, nil) {
					return false
				}
			}
			together = nil
			return true
		}
		for d, err := range docs {
			if err == nil && d.lsn == at.After+1 {
				together = append(together, d)
				continue
			}
			if !release() || !yield(d, err) {
				return
			}
		}
		release()
	}
}

// documents are those of a span that were written after its progress.
func (s *Scan) documents(st *span) iter.Seq2[document, error] {
	switch {
	case s.byID:
		return s.items(s.cont.WithIDs(s.ctx, s.prefix, st.at.After), st.rng)
	case s.pinned && st.key != "":
		return s.ofKey(st)
	}
	return s.changes(st.rng, st.at.After)
}

// ofKey are the documents of a key, or of all keys that begin so, in the span's range.
func (s *Scan) ofKey(st *span) iter.Seq2[document, error] {
	if s.ids != nil {
		return s.points(st.key, st.at.After)
	}
	in := changefeed.FullRange()
	if st.part {
		in = st.rng
	}
	return s.items(s.cont.Logical(s.ctx, st.key, st.at.After), in)
}

// items are those of a sequence that lie in a range.
func (s *Scan) items(all iter.Seq2[docstore.Item, error], in changefeed.Range) iter.Seq2[document, error] {
	return func(yield func(document, error) bool) {
		for it, err := range all {
			if err == nil && in != changefeed.FullRange() {
				at, failed := s.cont.Locate(it.Key)
				if failed == nil && !in.Holds(at.Min) {
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

// points are the documents of a key with the scan's ids.
func (s *Scan) points(key changefeed.PartitionKey, after int64) iter.Seq2[document, error] {
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

const maxHeldPoints = 8 << 20 // bytes of documents that are kept while all are looked up; others are read again

// point is a document, or the zero document for none.
func (s *Scan) point(key changefeed.PartitionKey, id string) (document, error) {
	it, err := s.cont.Item(s.ctx, key, id)
	if errors.Is(err, changefeed.ErrNotFound) {
		return document{}, nil
	}
	return documentOf(it), err
}

// changes are the documents of a range, from its feed.
func (s *Scan) changes(r changefeed.Range, after int64) iter.Seq2[document, error] {
	return func(yield func(document, error) bool) {
		from := changefeed.At(strconv.FormatInt(after, 10))
		for chunk := minChunk; ; chunk = min(4*chunk, maxChunk) {
			page, err := s.cont.Read(s.ctx, r, from, changefeed.ReadOptions{MaxItems: chunk})
			if err != nil {
				yield(document{}, err)
				return
			}
			for i := range page.Changes {
				ch := &page.Changes[i]
				if !yield(document{id: ch.ID, key: ch.PartitionKey, lsn: ch.LSN, body: ch.Body}, nil) {
					return
				}
			}
			if from = page.Next; lsnOf(from) >= page.Head {
				return
			}
		}
	}
}

// cut divides the spans of a scan by ranges at the partitions' bounds of now.
func (s *Scan) cut() error {
	parts, err := s.cont.Partitions(s.ctx)
	if err != nil {
		return err
	}
	var left []span
	for _, st := range s.left {
		for _, p := range parts {
			if r := st.rng.Intersect(p.Range).Intersect(s.rng); !r.Empty() {
				left = append(left, span{rng: r, at: st.at})
			}
		}
	}
	s.left = left
	return nil
}

// hashText is a hash that is the same in every process.
func hashText(texts ...string) uint64 {
	h := fnv.New64a()
	for _, t := range texts {
		_, _ = h.Write([]byte(t)) // never fails
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}

// lsnOf is the LSN of a position that the store gave.
func lsnOf(p changefeed.Position) int64 {
	lsn, _ := service.LSN(p.Token) // 0 is right for none
	return lsn
}
