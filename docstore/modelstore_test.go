package docstore_test

import (
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/epk"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
)

// modelStore is what a container is, in maps and by its documentation alone: it shares
// nothing with the store but the names of its errors. It is slow and knows no disk.
type modelStore struct {
	kind      epk.Kind
	key       []string // paths, as in /a/b
	unique    [][]string
	ttl       *int
	retention time.Duration

	docs    map[modelID]modelDoc // those included whose time is up and that nobody has removed yet
	history []modelVersion       // since versions are kept
	floor   int64                // all versions and deletes may be read from here on
	head    int64
	used    int64 // LSNs: commits, and deletes of what had expired
	last    int64 // when the last commit was, in Unix milliseconds
}

type modelID struct {
	key feed.PartitionKey
	id  string
}

// modelPlace is where a version is in the order of all.
type modelPlace struct {
	lsn int64
	idx int
}

func (p modelPlace) compare(o modelPlace) int {
	return cmp.Or(cmp.Compare(p.lsn, o.lsn), cmp.Compare(p.idx, o.idx))
}

type modelDoc struct {
	modelID
	modelPlace
	value map[string]any // without system properties
	etag  string
	born  modelPlace // of the first version
	at    int64      // Unix milliseconds
}

// modelVersion is one change in the feed of all versions.
type modelVersion struct {
	modelDoc // without a value at the end of a document
	op       feed.Op
	prev     modelPlace
	before   map[string]any // the value before
	expired  bool
}

// at is what is at a path, and whether anything is.
func at(value map[string]any, path string) (v any, found bool) {
	v = value
	for name := range strings.SplitSeq(path[1:], "/") {
		object, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, found = object[name]; !found {
			return nil, false
		}
	}
	return v, true
}

func (m *modelStore) keyOf(value map[string]any) feed.PartitionKey {
	var components []any
	for _, path := range m.key {
		v, found := at(value, path)
		if !found {
			v = feed.Undefined
		}
		components = append(components, v)
	}
	return feed.Key(components...)
}

// uniqueOf are the values of the unique keys; a missing one is null.
func (m *modelStore) uniqueOf(value map[string]any) (all [][]any) {
	for _, paths := range m.unique {
		var one []any
		for _, path := range paths {
			v, _ := at(value, path)
			one = append(one, v)
		}
		all = append(all, one)
	}
	return all
}

// share tells two values that cannot be in one logical partition together.
func (m *modelStore) share(a, b map[string]any) bool {
	va, vb := m.uniqueOf(a), m.uniqueOf(b)
	for i := range va {
		if reflect.DeepEqual(va[i], vb[i]) {
			return true
		}
	}
	return false
}

// expiry is when a document ends, in Unix milliseconds; 0 is never.
func (m *modelStore) expiry(d modelDoc) int64 {
	if m.ttl == nil {
		return 0
	}
	seconds := float64(*m.ttl)
	if own, found := d.value["ttl"]; found {
		seconds = own.(float64)
	}
	if seconds < 0 {
		return 0
	}
	return d.at + int64(seconds)*1000
}

func (m *modelStore) expired(d modelDoc, now int64) bool {
	end := m.expiry(d)
	return end != 0 && end <= now
}

// place is where a key is in the key space.
func (m *modelStore) place(key feed.PartitionKey) string {
	parsed, err := pkey.Parse(string(key))
	if err != nil {
		panic(err)
	}
	h, err := epk.Hash(m.kind, parsed.Components())
	if err != nil {
		panic(err)
	}
	return h
}

// attempt is a batch on its way.
type attempt struct {
	m       *modelStore
	key     feed.PartitionKey
	now     int64
	docs    map[modelID]modelDoc
	changes []modelVersion
	removed []modelDoc // which had expired
	results []modelResult
}

// modelResult is what a write answers: a document, or nothing.
type modelResult struct {
	modelDoc
	created bool
}

// try is what a batch does at a time. The LSN is not known yet: 0 stands for it, and
// "" for the ETag. A refused one gives the error, and the write that is at fault.
func (m *modelStore) try(key feed.PartitionKey, writes []feed.Write, now int64) (a *attempt, failed int, err error) {
	for i, w := range writes {
		if w.Body != nil && m.keyOf(decode(w.Body)) != key {
			return nil, i, docstore.ErrKeyMismatch
		}
	}
	a = &attempt{m: m, key: key, now: now, docs: maps.Clone(m.docs)}
	for i, w := range writes {
		if err := a.write(w, i); err != nil {
			return nil, i, err
		}
	}
	return a, 0, nil
}

func decode(body []byte) (value map[string]any) {
	if err := json.Unmarshal(body, &value); err != nil {
		panic(err)
	}
	return value
}

// get is a document that is there; one that has expired is taken away.
func (a *attempt) get(id string) (modelDoc, bool) {
	d, found := a.docs[modelID{a.key, id}]
	if found && a.m.expired(d, a.now) {
		a.expire(d)
		return modelDoc{}, false
	}
	return d, found
}

func (a *attempt) expire(d modelDoc) {
	delete(a.docs, d.modelID)
	a.removed = append(a.removed, d)
}

func (a *attempt) write(w feed.Write, idx int) error {
	value, id := map[string]any(nil), w.ID
	if w.Body != nil {
		value = decode(w.Body)
		id = value["id"].(string)
	}
	old, exists := a.get(id)
	create := w.Op == feed.WriteCreate
	switch {
	case exists && create:
		return feed.ErrConflict
	case !exists && !create && w.Op != feed.WriteUpsert:
		return feed.ErrNotFound
	case w.IfMatch == "*" && !exists, w.IfMatch != "" && w.IfMatch != "*" && w.IfMatch != old.etag:
		return feed.ErrPrecondition
	}
	switch w.Op {
	case feed.WriteRead:
		a.results = append(a.results, modelResult{modelDoc: old})
		return nil
	case feed.WriteDelete:
		delete(a.docs, old.modelID)
		gone := modelDoc{modelID: old.modelID, modelPlace: modelPlace{0, idx}, at: a.now}
		a.changes = append(a.changes, modelVersion{
			modelDoc: gone, op: feed.OpDelete, prev: old.modelPlace,
			before: old.value,
		})
		a.results = append(a.results, modelResult{modelDoc: gone})
		return nil
	case feed.WritePatch:
		var err error
		if value, err = patchModel(old.value, w.Patch); err != nil {
			return err
		}
	}
	born := old.born
	if !exists {
		born = modelPlace{0, idx}
	}
	return a.put(modelDoc{modelID{a.key, id}, modelPlace{0, idx}, value, "", born, a.now}, old, exists)
}

func (a *attempt) put(d, old modelDoc, exists bool) error {
	for _, other := range a.docs {
		if other.key != d.key || other.id == d.id || !a.m.share(other.value, d.value) {
			continue
		}
		if !a.m.expired(other, a.now) {
			return docstore.ErrUniqueKey
		}
		a.expire(other)
	}
	op := feed.OpReplace
	if !exists {
		op = feed.OpCreate
	}
	a.docs[d.modelID] = d
	a.changes = append(a.changes, modelVersion{modelDoc: d, op: op, prev: old.modelPlace, before: old.value})
	a.results = append(a.results, modelResult{d, !exists})
	return nil
}

// patchModel is a value after a patch of the simpler kinds.
func patchModel(value map[string]any, ops []feed.PatchOp) (map[string]any, error) {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	value = decode(text)
	for _, op := range ops {
		object, name := value, op.Path[1:]
		if parent, child, nested := strings.Cut(name, "/"); nested {
			var ok bool
			if object, ok = value[parent].(map[string]any); !ok {
				return nil, feed.ErrBadRequest
			}
			name = child
		}
		_, exists := object[name]
		switch {
		case op.Op == "remove" && !exists:
			return nil, feed.ErrBadRequest
		case op.Op == "remove":
			delete(object, name)
		default:
			object[name] = decode([]byte(`{"v":` + string(op.Value) + `}`))["v"]
		}
	}
	if ttl, found := value["ttl"]; found && (ttl == nil || ttl.(float64) == 0) {
		return nil, feed.ErrBadRequest
	}
	return value, nil
}

// adopt makes a batch the container's, with what the store chose. Expired documents go
// before it, each with an LSN that the feed tells.
func (m *modelStore) adopt(a *attempt, results []feed.Result, lsn int64) {
	m.remove(a.removed, a.now)
	for i := range a.changes {
		ch := &a.changes[i]
		if ch.prev.lsn == 0 && ch.op != feed.OpCreate {
			ch.prev.lsn = lsn
		}
		ch.lsn = lsn
		if ch.op != feed.OpDelete {
			ch.etag = results[ch.idx].ETag
		}
	}
	for id, d := range a.docs {
		if d.lsn == 0 {
			d.lsn, d.etag = lsn, results[d.idx].ETag
			d.born.lsn = cmp.Or(d.born.lsn, lsn)
			a.docs[id] = d
		}
	}
	m.docs, m.head = a.docs, lsn
	m.used++
	m.last = a.now
	m.keep(a.changes...)
}

// remove ends documents that have expired.
func (m *modelStore) remove(expired []modelDoc, now int64) {
	for _, d := range expired {
		delete(m.docs, d.modelID)
		m.used++
		m.last = now
		gone := modelDoc{modelID: d.modelID, at: now}
		m.keep(modelVersion{modelDoc: gone, op: feed.OpDelete, prev: d.modelPlace, before: d.value, expired: true})
	}
}

func (m *modelStore) keep(changes ...modelVersion) {
	if m.retention > 0 {
		m.history = append(m.history, changes...)
	}
}

// sweep removes what has expired.
func (m *modelStore) sweep(now int64) {
	var gone []modelDoc
	for _, d := range m.docs {
		if m.expired(d, now) {
			gone = append(gone, d)
		}
	}
	m.remove(gone, now)
}

// forget lifts the floor to the last LSN before which everything is older than the
// retention.
func (m *modelStore) forget(now int64) {
	if m.retention == 0 {
		return
	}
	floor := m.head
	for _, h := range m.history {
		if h.lsn > m.floor && h.at >= now-m.retention.Milliseconds() {
			floor = min(floor, h.lsn-1)
		}
	}
	m.floor = max(m.floor, floor)
}

// retain changes the retention.
func (m *modelStore) retain(d time.Duration) {
	if (d == 0) != (m.retention == 0) {
		m.floor, m.history = m.head, nil
	}
	m.retention = d
}

// visible are the documents that are there, in the order of their last writes.
func (m *modelStore) visible(now int64, shown func(modelDoc) bool) (docs []modelDoc) {
	for _, d := range m.docs {
		if !m.expired(d, now) && shown(d) {
			docs = append(docs, d)
		}
	}
	slices.SortFunc(docs, func(a, b modelDoc) int { return a.compare(b.modelPlace) })
	return docs
}

// stored are the places of all versions that are kept.
func (m *modelStore) stored() map[modelPlace]bool {
	kept := map[modelPlace]bool{}
	for _, d := range m.docs {
		kept[d.modelPlace] = true
	}
	for _, h := range m.history {
		if h.lsn > m.floor {
			kept[h.modelPlace] = true
			kept[h.prev] = true
		}
	}
	delete(kept, modelPlace{})
	return kept
}
