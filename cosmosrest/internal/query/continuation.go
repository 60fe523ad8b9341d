package query

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/millrace/changefeed/cosmosrest/internal/sql"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/feed"
)

// Continuations: where a page ended, in the form in which a client holds it until the next
// request.
//
// It must stay valid for as long as a client likes: over restarts of the server, splits and
// merges of partitions, writes, and another filter. So it names no partition and no state
// of the server, but keys, LSNs and hashes.

// Continuation is where the next page of a query or of ReadFeed begins. It does not belong
// to the text of one query: SDKs send it under another filter, or to count the remaining
// rows.
type Continuation struct {
	Container uint64 `json:"q"` // hash of its resource id

	// Of a scan.
	Min  string    `json:"m,omitempty"` // ranges below are finished
	Read []segment `json:"s,omitempty"` // how far those from there on have been read

	Skipped int64 `json:"o,omitempty"` // rows for OFFSET
	Taken   int64 `json:"t,omitempty"` // rows for LIMIT or TOP

	// Of rows that were all computed at once.
	Sorted uint64     `json:"x,omitempty"` // hash of what by
	Place  *sql.Place `json:"p,omitempty"` // of the last row
	Result string     `json:"g,omitempty"` // names the rows in the cache
	Rows   int        `json:"n,omitempty"` // of them that earlier pages have

	token string // from which it was read
}

// segment is a range that begins where the segment before it ends.
type segment struct {
	Max string `json:"e,omitempty"`
	progress
}

// Encode is the token of the continuation. It is an error if a value of a place is no JSON: an empty token would end the pages.
func (k *Continuation) Encode() (string, error) {
	text, err := json.Marshal(k)
	if err != nil {
		return "", fmt.Errorf("encode continuation: %w", err)
	}
	return wire.EncodeContinuation(text), nil
}

// ParseContinuation reads the token of a request for rows of a container, given by its
// resource id. Without a token it is the beginning. A token of another container is
// refused, since its LSNs would skip documents silently.
func ParseContinuation(token, rid string) (Continuation, error) {
	k := Continuation{Container: hashText(rid)}
	if token == "" {
		return k, nil
	}
	text, ok := wire.DecodeContinuation(token)
	if !ok || json.Unmarshal(text, &k) != nil || k.Container != hashText(rid) || !k.isSound() {
		return k, wire.BadRequest("Invalid Continuation Token. x-ms-continuation is %.64q: want one that this server gave for the same container", token)
	}
	k.token = token
	return k, nil
}

// isSound reports whether the numbers are such as this server writes.
func (k *Continuation) isSound() bool {
	for _, s := range k.Read {
		if s.After < 0 || s.Rows < allRows {
			return false
		}
	}
	return k.Rows >= 0 && k.Skipped >= 0 && k.Taken >= 0
}

// OfDocuments refuses a continuation that is the place of a row among sorted ones.
func (k *Continuation) OfDocuments() error { return k.checkOrder(0) }

// checkOrder refuses the place of a row for rows in another order; sorted is the hash of the keys
// by which those are sorted, 0 for the rows of a scan.
func (k *Continuation) checkOrder(sorted uint64) error {
	if k.Place == nil || k.Sorted == sorted {
		return nil
	}
	return wire.BadRequest("x-ms-continuation is %.64q, the place of a row among rows in another order: want one of a query with the same ORDER BY or GROUP BY", k.token)
}

// unreadSpans are the spans of a range that are left, each with its progress.
func (k *Continuation) unreadSpans(of feed.Range) (left []span) {
	lo := k.Min
	for _, seg := range append(slices.Clip(k.Read), segment{Max: feed.FullRange().Max}) {
		if r := (feed.Range{Min: lo, Max: seg.Max}).Intersect(of); !r.Empty() {
			left = append(left, span{rng: r, at: seg.progress})
		}
		lo = seg.Max
	}
	return left
}

// openAt takes a snapshot for a page that begins where another ended. Close the scan with the page,
// also after an error. A single document needs none, and most queries of programs are about one.
func (s *Scan) openAt(k Continuation) (err error) {
	if s.pinned && len(s.keys)*len(s.ids) == 1 {
		return s.beginAt(k)
	}
	if s.snap, err = s.cont.Snapshot(s.ctx); err != nil {
		return err
	}
	return s.beginAt(k)
}

// closeInto gives the snapshot back in a deferred call. Its error becomes that of the function
// unless there was one before.
func (s *Scan) closeInto(err *error) {
	if s.snap == nil {
		return
	}
	if failed := s.snap.Close(); *err == nil {
		*err = failed
	}
	s.snap = nil
}

// beginAt sets a scan to where a page ended.
func (s *Scan) beginAt(k Continuation) error {
	s.left = k.unreadSpans(s.rng)
	switch {
	case s.pinned:
		return s.beginKeys()
	case s.byID:
		return nil
	}
	s.cutSpans()
	return nil
}

// beginKeys leaves of the spans the parts that belong to the scan's keys. Two keys may have
// the same effective partition key, as hashes have collisions; then they are one span.
func (s *Scan) beginKeys() error {
	var keyed []span
	for _, key := range s.keys {
		p, err := s.cont.LogicalPartition(key)
		if err != nil {
			return err
		}
		for _, st := range s.left {
			if r := st.rng.Intersect(p.Range()); !r.Empty() {
				keyed = append(keyed, span{key: key, rng: r, part: r != p.Range(), at: st.at})
			}
		}
	}
	slices.SortStableFunc(keyed, func(a, b span) int { return cmp.Compare(a.rng.Min, b.rng.Min) })
	s.left = nil
	for _, st := range keyed {
		if last := len(s.left) - 1; last >= 0 && s.left[last].rng == st.rng {
			s.left[last].key = "" // several keys: the filter knows them
			continue
		}
		s.left = append(s.left, st)
	}
	return nil
}

// saveProgress notes how far a scan has come. The keys between those of a scan by keys count as
// unread, because the next page may be asked for under another filter.
func (s *Scan) saveProgress(k *Continuation) {
	k.Min, k.Read = feed.FullRange().Max, nil
	if len(s.left) == 0 {
		return
	}
	k.Min = s.left[0].rng.Min
	begun := 0
	// Only spans up to the last that was begun need a segment: those after it are found
	// again from the key space.
	for i, st := range s.left {
		if st.at != (progress{}) {
			begun = i + 1
		}
	}
	lo := k.Min
	for _, st := range s.left[:begun] {
		if st.rng.Min > lo {
			k.Read = append(k.Read, segment{Max: st.rng.Min})
		}
		k.Read = append(k.Read, segment{Max: st.rng.Max, progress: st.at})
		lo = st.rng.Max
	}
}
