package docstore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/internal/rawjson"
	"github.com/millrace/changefeed/internal/service"
)

// op is one write, prepared by its caller as far as that goes.
type op struct {
	Write
	id   string
	ttl  int
	body []byte // as it is stored; up to its system properties until the op has its turn
	user int    // bytes of it before these
	etag string
	uniq []string
	key  []byte // in the primary index
}

// prepare parses and renders a write of the partition key pk. With pk empty, the key is
// taken from the body.
func (c *Container) prepare(l *layout, pk string, w *Write) (o op, key string, err error) {
	o = op{Write: *w, id: w.ID}
	switch w.Op {
	case changefeed.WriteUpsert, changefeed.WriteCreate, changefeed.WriteReplace:
		s := rawjson.Strict(w.Body)
		if w.Checked {
			s = rawjson.Scan(w.Body, 0)
		}
		d, err := readDocument(w.Body, s, l.paths)
		switch {
		case err != nil:
			return o, "", err
		case w.ID != "" && w.ID != d.id:
			return o, "", refuse("id of the body is %q: want %q, that of the write", d.id, w.ID)
		case pk != "" && string(d.key) != pk:
			return o, "", fmt.Errorf("%w: that of item %q is %s: want %s, that of the batch", ErrKeyMismatch, d.id, d.key, pk)
		}
		return o, string(d.key), c.render(l, &o, d)
	case changefeed.WritePatch:
		if err := keepsKey(w.Patch, l.paths); err != nil {
			return o, "", err
		}
	case changefeed.WriteDelete, changefeed.WriteRead:
	default:
		return o, "", refuse("operation is %v: want upsert, create, replace, patch, delete or read", w.Op)
	}
	if w.ID == "" {
		return o, "", refuse("%v has no id: want that of the item", w.Op)
	}
	return o, pk, nil
}

// render makes the body up to its system properties, and reads its unique keys.
func (c *Container) render(l *layout, o *op, d document) error {
	o.id, o.ttl, o.etag = d.id, d.ttl, c.db.tags.tag()
	o.body = d.render(c.systemSize + 2*len(o.etag))
	o.user = len(o.body)
	o.uniq = nil
	for _, paths := range l.unique {
		v, err := uniqueKeyValue(d.body, paths)
		if err != nil {
			return err
		}
		o.uniq = append(o.uniq, string(v))
	}
	return nil
}

// finish adds the system properties, of which resource id and time are known now.
func (o *op) finish(c *Container, rid string, ms int64) {
	sys := service.System{Container: c.self, RID: rid, ETag: o.etag, Time: ms / 1000}
	o.body = append(sys.Append(o.body[:o.user]), '}') // from there: a request may begin again
}

// run carries out a request: one LSN, all ops or an error.
func (t *turn) run(g *group, r *request, part *partition) error {
	if err := t.expireFirst(g, r); err != nil {
		return err
	}
	t.lsn++
	r.time = t.time
	r.results = make([]changefeed.Result, len(r.ops))
	wrote, made := false, 0
	for i := range r.ops {
		o := &r.ops[i]
		s := stroke{g: g, t: t, r: r, o: o, part: part, at: addr{part.num, t.lsn, uint16(i)}}
		res, err := s.run()
		if err != nil {
			r.failed = i
			return err
		}
		res.Charge = chargeOf(o.Op, len(res.Body))
		if o.Op != changefeed.WriteRead {
			res.LSN, wrote = t.lsn, true
		}
		if o.Op == changefeed.WriteRead || o.Op == changefeed.WritePatch {
			made += len(res.Body)
			g.bytes += len(res.Body)
		}
		if made > maxBatchMade && len(r.ops) > 1 {
			r.failed = i
			return fmt.Errorf("%w: items that it patches and reads have %d bytes: want at most %d", ErrBatchLimit, made, maxBatchMade)
		}
		r.results[i] = res
	}
	if !wrote {
		t.lsn--
		return nil
	}
	t.count(part, r.epk, 0)
	return nil
}

// stroke is one op on its document.
type stroke struct {
	g    *group
	t    *turn
	r    *request
	o    *op
	part *partition
	at   addr
	old  *slot
}

func (s *stroke) run() (changefeed.Result, error) {
	var err error
	if s.old, err = s.g.slot(s.o.key); err != nil {
		return changefeed.Result{}, err
	}
	if err := s.check(); err != nil {
		return changefeed.Result{}, err
	}
	switch s.o.Op {
	case changefeed.WriteRead:
		return s.read()
	case changefeed.WriteDelete:
		return changefeed.Result{}, s.remove(opDelete)
	case changefeed.WritePatch:
		if err := s.patch(); err != nil {
			return changefeed.Result{}, err
		}
	}
	return s.put()
}

// check refuses an op whose document is, or is not, there, or is another version.
func (s *stroke) check() error {
	o := s.o
	switch {
	case s.old != nil && o.Op == changefeed.WriteCreate:
		return fmt.Errorf("item %q exists: %w", o.id, changefeed.ErrConflict)
	case s.old == nil && o.Op != changefeed.WriteCreate && o.Op != changefeed.WriteUpsert:
		return fmt.Errorf("item %q: %w", o.id, changefeed.ErrNotFound)
	case o.IfMatch == "" || o.IfMatch == "*" && s.old != nil:
	case s.old == nil || s.old.etag != o.IfMatch:
		return fmt.Errorf("item %q: want ETag %s: %w", o.id, o.IfMatch, changefeed.ErrPrecondition)
	}
	if o.If == nil || s.old == nil {
		return nil
	}
	e, err := s.g.entry(s.t.c, s.old.addr)
	if err != nil {
		return err
	}
	if ok, err := o.If.asked(e.body); err != nil || !ok {
		return cmp.Or(err, fmt.Errorf("item %q does not meet the condition: %w", o.id, changefeed.ErrPrecondition))
	}
	return nil
}

// asked runs the condition. One that panics fails its write, not the committer.
func (met Condition) asked(body []byte) (ok bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("condition panicked: %v", p)
		}
	}()
	return met(body)
}

// read is the document as of this place in the batch.
func (s *stroke) read() (changefeed.Result, error) {
	e, err := s.g.entry(s.t.c, s.old.addr)
	if err != nil {
		return changefeed.Result{}, err
	}
	return changefeed.Result{ETag: s.old.etag, LSN: s.old.lsn, Body: slices.Clone(e.body)}, nil
}

// patch makes the body of a put.
func (s *stroke) patch() error {
	e, err := s.g.entry(s.t.c, s.old.addr)
	if err != nil {
		return err
	}
	body, err := applyPatch(e.body, s.o.Patch)
	if err != nil {
		return err
	}
	d, err := parseDocument(body, s.t.l.paths)
	if err != nil {
		return err
	}
	return s.t.c.render(s.t.l, s.o, d)
}

// put writes a version of the document.
func (s *stroke) put() (changefeed.Result, error) {
	o, c, t := s.o, s.t.c.num, s.t
	born := birth(s.at)
	if s.old != nil {
		born = s.old.born
	}
	o.finish(t.c, t.c.itemRID(born, s.r.pk, o.id), t.time)
	if len(o.body) > maxDocument+maxSystem {
		return changefeed.Result{}, fmt.Errorf("%w: %d bytes: want at most %d", ErrTooLarge, len(o.body), maxDocument)
	}
	if err := s.claim(); err != nil {
		return changefeed.Result{}, err
	}
	e := entry{
		op: opCreate, epk: []byte(s.r.epk), time: t.time, ttl: o.ttl,
		pk: []byte(s.r.pk), id: []byte(o.id), etag: []byte(o.etag), body: o.body,
	}
	if s.old == nil {
		t.count(s.part, s.r.epk, 1)
		if t.l.byID {
			s.g.set(idKey(c, o.id, s.r.epk, s.r.pk), nil)
		}
	} else {
		e.op, e.prev, e.prevIdx = opReplace, s.old.lsn, s.old.idx
		s.bury()
	}
	value := e.encode()
	s.g.set(logKey(tableLog, c, s.at), value)
	s.g.lives(t.c, s.at, 1)
	now := slot{addr: s.at, time: t.time, ttl: o.ttl, size: len(value), etag: o.etag, uniq: o.uniq, born: born}
	s.g.set(o.key, now.encode())
	if o.ttl > 0 {
		s.g.set(ttlKey(c, t.time+int64(o.ttl)*1000, s.r.epk, s.r.pk, o.id), nil)
	}
	t.due(t.l.spec.expiry(t.time, o.ttl))
	return changefeed.Result{ETag: o.etag, LSN: t.lsn, Created: s.old == nil, Body: o.body}, nil
}

// maxSystem is room for the system properties, which do not count to a document's size.
const maxSystem = 1024

// remove ends the document.
func (s *stroke) remove(how entryOp) error {
	c, t := s.t.c.num, s.t
	s.release(nil)
	s.bury()
	s.g.drop(s.o.key, 0)
	if t.l.byID {
		s.g.drop(idKey(c, s.o.id, s.r.epk, s.r.pk), 0)
	}
	if t.l.retention() > 0 {
		e := entry{
			op: how, epk: []byte(s.r.epk), prev: s.old.lsn, prevIdx: s.old.idx, time: t.time,
			pk: []byte(s.r.pk), id: []byte(s.o.id),
		}
		s.g.set(logKey(tableLog, c, s.at), e.encode())
	}
	t.count(s.part, s.r.epk, -1)
	return nil
}

// bury takes the old version out of the feed of last versions.
func (s *stroke) bury() {
	c := s.t.c.num
	s.g.lives(s.t.c, s.old.addr, -1)
	if s.old.ttl > 0 {
		s.g.drop(ttlKey(c, s.old.time+int64(s.old.ttl)*1000, s.r.epk, s.r.pk, s.o.id), 0)
	}
	if s.t.l.retention() > 0 {
		s.g.set(logKey(tableDead, c, s.old.addr), nil)
		s.t.due(s.t.time + s.t.l.retention().Milliseconds() + 1)
		return
	}
	s.g.drop(logKey(tableLog, c, s.old.addr), s.old.size)
}

// claim takes the unique keys of the new version and gives back those of the old one.
func (s *stroke) claim() error {
	c := s.t.c.num
	for i, v := range s.o.uniq {
		key := uniqueKey(c, i, s.r.epk, s.r.pk, v)
		holder, taken, err := s.g.get(key)
		if err != nil {
			return err
		}
		if taken && string(holder) != s.o.id {
			if key, err := s.lapsed(string(holder)); key != nil || err != nil {
				return cmp.Or(err, error(inTheWay{key}))
			}
			return fmt.Errorf("item %q: %w: item %q has %s at %s", s.o.id, ErrUniqueKey,
				holder, v, strings.Join(s.t.l.spec.UniqueKeys[i], " "))
		}
	}
	s.release(s.o.uniq)
	for i, v := range s.o.uniq {
		s.g.set(uniqueKey(c, i, s.r.epk, s.r.pk, v), []byte(s.o.id))
	}
	return nil
}

// inTheWay is the reason to begin a request again: an expired document, by its key in the
// primary index, holds a unique key that the request wants.
type inTheWay struct{ key []byte }

// Error says so.
func (inTheWay) Error() string { return "an expired item has the unique key" }

// lapsed is the key of another document of the partition if that has expired.
func (s *stroke) lapsed(id string) ([]byte, error) {
	key := docKey(s.t.c.num, s.r.epk, s.r.pk, id)
	other, err := s.g.slot(key)
	if err != nil || other == nil || !s.t.l.spec.expired(other.time, other.ttl, s.t.time) {
		return nil, err
	}
	return key, nil
}

// release gives back the unique keys of the old version, but for those kept.
func (s *stroke) release(kept []string) {
	if s.old == nil {
		return
	}
	for i, v := range s.old.uniq {
		if i >= len(kept) || kept[i] != v {
			s.g.drop(uniqueKey(s.t.c.num, i, s.r.epk, s.r.pk, v), 0)
		}
	}
}

// slot is where a document is, as this group has it; nil for none.
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

// entry is a version as this group has it.
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

// count notes that a partition is touched and has n documents more.
func (t *turn) count(p *partition, epk string, n int64) {
	d := t.parts[p]
	d.docs += n
	if p.watch != nil && epk < p.watch.cut {
		d.low += n
	}
	t.parts[p] = d
}
