package cosmosrest

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"

	"github.com/millrace/changefeed"
)

// continuation is where the next page of a query or of ReadFeed begins.
type continuation struct {
	Query uint64 `json:"q"` // hash of what is asked, of which container

	// Of a scan.
	Key  int       `json:"k,omitempty"` // keys that are finished
	Min  string    `json:"m,omitempty"` // ranges below are finished
	Read []segment `json:"s,omitempty"` // how far those from there on have been read

	Skipped int64 `json:"o,omitempty"` // rows for OFFSET
	Taken   int64 `json:"t,omitempty"` // rows for LIMIT or TOP

	// Of rows that were all computed at once, from the documents between Min and Max.
	Max    string `json:"x,omitempty"`
	Rows   int    `json:"n,omitempty"` // that earlier pages have
	Result string `json:"g,omitempty"` // names them in the cache
}

// segment is a range that begins where the one before ends.
type segment struct {
	Max string `json:"e,omitempty"`
	mark
}

// A token is the version, a checksum, and the JSON of a continuation.
const (
	tokenVersion = 1
	tokenHead    = 1 + 4
	maxToken     = 16 << 10 // bytes; far above what this server gives
)

func (k *continuation) encode() string {
	text, _ := json.Marshal(k) // always marshals
	b := make([]byte, tokenHead, tokenHead+len(text))
	b[0] = tokenVersion
	binary.BigEndian.PutUint32(b[1:], crc32.ChecksumIEEE(text))
	return base64.RawURLEncoding.EncodeToString(append(b, text...))
}

// continuation reads the token of a request for the rows of a query, given by its hash.
// Without one it is the beginning.
func (c *call) continuation(query uint64) (k continuation, err error) {
	k.Query = query
	text := c.header(headerContinuation)
	if text == "" {
		return k, nil
	}
	bad := badRequest("x-ms-continuation is %.64q: want one that this server gave for the same query and container", text)
	if len(text) > maxToken {
		return k, bad
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) < tokenHead || b[0] != tokenVersion || binary.BigEndian.Uint32(b[1:]) != crc32.ChecksumIEEE(b[tokenHead:]) {
		return k, bad
	}
	if json.Unmarshal(b[tokenHead:], &k) != nil || k.Query != query || !k.sound() {
		return k, bad
	}
	return k, nil
}

// sound tells whether the numbers are such as this server writes.
func (k *continuation) sound() bool {
	for _, s := range k.Read {
		if s.After < 0 || s.Rows < 0 {
			return false
		}
	}
	return k.Key >= 0 && k.Rows >= 0 && (k.Rows == 0 || k.Min < k.Max) && k.Skipped >= 0 && k.Taken >= 0
}

// begin sets a scan to where a page ended.
func (s *scan) begin(k continuation) error {
	s.head = s.cont.Head()
	if s.pinned || s.byID {
		return s.beginKeys(k)
	}
	lo := k.Min
	for _, seg := range k.Read {
		s.left = append(s.left, stretch{rng: changefeed.Range{Min: lo, Max: seg.Max}, at: seg.mark})
		lo = seg.Max
	}
	s.left = append(s.left, stretch{rng: changefeed.Range{Min: lo, Max: changefeed.FullRange().Max}})
	return s.cut()
}

func (s *scan) beginKeys(k continuation) error {
	for _, key := range s.keys[min(k.Key, len(s.keys)):] {
		s.left = append(s.left, stretch{key: key})
	}
	if s.byID {
		s.left = []stretch{{}}
	}
	if len(k.Read) > 0 && len(s.left) > 0 {
		s.left[0].at = k.Read[0].mark
	}
	return nil
}

// save notes how far a scan has come.
func (s *scan) save(k *continuation) {
	k.Key, k.Min, k.Read = 0, "", nil
	switch {
	case len(s.left) == 0:
	case s.pinned:
		k.Key = len(s.keys) - len(s.left)
		k.Read = []segment{{mark: s.left[0].at}}
	case s.byID:
		k.Read = []segment{{mark: s.left[0].at}}
	default:
		s.saveRanges(k)
	}
}

func (s *scan) saveRanges(k *continuation) {
	k.Min = s.left[0].rng.Min
	begun := 0
	for i, st := range s.left {
		if st.at != (mark{}) {
			begun = i + 1
		}
	}
	for _, st := range s.left[:begun] {
		k.Read = append(k.Read, segment{Max: st.rng.Max, mark: st.at})
	}
}
