package docstore_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// TestAFileOfAnotherStoreIsNeverSilent replaces each file of a store by the file of another store, or by an older copy:
// salvage gives what was acknowledged and no more, or its report says that something is wrong.
func TestAFileOfAnotherStoreIsNeverSilent(t *testing.T) {
	silent, alike := 0, 0
	for _, build := range []func(*maker) *shape{
		overwritten, splitsAndTTL, killedTables, logOnly, logAndTables, compacted, overwrittenWithVersions, killedLog,
		killedBeforeFlush, killedAfterFlush, killedSplits,
	}[:detector.Rounds(11, 2)] {
		s, twin := makeShape(t, build), makeShape(t, build) // the twin has other ETags, and sizes and numbers alike
		var other *shape
		synctest.Test(t, func(t *testing.T) { other = build(newMaker(t, 2)) })
		for _, name := range slices.Sorted(maps.Keys(s.image)) {
			if !strings.HasSuffix(name, ".log") && !strings.HasSuffix(name, ".sst") && name != "INVENTORY" {
				continue
			}
			b := bytes.TrimRight(s.image[name], "\x00")
			for what, content := range map[string][]byte{
				"of another store": other.likest(name), "of a twin": twin.image[name], "older": b[:len(b)/2],
			} {
				err := s.swap(t, name, content)
				// If a twin's table has the same bounds, and all about its documents, no other file can tell.
				if what == "of a twin" && strings.HasSuffix(name, ".sst") && len(content) == len(s.image[name]) {
					if alike++; err != nil {
						silent++
					}
				} else if err != nil {
					t.Errorf("%s: %s is %s, of %d bytes in place of %d: %v", s.name, name, what, len(content),
						len(s.image[name]), err)
				}
			}
		}
	}
	t.Logf("%d of %d tables of a twin with the same size are not noticed", silent, alike)
	if silent > alike/5 && !detector.On { // of a few tables none need be noticed
		t.Errorf("%d of %d tables of a twin with the same size are not noticed", silent, alike)
	}
}

// swap salvages a store one of whose files has another content, and returns an error if wrong documents are silent.
func (s *shape) swap(t *testing.T, name string, content []byte) (err error) {
	t.Helper()
	if content == nil {
		return nil
	}
	img := maps.Clone(s.image)
	img[name] = content
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(s.made.Add(time.Minute)))
		err = s.wantReport(t, img, name)
	})
	return err
}

// likest returns the content of the file with this name, or of the last one of its kind.
func (s *shape) likest(name string) (content []byte) {
	if b, ok := s.image[name]; ok {
		return b
	}
	for _, n := range slices.Sorted(maps.Keys(s.image)) {
		if len(name) > 4 && strings.HasSuffix(n, name[len(name)-4:]) {
			content = s.image[n]
		}
	}
	return content
}

// wantReport salvages a store with a wrong file and returns an error if documents are wrong and nothing says so.
func (s *shape) wantReport(t *testing.T, img image, name string) error {
	want, alien, others := map[string]bool{}, 0, map[string]bool{}
	for _, doc := range s.last {
		want[doc] = true
	}
	found, err := docstore.SalvageFrom(t.Context(), img.disk(t), imageDir, func(of string, it docstore.Item) error {
		doc := line(string(it.Key), it.ID, it.LSN, it.ETag, it.Body)
		if !s.acked[of+" "+doc] {
			alien++
			others[of+string(it.Key)+it.ID] = true
		}
		delete(want, doc)
		return nil
	})
	if err != nil {
		return err
	}
	if n := len(found.Lost) + len(found.Missing) + len(found.Doubtful); n == 0 && alien+len(want) > 0 {
		return fmt.Errorf("%d documents of %d are not there, %d of another store are, and nothing is listed", len(want),
			len(s.last), alien)
	}
	for _, d := range found.Doubtful {
		delete(others, d.Container+d.Key+d.ID)
	}
	// The end of a killed store's log is unknown, so the log of another killed store may fit.
	if strings.HasSuffix(name, ".log") && !s.killed && len(others) > 0 {
		return fmt.Errorf("%d documents of another store are written, and not listed as doubtful", len(others))
	}
	return nil
}

// The index, the versions, the count and the head of a container must agree, if no file is lost.
func TestRecordsThatContradictEachOtherAreListed(t *testing.T) {
	for _, test := range []struct {
		record                       bool
		counted, slots, head, newest int64
		orphans                      int
		want                         string
	}{
		{true, -1, 0, -1, 0, 0, ""}, // a container without a write
		{true, 4, 4, 9, 9, 0, ""},
		{true, 4, 4, 9, 7, 0, ""},
		{false, -1, 0, -1, 0, 0, "its own record is not there"},
		{true, 4, 3, 9, 9, 0, "it counts 4 documents, and its index has 3"},
		{true, -1, 3, 9, 9, 0, "it counts 0 documents, and its index has 3"},
		{true, 4, 4, 9, 10, 0, "its newest LSN is 9, and it has a version of LSN 10"},
		{true, 4, 4, 9, 9, 2, "its index does not name 2 of its documents"},
	} {
		got := docstore.Contradiction(test.record, test.counted, test.slots, test.head, test.newest, test.orphans)
		if !strings.HasPrefix(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%+v: got %q", test, got)
		}
	}
}

// salvageDir salvages the store in a directory. The result has the ids that were written.
func salvageDir(t *testing.T, dir string) (found *docstore.Salvaged, ids []string) {
	t.Helper()
	found, err := docstore.Salvage(t.Context(), dir, func(_ string, it docstore.Item) error {
		ids = append(ids, it.ID)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found, ids
}

// logOfClosed makes a store with this many documents, closes the store and returns its directory and its only log.
func logOfClosed(t *testing.T, prefix string, n int) (dir, log string) {
	t.Helper()
	dir = t.TempDir()
	db, c := openRound(t, dir, 0)
	for i := range n {
		upsert(t, c, fmt.Sprint(prefix, 100+i), "p", 100+i)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, slices.Max(files(t, dir, "*.log"))
}

// The documents of a log that is another store's are written and listed as doubtful, each with the log. The log may
// have any length, also the same.
func TestTheDocumentsOfAnotherStoresLogAreDoubtful(t *testing.T) {
	for n, why := range map[int]string{
		39: "when the store was closed", 40: "its bytes are not those of when the store was closed",
		41: "when the store was closed",
	} {
		dir, log := logOfClosed(t, "a", 40)
		if found, ids := salvageDir(t, dir); len(found.Lost)+len(found.Doubtful) != 0 || len(ids) != 40 {
			t.Fatalf("salvage of a whole store gives %d documents and %+v", len(ids), found)
		}
		_, other := logOfClosed(t, "b", n)
		for n == 40 && size(t, other) != size(t, log) { // the time of a commit may take a byte more
			_, other = logOfClosed(t, "b", n)
		}
		b, err := os.ReadFile(other)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(log, b, 0o600); err != nil {
			t.Fatal(err)
		}
		found, ids := salvageDir(t, dir)
		if len(found.Lost) != 1 || found.Lost[0].File != filepath.Base(log) ||
			!strings.Contains(found.Lost[0].Reason, why) {
			t.Errorf("%d documents: lost is %+v, want %s: %s", n, found.Lost, log, why)
		}
		if len(ids) != n || len(found.Doubtful) != n || found.Doubtful[0].File != filepath.Base(log) {
			t.Errorf("%d documents are written, and doubtful are %+v: want all %d, with their log", len(ids),
				found.Doubtful, n)
		}
		if c := found.Containers[0]; c.Counted != -1 || fmt.Sprint(c.Lost) != "[{1 0}]" {
			t.Errorf("%d documents: the container is %+v, want that any of its LSNs may be lost", n, c)
		}
		refusesUnchanged(t, dir, filepath.Base(log))
	}
}

// Of a killed store nothing says where its log ended. The numbers of the writes tell whether the log continues after
// the tables, and after the log before.
func TestTheNumbersOfWritesTellALogOfAnotherTime(t *testing.T) {
	s, logs := killedWithLogs(t)
	first := logs[:0:0] // the logs that are not in tables
	for i, name := range logs {
		img := maps.Clone(s.image)
		delete(img, name)
		is := func(l docstore.Loss) bool { return l.File == name }
		if found := lostOf(t, img); slices.ContainsFunc(found.Lost, is) {
			first = append(first, logs[i])
		}
	}
	if len(first) < 3 {
		t.Fatalf("the logs %v are not in tables, want three", first)
	}
	if found := lostOf(t, s.image); len(found.Doubtful) != 0 || len(found.Lost) != 1 {
		t.Errorf("of a killed store %+v are lost and %+v doubtful, want only the end of its log", found.Lost,
			found.Doubtful)
	}
	for i, name := range first {
		for _, from := range []string{first[(i+1)%len(first)], first[(i+2)%len(first)]} {
			img := maps.Clone(s.image)
			img[name] = renumbered(t, s.image[from], from, name)
			found := lostOf(t, img)
			if !slices.ContainsFunc(found.Lost, func(l docstore.Loss) bool {
				return l.File == name && strings.Contains(l.Reason, "of another time")
			}) || len(found.Doubtful) == 0 {
				t.Errorf("%s is %s: lost is %+v, and %d are doubtful", name, from, found.Lost, len(found.Doubtful))
			}
		}
	}
}

// lostOf salvages a store and drops its documents.
func lostOf(t *testing.T, img image) *docstore.Salvaged {
	t.Helper()
	found, err := docstore.SalvageFrom(t.Context(), img.disk(t), imageDir, func(string, docstore.Item) error {
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// renumbered returns the bytes of a log as those of a log with the number in another name.
func renumbered(t *testing.T, log []byte, from, to string) []byte {
	t.Helper()
	const block, header, synced = 32 << 10, 11, 19
	var old, num uint32
	for name, n := range map[string]*uint32{from: &old, to: &num} {
		if _, err := fmt.Sscanf(name, "%d.log", n); err != nil {
			t.Fatal(err)
		}
	}
	b, le := slices.Clone(log), binary.LittleEndian
	for at := 0; at+header <= len(b); {
		if room := block - at%block; room < synced {
			at += room
			continue
		}
		size, kind := int(le.Uint16(b[at+4:])), b[at+6]
		if le.Uint32(b[at:]) == 0 && kind == 5 { // the trailer
			le.PutUint32(b[at+7:], num+1)
			break
		}
		if kind == 0 || le.Uint32(b[at+7:]) != old {
			break
		}
		if size += header; kind >= 9 {
			size += synced - header
		}
		le.PutUint32(b[at+7:], num)
		sum := crc32.Checksum(b[at+6:at+size], crc32.MakeTable(crc32.Castagnoli))
		le.PutUint32(b[at:], (sum>>15|sum<<17)+0xa282ead8)
		at += size
	}
	return b
}

// A log that the inventory does not list is read, as after a program of an old version, and its documents are doubtful.
func TestALogThatIsNotListedIsDoubtful(t *testing.T) {
	dir, log := logOfClosed(t, "a", 10)
	old := filesOf(t, dir)["INVENTORY"]
	db, c := openRound(t, dir, 1)
	upsert(t, c, "later", "p", 1)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "INVENTORY"), old, 0o600); err != nil {
		t.Fatal(err)
	}
	newest := slices.Max(files(t, dir, "*.log"))
	if newest == log {
		t.Fatalf("the newest log is %s still", log)
	}
	found, ids := salvageDir(t, dir)
	if len(ids) != 11 || len(found.Doubtful) != 1 || found.Doubtful[0].ID != "later" ||
		found.Doubtful[0].File != filepath.Base(newest) {
		t.Errorf("%d documents are written, and doubtful are %+v, want the one of %s", len(ids), found.Doubtful, newest)
	}
}

// Nothing else is lost with the inventory, so no document is doubtful.
func TestADamagedInventoryMakesNoDocumentDoubtful(t *testing.T) {
	dir, _ := logOfClosed(t, "a", 10)
	scribble(t, dir, "INVENTORY")
	found, ids := salvageDir(t, dir)
	if len(ids) != 10 || len(found.Doubtful) != 0 || len(found.Lost) != 1 || found.Lost[0].File != "INVENTORY" {
		t.Errorf("%d documents are written, lost is %+v, and doubtful %+v: want only INVENTORY lost", len(ids),
			found.Lost,
			found.Doubtful)
	}
}

// The log of a killed store begins where its tables end. A log with earlier or later writes is not the store's own.
func TestALogOfBeforeOrAfterTheTablesIsDoubtful(t *testing.T) {
	killed := func(before int) image {
		dir, _ := logOfClosed(t, "a", before)
		db, c := openRound(t, dir, 1)
		defer db.Close()
		upsert(t, c, "later", "p", 1)
		return filesOf(t, dir)
	}
	few, some, many := killed(5), killed(10), killed(20)
	name := some.newest()
	if found := lostOf(t, some); len(found.Doubtful) != 0 {
		t.Errorf("of a store that was killed, %+v are doubtful", found.Doubtful)
	}
	for what, other := range map[string]image{"fewer": few, "more": many} {
		if other.newest() != name {
			t.Fatalf("the logs are %s and %s, want the same name", other.newest(), name)
		}
		img := maps.Clone(some)
		img[name] = other[name]
		found := lostOf(t, img)
		if len(found.Doubtful) != 1 || found.Doubtful[0].File != name ||
			!slices.ContainsFunc(found.Lost, func(l docstore.Loss) bool {
				return l.File == name && strings.Contains(l.Reason, "its first write has the number")
			}) {
			t.Errorf("the log of a store with %s writes: lost is %+v, and doubtful %+v", what, found.Lost,
				found.Doubtful)
		}
	}
}
