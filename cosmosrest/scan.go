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
	key changefeed.PartitionKey // of a scan by keys
	rng changefeed.Range        // of a scan by ranges
	at  mark
}

// mark is how far a stretch was read: the documents up to an LSN, those of the next LSN up
// to one, and of that so many rows.
type mark struct {
	After int64  `json:"a,omitempty"`
	Doc   uint64 `json:"d,omitempty"` // hash of its id
	Rows  int    `json:"r,omitempty"`
}

// record is a document on its way through a scan.
type record struct {
	id   string
	key  changefeed.PartitionKey
	lsn  int64
	body []byte
	skip int // rows of it that an earlier page has
}

// visitor takes a document, of which it has had so many rows, and returns how many it
// has then, and whether to go on.
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
				held = held[i:]
				held[0].skip = at.Rows
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
		return s.items(s.cont.WithIDs(s.ctx, s.prefix, st.at.After), s.rng != changefeed.FullRange())
	case s.pinned:
		return s.ofKey(st.key, st.at.After)
	}
	return s.changes(st.rng, st.at.After)
}

// ofKey are the documents of a key, or of all keys that begin so, in the scan's range.
func (s *scan) ofKey(key changefeed.PartitionKey, after int64) iter.Seq2[record, error] {
	at, err := s.cont.Locate(key)
	switch {
	case err != nil:
		return func(yield func(record, error) bool) { yield(record{}, err) }
	case !s.rng.Overlaps(at):
		return func(func(record, error) bool) {}
	case s.ids != nil:
		return s.points(key, after)
	}
	return s.items(s.cont.Logical(s.ctx, key, after), !s.rng.Contains(at))
}

// items are those of a sequence; if some may lie outside the scan's range, those in it.
func (s *scan) items(all iter.Seq2[docstore.Item, error], some bool) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		for it, err := range all {
			if err == nil && some {
				at, failed := s.cont.Locate(it.Key)
				if failed == nil && !s.rng.Holds(at.Min) {
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
