package query

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"github.com/millrace/changefeed/cosmosrest/internal/sql"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/feed"
)

// Continuations record where a page ended, and the client sends them with the next request.
//
// A continuation must stay valid as long as a client likes: across restarts of the server, splits and merges of
// partitions, writes, and another filter. So a continuation contains keys, numbers and hashes, and names no partition
// and no state of the server.

// Continuation is where the next page of a query or of ReadFeed begins. A continuation is not bound to the text of a
// query, because SDKs send it with another filter, or with a query that counts the remaining rows.
type Continuation struct {
	Container uint64 `json:"q"` // hash of its resource id

	// Of a scan.
	Min  string    `json:"m,omitempty"` // ranges before this key are finished
	Read []segment `json:"s,omitempty"` // progress in the ranges from Min onward

	Skipped int64 `json:"o,omitempty"` // rows skipped for OFFSET
	Taken   int64 `json:"t,omitempty"` // rows returned for LIMIT or TOP

	// For rows that are all computed at once.
	Sorted uint64     `json:"x,omitempty"` // hash of the sort keys
	Place  *sql.Place `json:"p,omitempty"` // of the last row
	Result string     `json:"g,omitempty"` // name of the rows in the cache
	Rows   int        `json:"n,omitempty"` // number of rows in earlier pages

	token string // the token that was parsed
}

// segment is a range. A segment begins where the previous segment ends.
type segment struct {
	Max string `json:"e,omitempty"`
	progress
}

// Encode returns the token of the continuation. If a value of a place is not valid JSON, the result is an error,
// because an empty token would end the pages.
func (k *Continuation) Encode() (string, error) {
	text, err := json.Marshal(k)
	if err != nil {
		return "", fmt.Errorf("encode continuation: %w", err)
	}
	return wire.EncodeContinuation(text), nil
}

// ParseContinuation parses the token of a request for rows of a container with this resource id. An empty token means
// the beginning, and so does a token of the service. A token of another container is refused, because its numbers would
// silently skip documents.
func ParseContinuation(token, rid string) (Continuation, error) {
	k := Continuation{Container: hashText(rid)}
	if token == "" || ofService.MatchString(token) {
		return k, nil
	}
	text, ok := wire.DecodeContinuation(token)
	if !ok || json.Unmarshal(text, &k) != nil || k.Container != hashText(rid) || !k.isSound() {
		return k,
			wire.BadRequest("Invalid Continuation Token. x-ms-continuation is %.64q: want one that this server gave "+
				"for the same container", token)
	}
	for i := range k.Read {
		k.Read[i].convert()
	}
	k.token = token
	return k, nil
}

// ofService matches the continuations of the service, which begin with the resource id of a document. The service takes
// those of another container too.
var ofService = regexp.MustCompile(`^[-+]RID:~?[A-Za-z0-9+/=-]{1,64}(#[A-Z]{2,4}:[^#]{0,256})*$`)

// isSound reports whether the numbers are in the ranges that this server writes.
func (k *Continuation) isSound() bool {
	for _, s := range k.Read {
		if s.Number < 0 || s.After < 0 || s.Rows < allRows {
			return false
		}
	}
	return k.Rows >= 0 && k.Skipped >= 0 && k.Taken >= 0
}

// OfDocuments returns an error if the continuation is a place among sorted rows.
func (k *Continuation) OfDocuments() error { return k.checkOrder(0) }

// checkOrder refuses a place if the rows now have another order. sorted is the hash of the present sort keys; 0 means
// the rows of a scan.
func (k *Continuation) checkOrder(sorted uint64) error {
	if k.Place == nil || k.Sorted == sorted {
		return nil
	}
	return wire.BadRequest("x-ms-continuation is %.64q, the place of a row among rows in another order: want one of "+
		"a query with the same ORDER BY or GROUP BY", k.token)
}

// unreadSpans returns the unread spans of a range, each with its progress.
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

// openAt takes a snapshot for a page that begins where another page ended. The caller must close the scan with the
// page, even after an error. A query for a single document, which is the most frequent, needs no snapshot.
func (s *Scan) openAt(k Continuation) (err error) {
	if s.pinned && len(s.keys)*len(s.ids) == 1 {
		return s.beginAt(k)
	}
	if s.snap, err = s.cont.Snapshot(s.ctx); err != nil {
		return err
	}
	return s.beginAt(k)
}

// closeInto closes the snapshot in a deferred call. If closing fails and *err is nil, the failure becomes *err.
func (s *Scan) closeInto(err *error) {
	if s.snap == nil {
		return
	}
	if failed := s.snap.Close(); *err == nil {
		*err = failed
	}
	s.snap = nil
}

// beginAt sets a scan to the place where a page ended.
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

// beginKeys reduces the spans to the parts that belong to the scan's keys. Two keys may have the same effective
// partition key, because hashes may collide; then they share a span.
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
			s.left[last].key = "" // several keys: the filter selects the documents
			continue
		}
		s.left = append(s.left, st)
	}
	return nil
}

// saveProgress stores the progress of a scan in k. In a scan by keys, the ranges between the keys count as unread,
// because the next page may have another filter.
func (s *Scan) saveProgress(k *Continuation) {
	k.Min, k.Read = feed.FullRange().Max, nil
	if len(s.left) == 0 {
		return
	}
	k.Min = s.left[0].rng.Min
	begun := 0
	// Only spans up to the last span with progress need a segment. Later spans are derived from the key space.
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
