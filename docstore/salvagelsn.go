package docstore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/millrace/changefeed/docstore/internal/engine"
)

// How salvage finds the LSNs that a damaged store has lost. Each commit has an LSN of its container, without gaps.
// Its record is first in a log of the engine and moves into tables later. If the logs have a gap after the newest LSN
// of the tables, the gap is a lost commit. A gap in the tables may be a commit that was superseded. The keys that a
// lost table contained are between the table's bounds, which the manifest names.

// lostLSNs lists the LSNs lost from each container.
func (s *salvager) lostLSNs() error {
	logLost := slices.ContainsFunc(s.w.Lost, func(l engine.LostSpan) bool { return engine.IsLog(l.File) })
	inLogs, inTables, err := s.findEvidence(logLost)
	if err != nil {
		return err
	}
	for num, c := range s.containers {
		for _, l := range s.w.Lost {
			if span, ok := lsnsOf(l, num); ok {
				c.Lost = append(c.Lost, span)
			} else if s.hidesWrites(l, num) {
				span = LSNs{From: 1, To: c.Head}
				if c.Head < 0 || c.oldHead {
					span.To = 0
				}
				c.Lost = append(c.Lost, span)
			}
		}
		if logLost && c.Head >= 0 {
			head := c.Head
			if c.otherHead {
				head = 0 // the store's own head is unknown
			}
			c.Lost = append(c.Lost, gaps(inTables[num], inLogs[num], head)...)
		}
		slices.SortFunc(c.Lost, func(a, b LSNs) int {
			return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
		})
		c.Lost = slices.Compact(c.Lost)
	}
	return nil
}

// findEvidence returns the LSNs in the logs, by container, and for each container the newest LSN that only a table
// contains.
func (s *salvager) findEvidence(logLost bool) (inLogs map[uint32]map[int64]bool, inTables map[uint32]int64, err error) {
	inLogs, inTables = map[uint32]map[int64]bool{}, map[uint32]int64{}
	if !logLost {
		return inLogs, inTables, nil
	}
	for key := range s.w.Logged() {
		if len(key) != 5+addrSize || key[0] != tableLog {
			continue
		}
		num := binary.BigEndian.Uint32(key[1:])
		if inLogs[num] == nil {
			inLogs[num] = map[int64]bool{}
		}
		inLogs[num][parseAddr(key[5:]).lsn] = true
	}
	err = s.eachVersion(func(key []byte, at addr, _ *entry, of engine.Origin) error {
		if num := binary.BigEndian.Uint32(key[1:]); of.Misfit == "" && !inLogs[num][at.lsn] {
			inTables[num] = max(inTables[num], at.lsn)
		}
		return nil
	})
	return inLogs, inTables, err
}

// gaps returns the LSNs after inTables that are in no log, and all LSNs after the newest known LSN.
func gaps(inTables int64, inLogs map[int64]bool, head int64) (lost []LSNs) {
	last := inTables
	for _, lsn := range slices.Sorted(maps.Keys(inLogs)) {
		if lsn <= last {
			continue
		}
		if lsn > last+1 {
			lost = append(lost, LSNs{last + 1, lsn - 1})
		}
		last = lsn
	}
	return append(lost, LSNs{From: max(last, head) + 1})
}

// lsnsOf returns the LSNs of a container in a span of keys that a table has lost.
func lsnsOf(l engine.LostSpan, num uint32) (LSNs, bool) {
	own := binary.BigEndian.AppendUint32([]byte{tableLog}, num)
	if l.To == nil || len(l.From) < 5+addrSize || len(l.To) < 5+addrSize || !bytes.HasPrefix(l.From, own) ||
		!bytes.HasPrefix(l.To, own) {
		return LSNs{}, false // spans several tables or containers: the loss itself reports its bounds
	}
	from, to := parseAddr(l.From[5:]), parseAddr(l.To[5:])
	return LSNs{from.lsn, to.lsn}, from.log == to.log && from.lsn <= to.lsn
}

// hidesWrites reports whether a lost span may have had versions of a container, of any LSN, of
// which nothing is left: entries of the primary index, which would name the versions, are lost too.
func (s *salvager) hidesWrites(l engine.LostSpan, num uint32) bool {
	return overlaps(l, tableLog, num) && slices.ContainsFunc(s.w.Lost, func(l engine.LostSpan) bool {
		return overlaps(l, tableDoc, num)
	})
}

// overlaps reports whether a span that a table has lost may have had keys of a container in a table of ours.
func overlaps(l engine.LostSpan, table byte, num uint32) bool {
	from := tableKey(table, num, 0)
	return l.To != nil && bytes.Compare(l.From, engine.After(from)) < 0 && bytes.Compare(from, l.To) < 0
}
