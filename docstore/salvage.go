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
	Lost       []Loss              `json:"lost"`    // of the files
	Missing    []MissingItem       `json:"missing"` // documents that are known to have been there
}

// SalvagedContainer is a container of a damaged store.
type SalvagedContainer struct {
	Name      string `json:"name"`      // "container N" where its record is lost
	Documents int    `json:"documents"` // those salvaged
	Counted   int64  `json:"counted"`   // documents by the stored count; -1 where that is lost
	Head      int64  `json:"head"`      // newest LSN that is known; -1 for none

	// Lost are the LSNs, in order, of which nothing was found that a lost file may have had:
	// what they wrote is not known.
	Lost []LSNs `json:"lost_lsns,omitempty"`
}

// LSNs are the LSNs of a container from one to another. To is 0 if it is not known how many
// there were, if any.
type LSNs struct {
	From int64 `json:"from"`
	To   int64 `json:"to,omitempty"`
}

// Loss is a part of a file that could not be read.
type Loss struct {
	File   string `json:"file"`
	Reason string `json:"reason"`

	// From and To are the first key that may be lost and the first key after the loss:
	// documents by partition key hash, versions by LSN. Both are empty where the file
	// may hold any key that was written last.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`

	// Container is the only one whose keys may be lost; empty where there may be several.
	Container string `json:"container,omitempty"`
}

// MissingItem is a document whose last version could not be read.
type MissingItem struct {
	Container string `json:"container"`
	Key       string `json:"key"` // partition key
	ID        string `json:"id"`
	LSN       int64  `json:"lsn"`
	Older     int64  `json:"older,omitempty"` // LSN of the version salvaged instead; 0 for none
}

// Salvage reads the remains of a damaged store and changes nothing in dir. Salvage calls
// visit for the documents, container by container, in the order of their last writes
// within a log; expired documents are left out. A document comes as acknowledged: its
// last version or, where that is lost, the newest version that is still there. Where
// the manifest is damaged, deleted documents may come back or be listed as missing, because
// nothing else says which tables are in use. Where a log is lost, nothing says which documents
// its writes were about: they come as they were before, deleted ones may come back, and none of
// them is among the missing; their LSNs are listed with their container. The result lists all
// parts that could not be read.
//
// The places of all documents are held in memory, some 50 bytes for each.
func Salvage(ctx context.Context, dir string, visit func(container string, item Item) error) (*Salvaged, error) {
	return salvage(ctx, nil, filepath.Clean(dir), visit)
}

// salvage is [Salvage] in a file system, the machine's if it is nil. The steps build on each other in this order.
func salvage(ctx context.Context, fs engine.FS, dir string, visit func(container string, item Item) error) (found *Salvaged, err error) {
	w, err := engine.OpenWreck(ctx, fs, dir, onDisk)
	if err != nil {
		return nil, fmt.Errorf("salvage store %s: %w", dir, err)
	}
	defer func() { err = cmp.Or(err, w.Close()) }()
	s := &salvager{ctx: ctx, w: w, visit: visit, containers: map[uint32]*salvaged{}, best: map[string]addr{}, current: map[versionAt]bool{}}
	for _, step := range []func() error{s.readRecords, s.readSlots, s.findNewest, s.handDocuments, s.listMissing, s.lostLSNs} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("salvage store %s: %w", dir, err)
		}
	}
	return s.report(), nil
}

// salvager reads the remains in several passes, because places fit in memory and bodies
// do not: first the containers, then the index, then the versions.
type salvager struct {
	ctx        context.Context
	w          *engine.Wreck
	visit      func(string, Item) error
	containers map[uint32]*salvaged

	current map[versionAt]bool // versions that the primary index names; true once found
	best    map[string]addr    // the newest version of documents whose entry in it may be lost
	absent  []MissingItem
}

// salvaged is a container of which something is left.
type salvaged struct {
	SalvagedContainer
	layout *layout // nil where it is lost
}

// versionAt is a version of a container.
type versionAt struct {
	cont uint32
	at   addr
}

// eachReadable calls visit for the keys of a table. A record that cannot be read is passed
// over.
func (s *salvager) eachReadable(table byte, visit func(key, value []byte) error) error {
	n := 0
	return s.w.Each([]byte{table}, []byte{table + 1}, func(key, value []byte) error {
		if n++; n%1024 == 0 && s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		if len(key) < 5 {
			return nil
		}
		return visit(key, value)
	})
}

// containerOf returns the container of a key, made up if its record is lost.
func (s *salvager) containerOf(key []byte) *salvaged {
	num := binary.BigEndian.Uint32(key[1:])
	c := s.containers[num]
	if c == nil {
		c = &salvaged{SalvagedContainer: SalvagedContainer{Name: fmt.Sprint("container ", num), Counted: -1, Head: -1}}
		s.containers[num] = c
	}
	return c
}

// readRecords reads the records of containers, and the counts by which one sees what is
// missing.
func (s *salvager) readRecords() error {
	err := s.eachReadable(tableContainer, func(key, value []byte) error {
		l, _, err := decodeLayout(value)
		if err == nil {
			c := s.containerOf(key)
			c.layout = l
			c.Name = l.spec.shortName()
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = s.eachReadable(tableHead, func(key, value []byte) error {
		r := fields.Reader{Rest: value}
		if n := r.Uvarint(); !r.Short {
			s.containerOf(key).Head = int64(n)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.eachReadable(tableCount, func(key, value []byte) error {
		c, r := s.containerOf(key), fields.Reader{Rest: value}
		if n := r.Uvarint(); !r.Short && c.layout != nil {
			c.Counted = max(c.Counted, 0) + int64(n)
		}
		return nil
	})
}

// isUncertain reports whether a document's entry in the primary index may be lost or old.
func (s *salvager) isUncertain(key []byte) bool {
	return slices.ContainsFunc(s.w.Lost, func(l engine.LostSpan) bool { return l.Holds(key) })
}

// readSlots reads the primary index.
func (s *salvager) readSlots() error {
	return s.eachReadable(tableDoc, func(key, value []byte) error {
		if p, err := decodeSlot(value); err == nil {
			s.current[versionAt{binary.BigEndian.Uint32(key[1:]), p.addr}] = false
		}
		return nil
	})
}

// findNewest finds the newest version of each document for which the index is uncertain.
func (s *salvager) findNewest() error {
	if len(s.w.Lost) == 0 {
		return nil
	}
	return s.eachVersion(func(key []byte, at addr, e *entry) error {
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
func (s *salvager) eachVersion(visit func(key []byte, at addr, e *entry) error) error {
	return s.eachReadable(tableLog, func(key, value []byte) error {
		if len(key) != 5+addrSize {
			return nil
		}
		e, err := decodeEntry(value)
		if err != nil {
			return nil
		}
		return visit(key, parseAddr(key[5:]), &e)
	})
}

// handDocuments hands the newest version of each document to the caller.
func (s *salvager) handDocuments() error {
	now := time.Now().UnixMilli()
	return s.eachVersion(func(key []byte, at addr, e *entry) error {
		p := versionAt{binary.BigEndian.Uint32(key[1:]), at}
		_, named := s.current[p]
		if named {
			s.current[p] = true
		}
		// Where the index may have lost the document's entry, or have an old one, the
		// newest version that was found decides.
		if best, unsure := s.best[string(s.doc(key, e))]; unsure {
			named = best == at
		}
		c := s.containerOf(key)
		if !named || e.op.endsDocument() || c.layout != nil && c.layout.spec.expired(e.time, e.ttl, now) {
			return nil
		}
		c.Documents++
		return s.visit(c.Name, e.item(at.lsn))
	})
}

// listMissing lists documents that the primary index names and whose version was not found.
func (s *salvager) listMissing() error {
	return s.eachReadable(tableDoc, func(key, value []byte) error {
		p, err := decodeSlot(value)
		if err != nil || s.current[versionAt{binary.BigEndian.Uint32(key[1:]), p.addr}] {
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
		s.absent = append(s.absent, MissingItem{s.containerOf(key).Name, string(pk), string(id), p.lsn, best.lsn})
		return nil
	})
}

// report returns the result.
func (s *salvager) report() *Salvaged {
	found := &Salvaged{Missing: s.absent}
	for _, c := range s.containers {
		found.Containers = append(found.Containers, c.SalvagedContainer)
	}
	slices.SortFunc(found.Containers, func(a, b SalvagedContainer) int { return cmp.Compare(a.Name, b.Name) })
	for _, l := range s.w.Lost {
		loss := Loss{File: l.File, Reason: l.Why}
		if l.To != nil {
			loss.From, loss.To = s.describeKey(l.From), s.describeKey(l.To)
			// A key begins with its table and its container, so all keys between two of one container are of it.
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

// describeKey writes a key for a reader.
func (s *salvager) describeKey(key []byte) string {
	if len(key) == 0 {
		return "the beginning"
	}
	if len(key) < 5 {
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
