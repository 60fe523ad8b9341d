package docstore

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/millrace/changefeed/docstore/internal/engine"
)

// Whether the remaining files are of one store and of one time. A file of another store may have the right name, size
// and numbers. Then its contents do not fit the other files: the primary index names versions that are not there, or
// that are of other documents, and the counts are wrong.

// identify returns a hash of a version: of its document's key in the primary index, and of its ETag, which no other
// version has.
func identify[T string | []byte](doc []byte, etag T) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(doc) // never fails
	_, _ = h.Write([]byte(etag))
	return h.Sum64()
}

// fit is what the records of a container must agree about.
type fit struct {
	slots   int64 // entries in the primary index
	newest  int64 // LSN of the newest version
	orphans int   // versions that were not superseded, and that the primary index does not name
}

// isExplained reports whether a known loss explains records that do not fit each other.
func (s *salvager) isExplained() bool {
	return slices.ContainsFunc(s.w.Lost, func(l engine.LostSpan) bool { return !l.IsEnd() })
}

// findMisfits finds the containers whose records do not fit each other, though no file is lost.
func (s *salvager) findMisfits() error {
	if s.isExplained() {
		return nil
	}
	for _, num := range slices.Sorted(maps.Keys(s.containers)) {
		c := s.containers[num]
		why := ""
		switch {
		case c.layout == nil:
			why = "its own record is not there"
		case c.slots != max(c.Counted, 0):
			why = fmt.Sprintf("it counts %d documents, and its index has %d", max(c.Counted, 0), c.slots)
		case c.newest > max(c.Head, 0):
			why = fmt.Sprintf("its newest LSN is %d, and it has a version of LSN %d", c.Head, c.newest)
		case c.markless && c.orphans > 0:
			why = fmt.Sprintf("its index does not name %d of its documents", c.orphans)
		default:
			continue
		}
		s.misfits = append(s.misfits, Loss{
			Container: c.Name, Reason: why + ": some files may be those of another store or of another time",
		})
	}
	return nil
}
