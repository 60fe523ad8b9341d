package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/millrace/changefeed/feed"
)

// ledger is what was acknowledged beside what readers saw. It knows ids and LSNs, and nothing of the system.
type ledger struct {
	mu      sync.Mutex
	docs    map[string]*record
	open    map[edition]side // what only one side knows yet
	newest  map[string]map[string]int64
	repeats map[string]int
	acked   int
	expired int
	broken  []string
	reports map[string]int // what processors reported, by its beginning
}

// record is one document, which one writer writes.
type record struct {
	begun, done int // writes
	lsn         int64
	version     int  // of the last write that was acknowledged
	alive       bool // and it neither deleted the document nor gave it a time to live
}

// edition is one state of one document.
type edition struct {
	id  string
	lsn int64
}

type side string

const (
	byWriter side = "acknowledged, and not in the feed of all versions"
	byFeed   side = "in the feed of all versions, and never acknowledged, or twice in it"
)

func newLedger() *ledger {
	return &ledger{
		docs: map[string]*record{}, open: map[edition]side{}, newest: map[string]map[string]int64{},
		repeats: map[string]int{}, reports: map[string]int{},
	}
}

func (l *ledger) breach(format string, args ...any) {
	if len(l.broken) < 20 {
		l.broken = append(l.broken, fmt.Sprintf(format, args...))
	}
}

// begin notes that a document is about to be written.
func (l *ledger) begin(ids ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if l.docs[id] == nil {
			l.docs[id] = &record{}
		}
		l.docs[id].begun++
	}
}

// written notes what has been acknowledged.
func (l *ledger) written(id string, lsn int64, w change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.docs[id]
	if lsn <= d.lsn {
		l.breach("%s: LSN %d after %d", id, lsn, d.lsn)
	}
	d.done, d.lsn, d.version = d.done+1, lsn, w.version
	d.alive = w.kind == upsert
	l.acked++
	l.meet(edition{id, lsn}, byWriter, byFeed)
}

// writes is how many have been acknowledged.
func (l *ledger) writes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked
}

// unwritten notes a write that the store refused as not found.
func (l *ledger) unwritten(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.docs[id].done++
	if d := l.docs[id]; d.alive {
		l.breach("%s: version %d is not there to be deleted", id, d.version)
	}
}

// meet strikes out an edition that the other side knows, and else keeps it.
func (l *ledger) meet(e edition, from, other side) {
	switch l.open[e] {
	case other:
		delete(l.open, e)
	case from:
		l.breach("%s at LSN %d: twice %s", e.id, e.lsn, from)
	default:
		l.open[e] = from
	}
}

// versions notes what the feed of all versions shows.
func (l *ledger) versions(changes []feed.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range changes {
		if !c.Expired {
			l.meet(edition{c.ID, c.LSN}, byFeed, byWriter)
			continue
		}
		l.expired++
		if d := l.docs[c.ID]; d.alive && d.begun == d.done && c.LSN > d.lsn {
			l.breach("%s: expired at LSN %d without a time to live", c.ID, c.LSN)
		}
	}
}

// latest notes what a reader of the latest versions sees, and what it sees again.
func (l *ledger) latest(reader string, changes []feed.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.newest[reader] == nil {
		l.newest[reader] = map[string]int64{}
	}
	seen := l.newest[reader]
	for _, c := range changes {
		if c.LSN <= seen[c.ID] {
			l.repeats[reader]++
			continue
		}
		seen[c.ID] = c.LSN
	}
}

// reported counts what a processor reports: splits that merges undo, leases that moved.
func (l *ledger) reported(err *feed.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, cause := range []error{feed.ErrGone, feed.ErrLeaseLost, feed.ErrConflict, feed.ErrStopped} {
		if errors.Is(err, cause) {
			l.reports[cause.Error()]++
			return
		}
	}
	l.reports[err.Error()]++
}

// settled is what a reader must find: the version of a document that nobody is writing.
func (l *ledger) settled(id string) (before record, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.docs[id]
	if d == nil || !d.alive || d.begun != d.done {
		return record{}, false
	}
	return *d, true
}

// found compares what a reader found, version 0 for nothing, with what was settled before, unless it was written since.
func (l *ledger) found(reader, id string, before record, version int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.docs[id].begun == before.begun && version != before.version {
		l.breach("%s read version %d of %s, want %d", reader, version, id, before.version)
	}
}

// missing tells what readers have not seen yet.
func (l *ledger) missing(readers ...string) (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e, known := range l.open {
		all = append(all, fmt.Sprintf("%s at LSN %d: %s", e.id, e.lsn, known))
	}
	for id, d := range l.docs {
		for _, reader := range readers {
			if d.alive && l.newest[reader][id] != d.lsn {
				all = append(all, fmt.Sprintf("%s has seen %s at LSN %d, want %d", reader, id, l.newest[reader][id],
					d.lsn))
			}
		}
	}
	slices.Sort(all)
	return all
}

// verdict is what went wrong, but for what is still missing.
func (l *ledger) verdict() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []error
	for _, b := range l.broken {
		all = append(all, errors.New(b))
	}
	return errors.Join(all...)
}

func (l *ledger) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("%d writes acknowledged, %d expiries, seen again %v, reported %v", l.acked, l.expired, l.repeats,
		l.reports)
}
