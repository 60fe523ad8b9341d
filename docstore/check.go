package docstore

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/millrace/changefeed/docstore/internal/engine"
	"github.com/millrace/changefeed/feed"
)

// maxFound is how many violations a check lists.
const maxFound = 20

// checker verifies a state of the store. The checker follows documents to versions, and versions to documents, because
// each direction finds losses the other does not see.
type checker struct {
	db       *DB
	ctx      context.Context
	progress func(records int64)
	records  int64
	view     engine.View
	found    []Violation
	known    []uint32 // containers

	cont uint32
	l    *layout
	head int64
	time int64
	docs map[*partition]int64
	rows map[tallyAt]row
	last map[uint32]entryTime // of each log, the previous version
}

type entryTime struct{ lsn, time int64 }

// addViolation records a violation.
func (k *checker) addViolation(format string, args ...any) {
	if len(k.found) < maxFound {
		k.found = append(k.found, Violation{k.l.spec.ID, fmt.Sprintf(format, args...)})
	}
}

// describe writes a key for people.
func (k *checker) describe(key []byte) string {
	return describeKey(key, func(num uint32) string {
		if k.l != nil && num == k.cont {
			return k.l.spec.shortName()
		}
		return ""
	})
}

// eachKey calls f for the keys in [from, to).
func (k *checker) eachKey(from, to []byte, f func(key, value []byte) error) (err error) {
	it, err := k.view.Cursor(from, to)
	if err != nil {
		return err
	}
	defer it.CloseInto(&err, "close cursor")
	for ok := it.First(); ok; ok = it.Next() {
		if err := k.countRecords(1); err != nil {
			return err
		}
		value, err := it.Value()
		if err != nil {
			return err
		}
		if err := f(it.Key(), value); err != nil {
			return fmt.Errorf("%s: %w", k.describe(it.Key()), err)
		}
	}
	return it.Err()
}

// eachOfTable calls f for the keys of a table of the container. The keys given to f lack table and container.
func (k *checker) eachOfTable(table byte, f func(tail, value []byte) error) error {
	from := tableKey(table, k.cont, 0)
	return k.eachKey(from, engine.After(from), func(key, value []byte) error { return f(key[len(from):], value) })
}

func (k *checker) checkContainer(num uint32, l *layout) error {
	k.cont, k.l, k.known = num, l, append(k.known, num)
	k.docs, k.rows, k.last = map[*partition]int64{}, map[tallyAt]row{}, map[uint32]entryTime{}
	head, err := k.readNumbers(headKey(num), 2)
	if err != nil {
		return err
	}
	k.head, k.time = head[0], head[1]
	k.checkTiles()
	for _, step := range []struct {
		table byte
		check func(tail, value []byte) error
	}{
		{tableDoc, k.checkDocument},
		{tableLog, k.checkVersion},
		{tableDead, k.checkMark},
		{tableTTL, k.checkExpiry},
		{tableUnique, k.checkUniqueKey},
		{tableID, k.checkIDEntry},
		{tableMoved, k.checkMoved},
		{tableLow, k.checkLowWater},
		{tableTally, k.checkTally},
	} {
		if err := k.eachOfTable(step.table, step.check); err != nil {
			return err
		}
	}
	for at, r := range k.rows {
		if k.l.tallied {
			k.addViolation("row %d of log %d has no tallies: want %d", at.row, at.log, r)
		}
	}
	return k.checkCounts()
}

func (k *checker) readNumbers(key []byte, n int) ([]int64, error) {
	numbers := make([]int64, n)
	value, found, err := k.view.Get(key)
	if err != nil || !found {
		return numbers, err
	}
	if decodeNumbers(value, numbers) != nil {
		k.addViolation("record of %s is broken", k.describe(key))
	}
	return numbers, nil
}

// checkTiles verifies that the ranges cover the key space without overlap, and each partition has its log.
func (k *checker) checkTiles() {
	edge := feed.FullRange().Min
	for _, part := range k.l.parts {
		if part.rng.Min != edge || part.rng.Empty() {
			k.addViolation("partition %s has range %s: want one from %q", part.id(), part.rng, edge)
		}
		edge = part.rng.Max
		if log := k.l.logs[part.num]; log == nil || log.rng != part.rng {
			k.addViolation("partition %s has no log of its own", part.id())
		}
	}
	if edge != feed.FullRange().Max {
		k.addViolation("ranges end at %q", edge)
	}
}

// checkDocument verifies an entry of the primary index, and an entry for the document in each index.
func (k *checker) checkDocument(tail, value []byte) error {
	epk, pk, id, err := splitDoc(tail)
	if err != nil {
		return err
	}
	s, err := decodeSlot(value)
	if err != nil {
		return err
	}
	part := k.l.at(string(epk))
	k.docs[part]++
	if hash, err := k.l.hashKey(string(pk)); err != nil || hash != string(epk) {
		k.addViolation("item %q has key %s at %s: want %s (%v)", id, pk, epk, hash, err)
	}
	if !slices.Contains(k.l.logsOf(part), s.log) {
		k.addViolation("item %q is in log %d, which its partition %s does not read", id, s.log, part.id())
	}
	if err := k.sameVersion(s, epk, pk, id); err != nil {
		return err
	}
	if s.ttl > 0 {
		if err := k.checkPresent("ttl index", ttlKey(k.cont, s.time+int64(s.ttl)*1000, string(epk), string(pk),
			string(id)), nil); err != nil {
			return err
		}
	}
	if k.l.byID {
		if err := k.checkPresent("id index", idKey(k.cont, string(id), string(epk), string(pk)), nil); err != nil {
			return err
		}
	}
	if err := k.checkOrder(s, tail, pk, id); err != nil {
		return err
	}
	for i, u := range s.uniq {
		if err := k.checkPresent("unique key", uniqueKey(k.cont, i, string(epk), string(pk), u), id); err != nil {
			return err
		}
	}
	return nil
}

// sameVersion verifies the agreement of the log with the primary index.
func (k *checker) sameVersion(s slot, epk, pk, id []byte) error {
	value, found, err := k.view.Get(logKey(tableLog, k.cont, s.addr))
	if err != nil {
		return err
	}
	if !found {
		k.addViolation("item %q has no version at LSN %d of log %d", id, s.lsn, s.log)
		return nil
	}
	e, err := decodeEntry(value)
	if err != nil {
		return err
	}
	ofItem := bytes.Equal(e.epk, epk) && bytes.Equal(e.pk, pk) && bytes.Equal(e.id, id) && !e.op.endsDocument()
	if !ofItem || !s.isSlotOf(e) || len(value) != s.size {
		k.addViolation("item %q differs from its version at LSN %d: index %+v, log %+v", id, s.lsn, s, e)
	}
	doc, err := parseDocument(e.body, k.l.paths)
	if err != nil || doc.id != string(id) || string(doc.key) != string(pk) || doc.ttl != s.ttl {
		k.addViolation("body of item %q has id %q and key %s (%v)", id, doc.id, doc.key, err)
	}
	_, dead, err := k.view.Get(logKey(tableDead, k.cont, s.addr))
	if dead {
		k.addViolation("item %q is marked dead at LSN %d", id, s.lsn)
	}
	return err
}

// checkPresent verifies the presence of a key with a value.
func (k *checker) checkPresent(what string, key, value []byte) error {
	v, found, err := k.view.Get(key)
	if err == nil && (!found || !bytes.Equal(v, value)) {
		k.addViolation("%s has %q for %s: want %q", what, v, k.describe(key), value)
	}
	return err
}

// checkVersion verifies an entry of a log.
func (k *checker) checkVersion(tail, value []byte) error {
	a, err := splitAddr(tail)
	if err != nil {
		return err
	}
	e, err := decodeEntry(value)
	if err != nil {
		return err
	}
	before := k.last[a.log]
	k.last[a.log] = entryTime{a.lsn, e.time}
	log := k.l.logs[a.log]
	switch {
	case log == nil:
		k.addViolation("log %d is not known", a.log)
		return nil
	case a.lsn > k.head || e.time > k.time:
		k.addViolation("version at LSN %d, time %d is above the head %d, %d", a.lsn, e.time, k.head, k.time)
	case e.time < before.time || e.prev > a.lsn:
		k.addViolation("version at LSN %d, time %d follows %+v and supersedes LSN %d", a.lsn, e.time, before, e.prev)
	case !log.rng.Holds(string(e.epk)):
		k.addViolation("version at LSN %d has key %s: want one in %s", a.lsn, e.epk, log.rng)
	}
	_, dead, err := k.view.Get(logKey(tableDead, k.cont, a))
	if err != nil || dead {
		return err
	}
	if e.op.endsDocument() {
		if !k.l.marked {
			k.addViolation("a delete is kept at LSN %d without a retention", a.lsn)
		}
		return nil
	}
	number, cell := k.db.cells.row(a.lsn)
	tally := k.rows[tallyAt{a.log, number}]
	tally[cell]++
	k.rows[tallyAt{a.log, number}] = tally
	v, found, err := k.view.Get(docKey(k.cont, string(e.epk), string(e.pk), string(e.id)))
	if err != nil {
		return err
	}
	if !found || parseAddr(v) != a {
		k.addViolation("version at LSN %d of item %q lives, but is not the item's", a.lsn, e.id)
	}
	return nil
}

// checkMark verifies that a mark has its version.
func (k *checker) checkMark(tail, _ []byte) error {
	a, err := splitAddr(tail)
	if err != nil {
		return err
	}
	_, found, err := k.view.Get(logKey(tableLog, k.cont, a))
	if err == nil && (!found || !k.l.marked) {
		k.addViolation("mark at LSN %d has no version", a.lsn)
	}
	return err
}

// checkExpiry verifies that an entry of the ttl index has its document.
func (k *checker) checkExpiry(tail, _ []byte) error {
	at, doc, err := splitTTL(tail)
	if err != nil {
		return err
	}
	s, err := k.slotOf(doc)
	if err == nil && (s == nil || s.ttl <= 0 || s.time+int64(s.ttl)*1000 != at) {
		k.addViolation("ttl index has %q at %d, but the item has not", doc, at)
	}
	return err
}

// checkUniqueKey verifies that a unique key has its document.
func (k *checker) checkUniqueKey(tail, value []byte) error {
	i, epk, pk, v, err := splitUnique(tail)
	if err != nil {
		return err
	}
	s, err := k.slotOf(appendDoc(nil, string(epk), string(pk), string(value)))
	if err == nil && (s == nil || i >= len(s.uniq) || s.uniq[i] != string(v)) {
		k.addViolation("unique key %d has %q for item %q, but the item has not", i, v, value)
	}
	return err
}

// checkIDEntry verifies that an entry of the index by id has its document.
func (k *checker) checkIDEntry(tail, _ []byte) error {
	id, epk, pk, err := splitID(tail)
	if err != nil {
		return err
	}
	s, err := k.slotOf(appendDoc(nil, string(epk), string(pk), string(id)))
	if err == nil && s == nil {
		k.addViolation("index by id has %q, which is no item", id)
	}
	return err
}

// checkLowWater verifies that no version before a low-water mark is alive, because readers would never see such a
// version.
func (k *checker) checkLowWater(tail, value []byte) error {
	num, err := splitNumber(tail)
	if err != nil {
		return err
	}
	var low [1]int64
	if err := decodeNumbers(value, low[:]); err != nil {
		return err
	}
	from, to := logBounds(tableLog, k.cont, num, -1, low[0])
	return k.eachKey(from, to, func(key, value []byte) error {
		op, _, err := peekEntry(value)
		if err != nil {
			return err
		}
		a, err := splitAddr(tailOf(key))
		if err != nil {
			return err
		}
		_, dead, err := k.view.Get(logKey(tableDead, k.cont, a))
		if err == nil && !dead && !op.endsDocument() {
			k.addViolation("version at LSN %d of log %d lives below the low-water mark %d", a.lsn, num, low[0])
		}
		return err
	})
}

// checkTally verifies a row of tallies, after all versions have been counted.
func (k *checker) checkTally(tail, value []byte) error {
	at, err := splitTally(tail)
	if err != nil {
		return err
	}
	var stored row
	if err := decodeRow(value, &stored); err != nil {
		return err
	}
	if want := k.rows[at]; stored != want || !k.l.tallied {
		k.addViolation("row %d of log %d has the tallies %d: want %d", at.row, at.log, stored, want)
	}
	delete(k.rows, at)
	return nil
}

// slotOf returns an entry of the primary index, nil if absent.
func (k *checker) slotOf(tail []byte) (*slot, error) {
	value, found, err := k.view.Get(append(tableKey(tableDoc, k.cont, len(tail)), tail...))
	if err != nil || !found {
		return nil, err
	}
	s, err := decodeSlot(value)
	return &s, err
}

// checkCounts verifies the counts of the partitions.
func (k *checker) checkCounts() error {
	for _, part := range k.l.parts {
		n, err := k.readNumbers(countKey(k.cont, part.num), 2)
		if err != nil {
			return err
		}
		if n[0] != k.docs[part] || n[1] > k.head {
			k.addViolation("partition %s counts %d documents, has %d; newest LSN %d, head %d", part.id(), n[0],
				k.docs[part], n[1], k.head)
		}
	}
	return nil
}
