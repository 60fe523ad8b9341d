package unload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/keyspace"
)

// An export of millions of documents must not start again after an interruption. The mark says up to which byte the
// file has whole pages, and at which positions the feed goes on after them. The part behind that byte, such as half a
// line, is cut, because the feed still has those documents. The file is synced before the mark is written, so the mark
// is never ahead.

// mark records how far an export into a file has come. The mark is beside the file until the export is done.
type mark struct {
	Container string    `json:"container"` // its name, for people
	Made      string    `json:"made"`      // directory or account, and resource id: a container may be made anew
	Selection string    `json:"selection"`
	Documents int64     `json:"documents"`
	Size      int64     `json:"size"` // of the file
	Tail      uint64    `json:"tail"` // checksum of the last bytes of the file
	Left      []placeOf `json:"left"` // the rest to be read; without a key they tile the selected range
	Sum       uint64    `json:"sum"`  // checksum of the mark in which it is 0
}

// placeOf is a range, and the position up to which the range is written.
type placeOf struct {
	Range string `json:"range"`
	After string `json:"after,omitempty"` // a continuation token; empty is the beginning
}

// text returns the stored form of the mark, with the checksum.
func (m mark) text() ([]byte, error) {
	m.Sum = 0
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	m.Sum = checksum(text)
	return json.Marshal(m)
}

// parseMark reads a stored mark. Only the text that this program stores is a mark: any other text was changed, or comes
// from another version of the program, with a possibly different meaning.
func parseMark(text []byte) (m mark, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return m, err
	}
	if want, err := m.text(); err != nil || !bytes.Equal(text, want) {
		return m, errors.Join(err, errors.New("its checksum is wrong: the mark was changed, or is of another version of "+
			"changefeed"))
	}
	return m, nil
}

// checksum returns a checksum, which differs if a single byte differs.
func checksum(text []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(text) // a hash takes everything
	return h.Sum64()
}

// check returns the places that are left, and refuses numbers and places that no export leaves.
func (m *mark) check(o Options) (places []position, err error) {
	if m.Size < 0 || m.Documents < 0 {
		return nil, fmt.Errorf("it has a size of %d and %d documents: want 0 or more", m.Size, m.Documents)
	}
	var ranges []feed.Range
	for _, p := range m.Left {
		r, err := feed.ParseRange(p.Range)
		if err != nil {
			return nil, err
		}
		if !o.Range.Contains(r) {
			return nil, fmt.Errorf("range %s is not within range %s", r, o.Range)
		}
		for _, other := range ranges {
			if r.Overlaps(other) {
				return nil, fmt.Errorf("ranges %s and %s overlap", other, r)
			}
		}
		ranges, places = append(ranges, r), append(places, position{r, p.After})
	}
	open := keyspace.Uncovered(o.Range, ranges)
	switch {
	case o.Key != "" && len(ranges) != 1: // of the range, only the part with the key is left
		return nil, fmt.Errorf("there are %d ranges: want the one with key %s", len(ranges), o.Key)
	case o.Key == "" && len(open) > 0:
		return nil, fmt.Errorf("range %s is missing", open[0])
	}
	return places, nil
}

// readMark reads the mark of an interrupted export, if any. The mark must be of the same documents.
func (f *File) readMark(o Options) (found bool, err error) {
	text, err := os.ReadFile(f.path + markSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read mark of an interrupted export: %w", err)
	}
	old, err := parseMark(text)
	if err != nil {
		return false, f.damaged(err)
	}
	wrong := ""
	switch {
	case old.Container != f.mark.Container:
		wrong = "that container"
	case old.Made != f.mark.Made:
		wrong = "that container, which has been made anew since, or is in another store or account"
	case old.Selection != f.mark.Selection:
		wrong = "the same selection, " + old.Selection
	}
	if wrong != "" {
		return false, usage.Flag("to", f.path, fmt.Sprintf("another file: an interrupted export of %s has left this one, "+
			"which goes on only with %s; --restart overwrites the file", old.Container, wrong))
	}
	if f.places, err = old.check(o); err != nil {
		return false, f.damaged(err)
	}
	f.mark, f.Before, f.kept = old, old.Documents, old.Documents
	return true, nil
}

// damaged explains why a mark cannot be used.
func (f *File) damaged(err error) error {
	return usage.Flag("to", f.path, fmt.Sprintf("another file, or --restart, which begins anew: its mark %s cannot be "+
		"read: %v", f.path+markSuffix, err))
}
