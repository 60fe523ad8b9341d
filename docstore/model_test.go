package docstore_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/epk"
)

// TestStoreEqualsModel does random things to a store, in virtual time, and compares both
// feeds, the documents and the counts with a map and a list.
func TestStoreEqualsModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var failure any
		synctest.Test(t, func(t *testing.T) {
			defer func() { failure = recover() }()
			m := newModel(t, rt)
			defer m.end()
			rt.Repeat(m.actions())
		})
		if failure != nil {
			panic(failure)
		}
	})
}

type modelDoc struct {
	id, pk, etag, uniq string
	v, ttl             int
	lsn, idx           int64
	at                 time.Time
}

type modelChange struct {
	op       changefeed.Op
	id, pk   string
	v        int
	lsn, idx int64
	prev     int64
	expired  bool
	at       time.Time
}

type docID struct{ pk, id string }

// model is what the store should be.
type model struct {
	t  *testing.T
	rt *rapid.T

	fs        *vfs.MemFS
	db        *docstore.DB
	c         *docstore.Container
	retention time.Duration
	common    bool  // it is that of the store, not the container's own
	since     int64 // versions are kept behind this LSN
	ttl       *int
	docs      map[docID]modelDoc
	history   []modelChange
	head      int64
	tags      map[docID]string
}

func newModel(t *testing.T, rt *rapid.T) *model {
	m := &model{t: t, rt: rt, fs: docstore.NewMem(), docs: map[docID]modelDoc{}, tags: map[docID]string{}}
	m.open()
	if rapid.Bool().Draw(rt, "keeps versions") {
		m.retention = 5 * time.Minute
	}
	if m.common = rapid.Bool().Draw(rt, "of the store"); m.common {
		m.must(m.db.SetRetention(t.Context(), m.retention))
	}
	switch rapid.IntRange(0, 2).Draw(rt, "ttl") {
	case 1:
		m.ttl = new(docstore.NoDefaultTTL)
	case 2:
		m.ttl = new(90)
	}
	spec := docstore.ContainerSpec{
		ID: "c", Paths: []string{"/pk"}, UniqueKeys: [][]string{{"/u"}},
		HashVersion: rapid.IntRange(1, 2).Draw(rt, "hash"), Ranges: rapid.IntRange(1, 3).Draw(rt, "ranges"),
		DefaultTTL: m.ttl,
	}
	if !m.common {
		spec.Retention = m.retention
	}
	c, err := m.db.CreateContainer(t.Context(), spec)
	m.must(err)
	m.c = c
	return m
}

func (m *model) must(err error) {
	if err != nil {
		m.rt.Fatal(err)
	}
}

func (m *model) open() {
	db, err := docstore.Open("db", docstore.Options{CacheBytes: 1 << 20}.WithFS(m.fs))
	m.must(err)
	m.db = db
}

func (m *model) end() {
	if err := m.db.Close(); err != nil {
		m.t.Error(err)
	}
}

func (m *model) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"":         m.compare,
		"batch":    m.batch,
		"write":    m.write,
		"write 2":  m.write,
		"split":    m.split,
		"merge":    m.merge,
		"reopen":   m.reopen,
		"sleep":    m.sleep,
		"settings": m.settings,
	}
}

func (m *model) expiry(d modelDoc) time.Time {
	switch {
	case m.ttl == nil || d.ttl < 0 || d.ttl == 0 && *m.ttl < 0:
		return time.Time{}
	case d.ttl > 0:
		return d.at.Add(time.Duration(d.ttl) * time.Second)
	}
	return d.at.Add(time.Duration(*m.ttl) * time.Second)
}

func (m *model) write(rt *rapid.T) { m.commit(rt, 1) }
func (m *model) batch(rt *rapid.T) { m.commit(rt, rapid.IntRange(2, 4).Draw(rt, "writes")) }

// commit does a batch of random writes to the store and to the model.
func (m *model) commit(rt *rapid.T, n int) {
	n7 := rapid.IntRange(0, 7).Draw(rt, "pk")
	pk := fmt.Sprint("p", n7, strings.Repeat("x", n7%4*40)) // long keys have long places in version 1
	var writes []changefeed.Write
	var docs []modelDoc
	for range n {
		d := modelDoc{id: fmt.Sprint("i", rapid.IntRange(0, 4).Draw(rt, "id")), pk: pk, v: rapid.IntRange(0, 1000).Draw(rt, "v")}
		op := changefeed.WriteOp(rapid.IntRange(0, 4).Draw(rt, "op"))
		w := changefeed.Write{Op: op, ID: d.id}
		if rapid.IntRange(0, 5).Draw(rt, "if match") == 0 {
			w.IfMatch = cmp.Or(m.tags[docID{pk, d.id}], `"none"`)
		}
		d.uniq = fmt.Sprint("u", rapid.IntRange(0, 12).Draw(rt, "unique"))
		d.ttl = rapid.SampledFrom([]int{0, 0, 0, -1, 30, 100}).Draw(rt, "ttl")
		switch op {
		case changefeed.WritePatch:
			w.Patch = []changefeed.PatchOp{{Op: "set", Path: "/v", Value: fmt.Append(nil, d.v)}}
		case changefeed.WriteDelete:
		default:
			w.Body = fmt.Appendf(nil, `{"id":%q,"pk":%q,"v":%d,"u":%q}`, d.id, pk, d.v, d.uniq)
			if d.ttl != 0 {
				w.Body = fmt.Appendf(w.Body[:len(w.Body)-1], `,"ttl":%d}`, d.ttl)
			}
		}
		writes, docs = append(writes, w), append(docs, d)
	}
	results, err := m.c.Commit(m.t.Context(), changefeed.Key(pk), writes)
	changes, after, want := m.apply(writes, docs)
	if want != nil {
		var we *changefeed.WriteError
		if !errors.Is(err, want) || !errors.As(err, &we) {
			rt.Fatalf("batch %v: %v, want %v", writes, err, want)
		}
		return
	}
	if err != nil {
		rt.Fatalf("batch %v: %v", writes, err)
	}
	m.adopt(rt, results, changes, after)
}

// apply is what a batch should do.
func (m *model) apply(writes []changefeed.Write, docs []modelDoc) (changes []modelChange, after map[docID]modelDoc, want error) {
	after = maps.Clone(m.docs)
	for i, w := range writes {
		d := docs[i]
		key := docID{d.pk, d.id}
		old, exists := after[key]
		switch {
		case exists && w.Op == changefeed.WriteCreate:
			return nil, nil, changefeed.ErrConflict
		case !exists && w.Op != changefeed.WriteCreate && w.Op != changefeed.WriteUpsert:
			return nil, nil, changefeed.ErrNotFound
		case w.IfMatch != "" && (!exists || old.etag != w.IfMatch):
			return nil, nil, changefeed.ErrPrecondition
		}
		ch := modelChange{id: d.id, pk: d.pk, v: d.v, idx: int64(i), prev: old.lsn, op: changefeed.OpReplace}
		switch {
		case w.Op == changefeed.WriteDelete:
			ch.op, ch.v = changefeed.OpDelete, 0
			delete(after, key)
			changes = append(changes, ch)
			continue
		case !exists:
			ch.op = changefeed.OpCreate
		case w.Op == changefeed.WritePatch:
			d.uniq, d.ttl = old.uniq, old.ttl
		}
		for _, other := range after {
			if other.pk == d.pk && other.id != d.id && other.uniq == d.uniq {
				return nil, nil, docstore.ErrUniqueKey
			}
		}
		d.etag = fmt.Sprint("new", i)
		d.idx, d.lsn = int64(i), -1
		after[key] = d
		changes = append(changes, ch)
	}
	return changes, after, nil
}

// adopt fills in what the store chose: LSN, ETags and time.
func (m *model) adopt(rt *rapid.T, results []changefeed.Result, changes []modelChange, after map[docID]modelDoc) {
	lsn := results[0].LSN
	if lsn <= m.head {
		rt.Fatalf("LSN %d after head %d", lsn, m.head)
	}
	now := time.UnixMilli(time.Now().UnixMilli()).UTC()
	for i := range changes {
		changes[i].lsn, changes[i].at = lsn, now
		if changes[i].prev == -1 {
			changes[i].prev = lsn
		}
	}
	for key, d := range after {
		if d.lsn == -1 {
			d.lsn, d.at, d.etag = lsn, now, results[d.idx].ETag
			m.tags[key] = d.etag
			after[key] = d
		}
	}
	m.docs, m.head = after, lsn
	m.history = append(m.history, changes...)
}

func (m *model) split(rt *rapid.T) {
	parts := m.parts()
	if len(parts) > 8 {
		return
	}
	p := rapid.SampledFrom(parts).Draw(rt, "partition")
	_, err := m.c.Split(m.t.Context(), p.ID)
	m.must(err)
}

func (m *model) merge(rt *rapid.T) {
	parts := m.parts()
	if len(parts) < 2 {
		return
	}
	i := rapid.IntRange(0, len(parts)-2).Draw(rt, "partition")
	_, err := m.c.Merge(m.t.Context(), parts[i].ID, parts[i+1].ID)
	m.must(err)
}

func (m *model) parts() []changefeed.Partition {
	parts, err := m.c.Partitions(m.t.Context())
	m.must(err)
	return parts
}

func (m *model) reopen(*rapid.T) {
	m.must(m.db.Close())
	m.open()
	c, err := m.db.Container("c")
	m.must(err)
	m.c = c
	m.settle()
}

// sleep lets documents expire and versions be forgotten.
func (m *model) sleep(rt *rapid.T) {
	time.Sleep(time.Duration(rapid.IntRange(1, 120).Draw(rt, "seconds")) * time.Second)
	m.settle()
}

// settle gives the sweeper the time it takes, and moves what has expired into the
// history.
func (m *model) settle() {
	for range 3 {
		time.Sleep(2 * time.Second)
		synctest.Wait()
	}
	now := time.Now()
	for key, d := range m.docs {
		if at := m.expiry(d); !at.IsZero() && !at.After(now) {
			delete(m.docs, key)
			m.history = append(m.history, modelChange{op: changefeed.OpDelete, id: d.id, pk: d.pk, prev: d.lsn, expired: true, at: now})
		}
	}
	m.orderExpiries()
	m.head = m.c.Head()
}

// orderExpiries reads the LSNs of the deletes by ttl that the model does not know.
func (m *model) orderExpiries() {
	if m.retention == 0 {
		return
	}
	for _, p := range m.parts() {
		got, _ := drain(m.t, m.c, p.Range, changefeed.At(fmt.Sprint(m.head)), changefeed.ReadOptions{Mode: changefeed.AllVersionsAndDeletes})
		for _, ch := range got {
			i := slices.IndexFunc(m.history, func(h modelChange) bool {
				return h.lsn == 0 && h.id == ch.ID && string(changefeed.Key(h.pk)) == string(ch.PartitionKey)
			})
			if i < 0 || !ch.Expired {
				m.rt.Fatalf("unexpected change %+v", ch)
			}
			m.history[i].lsn, m.history[i].at = ch.LSN, ch.Time
		}
	}
	slices.SortStableFunc(m.history, func(a, b modelChange) int { return cmp.Or(cmp.Compare(a.lsn, b.lsn), cmp.Compare(a.idx, b.idx)) })
}

// settings turns the retention on or off.
func (m *model) settings(rt *rapid.T) {
	if rapid.IntRange(0, 3).Draw(rt, "change") > 0 {
		return
	}
	m.settle()
	m.retention = 5*time.Minute - m.retention
	if m.common {
		m.must(m.db.SetRetention(m.t.Context(), m.retention))
	} else {
		spec := m.c.Spec()
		spec.Retention = m.retention
		_, err := m.db.ReplaceContainer(m.t.Context(), spec)
		m.must(err)
	}
	m.since = m.head
	m.history = nil
	m.settle()
}

// compare holds the whole store against the model.
func (m *model) compare(rt *rapid.T) {
	if rapid.IntRange(0, 2).Draw(rt, "compare") > 0 {
		return
	}
	m.expireNow()
	m.must(m.db.Check())
	from := int64(rapid.IntRange(0, int(m.head)).Draw(rt, "from"))
	o := changefeed.ReadOptions{MaxItems: rapid.IntRange(0, 3).Draw(rt, "page")}
	for _, p := range m.parts() {
		for _, r := range m.cut(p.Range, rapid.IntRange(1, 2).Draw(rt, "cut")) {
			m.compareLatest(rt, r, from, o)
			m.compareVersions(rt, r, from, o)
		}
	}
	for key, d := range m.docs {
		it, err := m.c.Item(m.t.Context(), changefeed.Key(key.pk), key.id)
		if err != nil || it.ETag != d.etag || it.LSN != d.lsn || value(rt, it.Body) != d.v {
			rt.Fatalf("item %+v: %v, want %+v", it, err, d)
		}
	}
	backlog, err := m.c.Pending(m.t.Context(), changefeed.FullRange(), changefeed.At(fmt.Sprint(from)), changefeed.ReadOptions{})
	want := int64(0)
	for _, d := range m.docs {
		if d.lsn > from {
			want++
		}
	}
	if err != nil || backlog.Items != want {
		rt.Fatalf("pending %d, %v, want %d", backlog.Items, err, want)
	}
}

// expireNow settles when a document has just expired, so that model and store agree.
func (m *model) expireNow() {
	for _, d := range m.docs {
		if at := m.expiry(d); !at.IsZero() && !at.After(time.Now()) {
			m.settle()
			return
		}
	}
}

func (m *model) kind() epk.Kind {
	if m.c.Spec().HashVersion == 1 {
		return epk.HashV1
	}
	return epk.HashV2
}

// cut is the range, or its halves with about equally many keys.
func (m *model) cut(r changefeed.Range, n int) []changefeed.Range {
	mid, ok := epk.Mid(m.kind(), r.Min, r.Max)
	if n == 1 || !ok {
		return []changefeed.Range{r}
	}
	return []changefeed.Range{{Min: r.Min, Max: mid}, {Min: mid, Max: r.Max}}
}

func (m *model) place(pk string) string {
	parsed, err := epk.Parse(string(changefeed.Key(pk)))
	m.must(err)
	h, err := epk.Hash(m.kind(), parsed)
	m.must(err)
	return h
}

func value(rt *rapid.T, body []byte) int {
	var d struct{ V int }
	if err := json.Unmarshal(body, &d); err != nil {
		rt.Fatal(err)
	}
	return d.V
}

func (m *model) compareLatest(rt *rapid.T, r changefeed.Range, from int64, o changefeed.ReadOptions) {
	got, next := drain(m.t, m.c, r, changefeed.At(fmt.Sprint(from)), o)
	var want []modelDoc
	for _, d := range m.docs {
		if d.lsn > from && r.Holds(m.place(d.pk)) {
			want = append(want, d)
		}
	}
	slices.SortFunc(want, func(a, b modelDoc) int { return cmp.Or(cmp.Compare(a.lsn, b.lsn), cmp.Compare(a.idx, b.idx)) })
	if len(got) != len(want) {
		rt.Fatalf("range %s from %d, %+v: %d changes, want %d: %s, want %+v", r, from, o, len(got), len(want), brief(got), want)
	}
	for i, w := range want {
		g := got[i]
		if g.ID != w.id || g.LSN != w.lsn || g.ETag != w.etag || value(rt, g.Body) != w.v || !g.Time.Equal(w.at) {
			rt.Fatalf("range %s from %d, change %d is %+v, want %+v", r, from, i, g, w)
		}
	}
	if next.Token != fmt.Sprintf(`"%d"`, m.c.Head()) {
		rt.Fatalf("next is %s, head is %d", next, m.c.Head())
	}
}

func (m *model) compareVersions(rt *rapid.T, r changefeed.Range, from int64, o changefeed.ReadOptions) {
	o.Mode = changefeed.AllVersionsAndDeletes
	at := changefeed.At(fmt.Sprint(from))
	_, err := m.c.Read(m.t.Context(), r, at, o)
	if m.retention == 0 {
		if !errors.Is(err, changefeed.ErrBadRequest) {
			rt.Fatalf("read of all versions without retention: %v", err)
		}
		return
	}
	oldest := m.since // a position before this may be too old
	for _, h := range m.history {
		if time.Since(h.at) > m.retention {
			oldest = max(oldest, h.lsn)
		}
	}
	switch {
	case errors.Is(err, changefeed.ErrTooOld):
		if from >= oldest {
			rt.Fatalf("position %d is too old, but the retention begins at %d: %v", from, oldest, err)
		}
		return
	case err != nil:
		rt.Fatal(err)
	case from < m.since:
		rt.Fatalf("position %d is before versions were kept, at %d", from, m.since)
	}
	got, _ := drain(m.t, m.c, r, at, o)
	var want []modelChange
	for _, h := range m.history {
		if h.lsn > from && r.Holds(m.place(h.pk)) {
			want = append(want, h)
		}
	}
	if len(got) != len(want) {
		rt.Fatalf("range %s from %d: %d versions, want %d:\n%+v\n%+v", r, from, len(got), len(want), got, want)
	}
	for i, w := range want {
		g := got[i]
		same := g.ID == w.id && g.LSN == w.lsn && g.Op == w.op && g.PreviousLSN == w.prev && g.Expired == w.expired
		if !same || g.Op != changefeed.OpDelete && value(rt, g.Body) != w.v || (g.Previous == nil) != (w.op == changefeed.OpCreate) {
			rt.Fatalf("range %s from %d, version %d is %+v, want %+v", r, from, i, g, w)
		}
	}
}

// brief is a list of changes without their bodies.
func brief(changes []changefeed.Change) string {
	var b strings.Builder
	for _, ch := range changes {
		fmt.Fprintf(&b, "%s %s%s at %d; ", ch.Op, ch.PartitionKey, ch.ID, ch.LSN)
	}
	return b.String()
}
