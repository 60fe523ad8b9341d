package docstore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"

	"github.com/millrace/changefeed/docstore/internal/fields"
)

// The layout of the keys and values. Numbers in keys are big-endian, because the engine sorts keys as bytes. cont has 4
// bytes, log 4, lsn 8, number 8, idx 2; epk is hex text; 00 is a zero byte, which is neither in hex text nor in the
// JSON of a pk.
// An id may contain a zero byte, and nothing is escaped. Therefore the id is the last part of keys split from the front
// (splitDoc). In the index by id, the id is the first part, and keys are split from the end (splitID).
//
//	key                                  value
//	m name                               about the store: format, rid, next container
//	c cont                               container (JSON): spec, rid, partitions, logs,
//	                                     next partition, and floor, purged, drain and
//	                                     marked of its retention
//	b id                                 database (JSON)
//	h cont                               head LSN, commit time of the head
//	n cont partition                     documents, head LSN
//	w cont log                           low-water LSN: nothing lives before it
//	d cont epk 00 pk 00 id               where the document is (slot)
//	i cont id 00 epk 00 pk               nothing: index by id, for lease containers
//	o cont log number epk 00 pk 00 id    nothing: documents replaced since their creation,
//	                                     by the number in their resource id (see creation.go)
//	l cont log lsn idx                   one version of a document (entry)
//	r cont log lsn idx                   that version is dead; nothing
//	s cont log row                       how many versions live in each cell (see tally.go)
//	t cont expiry epk 00 pk 00 id        nothing: documents with a ttl of their own
//	u cont index epk 00 pk 00 value      id that holds the unique key
//
// A slot is
//
//	log 4, lsn 8, idx 2, time uvarint (Unix ms), ttl varint (s), size uvarint (of the
//	entry), etag text, count uvarint, count unique values (text)
//
// and an entry is
//
//	op 1, epk text, previous lsn uvarint, previous idx uvarint, time uvarint, ttl varint,
//	pk text, id text, etag text, body to the end
//
// where text is a uvarint length and the bytes.
//
// Bodies are stored once, in the log, in the order of LSNs. So a feed read is one sequential scan, and an overwrite
// does not touch other bodies. This layout was the fastest in our measurements
// (docs/decisions/0002-one-log-in-lsn-order.md). Its cost: a point read needs two reads. An entry repeats the etag and
// the ttl of its slot, so neither the feed nor a check needs the index.
const (
	tableMeta      = 'm'
	tableContainer = 'c'
	tableDatabase  = 'b'
	tableHead      = 'h'
	tableCount     = 'n'
	tableLow       = 'w'
	tableDoc       = 'd'
	tableID        = 'i'
	tableMoved     = 'o'
	tableLog       = 'l'
	tableDead      = 'r'
	tableTally     = 's'
	tableTTL       = 't'
	tableUnique    = 'u'
)

// dataTables are the tables whose keys begin with a container. Their keys are removed together with the container.
const dataTables = "hnwdilorstu"

// addr is the place of a version of a document. The LSN alone names a transaction; idx is the number of the write
// within the transaction.
type addr struct {
	log uint32
	lsn int64
	idx uint16
}

// slot is the value of the primary index. A slot contains everything a conditional write or a point read needs before
// the body.
type slot struct {
	addr
	time int64 // commit time, Unix milliseconds
	ttl  int   // the document's own ttl in seconds; 0 is none, -1 is never
	size int   // bytes of the log entry
	etag string
	uniq []string // values of the document's unique keys
	born int64    // number in its resource id; 0 means a resource id with a hash, made by an older version
}

// entry is a version of a document in a log. The previous LSN and index lead to the previous version, whose body is
// the previous image in the feed of all versions.
type entry struct {
	op      entryOp
	epk     []byte
	prev    int64 // LSN of the previous version, 0 if there is none
	prevIdx uint16
	time    int64
	ttl     int
	pk      []byte
	id      []byte
	etag    []byte
	body    []byte
}

// isSlotOf reports whether a slot has the same properties as an entry.
func (s slot) isSlotOf(e entry) bool {
	return s.etag == string(e.etag) && s.time == e.time && s.ttl == e.ttl
}

// entryOp is the operation which created the version.
type entryOp byte

const (
	opCreate  entryOp = 'c'
	opReplace entryOp = 'r'
	opDelete  entryOp = 'd'
	opExpire  entryOp = 'e'
)

// endsDocument reports whether the version is a delete or an expiry.
func (o entryOp) endsDocument() bool { return o == opDelete || o == opExpire }

// describeKey writes a key for people, without its raw bytes. nameOf returns the name of a container, or "".
func describeKey(key []byte, nameOf func(num uint32) string) string {
	if len(key) < prefixSize || key[0] == tableMeta || key[0] == tableDatabase {
		return fmt.Sprintf("table %q", key[:min(1, len(key))])
	}
	num := binary.BigEndian.Uint32(key[1:])
	of := cmp.Or(nameOf(num), fmt.Sprint("container ", num))
	switch tail := key[prefixSize:]; {
	case key[0] == tableLog && len(tail) >= addrSize:
		at := parseAddr(tail)
		return fmt.Sprintf("%s: version of LSN %d in partition %d", of, at.lsn, at.log)
	case key[0] == tableDoc:
		if _, pk, id, err := splitDoc(tail); err == nil {
			return fmt.Sprintf("%s: item %q of %s", of, id, pk)
		}
	}
	return fmt.Sprintf("%s: table %q", of, key[:1])
}

// unnamed is for a key whose container has no known name.
func unnamed(uint32) string { return "" }

const prefixSize = 1 + 4 // of a key in a table: the table and the container

// tableKey begins a key of a table, with room for extra bytes.
func tableKey(table byte, cont uint32, extra int) []byte {
	key := make([]byte, prefixSize, prefixSize+extra)
	key[0] = table
	binary.BigEndian.PutUint32(key[1:], cont)
	return key
}

// splitKey splits a key begun by tableKey into the container and the rest.
func splitKey(key []byte) (cont uint32, tail []byte, err error) {
	if len(key) < prefixSize {
		return 0, nil, fmt.Errorf("key of %d bytes: %w", len(key), fields.ErrShort)
	}
	return binary.BigEndian.Uint32(key[1:]), key[prefixSize:], nil
}

// tailOf returns a key without table and container. The key must come from a cursor or a table of containers. For
// other keys use splitKey.
func tailOf(key []byte) []byte { return key[prefixSize:] }

func metaKey(name string) []byte      { return append([]byte{tableMeta}, name...) }
func databaseKey(id string) []byte    { return append([]byte{tableDatabase}, id...) }
func containerKey(cont uint32) []byte { return tableKey(tableContainer, cont, 0) }
func headKey(cont uint32) []byte      { return tableKey(tableHead, cont, 0) }

func countKey(cont, partition uint32) []byte {
	return binary.BigEndian.AppendUint32(tableKey(tableCount, cont, 4), partition)
}

func lowKey(cont, log uint32) []byte {
	return binary.BigEndian.AppendUint32(tableKey(tableLow, cont, 4), log)
}

// splitNumber reads the tail of a key of countKey or lowKey.
func splitNumber(tail []byte) (uint32, error) {
	if len(tail) != 4 {
		return 0, fmt.Errorf("key of %d bytes: %w", len(tail), fields.ErrShort)
	}
	return binary.BigEndian.Uint32(tail), nil
}

// docKey returns the key of a document in the primary index. The documents of a range of effective partition keys are
// neighbours, and within the range so are the documents of a partition key.
func docKey(cont uint32, epk, pk, id string) []byte {
	key := tableKey(tableDoc, cont, len(epk)+len(pk)+len(id)+2)
	return appendDoc(key, epk, pk, id)
}

// appendDoc appends epk, pk and id. A zero byte ends epk and pk, because neither contains a zero byte; the id needs
// no end.
func appendDoc(key []byte, epk, pk, id string) []byte {
	key = append(append(key, epk...), 0)
	key = append(append(key, pk...), 0)
	return append(key, id...)
}

// splitDoc splits the tail of a key of appendDoc into epk, pk and id.
func splitDoc(tail []byte) (epk, pk, id []byte, err error) {
	epk, rest, ok := bytes.Cut(tail, []byte{0})
	pk, id, ok2 := bytes.Cut(rest, []byte{0})
	if !ok || !ok2 {
		return nil, nil, nil, fmt.Errorf("key of %d bytes: %w", len(tail), fields.ErrShort)
	}
	return epk, pk, id, nil
}

// idKey returns the key of a document in the index by id, which exists in containers whose ids are looked up without
// a partition key.
func idKey(cont uint32, id, epk, pk string) []byte {
	key := tableKey(tableID, cont, len(epk)+len(pk)+len(id)+2)
	key = append(append(key, id...), 0)
	key = append(append(key, epk...), 0)
	return append(key, pk...)
}

// splitID splits the tail of a key of idKey into id, epk and pk. splitID starts from the end, because only the id may
// contain zero bytes.
func splitID(tail []byte) (id, epk, pk []byte, err error) {
	j := bytes.LastIndexByte(tail, 0)
	i := bytes.LastIndexByte(tail[:max(j, 0)], 0)
	if i < 0 {
		return nil, nil, nil, fmt.Errorf("key of %d bytes: %w", len(tail), fields.ErrShort)
	}
	return tail[:i], tail[i+1 : j], tail[j+1:], nil
}

// uniqueKey returns the key of a value of a unique key. The partition key comes first, because values are unique
// within a partition key.
func uniqueKey(cont uint32, index int, epk, pk, value string) []byte {
	key := tableKey(tableUnique, cont, len(epk)+len(pk)+len(value)+3)
	return appendDoc(append(key, byte(index)), epk, pk, value)
}

// splitUnique splits the tail of a key of uniqueKey.
func splitUnique(tail []byte) (index int, epk, pk, value []byte, err error) {
	if len(tail) == 0 {
		return 0, nil, nil, nil, fmt.Errorf("key of %d bytes: %w", len(tail), fields.ErrShort)
	}
	epk, pk, value, err = splitDoc(tail[1:])
	return int(tail[0]), epk, pk, value, err
}

// ttlKey returns the key of a document in the index of expiries. The expiry comes first, so the sweeper finds the
// expired documents at the beginning of the index.
func ttlKey(cont uint32, expiry int64, epk, pk, id string) []byte {
	key := tableKey(tableTTL, cont, len(epk)+len(pk)+len(id)+10)
	return appendDoc(binary.BigEndian.AppendUint64(key, uint64(expiry)), epk, pk, id)
}

// splitTTL splits the tail of a key of ttlKey into the expiry and the document, which has the form of appendDoc.
func splitTTL(tail []byte) (expiry int64, doc []byte, err error) {
	if len(tail) < 8 {
		return 0, nil, fmt.Errorf("key of %d bytes: %w", len(tail), fields.ErrShort)
	}
	return int64(binary.BigEndian.Uint64(tail)), tail[8:], nil
}

// logKey returns the key of a version, in the table of logs or in the table of dead marks. Both have the same form,
// so the feed can walk the two tables side by side.
func logKey(table byte, cont uint32, a addr) []byte {
	return appendAddr(tableKey(table, cont, addrSize), a)
}

const addrSize = 4 + 8 + 2

// appendAddr appends the address of a version, in the order in which a log is read.
func appendAddr(b []byte, a addr) []byte {
	b = binary.BigEndian.AppendUint32(b, a.log)
	b = binary.BigEndian.AppendUint64(b, uint64(a.lsn))
	return binary.BigEndian.AppendUint16(b, a.idx)
}

// splitAddr reads the tail of a log key.
func splitAddr(tail []byte) (addr, error) {
	if len(tail) != addrSize {
		return addr{}, fmt.Errorf("key of %d bytes: %w", len(tail), fields.ErrShort)
	}
	return parseAddr(tail), nil
}

// parseAddr reads the bytes of appendAddr. The caller has checked their length.
func parseAddr(b []byte) addr {
	return addr{
		log: binary.BigEndian.Uint32(b),
		lsn: int64(binary.BigEndian.Uint64(b[4:])),
		idx: binary.BigEndian.Uint16(b[12:]),
	}
}

// logBounds returns the keys of the versions of a log with LSNs in (after, upTo].
func logBounds(table byte, cont, log uint32, after, upTo int64) (from, to []byte) {
	return logKey(table, cont, addr{log, after + 1, 0}), logKey(table, cont, addr{log, upTo + 1, 0})
}

// tallyAt is the place of a row of tallies.
type tallyAt struct {
	log uint32
	row int64
}

// tallyKey returns the key of a row of tallies. The rows of a log are sorted by LSN, so a backlog is counted in a
// single walk from a row onward.
func tallyKey(cont uint32, at tallyAt) []byte {
	key := binary.BigEndian.AppendUint32(tableKey(tableTally, cont, 4+8), at.log)
	return binary.BigEndian.AppendUint64(key, uint64(at.row))
}

// splitTally reads the tail of a key of tallyKey.
func splitTally(tail []byte) (tallyAt, error) {
	if len(tail) != 4+8 {
		return tallyAt{}, fmt.Errorf("key of %d bytes: %w", len(tail), fields.ErrShort)
	}
	return tallyAt{binary.BigEndian.Uint32(tail), int64(binary.BigEndian.Uint64(tail[4:]))}, nil
}

// encode returns the value for the primary index; decodeSlot reads this value.
func (p *slot) encode() []byte {
	b := appendAddr(make([]byte, 0, addrSize+24+len(p.etag)), p.addr)
	b = binary.AppendUvarint(b, uint64(p.time))
	b = binary.AppendVarint(b, int64(p.ttl))
	b = binary.AppendUvarint(b, uint64(p.size))
	b = appendText(b, p.etag)
	b = binary.AppendUvarint(b, uint64(len(p.uniq)))
	for _, u := range p.uniq {
		b = appendText(b, u)
	}
	return binary.AppendUvarint(b, uint64(p.born))
}

// decodeSlot reads a slot. The number of the resource id was added later, at the end, so slots of older stores lack
// the number.
func decodeSlot(b []byte) (slot, error) {
	if len(b) < addrSize {
		return slot{}, fmt.Errorf("slot: %w", fields.ErrShort)
	}
	r := fields.Reader{Rest: b[addrSize:]}
	p := slot{addr: parseAddr(b)}
	p.time = int64(r.Uvarint())
	p.ttl = int(r.Varint())
	p.size = int(r.Uvarint())
	p.etag = string(r.Text())
	for n := r.Uvarint(); n > 0 && !r.Short; n-- {
		p.uniq = append(p.uniq, string(r.Text()))
	}
	if len(r.Rest) > 0 {
		p.born = int64(r.Uvarint())
	}
	if r.Short {
		return slot{}, fmt.Errorf("slot: %w", fields.ErrShort)
	}
	return p, nil
}

// encode returns the bytes of a version in a log; decodeEntry reads them. The body comes last and has no length
// field, because the engine's record has a length.
func (e *entry) encode() []byte { return append(e.head(e.body), e.body...) }

// head returns the fields of an entry before its body, in a slice with capacity for more.
func (e *entry) head(more []byte) []byte {
	b := make([]byte, 0, 64+len(e.epk)+len(e.pk)+len(e.id)+len(e.etag)+len(more))
	b = append(b, byte(e.op))
	b = appendText(b, e.epk)
	b = binary.AppendUvarint(b, uint64(e.prev))
	b = binary.AppendUvarint(b, uint64(e.prevIdx))
	b = binary.AppendUvarint(b, uint64(e.time))
	b = binary.AppendVarint(b, int64(e.ttl))
	b = appendText(b, e.pk)
	b = appendText(b, e.id)
	return appendText(b, e.etag)
}

// peekEntry reads the beginning of an entry: operation and epk, which tell a reader of part of the key space whether
// to skip the entry. For that reason they are the first fields of an entry.
func peekEntry(b []byte) (op entryOp, epk []byte, err error) {
	op, epk, r := beginEntry(b)
	if r.Short {
		return op, nil, fmt.Errorf("entry: %w", fields.ErrShort)
	}
	return op, epk, nil
}

// beginEntry reads operation and epk, and returns the reader for the remaining fields.
func beginEntry(b []byte) (op entryOp, epk []byte, rest fields.Reader) {
	if len(b) == 0 {
		return 0, nil, fields.Reader{Short: true}
	}
	rest = fields.Reader{Rest: b[1:]}
	epk = rest.Text()
	return entryOp(b[0]), epk, rest
}

// decodeEntry reads an entry; the result shares the bytes of b.
func decodeEntry(b []byte) (e entry, err error) {
	var r fields.Reader
	e.op, e.epk, r = beginEntry(b)
	e.prev = int64(r.Uvarint())
	e.prevIdx = uint16(r.Uvarint())
	e.time = int64(r.Uvarint())
	e.ttl = int(r.Varint())
	e.pk = r.Text()
	e.id = r.Text()
	e.etag = r.Text()
	e.body = r.Rest
	if r.Short {
		return entry{}, fmt.Errorf("entry: %w", fields.ErrShort)
	}
	return e, nil
}

func appendText[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// encodeNumbers returns the value for the tables of heads, counts, low-water marks and tallies.
func encodeNumbers(values ...int64) (b []byte) {
	for _, v := range values {
		b = binary.AppendUvarint(b, uint64(v))
	}
	return b
}

// decodeNumbers reads exactly len(numbers) numbers. More or fewer numbers mean a damaged record.
func decodeNumbers(b []byte, numbers []int64) error {
	r := fields.Reader{Rest: b}
	for i := range numbers {
		numbers[i] = int64(r.Uvarint())
	}
	if r.Short || len(r.Rest) > 0 {
		return fields.ErrShort
	}
	return nil
}
