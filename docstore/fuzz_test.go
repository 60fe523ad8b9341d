package docstore

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"
)

// FuzzRecord: no bytes in a table stop a reader, and what it accepts is written and read again as the same.
func FuzzRecord(f *testing.F) {
	e := entry{
		op: opCreate, epk: []byte("0F"), prev: 3, time: 5, ttl: -1, pk: []byte(`["k"]`), id: []byte("a"),
		etag: []byte("e"), body: []byte(`{"id":"a"}`),
	}
	s := slot{addr: addr{log: 1, lsn: 7}, time: 5, ttl: -1, size: 10, etag: "e", uniq: []string{"u"}, born: 2}
	f.Add(e.encode())
	f.Add(s.encode())
	f.Add(docKey(1, "0F", `["k"]`, "a"))
	f.Add(uniqueKey(1, 2, "0F", `["k"]`, "v"))
	f.Add(ttlKey(1, 99, "0F", `["k"]`, "a"))
	f.Add(logKey(tableLog, 1, addr{log: 1, lsn: 7}))
	f.Add(binary.AppendUvarint(s.encode(), 1<<63))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := decodeEntry(b); err == nil {
			again, err := decodeEntry(got.encode())
			if err != nil || !bytes.Equal(again.encode(), got.encode()) {
				t.Errorf("entry %+v is read again as %+v, %v", got, again, err)
			}
			op, epk, err := peekEntry(b)
			if err != nil || op != got.op || !bytes.Equal(epk, got.epk) {
				t.Errorf("entry %+v is peeked at as %v of %s, %v", got, op, epk, err)
			}
		}
		if got, err := decodeSlot(b); err == nil {
			if again, err := decodeSlot(got.encode()); err != nil || !reflect.DeepEqual(again, got) {
				t.Errorf("slot %+v is read again as %+v, %v", got, again, err)
			}
		}
		_, tail, err := splitKey(b)
		if err != nil {
			return
		}
		if epk, pk, id, err := splitDoc(tail); err == nil {
			if key := docKey(1, string(epk), string(pk), string(id)); !bytes.Equal(tailOf(key), tail) {
				t.Errorf("key %q is made again as %q", tail, tailOf(key))
			}
		}
		_, _, _, _ = splitID(tail)
		_, _, _, _, _ = splitUnique(tail)
		_, _, _ = splitTTL(tail)
		_, _ = splitAddr(tail)
		_, _ = splitNumber(tail)
	})
}
