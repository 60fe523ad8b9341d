package docstore_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/proof/detector"
)

var (
	damages    = flag.Int("damage.n", detector.Rounds(150, 20), "how many times the damage test damages a store")
	damageFrom = flag.Uint64("damage.from", 1, "the seed of the first of them")
	damageSeed = flag.Uint64("damage.seed", 0, "do the one damage with this seed, as the test has printed it; 0 is all")
	damageKeep = flag.String("damage.keep", "",
		"directory in which to leave the files of a store whose damage went unnoticed")
)

// TestNoDamageIsSilent damages stores, one bit or one file at a time: opening them or
// reading them says which file is damaged, or all that was acknowledged is there.
func TestNoDamageIsSilent(t *testing.T) {
	shapes := makeShapes(t)
	var total tally
	first, n := *damageFrom, *damages
	if *damageSeed != 0 {
		first, n = *damageSeed, 1
	}
	for seed := first; seed < first+uint64(n); seed++ {
		s := shapes[seed%uint64(len(shapes))]
		d := s.damage(rand.New(rand.NewPCG(seed, 2)))
		if *damageSeed != 0 {
			t.Logf("seed %d: %s: %s", seed, s.name, d)
		}
		got := s.try(t, d)
		total[got.kind]++
		if got.kind == silent {
			t.Errorf("seed %d: %s: %s: %s", seed, s.name, d, got.text)
			keep(t, d.image)
		} else if *damageSeed != 0 {
			t.Logf("%v %s", got.kind, got.text)
		}
	}
	t.Log(total)
	if n >= 100 && (total[refused] == 0 || total[harmless] == 0) {
		t.Errorf("%v: want damages that are refused and damages that are harmless", total)
	}
}

// outcome is what came of a damage.
type outcome struct {
	kind outcomeKind
	text string
}

type outcomeKind int

const (
	refused outcomeKind = iota
	unread              // seen by Check only
	shorter             // the end of the newest log after a kill, as Recovery says
	harmless
	silent
	outcomeKinds
)

type tally [outcomeKinds]int

func (c tally) String() string {
	n := 0
	for _, k := range c {
		n += k
	}
	return fmt.Sprintf("%d damages: %d refused, %d harmless, %d in what nobody reads and found by Check, %d at the "+
		"end of the log of a killed store and reported, %d silent",
		n, c[refused], c[harmless], c[unread], c[shorter], c[silent])
}

// try opens a damaged store and reads all of it.
func (s *shape) try(t *testing.T, d damage) (got outcome) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(s.made.Add(time.Minute)))
		got = s.open(t, d)
	})
	if got.kind == harmless && !s.killed && s.decides(t, d) && !slices.Equal(d.image[d.file], s.image[d.file]) {
		return outcome{silent, "the store opens, though the file is not as it was closed"}
	}
	return got
}

// decides tells a damage of what says what there is in a closed store: of the manifest,
// or of the newest log before its end. These must be exactly as they were.
func (s *shape) decides(t *testing.T, d damage) bool {
	t.Helper()
	var facts struct {
		Closed struct {
			LogEnd   int64
			Manifest string
		}
	}
	text, _, found := bytes.Cut(s.image["INVENTORY"], []byte{'\n'})
	if !found {
		return false
	}
	if err := json.Unmarshal(text, &facts); err != nil {
		t.Fatal(err)
	}
	return d.file == facts.Closed.Manifest || d.file == s.image.newest() && d.at < facts.Closed.LogEnd
}

func (s *shape) open(t *testing.T, d damage) outcome {
	t.Helper()
	fs := d.image.disk(t)
	db, err := docstore.Open(imageDir, docstore.Options{CacheBytes: 16 << 20}.WithFS(fs))
	if err != nil {
		if after := readImage(t, fs); !maps.EqualFunc(after, d.image, slices.Equal) {
			return outcome{silent, fmt.Sprintf("open fails (%v) and has changed %s", err, difference(d.image, after))}
		}
		return s.judge(d, err)
	}
	defer db.Close() // says the same again where it fails
	facts, err := look(t, db)
	if err != nil {
		return s.judge(d, err)
	}
	if !slices.Equal(facts, s.facts) {
		return s.shorter(t, db, d, facts)
	}
	if err := db.Check(); err != nil {
		got := s.judge(d, err)
		if got.kind == refused {
			got.kind = unread
		}
		return got
	}
	return s.again(t, db, d, fs)
}

// again opens a store once more in which no damage was found: the first open may have
// deleted something.
func (s *shape) again(t *testing.T, db *docstore.DB, d damage, fs *vfs.MemFS) outcome {
	t.Helper()
	if err := db.Close(); err != nil {
		return s.judge(d, err)
	}
	db, err := docstore.Open(imageDir, docstore.Options{CacheBytes: 16 << 20}.WithFS(fs))
	if err != nil {
		return s.judge(d, err)
	}
	defer db.Close()
	facts, err := look(t, db)
	if err != nil {
		return s.judge(d, err)
	}
	if !slices.Equal(facts, s.facts) {
		return outcome{silent, "opened twice: " + firstDifference(s.facts, facts)}
	}
	return outcome{harmless, ""}
}

// judge wants an error that names a file.
func (s *shape) judge(d damage, err error) outcome {
	if !errors.Is(err, docstore.ErrCorrupt) {
		return outcome{silent, fmt.Sprintf("error is no ErrCorrupt: %v", err)}
	}
	names := slices.Collect(maps.Keys(s.image))
	names = append(names, d.file, "marker.manifest.", "marker.format-version.")
	if !slices.ContainsFunc(names, func(name string) bool { return strings.Contains(err.Error(), name) }) {
		return outcome{silent, fmt.Sprintf("error names no file: %v", err)}
	}
	return outcome{refused, err.Error()}
}

// shorter allows one thing: the last writes before a kill are missing, the damage was in
// the log where they were, and the store says so.
func (s *shape) shorter(t *testing.T, db *docstore.DB, d damage, facts []string) outcome {
	t.Helper()
	bad := func(why string) outcome { return outcome{silent, why + ": " + firstDifference(s.facts, facts)} }
	r := db.Recovery()
	if !s.killed || d.file != s.image.newest() {
		return bad("other data")
	}
	if r.Log != d.file || r.Reached > d.at {
		return bad(fmt.Sprintf("the store says %q", r))
	}
	for _, h := range r.Heads {
		c, err := db.Container(h.Container)
		if err != nil {
			return bad(err.Error())
		}
		want, ok := s.tail[fmt.Sprintf("%s@%d", c.Name(), h.LSN)]
		if c.Head() != h.LSN || !ok && h.LSN != 0 {
			return bad(fmt.Sprintf("the store says that %s reaches %d", h.Container, h.LSN))
		}
		var docs []string
		for _, f := range facts {
			if doc, ok := strings.CutPrefix(f, c.Name()+" doc "); ok {
				docs = append(docs, doc)
			}
		}
		slices.Sort(docs)
		if !slices.Equal(docs, want) {
			return bad("not the documents as of the reported head: " + firstDifference(want, docs))
		}
	}
	if err := db.Check(); err != nil {
		return bad(err.Error())
	}
	return outcome{shorter, r.String()}
}

func firstDifference(want, got []string) string {
	for i, w := range want {
		if i >= len(got) || got[i] != w {
			return fmt.Sprintf("line %d of %d is %q, want %q", i, len(got),
				slices.Concat(got, make([]string, len(want)))[i], w)
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(got), len(want))
}

func difference(a, b image) (names []string) {
	for name := range a {
		if old, ok := b[name]; !ok || !slices.Equal(old, a[name]) {
			names = append(names, name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			names = append(names, "new "+name)
		}
	}
	return names
}

// keep leaves the files of a store for a closer look.
func keep(t *testing.T, img image) {
	t.Helper()
	if *damageKeep == "" {
		return
	}
	for name, b := range img {
		if err := os.WriteFile(filepath.Join(*damageKeep, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// damage is one, and the files after it.
type damage struct {
	what  string
	file  string
	at    int64 // the first byte that is not what it was
	image image
}

func (d damage) String() string { return fmt.Sprintf("%s %s at %d", d.what, d.file, d.at) }

// damage does one thing to one file.
func (s *shape) damage(rng *rand.Rand) damage {
	names := slices.Sorted(maps.Keys(s.image))
	kinds := map[string][]string{}
	for _, name := range names {
		kind := strings.TrimRight(name, "0123456789")
		if i := strings.LastIndexByte(name, '.'); i >= 0 && !strings.HasPrefix(name, "marker") {
			kind = name[i:]
		}
		kinds[kind] = append(kinds[kind], name)
	}
	kind := pick(rng, append(slices.Sorted(maps.Keys(kinds)), ".log", "MANIFEST-")) // where most is at stake
	d := damage{file: pick(rng, kinds[kind]), image: maps.Clone(s.image)}
	if rng.IntN(2) == 0 {
		d.file = slices.Max(kinds[kind])
	}
	b := slices.Clone(s.image[d.file])
	if len(b) == 0 || rng.IntN(8) == 0 {
		s.wholeFile(rng, &d, names)
		return d
	}
	d.at = place(rng, len(b))
	switch rng.IntN(9) {
	case 0:
		d.what, d.at = "grown", int64(len(b))
		for range 1 + rng.IntN(100) {
			b = append(b, byte(rng.Uint32()))
		}
	case 1, 2:
		d.what = "cut"
		b = b[:d.at]
	case 3, 4:
		d.what = "zeroed page"
		size := int64(512 << rng.IntN(4))
		d.at -= d.at % size
		clear(b[d.at:min(d.at+size, int64(len(b)))])
	default:
		d.what = "flipped bit"
		b[d.at] ^= 1 << rng.IntN(8)
	}
	d.image[d.file] = b
	return d
}

// wholeFile loses or empties a file, or adds one.
func (s *shape) wholeFile(rng *rand.Rand, d *damage, names []string) {
	switch rng.IntN(4) {
	case 0:
		d.what = "emptied"
		d.image[d.file] = nil
	case 1:
		d.what = "lost"
		delete(d.image, d.file)
	default:
		content := slices.Clone(s.image[pick(rng, names)])
		if rng.IntN(3) == 0 {
			content = make([]byte, rng.IntN(100_000))
			for i := range content {
				content[i] = byte(rng.Uint32())
			}
		}
		n := []int{1, 2, 3, 5, 8, 13, 14, 20, 30, 999}[rng.IntN(10)]
		if rng.IntN(2) == 0 { // the number of another file
			digits := regexp.MustCompile(`\d{6}`).FindString(pick(rng, names))
			n, _ = strconv.Atoi(digits) // 0 for a name without
		}
		name := fmt.Sprintf(pick(rng, []string{
			"%06d.log", "%06d.sst", "MANIFEST-%06d", "OPTIONS-%06d", "temporary.%06d.dbtmp", "%06d.blob",
			"notes-%d.txt", "marker.manifest.%06d.MANIFEST-000001", "marker.%d", "INVENTORY.%d", "%d.log.orig",
		}), n)
		if _, ok := d.image[name]; ok {
			name += ".copy"
		}
		d.what, d.file = "extra file", name
		d.image[name] = content
	}
}

// place is one byte of a file: often near an end, or where blocks meet.
func place(rng *rand.Rand, size int) int64 {
	switch n := int64(size); rng.IntN(5) {
	case 0:
		return max(0, n-1-rng.Int64N(64))
	case 1:
		return min(n-1, rng.Int64N(256))
	case 2:
		return min(n-1, rng.Int64N(n/(32<<10)+1)*(32<<10)+rng.Int64N(24))
	default:
		return rng.Int64N(n)
	}
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

// made are the stores that are damaged. They are made once for all tests, because that takes as long as a damage.
var made struct {
	sync.Mutex
	shapes []*shape
}

// makeShapes returns the stores that are damaged. Each test may change which files its stores have.
func makeShapes(t *testing.T) (shapes []*shape) {
	t.Helper()
	made.Lock()
	defer made.Unlock()
	if made.shapes == nil {
		for _, build := range []func(*maker) *shape{
			logOnly, logAndTables, compacted, splitsAndTTL, killedLog, killedTables, killedBeforeFlush,
			killedAfterFlush, killedSplits,
		} {
			shapes = append(shapes, makeShape(t, build))
		}
		made.shapes, shapes = shapes, nil
	}
	for _, s := range made.shapes {
		mine := *s
		mine.image = maps.Clone(s.image)
		shapes = append(shapes, &mine)
	}
	return shapes
}

func makeShape(t *testing.T, build func(*maker) *shape) (s *shape) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { s = build(newMaker(t, 1)) })
	return s
}

func logOnly(m *maker) *shape {
	m.open()
	container(m.t, m.db, docstore.ContainerSpec{})
	m.write("c", 150)
	return m.shape("log only", false)
}

func logAndTables(m *maker) *shape {
	m.open()
	container(m.t, m.db, docstore.ContainerSpec{})
	container(m.t, m.db, docstore.ContainerSpec{
		ID: "d", Retention: 10 * time.Hour, Ranges: 3,
		UniqueKeys: [][]string{{"/id"}},
	})
	for range 3 {
		m.write("c", 60)
		m.write("d", 60)
		m.close()
		m.open()
	}
	m.write("d", 60)
	m.write("c", 60)
	return m.shape("log and tables", false)
}

func compactedStore(m *maker) {
	m.open()
	container(m.t, m.db, docstore.ContainerSpec{})
	for range 4 {
		m.write("c", 150)
		m.close()
		m.open()
	}
	if err := m.db.Compact(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
}

func compacted(m *maker) *shape {
	compactedStore(m)
	return m.shape("compacted", false)
}

func killedLog(m *maker) *shape {
	m.open()
	container(m.t, m.db, docstore.ContainerSpec{})
	m.write("c", 150)
	return m.shape("killed", true)
}

// killedLogAfterOpen has one young table.
func killedLogAfterOpen(m *maker) *shape {
	m.open()
	container(m.t, m.db, docstore.ContainerSpec{})
	m.write("c", 30)
	m.close()
	m.open()
	m.write("c", 5)
	return m.shape("killed, with a young table", true)
}

func killedTables(m *maker) *shape {
	compactedStore(m)
	m.write("c", 150)
	return m.shape("killed, with tables", true)
}

func dividedStore(m *maker) {
	m.open()
	c := container(m.t, m.db, docstore.ContainerSpec{DefaultTTL: new(docstore.NoDefaultTTL), Retention: 10 * time.Hour})
	m.write("c", 100)
	for i := range 20 {
		for _, ttl := range []int{1, 100_000} {
			m.commitFor(c, ttl, fmt.Sprint("p", i), fmt.Sprintf("t%d-%d", ttl, i))
		}
	}
	split(m.t.(*testing.T), c)
	split(m.t.(*testing.T), c)
	m.rest()
	maps.DeleteFunc(m.body, func(key, _ string) bool { return strings.Contains(key, "t1-") })
	m.write("c", 50)
	parts, err := c.Partitions(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	if _, err := c.Merge(m.t.Context(), parts[0].ID, parts[1].ID); err != nil {
		m.t.Fatal(err)
	}
	m.close()
	m.open()
	m.write("c", 50)
	m.rest()
}

func splitsAndTTL(m *maker) *shape {
	dividedStore(m)
	return m.shape("splits and TTL", false)
}

func killedSplits(m *maker) *shape {
	dividedStore(m)
	return m.shape("killed, after splits and TTL", true)
}

// killedAfterFlush has tables that were made of logs since it was opened.
func killedAfterFlush(m *maker) *shape {
	m.open()
	container(m.t, m.db, docstore.ContainerSpec{})
	m.size = 100
	m.write("c", 300)
	return m.shape("killed, after logs were put into tables", true)
}

// killedBeforeFlush has several logs that are in no table: the first table cannot be made.
func killedBeforeFlush(m *maker) *shape {
	m.open()
	container(m.t, m.db, docstore.ContainerSpec{})
	m.write("c", 50)
	m.close()
	stuck := make(chan struct{})
	m.fs = docstore.Failing(m.mem, func(write bool, path string) bool {
		if write && strings.HasSuffix(path, ".sst") && m.stuck.Load() {
			<-stuck
		}
		return false
	})
	m.open()
	m.stuck.Store(true)
	m.release = func() { close(stuck) }
	m.size = 100
	m.write("c", 120)
	return m.shape("killed, with several logs", true)
}
