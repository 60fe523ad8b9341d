package docstore_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// image is the files of a store.
type image map[string][]byte

const imageDir = "db"

func readImage(t testing.TB, fs vfs.FS) image {
	t.Helper()
	names, err := fs.List(imageDir)
	if err != nil {
		t.Fatal(err)
	}
	img := image{}
	for _, name := range names {
		if name == "LOCK" {
			continue
		}
		f, err := fs.Open(fs.PathJoin(imageDir, name))
		if err != nil {
			t.Fatal(err)
		}
		if img[name], err = io.ReadAll(f); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return img
}

// disk is a file system with the files.
func (img image) disk(t testing.TB) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewMem()
	if err := fs.MkdirAll(imageDir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, b := range img {
		f, err := fs.Create(fs.PathJoin(imageDir, name), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(slices.Clone(b)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return fs
}

// newest is the name of the newest log.
func (img image) newest() (name string) {
	for n := range img {
		if strings.HasSuffix(n, ".log") {
			name = max(name, n)
		}
	}
	return name
}

// shape is a kind of store, with what was acknowledged.
type shape struct {
	name   string
	killed bool // the store was not closed
	image  image
	made   time.Time
	facts  []string            // what a reader sees, see look
	tail   map[string][]string // the documents by container and head, as of each write
	acked  map[string]bool     // all versions that were acknowledged
	last   map[string]string   // the last ones of those that are left
}

// maker makes a store and remembers what was acknowledged.
type maker struct {
	t    testing.TB
	fs   vfs.FS
	mem  *vfs.MemFS
	rng  *rand.Rand
	db   *docstore.DB
	body map[string]string // by container, key and id, with ETag and LSN
	seen map[string][]string
	all  map[string]bool

	size    int         // of what documents are padded with, in words
	stuck   atomic.Bool // tables cannot be made
	release func()
}

func newMaker(t testing.TB, seed uint64) *maker {
	mem := vfs.NewMem()
	return &maker{
		t: t, fs: mem, mem: mem, rng: rand.New(rand.NewPCG(seed, 1)),
		body: map[string]string{}, seen: map[string][]string{}, all: map[string]bool{}, size: 40, release: func() {},
	}
}

func (m *maker) options() docstore.Options {
	return docstore.Options{CacheBytes: 16 << 20}.WithFS(m.fs).Small()
}

func (m *maker) open() {
	m.t.Helper()
	var err error
	if m.db, err = docstore.Open(imageDir, m.options()); err != nil {
		m.t.Fatal(err)
	}
}

func (m *maker) close() {
	m.t.Helper()
	if err := m.db.Close(); err != nil {
		m.t.Fatal(err)
	}
}

func (m *maker) container(name string) *docstore.Container {
	m.t.Helper()
	c, err := m.db.Container(name)
	if err != nil {
		m.t.Fatal(err)
	}
	return c
}

// write makes n writes: creates, replaces, deletes, and batches.
func (m *maker) write(name string, n int) {
	m.t.Helper()
	c := m.container(name)
	for range n {
		pk := fmt.Sprint("p", m.rng.IntN(20))
		id := fmt.Sprint("i", m.rng.IntN(60))
		switch m.rng.IntN(8) {
		case 0:
			if m.body[name+pk+id] != "" {
				if err := c.Delete(m.t.Context(), feed.Key(pk), id, ""); err != nil {
					m.t.Fatal(err)
				}
				delete(m.body, name+pk+id)
				m.note(c)
			}
		case 1:
			m.commit(c, pk, id, id+"+")
		default:
			m.commit(c, pk, id)
		}
	}
}

func (m *maker) commit(c *docstore.Container, pk string, ids ...string) {
	m.t.Helper()
	m.commitFor(c, -1, pk, ids...)
}

// commitFor writes documents that live for so many seconds; -1 is for ever.
func (m *maker) commitFor(c *docstore.Container, ttl int, pk string, ids ...string) {
	m.t.Helper()
	var writes []feed.Write
	for _, id := range ids {
		pad := strings.Repeat(fmt.Sprintf("%x", m.rng.Uint64()), m.rng.IntN(m.size))
		writes = append(writes, feed.Write{Body: fmt.Appendf(nil, `{"id":%q,"pk":%q,"ttl":%d,"v":%d,"pad":%q}`, id, pk,
			ttl, m.rng.Uint32(), pad)})
	}
	got, err := c.Commit(m.t.Context(), feed.Key(pk), writes)
	if err != nil {
		m.t.Fatal(err)
	}
	for i, r := range got {
		doc := line(string(feed.Key(pk)), ids[i], r.LSN, r.ETag, r.Body)
		m.body[c.Name()+pk+ids[i]] = doc
		m.all[c.Name()+" "+doc] = true
	}
	m.note(c)
}

// line is a document as look has it.
func line(key, id string, lsn int64, etag string, body []byte) string {
	return fmt.Sprintf("%s %s at %d %s %x", key, id, lsn, etag, sha256.Sum256(body))
}

// note keeps the documents as of the container's head, where a log may end.
func (m *maker) note(c *docstore.Container) {
	var docs []string
	for key, doc := range m.body {
		if strings.HasPrefix(key, c.Name()) {
			docs = append(docs, doc)
		}
	}
	slices.Sort(docs)
	m.seen[fmt.Sprintf("%s@%d", c.Name(), c.Head())] = docs
}

// rest lets the sweeper and the engine come to rest, in virtual time.
func (m *maker) rest() { time.Sleep(5 * time.Second) }

// shape is the store as it is, closed or killed.
func (m *maker) shape(name string, killed bool) *shape {
	m.t.Helper()
	m.rest()
	s := &shape{name: name, killed: killed, tail: m.seen, acked: m.all, last: m.body, made: time.Now()}
	if killed {
		s.image = readImage(m.t, m.fs)
		m.release()
		m.close()
	} else {
		m.close()
		s.image = readImage(m.t, m.fs)
	}
	fresh := s.image.disk(m.t)
	db, err := docstore.Open(imageDir, docstore.Options{CacheBytes: 16 << 20}.WithFS(fresh))
	if err != nil {
		m.t.Fatalf("%s, undamaged: %v", name, err)
	}
	defer db.Close()
	if s.facts, err = look(m.t, db); err != nil {
		m.t.Fatalf("%s, undamaged: %v", name, err)
	}
	if err := db.Check(); err != nil {
		m.t.Fatalf("%s, undamaged: %v", name, err)
	}
	for key, doc := range m.body {
		if !slices.ContainsFunc(s.facts, func(f string) bool { return strings.HasSuffix(f, " doc "+doc) }) {
			m.t.Fatalf("%s, undamaged: %s is not there: want %s", name, key, doc)
		}
	}
	return s
}

// look reads all of a store: each document by its id, the feeds from several positions,
// ETags, counts and partitions.
func look(t testing.TB, db *docstore.DB) (facts []string, err error) {
	t.Helper()
	for _, d := range db.Databases() {
		facts = append(facts, fmt.Sprintf("database %+v", d))
	}
	for _, c := range db.Containers() {
		lines, err := lookAt(t, c)
		if err != nil {
			return nil, err
		}
		for _, l := range lines {
			facts = append(facts, c.Name()+" "+l)
		}
	}
	return facts, nil
}

func lookAt(t testing.TB, c *docstore.Container) (facts []string, err error) {
	spec, err := json.Marshal(c.Spec())
	if err != nil {
		return nil, err
	}
	parts, err := c.Partitions(t.Context())
	if err != nil {
		return nil, err
	}
	facts = append(facts, fmt.Sprintf("%s %s head %d count %d %s %v", c.RID(), etagOf(c), c.Head(), c.Count(), spec,
		parts))
	docs := map[string]bool{}
	for _, p := range parts {
		from := []feed.Position{{Start: feed.FromBeginning()}, feed.At("0")}
		for i := range int64(4) {
			from = append(from, feed.At(fmt.Sprint(c.Head()*i/4+1)))
		}
		for i, at := range from {
			o := feed.ReadOptions{MaxItems: 7 * (i + 1)}
			lines, err := follow(t, c, p.Range, at, o, docs)
			if err != nil {
				return nil, err
			}
			facts = append(facts, lines...)
			if o.Mode = feed.AllVersionsAndDeletes; c.Spec().Retention > 0 && i > 0 {
				if lines, err = follow(t, c, p.Range, at, o, nil); err != nil {
					return nil, err
				}
				facts = append(facts, lines...)
			}
		}
		var lines []string
		n, err := c.Pending(t.Context(), p.Range, feed.At("0"), feed.ReadOptions{})
		if err != nil {
			return nil, err
		}
		facts = append(facts, fmt.Sprint("pending ", n))
		if lines, err = inCreationOrder(t, c, p.Range); err != nil {
			return nil, err
		}
		facts = append(facts, lines...)
	}
	for _, doc := range slices.Sorted(maps.Keys(docs)) {
		key, id, _ := strings.Cut(doc, " ")
		it, err := c.Item(t.Context(), feed.PartitionKey(key), id)
		if err != nil {
			return nil, err
		}
		facts = append(facts, "doc "+line(key, id, it.LSN, it.ETag, it.Body))
	}
	return facts, nil
}

// inCreationOrder reads the documents of a partition in the order of their creation.
func inCreationOrder(t testing.TB, c *docstore.Container, r feed.Range) (facts []string, err error) {
	s, err := c.Snapshot(t.Context())
	if err != nil {
		return nil, err
	}
	for it, err := range s.Documents(t.Context(), r, 0) {
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		created := line(string(it.Key), it.ID, it.LSN, it.ETag, it.Body)
		facts = append(facts, fmt.Sprint("created ", it.Number, " ", created))
	}
	return facts, s.Close()
}

func follow(t testing.TB, c *docstore.Container, r feed.Range, from feed.Position, o feed.ReadOptions,
	docs map[string]bool,
) (facts []string, err error) {
	for {
		page, err := c.Read(t.Context(), r, from, o)
		if err != nil {
			return nil, err
		}
		facts = append(facts, fmt.Sprintf("page of %s after %s to %s, head %d", r, from, page.Next, page.Head))
		for _, ch := range page.Changes {
			facts = append(facts, fmt.Sprintf("%s %s %d %v %x", ch.Op, line(string(ch.PartitionKey), ch.ID, ch.LSN,
				ch.ETag, ch.Body), ch.PreviousLSN, ch.Expired, sha256.Sum256(ch.Previous)))
			if docs != nil {
				docs[string(ch.PartitionKey)+" "+ch.ID] = true
			}
		}
		if from = page.Next; len(page.Changes) == 0 {
			return facts, nil
		}
	}
}
