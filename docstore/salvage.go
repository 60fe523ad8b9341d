package docstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/millrace/changefeed/docstore/internal/engine"
	"github.com/millrace/changefeed/docstore/internal/fields"
)

// Salvaged is the result of [Salvage].
type Salvaged struct {
	Containers []SalvagedContainer `json:"containers"`
	Lost       []Loss              `json:"lost"`    // of the files
	Missing    []MissingItem       `json:"missing"` // documents that are known to have been there

	// Doubtful are the documents that were salvaged and of which a lost table may have had a
	// later version, or the deletion.
	Doubtful []DoubtfulItem `json:"doubtful,omitempty"`
}

// SalvagedContainer is a container of a damaged store.
type SalvagedContainer struct {
	Name      string `json:"name"`      // "container N" where its record is lost
	Documents int    `json:"documents"` // those salvaged
	Counted   int64  `json:"counted"`   // documents by the stored count; -1 where that is lost, or may be old
	Head      int64  `json:"head"`      // newest LSN that is known; -1 for none

	// Lost are the LSNs, in order, of which lost files may have had all or some writes that nothing
	// else tells of: what these wrote is not known.
	Lost []LSNs `json:"lost_lsns,omitempty"`
}

// LSNs are the LSNs of a container from From to To. To is 0 if their number is unknown, or whether there were any.
type LSNs struct {
	From int64 `json:"from"`
	To   int64 `json:"to,omitempty"`
}

// Loss is a part of a file that could not be read.
type Loss struct {
	File   string `json:"file"`
	Reason string `json:"reason"`

	// From and To are the first key that may be lost and the first key after the loss. Documents are named by
	// partition key hash, versions by LSN. Both are empty if the file may contain any key among those written last.
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

// DoubtfulItem is a document that may be old: nothing proves that its version is the last one.
type DoubtfulItem struct {
	Container string `json:"container"`
	Key       string `json:"key"` // partition key
	ID        string `json:"id"`
	LSN       int64  `json:"lsn"` // of the version salvaged
}

// Salvage reads the remains of a damaged store and changes nothing in dir. Salvage calls
// visit for the documents, container by container, in the order of their last writes
// within a log; expired documents are left out. A document comes as acknowledged: its
// last version or, where that is lost, the newest version that is still there: then the document
// is among the missing or, if nothing tells of a later version but a lost table may have had one,
// among the doubtful. A table that is not the one of the manifest is lost. Where
// the manifest is damaged, deleted documents may come back or be listed as missing, because
// nothing else says which tables are in use. Where a log is lost, nothing says which documents
// its writes were about: they come as they were before, deleted ones may come back, and none of
// them is among the missing or the doubtful; their LSNs are listed with their container. The same
// holds for documents of which lost tables had all versions. The result lists all parts that could
// not be read.
//
// If the manifest is damaged, deleted documents may come back or be listed as missing, because nothing else records
// which tables are in use. If a log is lost, the documents of its writes are unknown: these documents come in their
// earlier versions, deleted documents may come back, and none of them is in the list of missing documents. The lost
// LSNs are listed with their container. The result lists all parts that could not be read.
//
// Salvage holds the places of all documents in memory, some 50 bytes for each.
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
		s.listMissing, s.lostLSNs,
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
}

// mention is an entry of the primary index.
type mention struct {
	last  bool // no lost table may have had a later one
	found bool // its version was found
}

// salvaged is a container of which some part can be read.
type salvaged struct {
	SalvagedContainer
	layout *layout // nil where it is lost

	oldHead, oldCount bool // a lost table may have had a later head, or count
	markless          bool // superseded versions are not marked, but removed
}

// versionAt is a version of a container.
type versionAt struct {
	cont uint32
	at   addr
}

// eachReadable calls visit for the keys of a table. A record that cannot be read is passed
// over.
func (s *salvager) eachReadable(table byte, visit func(key, value []byte, seq uint64) error) error {
	n := 0
	return s.w.Each([]byte{table}, []byte{table + 1}, func(key, value []byte, seq uint64) error {
		if n++; n%1024 == 0 && s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		if len(key) < 5 {
			return nil
		}
		return visit(key, value, seq)
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

// readRecords reads the records of containers, and the counts that show how many documents are missing.
func (s *salvager) readRecords() error {
	err := s.eachReadable(tableContainer, func(key, value []byte, seq uint64) error {
		l, _, err := decodeLayout(value)
		if err == nil {
			c := s.containerOf(key)
			c.layout = l
			c.Name = l.spec.shortName()
			c.oldCount = s.mayBeOld(key, seq) // there may be other partitions
			c.markless = l.retention() == 0 && l.drain == 0 && !c.oldCount
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = s.eachReadable(tableHead, func(key, value []byte, seq uint64) error {
		c, r := s.containerOf(key), fields.Reader{Rest: value}
		if n := r.Uvarint(); !r.Short {
			c.Head, c.oldHead = int64(n), s.mayBeOld(key, seq)
		}
		return nil
	})
	if err != nil {
		return err
	}
	counts := map[string]bool{}
	err = s.eachReadable(tableCount, func(key, value []byte, seq uint64) error {
		c, r := s.containerOf(key), fields.Reader{Rest: value}
		if n := r.Uvarint(); !r.Short && c.layout != nil {
			c.Counted = max(c.Counted, 0) + int64(n)
			c.oldCount = c.oldCount || s.mayBeOld(key, seq)
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
	return s.eachReadable(tableDoc, func(key, value []byte, seq uint64) error {
		if p, err := decodeSlot(value); err == nil {
			s.current[versionAt{binary.BigEndian.Uint32(key[1:]), p.addr}] = mention{last: !s.mayBeOld(key, seq)}
		}
		return nil
	})
}

// findNewest finds the newest version of each document for which the index is uncertain.
func (s *salvager) findNewest() error {
	if len(s.w.Lost) == 0 {
		return nil
	}
	return s.eachVersion(func(key []byte, at addr, e *entry, _ uint64) error {
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
func (s *salvager) eachVersion(visit func(key []byte, at addr, e *entry, seq uint64) error) error {
	return s.eachReadable(tableLog, func(key, value []byte, seq uint64) error {
		if len(key) != 5+addrSize {
			return nil
		}
		e, err := decodeEntry(value)
		if err != nil {
			return nil
		}
		return visit(key, parseAddr(key[5:]), &e, seq)
	})
}

// handDocuments hands the newest version of each document to the caller.
func (s *salvager) handDocuments() error {
	now := time.Now().UnixMilli()
	return s.eachVersion(func(key []byte, at addr, e *entry, seq uint64) error {
		p := versionAt{binary.BigEndian.Uint32(key[1:]), at}
		m, named := s.current[p]
		if named {
			m.found = true
			s.current[p] = m
		}
		// Where the index may have lost the document's entry, or have an old one, the
		// newest version that was found decides.
		best, unsure := s.best[string(s.doc(key, e))]
		if unsure {
			named = best == at
		}
		c := s.containerOf(key)
		if !named || e.op.endsDocument() || c.layout != nil && c.layout.spec.expired(e.time, e.ttl, now) {
			return nil
		}
		c.Documents++
		if unsure && s.isDoubtful(c, p, seq) {
			s.doubts[string(s.doc(key, e))] = DoubtfulItem{c.Name, string(e.pk), string(e.id), at.lsn}
		}
		return s.visit(c.Name, e.item(at.lsn))
	})
}

// listMissing lists documents that the primary index names but whose version was not found.
func (s *salvager) listMissing() error {
	return s.eachReadable(tableDoc, func(key, value []byte, _ uint64) error {
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
	return found
}

// describeKey writes a key in a readable form.
func (s *salvager) describeKey(key []byte) string {
	if len(key) == 0 {
		return "the beginning"
	}
	if len(key) < 5 || key[0] == tableMeta || key[0] == tableDatabase {
		return fmt.Sprintf("table %q", key[:1])
	}
	name := binary.BigEndian.Uint32(key[1:])
	of := fmt.Sprint("container ", name)
	if c := s.containers[name]; c != nil {
		of = c.Name
	}
	switch {
	case key[0] == tableLog && len(key) >= 5+addrSize:
		at := parseAddr(key[5:])
		return fmt.Sprintf("%s: version of LSN %d in partition %d", of, at.lsn, at.log)
	case key[0] == tableDoc:
		if _, pk, id, err := splitDoc(key[5:]); err == nil {
			return fmt.Sprintf("%s: item %q of %s", of, id, pk)
		}
	}
	return fmt.Sprintf("%s: table %q", of, key[:1])
}
