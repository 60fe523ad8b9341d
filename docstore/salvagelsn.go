package docstore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/millrace/changefeed/docstore/internal/engine"
)

// Which LSNs a damaged store has lost. Each commit has an LSN of its container, without gaps,
// and a record in a log of the engine, from which it moves into tables. So in what the logs
// have beyond the tables, a gap is a commit that is lost; in the tables it may be one that was
// superseded. What a table has lost is between its bounds, which the manifest names.

// lostLSNs lists the LSNs of each container that are lost.
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
			}
		}
		if logLost && c.Head >= 0 {
			c.Lost = append(c.Lost, gaps(inTables[num], inLogs[num], c.Head)...)
		}
		slices.SortFunc(c.Lost, func(a, b LSNs) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
		c.Lost = slices.Compact(c.Lost)
	}
	return nil
}

// findEvidence finds the LSNs that are in the logs, by container, and the newest one that is in a
// table alone.
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
	err = s.eachVersion(func(key []byte, at addr, _ *entry) error {
		if num := binary.BigEndian.Uint32(key[1:]); !inLogs[num][at.lsn] {
			inTables[num] = max(inTables[num], at.lsn)
		}
		return nil
	})
	return inLogs, inTables, err
}

// gaps are the LSNs after the newest one of the tables that no log has, and all that come after
// the newest that is known.
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

// lsnsOf are the LSNs of a container in a span of keys that a table has lost.
func lsnsOf(l engine.LostSpan, num uint32) (LSNs, bool) {
	own := binary.BigEndian.AppendUint32([]byte{tableLog}, num)
	if l.To == nil || len(l.From) < 5+addrSize || len(l.To) < 5+addrSize || !bytes.HasPrefix(l.From, own) || !bytes.HasPrefix(l.To, own) {
		return LSNs{}, false // of several tables or containers: the loss itself says from where to where
	}
	from, to := parseAddr(l.From[5:]), parseAddr(l.To[5:])
	return LSNs{from.lsn, to.lsn}, from.log == to.log && from.lsn <= to.lsn
}
