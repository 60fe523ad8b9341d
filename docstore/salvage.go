package docstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/millrace/changefeed/docstore/internal/engine"
	"github.com/millrace/changefeed/docstore/internal/fields"
)

// Salvaged is the result of [Salvage].
type Salvaged struct {
	Containers []SalvagedContainer `json:"containers"`
	Lost       []Loss              `json:"lost"`    // of the files, and records that do not fit each other
	Missing    []MissingItem       `json:"missing"` // documents that are known to have been there

	// Doubtful are the salvaged documents of which a lost table may have had a later version, or the deletion, and
	// those from a log which does not fit the store.
	Doubtful []DoubtfulItem `json:"doubtful,omitempty"`
}

// SalvagedContainer is a container of a damaged store.
type SalvagedContainer struct {
	Name      string `json:"name"`      // "container N" where its record is lost
	Documents int    `json:"documents"` // those salvaged
	Counted   int64  `json:"counted"`   // documents by the stored count; -1 where that is lost, or may be old
	Head      int64  `json:"head"`      // newest LSN that is known; -1 for none

	// Lost are the LSNs, in order, of which lost files may have had some or all writes, with no other trace: what these
	// wrote is not known.
	Lost []LSNs `json:"lost_lsns,omitempty"`
}

// LSNs are the LSNs of a container from From to To. To is 0 if their number is unknown, or whether there were any.
type LSNs struct {
	From int64 `json:"from"`
	To   int64 `json:"to,omitempty"`
}

// Loss is an unreadable part of a file.
type Loss struct {
	File   string `json:"file"` // empty if the records of a container do not fit each other: any file may be wrong
	Reason string `json:"reason"`

	// From and To are the first key that may be lost and the first key after the loss. Documents are named by partition
	// key hash, versions by LSN. Both are empty if the file may contain any key among those written last.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`

	// Container is the container whose keys may be lost. Container is empty if there may be several.
	Container string `json:"container,omitempty"`
}

// MissingItem is a document whose last version could not be read.
type MissingItem struct {
	Container string `json:"container"`
	Key       string `json:"key"` // partition key
	ID        string `json:"id"`
	LSN       int64  `json:"lsn"`
	Older     int64  `json:"older,omitempty"` // LSN of the version salvaged instead; 0 if there is none
}

// DoubtfulItem is a document that may be another store's, or old, because nothing proves its version to be the last
// one.
type DoubtfulItem struct {
	Container string `json:"container"`
	Key       string `json:"key"` // partition key
	ID        string `json:"id"`
	LSN       int64  `json:"lsn"` // of the version salvaged

	// File is the log of the version, if that log does not fit the store: the document may be another store's.
	File string `json:"file,omitempty"`
}

// Salvage reads the remains of a damaged store and changes nothing in dir. Salvage calls visit for the documents,
// container by container, in the order of their last writes within a log; expired documents are left out. A document
// comes as acknowledged: its last version or, where that is lost, the newest version still there: then the document is
// among the missing or, if nothing tells of a later version but a lost table may have had one, among the doubtful. A
// table other than that of the manifest is lost.
//
// If the manifest is damaged, deleted documents may come back or be listed as missing, because nothing else records
// which tables are in use. If a log is lost, the documents of its writes are unknown: these documents come in their
// earlier versions, deleted documents may come back, and none of them is in the list of missing documents. The lost
// LSNs are listed with their container. The same holds for documents of which lost tables had all versions. The result
// lists all unreadable parts.
//
// If a log does not fit the store, it may be the log of another store or of another time: the inventory does not
// list the log, the newest log of a closed store has another end or other bytes, or the numbers of its writes do not
// continue those of the tables and of the log before. The log is read nevertheless, because the inventory may be the
// wrong file. Its documents are among the doubtful, with the name of the log, and what the store's own log had is
// among the lost LSNs. If no file is lost and the records of a container contradict each other (its index, versions,
// count and head), the container is in the list of losses.
//
// Some exchanges leave no trace. Of a killed store, nothing says how its newest log ends. So the log of another killed
// store with fitting numbers is taken for the store's own; the only sign is the loss of what followed its end, which
// every killed store has. Of a closed store, a log of another store without a proper end is taken for the beginning of
// the store's own, which is a loss. A table of the same size, with the same first and last key, is taken for the
// store's own if no other file has index entries, versions or counts of its documents. Without the checksum in the
// inventory, which older builds did not write, so is a log of the same length. A store without an inventory has only
// the numbers of its writes.
//
// Salvage holds the places of all documents in memory, some 60 bytes for each.
func Salvage(ctx context.Context, dir string, visit func(container string, item Item) error) (*Salvaged, error) {
	return salvage(ctx, nil, filepath.Clean(dir), visit)
}

// salvage is [Salvage] in a file system; if fs is nil, in the machine's. Each step builds on the steps before it.
func salvage(ctx context.Context, fs engine.FS, dir string,
	visit func(container string, item Item) error,
) (found *Salvaged, err error) {
	w, err := engine.OpenWreck(ctx, fs, dir, onDisk)
	if err != nil {
		return nil, fmt.Errorf("salvage store %s: %w", dir, err)
	}
	defer func() { err = cmp.Or(err, w.Close()) }()
	s := &salvager{
		ctx: ctx, w: w, visit: visit, containers: map[uint32]*salvaged{}, best: map[string]addr{},
		current: map[versionAt]mention{}, marked: map[versionAt]bool{}, doubts: map[string]DoubtfulItem{},
	}
	for _, step := range []func() error{
		s.readRecords, s.readSlots, s.findNewest, s.readMarks, s.handDocuments,
		s.listMissing, s.findMisfits, s.lostLSNs,
	} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("salvage store %s: %w", dir, err)
		}
	}
	return s.report(), nil
}

// salvager reads the store in several passes, because places fit in memory and bodies do not: first the containers,
// then the index, then the versions.
type salvager struct {
	ctx        context.Context
	w          *engine.Wreck
	visit      func(string, Item) error
	containers map[uint32]*salvaged

	current map[versionAt]mention // versions that the primary index names
	best    map[string]addr       // the newest version of documents whose entry in it may be lost
	marked  map[versionAt]bool    // those versions; true for the ones that are marked as superseded
	absent  []MissingItem
	doubts  map[string]DoubtfulItem // by key in the primary index
	misfits []Loss                  // containers whose records do not fit each other
}

// mention is an entry of the primary index.
type mention struct {
	of    uint64 // the version, see identify
	last  bool   // no lost table may have had a later one
	found bool   // its version was found
}

// salvaged is a container of which some part can be read.
type salvaged struct {
	SalvagedContainer
	layout *layout // nil where it is lost

	oldHead, oldCount bool // a lost table may have had a later head, or count
	otherHead         bool // the head is from a log that does not fit the store
	markless          bool // superseded versions are not marked, but removed
	fit
}

// versionAt is a version of a container.
type versionAt struct {
	cont uint32
	at   addr
}

// eachReadable calls visit for the keys of a table. An unreadable record is passed over.
func (s *salvager) eachReadable(table byte, visit func(key, value []byte, of engine.Origin) error) error {
	n := 0
	return s.w.Each([]byte{table}, []byte{table + 1}, func(key, value []byte, of engine.Origin) error {
		if n++; n%1024 == 0 && s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		if len(key) < 5 {
			return nil
		}
		return visit(key, value, of)
	})
}

// containerOf returns the container of a key. If the container's record is lost, containerOf makes up a container.
func (s *salvager) containerOf(key []byte) *salvaged {
	num := binary.BigEndian.Uint32(key[1:])
	c := s.containers[num]
	if c == nil {
		c = &salvaged{SalvagedContainer: SalvagedContainer{Name: fmt.Sprint("container ", num), Counted: -1, Head: -1}}
		s.containers[num] = c
	}
	return c
}

// readRecords reads the records of containers, and the counts to show how many documents are missing.
func (s *salvager) readRecords() error {
	err := s.eachReadable(tableContainer, func(key, value []byte, of engine.Origin) error {
		l, _, err := decodeLayout(value)
		if err == nil {
			c := s.containerOf(key)
			c.layout = l
			c.Name = l.spec.shortName()
			c.oldCount = s.mayBeOld(key, of) // there may be other partitions
			c.markless = l.retention() == 0 && l.drain == 0 && !c.oldCount
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = s.eachReadable(tableHead, func(key, value []byte, of engine.Origin) error {
		c, r := s.containerOf(key), fields.Reader{Rest: value}
		if n := r.Uvarint(); !r.Short {
			c.Head, c.oldHead, c.otherHead = int64(n), s.mayBeOld(key, of), of.Misfit != ""
		}
		return nil
	})
	if err != nil {
		return err
	}
	counts := map[string]bool{}
	err = s.eachReadable(tableCount, func(key, value []byte, of engine.Origin) error {
		c, r := s.containerOf(key), fields.Reader{Rest: value}
		if n := r.Uvarint(); !r.Short && c.layout != nil {
			c.Counted = max(c.Counted, 0) + int64(n)
			c.oldCount = c.oldCount || s.mayBeOld(key, of) || of.Misfit != ""
			counts[string(key)] = true
		}
		return nil
	})
	for num, c := range s.containers {
		if c.layout == nil {
			continue
		}
		for _, part := range c.layout.parts {
			key := countKey(num, part.num)
			c.oldCount = c.oldCount || !counts[string(key)] && s.isLost(key)
		}
	}
	return err
}

// isUncertain reports whether a document's entry in the primary index may be lost or old.
func (s *salvager) isUncertain(key []byte) bool {
	return slices.ContainsFunc(s.w.Lost, func(l engine.LostSpan) bool { return l.Holds(key) })
}

// readSlots reads the primary index.
func (s *salvager) readSlots() error {
	return s.eachReadable(tableDoc, func(key, value []byte, of engine.Origin) error {
		if p, err := decodeSlot(value); err == nil {
			s.containerOf(key).slots++
			s.current[versionAt{binary.BigEndian.Uint32(key[1:]), p.addr}] = mention{
				of: identify(key, p.etag), last: !s.mayBeOld(key, of),
			}
		}
		return nil
	})
}

// findNewest finds the newest version of each document for which the index is uncertain.
func (s *salvager) findNewest() error {
	if len(s.w.Lost) == 0 {
		return nil
	}
	return s.eachVersion(func(key []byte, at addr, e *entry, _ engine.Origin) error {
		if doc := s.doc(key, e); s.isUncertain(doc) {
			if old, ok := s.best[string(doc)]; !ok || old.lsn < at.lsn || old.lsn == at.lsn && old.idx < at.idx {
				s.best[string(doc)] = at
			}
		}
		return nil
	})
}

func (s *salvager) doc(key []byte, e *entry) []byte {
	return docKey(binary.BigEndian.Uint32(key[1:]), string(e.epk), string(e.pk), string(e.id))
}

// eachVersion calls visit for all versions.
func (s *salvager) eachVersion(visit func(key []byte, at addr, e *entry, of engine.Origin) error) error {
	return s.eachReadable(tableLog, func(key, value []byte, of engine.Origin) error {
		if len(key) != 5+addrSize {
			return nil
		}
		e, err := decodeEntry(value)
		if err != nil {
			return nil
		}
		return visit(key, parseAddr(key[5:]), &e, of)
	})
}

// handDocuments hands the newest version of each document to the caller.
func (s *salvager) handDocuments() error {
	now := time.Now().UnixMilli()
	return s.eachVersion(func(key []byte, at addr, e *entry, of engine.Origin) error {
		p, doc := versionAt{binary.BigEndian.Uint32(key[1:]), at}, s.doc(key, e)
		m, named := s.current[p]
		other := named && m.of != identify(doc, e.etag) // the version of another document, or of another store
		if named {
			named, m.found, m.last = !other, !other, m.last && !other
			s.current[p] = m
		}
		c := s.containerOf(key)
		c.newest = max(c.newest, at.lsn)
		if !named && !e.op.endsDocument() {
			c.orphans++
		}
		// Where the index may have lost the document's entry, or have an old one, the newest version found decides.
		best, unsure := s.best[string(doc)]
		if unsure {
			named = best == at
		}
		if !named || e.op.endsDocument() || c.layout != nil && c.layout.spec.expired(e.time, e.ttl, now) {
			return nil
		}
		c.Documents++
		if of.Misfit != "" || unsure && (other || s.isDoubtful(c, p, of)) {
			s.doubts[string(doc)] = DoubtfulItem{c.Name, string(e.pk), string(e.id), at.lsn, of.Misfit}
		}
		return s.visit(c.Name, e.item(at.lsn))
	})
}

// listMissing lists documents named by the primary index whose version was not found.
func (s *salvager) listMissing() error {
	return s.eachReadable(tableDoc, func(key, value []byte, _ engine.Origin) error {
		p, err := decodeSlot(value)
		if err != nil || s.current[versionAt{binary.BigEndian.Uint32(key[1:]), p.addr}].found {
			return nil
		}
		best := s.best[string(key)]
		if best.lsn >= p.lsn {
			return nil
		}
		_, pk, id, err := splitDoc(key[5:])
		if err != nil {
			return nil
		}
		delete(s.doubts, string(key)) // that the version is old is certain, and its place in the list of the missing
		s.absent = append(s.absent, MissingItem{s.containerOf(key).Name, string(pk), string(id), p.lsn, best.lsn})
		return nil
	})
}
