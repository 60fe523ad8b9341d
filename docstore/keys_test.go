package docstore

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Texts of every length that a uvarint writes in one byte, in two, and in three.
func textGen(alphabet string) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		n := rapid.SampledFrom([]int{0, 1, 32, 126, 127, 128, 129, 255, 256, 300, 2048, 16383, 16384}).Draw(t, "length")
		unit := rapid.StringOfN(rapid.RuneFrom([]rune(alphabet)), 1, 8, -1).Draw(t, "unit")
		return strings.Repeat(unit, n/len(unit)+1)[:n]
	})
}

var (
	genPlace  = textGen("0123456789ABCDEF")
	genKey    = textGen(`["London",{}]\u0000`)
	genID     = textGen("abc\x00\xff \"")
	genNumber = rapid.SampledFrom([]int64{0, 1, 127, 128, 255, 256, 1 << 14, 1 << 31, 1 << 32, 1<<63 - 2})
	genAddr   = rapid.Custom(func(t *rapid.T) addr {
		return addr{rapid.Uint32().Draw(t, "log"), genNumber.Draw(t, "lsn"), rapid.Uint16().Draw(t, "idx")}
	})
	genTTL = rapid.SampledFrom([]int{-1, 0, 1, 63, 64, 127, 128, maxTTL})
)

func TestEveryValueIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := slot{
			addr: genAddr.Draw(t, "addr"), time: genNumber.Draw(t, "time"), ttl: genTTL.Draw(t, "ttl"),
			size: int(genNumber.Draw(t, "size")), etag: genID.Draw(t, "etag"),
			uniq: rapid.SliceOfN(genKey, 0, 3).Draw(t, "unique"),
		}
		got, err := decodeSlot(s.encode())
		if err != nil || got.addr != s.addr || got.time != s.time || got.ttl != s.ttl || got.size != s.size ||
			got.etag != s.etag || !slices.Equal(got.uniq, s.uniq) {
			t.Fatalf("slot is %+v, %v, want %+v", got, err, s)
		}

		e := entry{
			op:   rapid.SampledFrom([]entryOp{opCreate, opReplace, opDelete, opExpire}).Draw(t, "op"),
			epk:  []byte(genPlace.Draw(t, "epk")),
			prev: genNumber.Draw(t, "prev"), prevIdx: rapid.Uint16().Draw(t, "prev idx"),
			time: genNumber.Draw(t, "time"), ttl: genTTL.Draw(t, "ttl"),
			pk: []byte(genKey.Draw(t, "pk")), id: []byte(genID.Draw(t, "id")), etag: []byte(genID.Draw(t, "etag")),
			body: []byte(genID.Draw(t, "body")),
		}
		text := e.encode()
		read, err := decodeEntry(text)
		if err != nil || read.op != e.op || !bytes.Equal(read.epk, e.epk) || read.prev != e.prev ||
			read.prevIdx != e.prevIdx || read.time != e.time || read.ttl != e.ttl ||
			!bytes.Equal(read.pk, e.pk) || !bytes.Equal(read.id, e.id) || !bytes.Equal(read.etag, e.etag) ||
			!bytes.Equal(read.body, e.body) {
			t.Fatalf("entry is %+v, %v, want %+v", read, err, e)
		}
		if op, place, err := peekEntry(text); err != nil || op != e.op || !bytes.Equal(place, e.epk) {
			t.Fatalf("beginning of the entry is %c %q, %v, want %c %q", op, place, err, e.op, e.epk)
		}
		if _, _, err := peekEntry(text[:min(len(e.epk), 2)]); err == nil {
			t.Fatal("the beginning of an entry without its place is read")
		}

		numbers := []int64{genNumber.Draw(t, "n"), genNumber.Draw(t, "m")}
		var again [2]int64
		if err := decodeNumbers(encodeNumbers(numbers...), again[:]); err != nil || !slices.Equal(again[:], numbers) {
			t.Fatalf("numbers are %v, %v, want %v", again, err, numbers)
		}
		if decodeNumbers(encodeNumbers(numbers...), again[:1]) == nil ||
			decodeNumbers(encodeNumbers(numbers[:1]...), again[:]) == nil {
			t.Fatal("a record of another number of numbers is read")
		}
	})
}

func TestEveryKeyIsTakenApartAsItWasMade(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cont, a := rapid.Uint32().Draw(t, "cont"), genAddr.Draw(t, "addr")
		epk, pk, id := genPlace.Draw(t, "epk"), genKey.Draw(t, "pk"), genID.Draw(t, "id")
		tail := func(table byte, key []byte) []byte {
			num, tail, err := splitKey(key)
			if err != nil || num != cont || key[0] != table || !bytes.Equal(tail, tailOf(key)) {
				t.Fatalf("key %q is of container %d, %v, want %d in table %c", key, num, err, cont, table)
			}
			return tail
		}
		doc := tail(tableDoc, docKey(cont, epk, pk, id))
		e, p, i, err := splitDoc(doc)
		same(t, err, e, epk, p, pk, i, id)
		i, e, p, err = splitID(tail(tableID, idKey(cont, id, epk, pk)))
		same(t, err, e, epk, p, pk, i, id)
		index, e, p, v, err := splitUnique(tail(tableUnique, uniqueKey(cont, 9, epk, pk, id)))
		if same(t, err, e, epk, p, pk, v, id); index != 9 {
			t.Fatalf("unique key is number %d, want 9", index)
		}
		at, rest, err := splitTTL(tail(tableTTL, ttlKey(cont, a.lsn, epk, pk, id)))
		if err != nil || at != a.lsn || !bytes.Equal(rest, doc) {
			t.Fatalf("expiry is %d of %q, %v, want %d of %q", at, rest, err, a.lsn, doc)
		}
		for _, table := range []byte{tableLog, tableDead} {
			if got, err := splitAddr(tail(table, logKey(table, cont, a))); err != nil || got != a {
				t.Fatalf("version is at %+v, %v, want %+v", got, err, a)
			}
		}
		for table, key := range map[byte][]byte{tableCount: countKey(cont, a.log), tableLow: lowKey(cont, a.log)} {
			if n, err := splitNumber(tail(table, key)); err != nil || n != a.log {
				t.Fatalf("number is %d, %v, want %d", n, err, a.log)
			}
		}
		tail(tableContainer, containerKey(cont))
		tail(tableHead, headKey(cont))
	})
}

// same compares texts, two by two.
func same(t *rapid.T, err error, e []byte, epk string, p []byte, pk string, i []byte, id string) {
	t.Helper()
	if err != nil || string(e) != epk || string(p) != pk || string(i) != id {
		t.Fatalf("parts are %.40q %.40q %.40q, %v, want %.40q %.40q %.40q", e, p, i, err, epk, pk, id)
	}
}

// Keys sort as what they stand for does: by place first, and by LSN.
func TestKeysSortByPlaceAndByLSN(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := genPlace.Draw(t, "a"), genPlace.Draw(t, "b")
		pk, id := genKey.Draw(t, "pk"), genID.Draw(t, "id")
		if a < b && bytes.Compare(docKey(1, a, pk, id), docKey(1, b, "", "")) >= 0 {
			t.Fatalf("the key of place %q is not below that of %q", a, b)
		}
		x, y := genAddr.Draw(t, "x"), genAddr.Draw(t, "y")
		if y.log = x.log; x.lsn < y.lsn && bytes.Compare(logKey(tableLog, 1, x), logKey(tableLog, 1, y)) >= 0 {
			t.Fatalf("the key of LSN %d is not below that of %d", x.lsn, y.lsn)
		}
	})
}

// The errors of a check and of a damaged store name records in words.
func TestKeysAreDescribedWithoutTheirBytes(t *testing.T) {
	nameOf := func(num uint32) string { return map[uint32]string{7: "orders"}[num] }
	for _, c := range []struct {
		key  []byte
		want string
	}{
		{docKey(7, "05C1", `["p"]`, "i1"), `orders: item "i1" of ["p"]`},
		{docKey(8, "05C1", `["p"]`, "i1"), `container 8: item "i1" of ["p"]`},
		{logKey(tableLog, 7, addr{2, 41, 0}), "orders: version of LSN 41 in partition 2"},
		{countKey(7, 1), "orders: table \"n\""},
		{docKey(7, "05C1", `["p"]`, "i1")[:6], `orders: table "d"`},
		{[]byte{tableMeta}, `table "` + string(rune(tableMeta)) + `"`},
	} {
		if got := describeKey(c.key, nameOf); got != c.want {
			t.Errorf("%q: %s, want %s", c.key, got, c.want)
		}
	}
}
