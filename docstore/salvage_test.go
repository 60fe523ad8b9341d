package docstore_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
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

// TestWhatIsSalvagedWasAcknowledgedAndWhatIsMissingIsListed damages stores and reads what
// is left of them.
func TestWhatIsSalvagedWasAcknowledgedAndWhatIsMissingIsListed(t *testing.T) {
	shapes := makeShapes(t)
	salvaged, all := 0, 0
	for seed := uint64(1); seed <= uint64(*damages)/3; seed++ {
		s := shapes[seed%uint64(len(shapes))]
		d := s.damage(rand.New(rand.NewPCG(seed, 2)))
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(s.made.Add(time.Minute)))
			n, err := s.salvage(t, d.image)
			if err != nil {
				t.Errorf("seed %d: %s: %s: %v", seed, s.name, d, err)
			}
			salvaged, all = salvaged+n, all+len(s.last)
		})
	}
	t.Logf("%d of %d documents were salvaged", salvaged, all)
	if salvaged < all*9/10 {
		t.Errorf("%d of %d documents were salvaged, want nine of ten: one file of each store is damaged", salvaged, all)
	}
}

// salvage reads what is left of a store, and counts the documents that are as they were last.
func (s *shape) salvage(t *testing.T, img image) (n int, err error) {
	fs := img.disk(t)
	left, given := map[string]bool{}, map[[2]string]bool{}
	found, err := docstore.SalvageFrom(t.Context(), fs, imageDir, func(container string, it docstore.Item) error {
		doc := line(string(it.Key), it.ID, it.LSN, it.ETag, it.Body)
		if !s.acked[container+" "+doc] && !strings.HasPrefix(container, "container ") {
			return fmt.Errorf("%s was never acknowledged", doc)
		}
		if left[doc] {
			return fmt.Errorf("%s comes twice", doc)
		}
		left[doc], given[[2]string{container, string(it.Key) + " " + it.ID}] = true, true
		return nil
	})
	if err != nil {
		return 0, err
	}
	if after := readImage(t, fs); !maps.EqualFunc(after, img, slices.Equal) {
		return 0, fmt.Errorf("salvage has changed %v", difference(img, after))
	}
	var missing []string
	for _, doc := range s.last {
		if left[doc] {
			n++
		} else {
			missing = append(missing, doc)
		}
	}
	switch {
	case len(missing) > 0 && len(found.Lost) == 0:
		return n, fmt.Errorf("%d documents are missing, such as %s, and nothing is listed", len(missing), missing[0])
	case len(found.Lost) == 0 && len(left) != n:
		return n, fmt.Errorf("%d documents, want %d: nothing is listed as lost", len(left), n)
	}
	// Which tables are in use is in the manifest. Without it one that the engine has replaced, and not deleted yet, may
	// still name a document that was deleted since. If several tables are lost, one that is left may name a version of
	// which another one that is left says that it was superseded.
	blind := slices.ContainsFunc(found.Lost, func(l docstore.Loss) bool {
		return strings.HasPrefix(l.File, "MANIFEST-")
	})
	several := len(found.Lost) > 1
	for _, m := range found.Missing {
		name := fmt.Sprintf("%s %s at %d ", m.Key, m.ID, m.LSN)
		begins := func(with string) func(string) bool {
			return func(doc string) bool { return strings.HasPrefix(doc, with) }
		}
		superseded := !slices.ContainsFunc(slices.Collect(maps.Values(s.last)), begins(name)) &&
			slices.ContainsFunc(slices.Collect(maps.Keys(s.acked)), begins(m.Container+" "+name))
		if !slices.ContainsFunc(missing, begins(name)) && !((blind || several) && superseded) {
			return n, fmt.Errorf("%+v is listed as missing, and is not", m)
		}
	}
	if err := lsnsListed(found, missing); err != nil {
		return n, err
	}
	if err := s.listed(found, left, given); err != nil {
		return n, err
	}
	counted, documents := int64(0), 0
	for _, c := range found.Containers {
		counted, documents = counted+c.Counted, documents+c.Documents
	}
	if documents != len(left) || len(found.Lost) == 0 && counted != int64(n) {
		return n, fmt.Errorf("%d documents counted, %d said to be salvaged: want %d of %d", counted, documents,
			len(left), n)
	}
	return n, nil
}

// listed returns an error if only tables are lost, and a document is given in an old version, or left out, and nothing
// says so.
func (s *shape) listed(found *docstore.Salvaged, left map[string]bool, given map[[2]string]bool) error {
	if slices.ContainsFunc(found.Lost, func(l docstore.Loss) bool { return !strings.HasSuffix(l.File, ".sst") }) {
		return nil
	}
	for _, c := range found.Containers {
		documents := int64(0)
		for name := range s.last {
			if name[:1] == c.Name {
				documents++
			}
		}
		if c.Counted >= 0 && c.Counted != documents {
			return fmt.Errorf("%s is said to have had %d documents, want %d or nothing", c.Name, c.Counted, documents)
		}
	}
	for _, d := range found.Doubtful {
		if slices.ContainsFunc(found.Missing, func(m docstore.MissingItem) bool {
			return m.Container == d.Container && m.Key == d.Key && m.ID == d.ID
		}) {
			return fmt.Errorf("%+v is listed as doubtful and as missing", d)
		}
	}
	for name, doc := range s.last {
		if left[doc] {
			continue
		}
		about, rest, _ := strings.Cut(doc, " at ")
		var lsn int64
		if _, err := fmt.Sscan(rest, &lsn); err != nil {
			return fmt.Errorf("read %s: %w", doc, err)
		}
		ours := func(container string) bool { // the containers are c and d, in this order
			return container == name[:1] || container == fmt.Sprint("container ", 1+name[0]-'c')
		}
		is := func(container, key, id string) bool { return ours(container) && key+" "+id == about }
		if slices.ContainsFunc(found.Missing, func(m docstore.MissingItem) bool {
			return is(m.Container, m.Key, m.ID)
		}) ||
			slices.ContainsFunc(found.Doubtful, func(d docstore.DoubtfulItem) bool {
				return is(d.Container, d.Key, d.ID)
			}) {
			continue
		}
		containers := slices.DeleteFunc(slices.Clone(found.Containers), func(c docstore.SalvagedContainer) bool {
			return !ours(c.Name)
		})
		if slices.ContainsFunc(containers, func(c docstore.SalvagedContainer) bool {
			return given[[2]string{c.Name, about}]
		}) {
			return fmt.Errorf("%s is given in an old version, and is not listed", doc)
		}
		within := func(l docstore.LSNs) bool { return l.From <= lsn && (l.To == 0 || lsn <= l.To) }
		if len(containers) > 0 && !slices.ContainsFunc(containers, func(c docstore.SalvagedContainer) bool {
			return slices.ContainsFunc(c.Lost, within)
		}) {
			return fmt.Errorf("%s is left out, and neither its name nor its LSN is listed: %+v", doc, containers)
		}
	}
	return nil
}

// TestALostTableHidesNothing loses, cuts and exchanges tables of stores: what salvage gives in an old version is listed
// by name, and what it leaves out by name or by LSN.
func TestALostTableHidesNothing(t *testing.T) {
	for _, build := range []func(*maker) *shape{
		overwritten, splitsAndTTL, logOnly, logAndTables, overwrittenWithVersions,
	}[:detector.Rounds(5, 2)] {
		s := makeShape(t, build)
		var tables []string
		for _, name := range slices.Sorted(maps.Keys(s.image)) {
			if strings.HasSuffix(name, ".sst") {
				tables = append(tables, name)
			}
		}
		for i, name := range tables {
			lost, cut, another := maps.Clone(s.image), maps.Clone(s.image), maps.Clone(s.image)
			delete(lost, name)
			cut[name] = cut[name][:len(cut[name])-10]
			another[name] = another[tables[(i+1)%len(tables)]]
			damaged := map[string]image{name + " is lost": lost, name + " is cut": cut, name +
				" is another table": another}
			for _, other := range tables[i+1:] {
				both := maps.Clone(lost)
				delete(both, other)
				damaged[name+" and "+other+" are lost"] = both
			}
			for what, img := range damaged {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(time.Until(s.made.Add(time.Minute)))
					if n, err := s.salvage(t, img); err != nil {
						t.Errorf("%s: %s: %d of %d documents: %v", s.name, what, n, len(s.last), err)
					}
					if size := len(img[name]); size != len(s.image[name]) && strings.HasSuffix(what, "another table") {
						listsSize(t, img, name, size)
					}
				})
			}
		}
	}
}

// listsSize wants a salvage to name a file as lost because of its size.
func listsSize(t *testing.T, img image, name string, size int) {
	t.Helper()
	found, err := docstore.SalvageFrom(t.Context(), img.disk(t), imageDir, func(string, docstore.Item) error {
		return nil
	})
	is := func(l docstore.Loss) bool {
		return l.File == name && strings.Contains(l.Reason, fmt.Sprintf("it has %d bytes", size))
	}
	if err != nil || !slices.ContainsFunc(found.Lost, is) {
		t.Errorf("%s is another table, and lost is %+v, %v", name, found, err)
	}
}

// Two tables may have the same size, and the same keys: then the sequence numbers of the keys tell which one it is.
func TestATableOfTheSameSizeIsKnownByItsKeys(t *testing.T) {
	dir := t.TempDir()
	bySize := map[int64]string{}
	for round := range 100 {
		db, c := openRound(t, dir, round)
		upsert(t, c, "i", "p", 100+round)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
		if err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(bySize, func(_ int64, name string) bool { return !slices.Contains(tables, name) })
		for _, name := range tables {
			other, ok := bySize[size(t, name)]
			if bySize[size(t, name)] = name; !ok || other == name {
				continue
			}
			b, err := os.ReadFile(other)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, b, 0o600); err != nil {
				t.Fatal(err)
			}
			found, err := docstore.Salvage(t.Context(), dir, func(string, docstore.Item) error { return nil })
			if err != nil || len(found.Lost) != 1 || found.Lost[0].File != filepath.Base(name) ||
				!strings.Contains(found.Lost[0].Reason, "key") {
				t.Errorf("%s has the bytes of %s, and lost is %+v, %v", name, other, found, err)
			}
			return
		}
	}
	t.Error("no two tables have the same size")
}

// A lost table makes no document doubtful of which a later table has a version, or which the table cannot have had.
func TestADocumentOfALaterTableIsNotDoubtful(t *testing.T) {
	dir := t.TempDir()
	var tables [3][]string // those of each round
	for round := range 4 {
		db, err := docstore.Open(dir, docstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			container(t, db, docstore.ContainerSpec{})
		}
		if round > 0 {
			old := slices.Concat(tables[:]...)
			tables[round-1] = slices.DeleteFunc(files(t, dir, "*.sst"), func(name string) bool {
				return slices.Contains(old, name)
			})
		}
		c, err := db.Container("c")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			if round == 0 || i%2 == 1 && round < 3 {
				upsert(t, c, fmt.Sprint("i", i), "p", round)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for round, names := range tables {
		if len(names) != 1 {
			t.Fatalf("round %d made the tables %v, want one", round, names)
		}
		if err := os.Rename(names[0], names[0]+".away"); err != nil {
			t.Fatal(err)
		}
		old := 0
		found, err := docstore.Salvage(t.Context(), dir, func(_ string, it docstore.Item) error {
			if want := int(it.ID[1]-'0') % 2 * 2; valueOf(t, it.Body) != want {
				old++
			}
			return nil
		})
		var ids []string
		if err == nil {
			for _, d := range found.Doubtful {
				ids = append(ids, d.ID)
			}
		}
		slices.Sort(ids)
		// The table of round 1 may have had writes of all LSNs between its first and its last one.
		want := []string{"[]", "[i2 i4 i6 i8]", "[i1 i2 i3 i4 i5 i6 i7 i8 i9]"}[round]
		if got := fmt.Sprint(ids); err != nil || got != want || old != []int{0, 0, 5}[round] {
			t.Errorf("without the table of round %d, %d documents are old and %s doubtful, %v: want %s", round, old,
				got, err, want)
		}
		if err := os.Rename(names[0]+".away", names[0]); err != nil {
			t.Fatal(err)
		}
	}
}

// overwritten has documents whose versions are in several tables.
func overwritten(m *maker) *shape {
	m.open()
	container(m.t, m.db, docstore.ContainerSpec{Ranges: 2})
	return m.overwrite("overwritten")
}

func overwrittenWithVersions(m *maker) *shape {
	m.open()
	container(m.t, m.db, docstore.ContainerSpec{Ranges: 2, Retention: 10 * time.Hour})
	return m.overwrite("overwritten, with versions")
}

func (m *maker) overwrite(name string) *shape {
	m.t.Helper()
	m.write("c", 300)
	if err := m.db.Compact(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
	for range 3 {
		m.write("c", 100)
		m.close()
		m.open()
	}
	return m.shape(name, false)
}

// lsnsListed returns an error if a document is missing, only logs are lost, and its LSN is not listed.
func lsnsListed(found *docstore.Salvaged, missing []string) error {
	if slices.ContainsFunc(found.Lost, func(l docstore.Loss) bool { return !strings.HasSuffix(l.File, ".log") }) {
		return nil
	}
	for _, doc := range missing {
		_, rest, _ := strings.Cut(doc, " at ")
		var lsn int64
		if _, err := fmt.Sscan(rest, &lsn); err != nil {
			return fmt.Errorf("read %s: %w", doc, err)
		}
		listed := slices.ContainsFunc(found.Missing, func(m docstore.MissingItem) bool {
			return strings.HasPrefix(doc, fmt.Sprintf("%s %s at ", m.Key, m.ID))
		})
		for _, c := range found.Containers {
			listed = listed || slices.ContainsFunc(c.Lost, func(l docstore.LSNs) bool {
				return l.From <= lsn && (l.To == 0 || lsn <= l.To)
			})
		}
		if !listed {
			return fmt.Errorf("%s is missing, logs are lost, and its LSN is not listed: %+v", doc, found.Containers)
		}
	}
	return nil
}

func TestSalvageOfAWholeStoreIsWhole(t *testing.T) {
	for _, s := range makeShapes(t) {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(s.made.Add(time.Minute)))
			if n, err := s.salvage(t, s.image); err != nil || n != len(s.last) {
				t.Errorf("%s: %d of %d documents: %v", s.name, n, len(s.last), err)
			}
			found, most := lostOf(t, s.image), 0
			if s.killed {
				most = 1 // nothing says where the log ended
			}
			if len(found.Doubtful) > 0 || len(found.Lost) > most || most == 1 &&
				found.Lost[0].File != s.image.newest() {
				t.Errorf("%s: lost is %+v, and doubtful %+v", s.name, found.Lost, found.Doubtful)
			}
		})
	}
}

// TestSalvageOfADamagedBlockLosesNoMore damages one block of documents on a disk.
func TestSalvageOfADamagedBlockLosesNoMore(t *testing.T) {
	dir := storeOnDisk(t)
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.Container("c")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		upsert(t, c, fmt.Sprint("n", i), fmt.Sprint("p", i%7), i)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	fill2(t, dir)
	path := slices.MaxFunc(files(t, dir, "*.sst"), func(a, b string) int { return int(size(t, a) - size(t, b)) })
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	before, n := filesOf(t, dir), 0
	found, err := docstore.Salvage(t.Context(), dir, func(string, docstore.Item) error {
		n++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 1000 || n == 2100 || n+len(found.Missing) != 2100 {
		t.Errorf("%d documents salvaged, %d missing, want 2100 together, and most of them", n, len(found.Missing))
	}
	if len(found.Lost) != 1 || found.Lost[0].File != filepath.Base(path) ||
		!strings.Contains(found.Lost[0].From, "c: ") || found.Lost[0].Container != "c" {
		t.Errorf("lost is %+v, want a span of %s, of c alone", found.Lost, filepath.Base(path))
	}
	if after := filesOf(t, dir); !maps.EqualFunc(before, after, slices.Equal) {
		t.Errorf("salvage has changed %v", difference(before, after))
	}
	stop := errors.New("stop")
	if _, err := docstore.Salvage(t.Context(), dir, func(string, docstore.Item) error {
		return stop
	}); !errors.Is(err, stop) {
		t.Errorf("got %v, want the error of the visitor", err)
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// TestTheNewestVersionIsSalvaged loses the manifest of a store that keeps versions.
func TestTheNewestVersionIsSalvaged(t *testing.T) {
	dir := t.TempDir()
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := container(t, db, docstore.ContainerSpec{Retention: time.Hour})
	for v := range 4 {
		upsert(t, c, "a", "p", v)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range files(t, dir, "MANIFEST-*") {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	var found []int
	_, err = docstore.Salvage(t.Context(), dir, func(_ string, it docstore.Item) error {
		found = append(found, valueOf(t, it.Body))
		return nil
	})
	if err != nil || !slices.Equal(found, []int{3}) {
		t.Errorf("salvaged are the versions %v, %v, want the last alone", found, err)
	}
}

func TestSalvageListsTheLSNsOfALostLog(t *testing.T) {
	dir := t.TempDir()
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := container(t, db, docstore.ContainerSpec{})
	for v := range 3 {
		upsert(t, c, fmt.Sprint("a", v), "p", v)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err = docstore.Open(dir, docstore.Options{}); err != nil { // what the log has moves into tables
		t.Fatal(err)
	}
	if c, err = db.Container("c"); err != nil {
		t.Fatal(err)
	}
	for v := range 2 {
		upsert(t, c, fmt.Sprint("b", v), "p", v)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	whole := salvagedContainer(t, dir)
	if len(whole.Lost) != 0 {
		t.Errorf("of a whole store the LSNs %v are lost", whole.Lost)
	}
	logs := files(t, dir, "*.log")
	if err := os.Remove(logs[len(logs)-1]); err != nil {
		t.Fatal(err)
	}
	found := salvagedContainer(t, dir)
	if got := fmt.Sprint(found.Lost); got != "[{4 0}]" || found.Head != 3 || whole.Head != 5 {
		t.Errorf("the LSNs %s are lost, the newest that is known is %d of %d: want all from 4 on", got, found.Head,
			whole.Head)
	}
}

// salvagedContainer is the only container of a damaged store.
func salvagedContainer(t *testing.T, dir string) docstore.SalvagedContainer {
	t.Helper()
	found, err := docstore.Salvage(t.Context(), dir, func(string, docstore.Item) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return found.Containers[0]
}

func TestGapsOfLogsAreLostLSNs(t *testing.T) {
	for _, test := range []struct {
		inTables int64
		inLogs   []int64
		head     int64
		want     string
	}{
		{9, nil, 9, "[{10 0}]"},
		{9, []int64{10, 11}, 11, "[{12 0}]"},
		{9, []int64{15, 14}, 15, "[{10 13} {16 0}]"},
		{9, []int64{7, 9, 12, 14}, 14, "[{10 11} {13 13} {15 0}]"},
		{0, []int64{3}, 5, "[{1 2} {6 0}]"},
	} {
		if got := fmt.Sprint(docstore.Gaps(test.inTables, test.inLogs, test.head)); got != test.want {
			t.Errorf("tables to %d, logs with %v, head %d: lost is %s, want %s", test.inTables, test.inLogs, test.head,
				got, test.want)
		}
	}
}
