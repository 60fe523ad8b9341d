package docstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// openRound opens a store with a container, which the first round makes.
func openRound(t *testing.T, dir string, round int) (*docstore.DB, *docstore.Container) {
	t.Helper()
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if round == 0 {
		return db, container(t, db, docstore.ContainerSpec{})
	}
	c, err := db.Container("c")
	if err != nil {
		t.Fatal(err)
	}
	return db, c
}

// storeOnDisk is a closed store with a table and a log, in a directory.
func storeOnDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for round := range 2 {
		db, c := openRound(t, dir, round)
		for i := range 100 {
			upsert(t, c, fmt.Sprint("i", i), "p", i+round)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// filesOf reads the files of a directory, but for the lock, which is empty and may be made anew.
func filesOf(t *testing.T, dir string) image {
	t.Helper()
	img := image{}
	for _, path := range files(t, dir, "*") {
		if filepath.Base(path) == "LOCK" {
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		img[filepath.Base(path)] = b
	}
	return img
}

// refusesUnchanged opens a damaged store, which must fail with this text, and leave all
// files as they are.
func refusesUnchanged(t *testing.T, dir, text string) {
	t.Helper()
	before := filesOf(t, dir)
	db, err := docstore.Open(dir, docstore.Options{})
	if err == nil {
		_ = db.Close()
	}
	if !errors.Is(err, docstore.ErrCorrupt) || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %v with %q", err, docstore.ErrCorrupt, text)
	}
	if after := filesOf(t, dir); !maps.EqualFunc(before, after, slices.Equal) {
		t.Errorf("open has changed %v", difference(before, after))
	}
}

func TestALostMarkerIsDamageAndNothingIsDeleted(t *testing.T) {
	for _, marker := range []string{"marker.manifest.", "marker.format-version.", "marker."} {
		dir := storeOnDisk(t)
		remove(t, dir, marker+"*")
		refusesUnchanged(t, dir, marker)
	}
}

func TestAPartOfAStoreIsNoNewStore(t *testing.T) {
	for name := range filesOf(t, storeOnDisk(t)) {
		t.Run(name, func(t *testing.T) {
			whole, dir := storeOnDisk(t), t.TempDir()
			for _, path := range files(t, whole, strings.TrimRight(name, "0123456789")+"*") {
				if err := os.Rename(path, filepath.Join(dir, filepath.Base(path))); err != nil {
					t.Fatal(err)
				}
			}
			refusesUnchanged(t, dir, "")
		})
	}
}

func TestADamagedManifestIsRefusedAndNothingIsDeleted(t *testing.T) {
	whole := storeOnDisk(t)
	path := slices.Max(files(t, whole, "MANIFEST-*"))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(b) && !t.Failed(); at += max(1, len(b)/20) {
		flipped := slices.Clone(b)
		flipped[at] ^= 4
		for _, now := range [][]byte{flipped, b[:at]} {
			if err := os.WriteFile(path, now, 0o600); err != nil {
				t.Fatal(err)
			}
			refusesUnchanged(t, whole, filepath.Base(path))
		}
	}
}

func TestALogThatWasClosedMustEndWhereItEnded(t *testing.T) {
	dir := storeOnDisk(t)
	path := slices.Max(files(t, dir, "*.log"))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, len(b) / 2, len(b) - 12, len(b) - 11, len(b) - 1} {
		if err := os.WriteFile(path, b[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		refusesUnchanged(t, dir, filepath.Base(path))
	}
}

// TestAfterAKillTheStoreSaysHowFarItReaches cuts the log of a killed store in the middle
// of its last write.
func TestAfterAKillTheStoreSaysHowFarItReaches(t *testing.T) {
	mem := vfs.NewMem()
	db, err := docstore.Open(imageDir, docstore.Options{}.WithFS(mem))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c := container(t, db, docstore.ContainerSpec{})
	for i := range 50 {
		upsert(t, c, fmt.Sprint("i", i), "p", i)
	}
	killed := readImage(t, mem)
	log := killed.newest()
	for cut, want := range map[int]docstore.Recovery{
		0:  {Log: log, Heads: []docstore.Head{{Container: "c", LSN: 50}}},
		10: {Log: log, Heads: []docstore.Head{{Container: "c", LSN: 49}}},
	} {
		img := maps.Clone(killed)
		img[log] = img[log][:len(img[log])-cut]
		fs := img.disk(t)
		again, err := docstore.Open(imageDir, docstore.Options{}.WithFS(fs))
		if err != nil {
			t.Fatal(err)
		}
		got := again.Recovery()
		if got.Log != want.Log || !slices.Equal(got.Heads, want.Heads) ||
			got.Reached+got.Dropped != int64(len(img[log])) || (got.Dropped > 0) != (cut > 0) {
			t.Errorf("%d bytes cut off %d: got %+v, want %+v", cut, len(img[log]), got, want)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		if again, err = docstore.Open(imageDir, docstore.Options{}.WithFS(fs)); err != nil {
			t.Fatal(err)
		}
		if got := again.Recovery(); got.Log != "" {
			t.Errorf("after a clean close: got %+v", got)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Whoever changes the heads that a store says it was found with changes a copy.
func TestTheHeadsOfARecoveryAreACopy(t *testing.T) {
	mem := vfs.NewMem()
	db, err := docstore.Open(imageDir, docstore.Options{}.WithFS(mem))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	upsert(t, container(t, db, docstore.ContainerSpec{}), "a", "p", 1)
	again, err := docstore.Open(imageDir, docstore.Options{}.WithFS(readImage(t, mem).disk(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	want := docstore.Head{Container: "c", LSN: 1}
	heads := again.Recovery().Heads
	if !slices.Equal(heads, []docstore.Head{want}) {
		t.Fatalf("got %v, want %v", heads, want)
	}
	heads[0].LSN = 9
	if got := again.Recovery().Heads; got[0] != want {
		t.Errorf("got %v after a caller changed its own, want %v", got, want)
	}
}

// TestStoresWithoutAnInventoryOpen opens what an earlier version has left, closed or killed.
func TestStoresWithoutAnInventoryOpen(t *testing.T) {
	for _, s := range makeShapes(t) {
		delete(s.image, "INVENTORY")
		if got := s.try(t, damage{image: s.image}); got.kind != harmless {
			t.Errorf("%s: %s", s.name, got.text)
		}
	}
}

// TestAnInterruptedMakingIsGoneOnWith stops the making of a store at each change of the
// disk, by a loss of power.
func TestAnInterruptedMakingIsGoneOnWith(t *testing.T) {
	for n, done := 1, false; !done; n++ {
		mem := vfs.NewCrashableMem()
		var after *vfs.MemFS
		changes := 0
		fs := docstore.Failing(mem, func(write bool, _ string) bool {
			if changes++; write && after == nil && changes >= n {
				after = mem.CrashClone(vfs.CrashCloneCfg{
					UnsyncedDataPercent: n * 37 % 101,
					RNG:                 rand.New(rand.NewPCG(1, uint64(n))),
				})
			}
			return false
		})
		db, err := docstore.Open(imageDir, docstore.Options{}.WithFS(fs))
		if err != nil {
			t.Fatal(err)
		}
		done = after == nil
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if done {
			return
		}
		again, err := docstore.Open(imageDir, docstore.Options{}.WithFS(after))
		if err != nil {
			t.Fatalf("after change %d: %v", n, err)
		}
		c := container(t, again, docstore.ContainerSpec{})
		upsert(t, c, "a", "p", 1)
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		if again, err = docstore.Open(imageDir, docstore.Options{}.WithFS(after)); err != nil {
			t.Fatalf("after change %d, opened again: %v", n, err)
		}
		if c, err = again.Container("c"); err == nil {
			_, err = c.Item(t.Context(), feed.Key("p"), "a")
		}
		if err := errors.Join(err, again.Close()); err != nil {
			t.Fatalf("after change %d: %v", n, err)
		}
	}
}

// killedWithLogs makes a store that was killed before its logs were in tables, and returns their names.
func killedWithLogs(t *testing.T) (*shape, []string) {
	t.Helper()
	s := makeShape(t, killedBeforeFlush)
	var logs []string
	for name := range s.image {
		if strings.HasSuffix(name, ".log") {
			logs = append(logs, name)
		}
	}
	slices.Sort(logs)
	return s, logs
}

// TestALogThatIsMissingBetweenOthersIsNoticed is about a store without an inventory, that
// of an earlier version.
func TestALogThatIsMissingBetweenOthersIsNoticed(t *testing.T) {
	s, logs := killedWithLogs(t)
	if len(logs) < 3 {
		t.Fatalf("logs are %v, too few for this test", logs)
	}
	d := damage{what: "lost", file: logs[1], image: maps.Clone(s.image)}
	delete(d.image, logs[1])
	delete(d.image, "INVENTORY")
	if got := s.try(t, d); got.kind != refused || !strings.Contains(got.text, "are missing") {
		t.Errorf("%s: %+v, want an error that says which writes are missing", d, got)
	}
	d = damage{what: "end cut off", file: logs[1], image: maps.Clone(s.image)}
	d.image[logs[1]] = bytes.TrimRight(d.image[logs[1]], "\x00")
	d.image[logs[1]] = d.image[logs[1]][:len(d.image[logs[1]])-3]
	if got := s.try(t, d); got.kind != refused || !strings.Contains(got.text, logs[1]) {
		t.Errorf("%s: %+v, want an error that names it", d, got)
	}
}

// TestALogOfAnotherStoreIsRefused adds one that would be read after all others.
func TestALogOfAnotherStoreIsRefused(t *testing.T) {
	s, other := makeShape(t, logOnly), makeShape(t, compacted)
	name := other.image.newest()
	if name <= s.image.newest() {
		t.Fatalf("%s is not after %s", name, s.image.newest())
	}
	d := damage{what: "added", file: name, image: maps.Clone(s.image)}
	d.image[name] = other.image[name]
	if got := s.try(t, d); got.kind != refused || !strings.Contains(got.text,
		name+": it is not one of the store's logs") {
		t.Errorf("%s: %+v, want an error that names it", d, got)
	}
}

// TestDamageOfABitAnywhereInATable flips bits all along a table that opening reads, filters included.
func TestDamageOfABitAnywhereInATable(t *testing.T) {
	s := makeShape(t, killedLogAfterOpen)
	table := ""
	for name := range s.image {
		if strings.HasSuffix(name, ".sst") && (table == "" || name < table) {
			table = name
		}
	}
	places := min(150, 1+*damages/4) // make damage tries more
	for at := 0; at < len(s.image[table]) && !t.Failed(); at += 1 + len(s.image[table])/places {
		d := damage{what: "flipped bit", file: table, at: int64(at), image: maps.Clone(s.image)}
		d.image[table] = slices.Clone(s.image[table])
		d.image[table][at] ^= 8
		if got := s.try(t, d); got.kind == silent {
			t.Errorf("%s: %s", d, got.text)
		}
	}
}

// TestRecordsAfterADamagedOneOfTheManifestAreNoticed damages one in the middle, after a kill.
func TestRecordsAfterADamagedOneOfTheManifestAreNoticed(t *testing.T) {
	s := makeShape(t, killedAfterFlush)
	manifest := ""
	for name := range s.image {
		if strings.HasPrefix(name, "MANIFEST") {
			manifest = max(manifest, name)
		}
	}
	d := damage{what: "flipped", file: manifest, image: maps.Clone(s.image)}
	d.image[manifest] = slices.Clone(s.image[manifest])
	d.image[manifest][len(d.image[manifest])/2] ^= 1
	if got := s.try(t, d); got.kind != refused || !strings.Contains(got.text, "after it are not") {
		t.Errorf("%s: %+v, want an error that says that later records are whole", d, got)
	}
}

func TestAnotherFileWithTheNumberOfATableIsRefused(t *testing.T) {
	dir := storeOnDisk(t)
	table := slices.Max(files(t, dir, "*.sst"))
	name := strings.TrimSuffix(filepath.Base(table), ".sst") + ".blob"
	if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	refusesUnchanged(t, dir, name)
}

// TestABackupIsNoPartOfTheStore writes on after a backup: its files have the names of the
// store's, and are not in its inventory.
func TestABackupIsNoPartOfTheStore(t *testing.T) {
	dir, copied := storeOnDisk(t), filepath.Join(t.TempDir(), "copy")
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.Container("c")
	if err != nil {
		t.Fatal(err)
	}
	upsert(t, c, "before", "p", 1)
	if err := db.Backup(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	upsert(t, c, "after", "p", 1)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]int64{dir: 102, copied: 101} {
		db, err := docstore.Open(dir, docstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if c, err = db.Container("c"); err != nil || c.Count() != want || db.Recovery().Log != "" {
			t.Errorf("%s: %d documents, %v, %v, want %d", dir, c.Count(), db.Recovery(), err, want)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
