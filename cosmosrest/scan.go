package cosmosrest

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"iter"
	"slices"
	"strconv"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
)

// A scan reads the documents of a selection: those of some keys one key after the other,
// those with a prefix of their id, or else range after range. Each such stretch is read
// in the order of the last writes, so that a page can say where it ended: behind an LSN.
// The stretches, those of keys too, come in the order of the key space.
//
// A document that is written while the pages are read moves to the end of its stretch.
// So it may come again; it is not missed.
type scan struct {
	ctx   context.Context
	meter *meter
	cont  *docstore.Container
	rng   changefeed.Range // no others are shown

	keys   []changefeed.PartitionKey // the only ones, if pinned
	pinned bool
	ids    []string // the only ones of each key; nil is any
	byID   bool     // by the index of ids, those with the prefix
	prefix string

	head int64 // newest LSN when the scan began
	left []stretch

	docs  int // that were read
	bytes int
}

// stretch is a part of a scan.
type stretch struct {
	rng  changefeed.Range
	key  changefeed.PartitionKey // of a scan by keys; empty if several have this one effective key
	part bool                    // not all that begins with the key is in the range
	at   mark
}

// mark is how far a stretch was read: the documents up to an LSN, those of the next LSN up
// to one, and of that so many combinations of the rows of FROM and JOIN.
type mark struct {
	After int64  `json:"a,omitempty"`
	Doc   uint64 `json:"d,omitempty"` // hash of its id
	Rows  int    `json:"r,omitempty"`
}

const allRows = -1 // of a document

// record is a document on its way through a scan.
type record struct {
	id   string
	key  changefeed.PartitionKey
	lsn  int64
	body []byte
	skip int // combinations of its rows that earlier pages are done with
}

// visitor takes a document, and returns how many combinations of its rows it is done with,
// or allRows, and whether to go on.
type visitor func(d record) (rows int, more bool, err error)

const (
	minChunk = 16 // documents that are read at once
	maxChunk = 1000
)

// run visits documents until the visitor has enough or none is left.
func (s *scan) run(visit visitor) error {
	for len(s.left) > 0 {
		more, err := s.stretch(visit)
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

func (s *scan) stretch(visit visitor) (more bool, err error) {
	st := &s.left[0]
	for d, err := range resumed(s.documents(st), st.at) {
		if err != nil {
			return false, err
		}
		if s.ctx.Err() != nil {
			return false, context.Cause(s.ctx)
		}
		s.docs++
		s.bytes += len(d.body)
		if err := s.meter.Work(docWork + len(d.body)); err != nil {
			return false, err
		}
		rows, more, err := visit(d)
		if err != nil {
			return false, err
		}
		if d.lsn <= s.head || !s.pinned && !s.byID { // an index has later ones out of order
			st.at = mark{After: d.lsn - 1, Doc: hashText(d.id), Rows: rows}
		}
		if !more {
			return false, nil
		}
	}
	return true, nil
}

// resumed leaves out what an earlier page has of the documents of one LSN. If the last
// of them has changed since, it is not among them, and nobody knows: all are shown.
func resumed(docs iter.Seq2[record, error], at mark) iter.Seq2[record, error] {
	if at.Doc == 0 {
		return docs
	}
	return func(yield func(record, error) bool) {
		var held []record
		release := func() bool {
			if i := slices.IndexFunc(held, func(d record) bool { return hashText(d.id) == at.Doc }); i >= 0 {
				if held = held[i:]; at.Rows == allRows {
					held = held[1:]
				} else {
					held[0].skip = at.Rows
				}
			}
			for _, d := range held {
				if !yield(d, nil) {
					return false
				}
			}
			held = nil
			return true
		}
		for d, err := range docs {
			if err == nil && d.lsn == at.After+1 {
				held = append(held, d)
				continue
			}
			if !release() || !yield(d, err) {
				return
			}
		}
		release()
	}
}

// documents are those of a stretch that were written behind its mark.
func (s *scan) documents(st *stretch) iter.Seq2[record, error] {
	switch {
	case s.byID:
		return s.items(s.cont.WithIDs(s.ctx, s.prefix, st.at.After), st.rng)
	case s.pinned && st.key != "":
		return s.ofKey(st)
	}
	return s.changes(st.rng, st.at.After)
}

// ofKey are the documents of a key, or of all keys that begin so, in the stretch's range.
func (s *scan) ofKey(st *stretch) iter.Seq2[record, error] {
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
func (s *scan) items(all iter.Seq2[docstore.Item, error], in changefeed.Range) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		for it, err := range all {
			if err == nil && in != changefeed.FullRange() {
				at, failed := s.cont.Locate(it.Key)
				if failed == nil && !in.Holds(at.Min) {
					continue
				}
				err = failed
			}
			if !yield(recordOf(it), err) {
				return
			}
		}
	}
}

func recordOf(it docstore.Item) record {
	return record{id: it.ID, key: it.Key, lsn: it.LSN, body: it.Body}
}

// points are the documents of a key with the scan's ids.
func (s *scan) points(key changefeed.PartitionKey, after int64) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		var found []record
		held := 0
		for _, id := range s.ids {
			d, err := s.point(key, id)
			switch {
			case err != nil:
				yield(d, err)
				return
			case d.lsn <= after:
				continue
			}
			if held += len(d.body); held > maxHeldPoints {
				d.body = nil
			}
			found = append(found, d)
		}
		slices.SortStableFunc(found, func(a, b record) int { return cmp.Compare(a.lsn, b.lsn) })
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

// point is a document, or the zero record for none.
func (s *scan) point(key changefeed.PartitionKey, id string) (record, error) {
	it, err := s.cont.Item(s.ctx, key, id)
	if errors.Is(err, changefeed.ErrNotFound) {
		return record{}, nil
	}
	return recordOf(it), err
}

// changes are the documents of a range, from its feed.
func (s *scan) changes(r changefeed.Range, after int64) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		from := changefeed.At(strconv.FormatInt(after, 10))
		for chunk := minChunk; ; chunk = min(4*chunk, maxChunk) {
			page, err := s.cont.Read(s.ctx, r, from, changefeed.ReadOptions{MaxItems: chunk})
			if err != nil {
				yield(record{}, err)
				return
			}
			for i := range page.Changes {
				ch := &page.Changes[i]
				if !yield(record{id: ch.ID, key: ch.PartitionKey, lsn: ch.LSN, body: ch.Body}, nil) {
					return
				}
			}
			if from = page.Next; tokenLSN(from.Token) >= page.Head {
				return
			}
		}
	}
}

// cut parts the stretches of a scan by ranges at the partitions' bounds of now.
func (s *scan) cut() error {
	parts, err := s.cont.Partitions(s.ctx)
	if err != nil {
		return err
	}
	var left []stretch
	for _, st := range s.left {
		for _, p := range parts {
			if r := st.rng.Intersect(p.Range).Intersect(s.rng); !r.Empty() {
				left = append(left, stretch{rng: r, at: st.at})
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
