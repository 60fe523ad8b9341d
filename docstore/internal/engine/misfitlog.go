package engine

import (
	"fmt"
	"slices"
)

// Whether a file is the log that the inventory and the manifest tell of. The records of a log from another store are
// whole, so their checksums say nothing. Three facts tell the store's own log: the inventory lists the logs and says
// where the newest log of a closed store ended; the sequence numbers of the writes have no gap and no overlap from log
// to log; and the first log continues after the tables.

// Origin is the origin of a value in a damaged store.
type Origin struct {
	seq uint64

	// Misfit is the name of the log of the value, if the log does not fit the store: the value may be that of another
	// store. Otherwise Misfit is empty.
	Misfit string
}

// logRead is a log of a damaged store.
type logRead struct {
	num    uint64
	newest bool
	c      *chunks // nil if the log is missing or unreadable
	first  uint64  // sequence number at the beginning of the log; 0 if its beginning is damaged, or it has no record
}

// isClosed reports whether the log is whole and ends properly.
func (l *logRead) isClosed() bool { return l.c != nil && l.c.closed }

// isListed reports whether a log may be one of the store's by the inventory. A store of an earlier version has no
// inventory. Without a manifest all logs are read, also those whose writes are in tables.
func (w *Wreck) isListed(l *logRead) bool {
	return !w.known || slices.Contains(w.facts.Logs, l.num) || w.guess && l.num < w.facts.First
}

// fitLog compares a log with the inventory, with the tables and with the log before, which had the sequence numbers
// before next. If two logs do not fit each other, nothing tells which one is another store's.
func (w *Wreck) fitLog(l, before *logRead, next uint64) {
	if l.c == nil {
		return
	}
	end := w.facts.Closed
	switch {
	case !w.isListed(l) && !w.justMade(l.num, l.c, l.newest):
		w.recordMisfit(l, "by %s it is not one of the store's logs", inventoryName)
	case end != nil && end.Log == l.num && (l.c.end > end.LogEnd || l.c.closed && l.c.end < end.LogEnd):
		w.recordMisfit(l, "it has %d bytes, and had %d when the store was closed", l.c.end, end.LogEnd)
	case end != nil && end.Log == l.num && end.isOther(l.c):
		w.recordMisfit(l, "its bytes are not those of when the store was closed")
	}
	if l.first == 0 {
		return
	}
	switch tables := w.newestInTables(); { // without an inventory, a log may be missing before the first
	case l.first <= tables:
		w.recordMisfit(l, "its first write has the number %d, and the tables have writes up to %d", l.first, tables)
	case before == nil && w.known && !w.guess && w.manifest.firstSeq != 0 && l.first > w.manifest.firstSeq:
		w.recordMisfit(l, "its first write has the number %d, and by %s %d at most", l.first, w.manifestName,
			w.manifest.firstSeq)
	}
	if before == nil || next == 0 || before.c == nil {
		return
	}
	// Without an inventory a gap may be a missing log.
	if l.first < next || l.first > next && w.known && before.isClosed() {
		for _, one := range []*logRead{before, l} {
			w.recordMisfit(one, "the writes of %s end before number %d, and those of %s begin with %d",
				logName(before.num), next, logName(l.num), l.first)
		}
	}
}

// newestInTables returns the greatest sequence number of the tables by the manifest.
func (w *Wreck) newestInTables() (newest uint64) {
	if w.guess {
		return 0
	}
	for _, t := range w.manifest.tables {
		if t.newest <= maxSeq { // the records of old versions do not have the number
			newest = max(newest, t.newest)
		}
	}
	return newest
}

// recordMisfit records that a log does not fit the store.
func (w *Wreck) recordMisfit(l *logRead, why string, args ...any) {
	if w.misfits[l.num] != "" {
		return
	}
	w.misfits[l.num] = logName(l.num)
	w.Lost = append(w.Lost, LostSpan{
		File: logName(l.num), tail: true, misfit: true,
		Why: fmt.Sprintf(why, args...) + ": it may be the log of another store or of another time",
	})
}
