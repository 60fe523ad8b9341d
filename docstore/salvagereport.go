package docstore

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
)

// The result of a salvage: the losses in words.

// report returns the result.
func (s *salvager) report() *Salvaged {
	found := &Salvaged{Missing: s.absent}
	for _, doc := range slices.Sorted(maps.Keys(s.doubts)) {
		found.Doubtful = append(found.Doubtful, s.doubts[doc])
	}
	for _, c := range s.containers {
		if c.oldCount {
			c.Counted = -1
		}
		found.Containers = append(found.Containers, c.SalvagedContainer)
	}
	slices.SortFunc(found.Containers, func(a, b SalvagedContainer) int { return cmp.Compare(a.Name, b.Name) })
	for _, l := range s.w.Lost {
		loss := Loss{File: l.File, Reason: l.Why}
		if l.To != nil {
			loss.From, loss.To = s.describeKey(l.From), s.describeKey(l.To)
			// A key begins with its table and its container. If two keys have the same container, all keys between
			// them are of this container.
			if len(l.From) >= 5 && len(l.To) >= 5 && string(l.From[:5]) == string(l.To[:5]) {
				if c := s.containers[binary.BigEndian.Uint32(l.From[1:])]; c != nil {
					loss.Container = c.Name
				}
			}
		}
		found.Lost = append(found.Lost, loss)
	}
	found.Lost = append(found.Lost, s.misfits...)
	return found
}

// describeKey writes a key in a readable form.
func (s *salvager) describeKey(key []byte) string {
	if len(key) == 0 {
		return "the beginning"
	}
	return describeKey(key, func(num uint32) string {
		if c := s.containers[num]; c != nil {
			return c.Name
		}
		return ""
	})
}
