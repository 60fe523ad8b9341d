package docstore

import (
	"encoding/binary"
	"slices"

	"github.com/millrace/changefeed/docstore/internal/engine"
)

// Which salvaged documents may be old, because a lost table may have had a later write of them.

// isLost reports whether a lost table may have had a key.
func (s *salvager) isLost(key []byte) bool {
	return slices.ContainsFunc(s.w.Lost, func(l engine.LostSpan) bool { return l.To != nil && l.Holds(key) })
}

// mayBeOld reports whether a lost table may have had a later write of a key than the write of this origin.
func (s *salvager) mayBeOld(key []byte, of engine.Origin) bool {
	return slices.ContainsFunc(s.w.Lost, func(l engine.LostSpan) bool { return l.HoldsNewer(key, of) })
}

// readMarks finds which of the newest versions are marked as superseded.
func (s *salvager) readMarks() error {
	if len(s.best) == 0 {
		return nil
	}
	for doc, at := range s.best {
		s.marked[versionAt{binary.BigEndian.Uint32([]byte(doc[1:5])), at}] = false
	}
	return s.eachReadable(tableDead, func(key, _ []byte, _ engine.Origin) error {
		if len(key) == 5+addrSize {
			if p := (versionAt{binary.BigEndian.Uint32(key[1:]), parseAddr(key[5:])}); s.isBest(p) {
				s.marked[p] = true
			}
		}
		return nil
	})
}

// isBest reports whether a version is the newest one of a document whose entry may be lost.
func (s *salvager) isBest(p versionAt) bool {
	_, best := s.marked[p]
	return best
}

// isDoubtful reports whether the newest version that was found of a document may not be the last
// one. The commit that supersedes a version, or deletes the document, removes or marks the version too.
// So a version without that is the last one, unless a lost table may have had the removal
// or the mark.
func (s *salvager) isDoubtful(c *salvaged, p versionAt, of engine.Origin) bool {
	if s.current[p].last {
		return false
	}
	if s.marked[p] || s.mayBeOld(logKey(tableLog, p.cont, p.at), of) {
		return true
	}
	// Sequence numbers order the writes of one key alone, because the library sets old ones to 0.
	return !c.markless && s.isLost(logKey(tableDead, p.cont, p.at))
}
