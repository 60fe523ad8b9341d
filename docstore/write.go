package docstore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// The part of a write that runs in the committer. Every write of the store waits while another write is carried out.
// So parseBody, in the caller's goroutine, has already done all work that does not depend on the order of writes. If
// a write is refused, its transaction takes the changes back (transaction.go).

// write is an operation of a transaction. Its caller prepares the write as far as possible; the committer carries the
// write out.
type write struct {
	Write
	id    string
	ttl   int
	body  []byte // as stored; without system properties until the committer adds them
	user  int    // bytes of body before the system properties
	added []byte // members that patches have added
	etag  string
	uniq  []string
	key   []byte // in the primary index

	// Set in the committer.
	tx  *transaction
	at  addr  // of the version that the write creates
	old *slot // of the version that the write replaces; nil if there is none
}

// parseBody parses and renders the body. The partition key must be pk; if pk is empty, the key is read from the body.
func (w *write) parseBody(c *Container, l *layout, pk string) (key string, err error) {
	w.id = w.ID
	switch w.Op {
	case feed.WriteUpsert, feed.WriteCreate, feed.WriteReplace:
		s := rawjson.Strict(w.Body)
		// A body that the caller has checked is not checked again.
		if w.Checked {
			s = rawjson.Scan(w.Body, 0)
		}
		d, err := readDocument(w.Body, s, l.paths, false)
		switch {
		case err != nil:
			return "", err
		case w.ID != "" && w.ID != d.id:
			return "", refuse("id of the body is %q: want %q, that of the write", d.id, w.ID)
		case pk != "" && string(d.key) != pk:
			return "", fmt.Errorf("%w: that of item %q is %s: want %s, the partition key of the write", ErrKeyMismatch,
				d.id, d.key, pk)
		}
		return string(d.key), w.renderBody(c, l, d, w.Owned)
	case feed.WritePatch:
		if err := keepsKey(w.Patch, l.paths); err != nil {
			return "", err
		}
		w.Patch = copyPatch(w.Patch)
	case feed.WriteDelete, feed.WriteRead:
	default:
		return "", refuse("operation is %v: want upsert, create, replace, patch, delete or read", w.Op)
	}
	if w.ID == "" {
		return "", refuse("%v has no id: want that of the item", w.Op)
	}
	return pk, nil
}

// renderBody renders the body up to its system properties, in place if inPlace allows it, and reads the document's
// unique keys.
func (w *write) renderBody(c *Container, l *layout, d document, inPlace bool) error {
	w.id, w.ttl, w.etag = d.id, d.ttl, c.db.tags.tag()
	w.uniq, w.added = nil, nil
	for _, paths := range l.unique {
		v, err := uniqueKeyValue(d.body, paths)
		if err != nil {
			return err
		}
		w.uniq = append(w.uniq, string(v))
	}
	if d.added.Size() > 0 {
		w.added = d.added.Append(nil, d.body)
	}
	// last, because rendering in place overwrites the body
	w.body = d.render(c.systemSize+2*len(w.etag)+len(w.added), inPlace)
	w.user = len(w.body)
	return nil
}

// addSystemFields adds the system properties. Resource id and time are known only in the committer.
func (w *write) addSystemFields(c *Container, rid string, ms int64) {
	sys := service.System{
		Container: c.self, RID: rid, ETag: w.etag, Time: ms / 1000,
		Added: w.added, Bare: w.Bare,
	}
	w.body = append(sys.Append(w.body[:w.user]), '}') // always from w.user, because a transaction may begin again
}

// carryOut carries out a write. The write sees the changes of the earlier writes in its group, which are not on the
// disk yet.
func (w *write) carryOut() (feed.Result, error) {
	var err error
	if w.old, err = w.tx.group.slot(w.key); err != nil {
		return feed.Result{}, err
	}
	if err := w.checkCondition(); err != nil {
		return feed.Result{}, err
	}
	switch w.Op {
	case feed.WriteRead:
		return w.readCurrent()
	case feed.WriteDelete:
		return feed.Result{}, w.removeDocument(opDelete)
	case feed.WritePatch:
		if err := w.patchBody(); err != nil {
			return feed.Result{}, err
		}
	}
	return w.putVersion()
}

// checkCondition refuses a write if its document exists but must not, is missing but must exist, or has another
// version.
func (w *write) checkCondition() error {
	// The existence of the document is checked first, then the ETag, then the condition, because only the condition
	// needs to read the body.
	switch {
	case w.old != nil && w.Op == feed.WriteCreate:
		return fmt.Errorf("item %q exists: %w", w.id, feed.ErrConflict)
	case w.old == nil && w.Op != feed.WriteCreate && w.Op != feed.WriteUpsert:
		return fmt.Errorf("item %q: %w", w.id, feed.ErrNotFound)
	case w.IfMatch == "" || w.IfMatch == "*" && w.old != nil:
	case w.old == nil:
		return fmt.Errorf("item %q does not exist: want ETag %s: %w", w.id, w.IfMatch, feed.ErrPrecondition)
	case w.old.etag != w.IfMatch:
		return fmt.Errorf("item %q has another ETag: want %s: %w", w.id, w.IfMatch, feed.ErrPrecondition)
	}
	if w.If == nil || w.old == nil {
		return nil
	}
	e, err := w.tx.group.entry(w.tx.head.c, w.old.addr)
	if err != nil {
		return err
	}
	if ok, err := w.If.holdsFor(e.body); err != nil || !ok {
		return cmp.Or(err, fmt.Errorf("item %q does not meet the condition: %w", w.id, feed.ErrPrecondition))
	}
	return nil
}

// holdsFor calls the condition. If the condition panics, the write fails, and the committer goes on.
func (met Condition) holdsFor(body []byte) (ok bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("condition panicked: %v", p)
		}
	}()
	return met(body)
}

// readCurrent returns the document at this point of the batch.
func (w *write) readCurrent() (feed.Result, error) {
	e, err := w.tx.group.entry(w.tx.head.c, w.old.addr)
	if err != nil {
		return feed.Result{}, err
	}
	return feed.Result{ETag: w.old.etag, LSN: w.old.lsn, Body: slices.Clone(e.body)}, nil
}

// putVersion writes a version of the document.
func (w *write) putVersion() (feed.Result, error) {
	c, h := w.tx.head.c.num, w.tx.head
	// The resource id comes from the first version, so all later versions have the same id.
	born := birth(w.at)
	if w.old != nil {
		born = w.old.born
	}
	w.addSystemFields(h.c, itemRID(h.c.own, born, w.tx.pk, w.id), h.time)
	if err := w.takeUnique(); err != nil {
		return feed.Result{}, err
	}
	e := w.entry(opCreate)
	e.ttl, e.etag, e.body = w.ttl, []byte(w.etag), w.body
	if w.old == nil {
		h.countDocuments(w.tx.part, w.tx.epk, 1)
		if h.l.byID {
			w.tx.group.set(idKey(c, w.id, w.tx.epk, w.tx.pk), nil)
		}
	} else {
		e.op = opReplace
		w.supersedeOld()
	}
	size := w.tx.group.setEntry(logKey(tableLog, c, w.at), &e)
	w.tx.group.countLiving(h.c, w.at, 1)
	now := slot{addr: w.at, time: h.time, ttl: w.ttl, size: size, etag: w.etag, uniq: w.uniq, born: born}
	w.tx.group.set(w.key, now.encode())
	w.tx.group.noteMove(c, w.key, w.old, &now)
	if w.ttl > 0 {
		w.tx.group.set(ttlKey(c, h.time+int64(w.ttl)*1000, w.tx.epk, w.tx.pk, w.id), nil)
	}
	h.due(h.l.spec.expiry(h.time, w.ttl))
	return feed.Result{ETag: w.etag, LSN: h.lsn, Created: w.old == nil, Body: w.body}, nil
}

// entry returns the version that the write creates. The texts of its key are not copied.
func (w *write) entry(op entryOp) entry {
	epk, pk, id, _ := splitDoc(tailOf(w.key)) // made by docKey
	e := entry{op: op, epk: epk, time: w.tx.head.time, pk: pk, id: id}
	if w.old != nil {
		e.prev, e.prevIdx = w.old.lsn, w.old.idx
	}
	return e
}

// maxSystem is the room for system properties, which do not count towards a document's size.
const maxSystem = 1024

// removeDocument ends the document, by a delete or an expiry.
func (w *write) removeDocument(how entryOp) error {
	c, h := w.tx.head.c.num, w.tx.head
	w.releaseUnique(nil)
	w.supersedeOld()
	w.tx.group.drop(w.key, 0)
	w.tx.group.noteMove(c, w.key, w.old, nil)
	if h.l.byID {
		w.tx.group.drop(idKey(c, w.id, w.tx.epk, w.tx.pk), 0)
	}
	if h.l.retention() > 0 {
		e := w.entry(how)
		w.tx.group.set(logKey(tableLog, c, w.at), e.encode())
	}
	h.countDocuments(w.tx.part, w.tx.epk, -1)
	return nil
}

// supersedeOld removes the old version from the feed of latest versions.
func (w *write) supersedeOld() {
	c := w.tx.head.c.num
	w.tx.group.countLiving(w.tx.head.c, w.old.addr, -1)
	if w.old.ttl > 0 {
		w.tx.group.drop(ttlKey(c, w.old.time+int64(w.old.ttl)*1000, w.tx.epk, w.tx.pk, w.id), 0)
	}
	if w.tx.head.l.retention() > 0 {
		w.tx.group.set(logKey(tableDead, c, w.old.addr), nil)
		w.tx.head.due(w.tx.head.time + w.tx.head.l.retention().Milliseconds() + 1)
		return
	}
	// No reader can ask for the old version any more, so the version is removed, and the log contains each document
	// once.
	w.tx.group.drop(logKey(tableLog, c, w.old.addr), w.old.size)
}

// takeUnique claims the unique keys of the new version and releases those of the old version.
func (w *write) takeUnique() error {
	c := w.tx.head.c.num
	for i, v := range w.uniq {
		key := uniqueKey(c, i, w.tx.epk, w.tx.pk, v)
		holder, taken, err := w.tx.group.get(key)
		if err != nil {
			return err
		}
		if taken && string(holder) != w.id {
			if key, err := w.lapsedHolder(string(holder)); key != nil || err != nil {
				return cmp.Or(err, error(inTheWay{key}))
			}
			return fmt.Errorf("item %q: %w: item %q has %s at %s", w.id, ErrUniqueKey,
				holder, v, strings.Join(w.tx.head.l.spec.UniqueKeys[i], " "))
		}
	}
	w.releaseUnique(w.uniq)
	for i, v := range w.uniq {
		w.tx.group.set(uniqueKey(c, i, w.tx.epk, w.tx.pk, v), []byte(w.id))
	}
	return nil
}

// inTheWay is the reason to begin a transaction again: an expired document holds a unique key that the transaction
// needs. key is the document's key in the primary index.
type inTheWay struct{ key []byte }

// Error returns the reason.
func (inTheWay) Error() string { return "an expired item has the unique key" }

// lapsedHolder returns the key of another document of the partition if that document has expired.
func (w *write) lapsedHolder(id string) ([]byte, error) {
	key := docKey(w.tx.head.c.num, w.tx.epk, w.tx.pk, id)
	other, err := w.tx.group.slot(key)
	if err != nil || other == nil || !w.tx.head.l.spec.expired(other.time, other.ttl, w.tx.head.time) {
		return nil, err
	}
	return key, nil
}

// releaseUnique releases the unique keys of the old version, except those in kept.
func (w *write) releaseUnique(kept []string) {
	if w.old == nil {
		return
	}
	for i, v := range w.old.uniq {
		if i >= len(kept) || kept[i] != v {
			w.tx.group.drop(uniqueKey(w.tx.head.c.num, i, w.tx.epk, w.tx.pk, v), 0)
		}
	}
}

// slot returns a document's slot with the changes of this group; nil if there is no document.
func (g *group) slot(key []byte) (*slot, error) {
	v, found, err := g.get(key)
	if err != nil || !found {
		return nil, err
	}
	s, err := decodeSlot(v)
	if err != nil {
		return nil, errors.Join(ErrCorrupt, err)
	}
	return &s, nil
}

// entry returns a version with the changes of this group.
func (g *group) entry(c *Container, a addr) (entry, error) {
	v, found, err := g.get(logKey(tableLog, c.num, a))
	if err != nil {
		return entry{}, err
	}
	if !found {
		return entry{}, fmt.Errorf("%w: no entry at LSN %d of log %d", ErrCorrupt, a.lsn, a.log)
	}
	return decodeEntry(v)
}

// countDocuments records that the group touches a partition and adds n documents.
func (h *nextHead) countDocuments(p *partition, epk string, n int64) {
	d := h.parts[p]
	d.docs += n
	if p.watch != nil && epk < p.watch.cut {
		d.low += n
	}
	h.parts[p] = d
}
