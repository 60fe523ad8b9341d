package docstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/internal/epk"
	"github.com/millrace/changefeed/internal/service"
)

// Container is a set of documents with a partition key, and a change feed. It is a
// [changefeed.Source], [changefeed.Waiter], [changefeed.Counter] and
// [changefeed.Committer]. All methods may be called concurrently.
type Container struct {
	db      *DB
	num     uint32
	rid     string
	self    string
	layout  atomic.Pointer[layout] // replaced by the committer
	head    atomic.Int64           // newest LSN that readers may see
	gate    gate                   // the head has moved
	dropped atomic.Bool
	dueAt   atomic.Int64 // no version expires before it, Unix ms; 0 is never
	hint    atomic.Int64 // bytes of the last page, for the next one's buffer

	newestTime atomic.Int64 // commit time of the head, Unix ms
	clock      *clock

	lsn int64 // of the last group; the committer's
}

// Item is a document as it is stored.
type Item struct {
	ID   string
	Key  changefeed.PartitionKey
	ETag string
	LSN  int64
	Time time.Time       // of the last write
	Body json.RawMessage // with system properties
}

const (
	maxBatch      = service.MaxBatch     // writes in one batch
	maxBatchBytes = service.MaxBatchSize // and their bytes
	maxBatchMade  = 16 << 20             // bytes of the documents that its patches and reads have
)

// ID is the container's name in its database.
func (c *Container) ID() string { return c.layout.Load().spec.ID }

// Database is the id of the database that it belongs to.
func (c *Container) Database() string { return c.layout.Load().spec.Database }

// Name is what [DB.Container] finds it by: its id, and before that the database and a
// slash, unless that is the [DefaultDatabase].
func (c *Container) Name() string { return c.layout.Load().spec.shortName() }

// ETag is that of the specification: another one after each [DB.ReplaceContainer].
func (c *Container) ETag() string { return c.layout.Load().etag }

// Changed is when the specification was last changed.
func (c *Container) Changed() time.Time { return time.UnixMilli(c.layout.Load().changed).UTC() }

// RID is the container's resource id. A container that is made anew has another one.
func (c *Container) RID() string { return c.rid }

func newContainer(db *DB, num uint32, rid string) *Container {
	c := &Container{db: db, num: num, rid: rid, clock: newClock()}
	if own, err := decodeRID(rid); err == nil {
		c.self = "dbs/" + encodeRID(own[:4]) + "/colls/" + rid + "/"
	}
	return c
}

// Self is the link to the container by resource ids, with a slash at its end.
func (c *Container) Self() string { return c.self }

// Spec is what the container is like now.
func (c *Container) Spec() ContainerSpec { return c.layout.Load().spec }

// Head is the newest LSN of the container.
func (c *Container) Head() int64 { return c.head.Load() }

// Count is the number of documents, those included that have expired a moment ago.
func (c *Container) Count() int64 {
	var n int64
	for _, p := range c.layout.Load().parts {
		n += p.docs.Load()
	}
	return n
}

// Partitions lists the physical partitions in the order of their ranges.
func (c *Container) Partitions(ctx context.Context) ([]changefeed.Partition, error) {
	if err := c.usable(ctx); err != nil {
		return nil, err
	}
	var list []changefeed.Partition
	for _, p := range c.layout.Load().parts {
		list = append(list, changefeed.Partition{ID: p.id(), Range: p.rng, Parents: p.parents})
	}
	return list, nil
}

// usable tells why the container cannot be used.
func (c *Container) usable(ctx context.Context) error {
	if err := c.db.closed(); err != nil {
		return err
	}
	if c.dropped.Load() {
		return fmt.Errorf("container %q: %w", c.ID(), changefeed.ErrNotFound)
	}
	return context.Cause(ctx)
}

// wakeAll wakes everybody who waits for this container.
func (c *Container) wakeAll() {
	for _, p := range c.layout.Load().parts {
		p.gate.open()
	}
	c.gate.open()
}

// Commit implements [changefeed.Committer].
func (c *Container) Commit(ctx context.Context, key changefeed.PartitionKey, writes []changefeed.Write) ([]changefeed.Result, error) {
	if key == "" {
		return nil, refuse("partition key is empty: want one such as %s", changefeed.Key("London"))
	}
	p, err := c.LogicalPartition(key)
	if err != nil {
		return nil, err
	}
	r, err := c.commit(ctx, p, writes, nil)
	if err != nil {
		return nil, err
	}
	return r.results, nil
}

// Condition tells whether a document, with its system properties, is as a write wants
// it. It must be quick, since all writers wait for it, and must not keep the body.
type Condition func(body []byte) (bool, error)

// commit carries out a batch for a logical partition; without a key, that of the first body.
func (c *Container) commit(ctx context.Context, p LogicalPartition, writes []changefeed.Write, conds map[int]Condition) (*request, error) {
	if err := c.usable(ctx); err != nil {
		return nil, err
	}
	l := c.layout.Load()
	r, err := c.request(l, p, writes)
	if err != nil {
		return nil, err
	}
	for i, cond := range conds {
		r.ops[i].cond = cond
	}
	if err := c.db.submit(ctx, r); err != nil {
		if ctx.Err() == nil && refused(err) {
			return nil, &changefeed.WriteError{Index: r.failed, Write: writes[r.failed], Err: err}
		}
		return nil, fmt.Errorf("commit to %q: %w", l.spec.ID, err)
	}
	return r, nil
}

// refused tells the errors that are about one write of a batch.
func refused(err error) bool {
	for _, is := range []error{changefeed.ErrConflict, changefeed.ErrBadRequest, changefeed.ErrNotFound} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

// request prepares a batch.
func (c *Container) request(l *layout, p LogicalPartition, writes []changefeed.Write) (*request, error) {
	if len(writes) == 0 || len(writes) > maxBatch {
		return nil, fmt.Errorf("%w: %d writes: want 1 to %d", ErrBatchLimit, len(writes), maxBatch)
	}
	pk, err := p.pk, error(nil)
	r := &request{c: c, ops: make([]op, len(writes))}
	for i, w := range writes {
		if r.ops[i], pk, err = c.prepare(l, pk, w); err != nil {
			return nil, &changefeed.WriteError{Index: i, Write: w, Err: err}
		}
		r.size += len(w.Body)
	}
	if len(writes) > 1 && r.size > maxBatchBytes {
		return nil, fmt.Errorf("%w: %d bytes: want at most %d", ErrBatchLimit, r.size, maxBatchBytes)
	}
	if pk == "" {
		return nil, refuse("partition key is empty: want one such as %s", changefeed.Key("London"))
	}
	r.pk, r.epk = pk, p.epk
	if p.epk == "" {
		if r.epk, err = l.hashKey(pk); err != nil {
			return nil, err
		}
	}
	for i := range r.ops {
		o := &r.ops[i]
		o.key = docKey(c.num, r.epk, r.pk, o.id)
	}
	return r, nil
}

// canonicalKey gives a key the one text it has in the store.
func canonicalKey(key string) (string, error) {
	if key == "" {
		return "", nil
	}
	if _, plain := epk.PlainString(key); plain {
		return key, nil
	}
	var parts []json.RawMessage
	if err := json.Unmarshal([]byte(key), &parts); err != nil {
		return "", refuse("partition key is %q: want a JSON array such as %s", key, changefeed.Key("London"))
	}
	text := []byte{'['}
	for i, p := range parts {
		if i > 0 {
			text = append(text, ',')
		}
		switch {
		case string(p) == "{}":
			text = append(text, p...)
		case p[0] == '{' || p[0] == '[':
			return "", refuse("component %d of partition key %s is %s: want a string, number, boolean, null or {}", i, key, show(p))
		default:
			var err error
			if text, err = appendScalar(text, p); err != nil {
				return "", fmt.Errorf("read component %d of partition key %s: %w", i, key, err)
			}
		}
	}
	return string(append(text, ']')), nil
}

// one commits a single write; without a key, under that of its body.
func (c *Container) one(ctx context.Context, key changefeed.PartitionKey, w changefeed.Write) (Item, error) {
	var p LogicalPartition
	var err error
	if key != "" {
		p, err = c.LogicalPartition(key)
	}
	var r *request
	if err == nil {
		r, err = c.commit(ctx, p, []changefeed.Write{w}, nil)
	}
	if err != nil {
		if we, ok := errors.AsType[*changefeed.WriteError](err); ok {
			err = we.Err
		}
		return Item{}, fmt.Errorf("%s in %q: %w", verb(w.Op), c.ID(), err)
	}
	return r.item(), nil
}

func verb(o changefeed.WriteOp) string {
	return [...]string{"upsert", "create", "replace", "patch", "delete", "read"}[o]
}

// Create adds a document; [changefeed.ErrConflict] when its id is taken.
func (c *Container) Create(ctx context.Context, body []byte) (Item, error) {
	return c.one(ctx, "", changefeed.Write{Op: changefeed.WriteCreate, Body: body})
}

// Upsert adds or replaces a document.
func (c *Container) Upsert(ctx context.Context, body []byte) (Item, error) {
	return c.one(ctx, "", changefeed.Write{Op: changefeed.WriteUpsert, Body: body})
}

// Replace replaces a document that has this ETag; with an empty one, any.
func (c *Container) Replace(ctx context.Context, body []byte, ifMatch string) (Item, error) {
	return c.one(ctx, "", changefeed.Write{Op: changefeed.WriteReplace, Body: body, IfMatch: ifMatch})
}

// Patch changes parts of a document.
func (c *Container) Patch(ctx context.Context, key changefeed.PartitionKey, id string, ops []changefeed.PatchOp, ifMatch string) (Item, error) {
	return c.one(ctx, key, changefeed.Write{Op: changefeed.WritePatch, ID: id, Patch: ops, IfMatch: ifMatch})
}

// Delete removes a document that has this ETag; with an empty one, any.
func (c *Container) Delete(ctx context.Context, key changefeed.PartitionKey, id, ifMatch string) error {
	_, err := c.one(ctx, key, changefeed.Write{Op: changefeed.WriteDelete, ID: id, IfMatch: ifMatch})
	return err
}

// Item is a document, or [changefeed.ErrNotFound].
func (c *Container) Item(ctx context.Context, key changefeed.PartitionKey, id string) (Item, error) {
	if err := c.usable(ctx); err != nil {
		return Item{}, err
	}
	p, err := c.LogicalPartition(key)
	if err != nil {
		return Item{}, err
	}
	return p.Item(ctx, id)
}

// item is the document behind a key of the primary index.
func (c *Container) item(ctx context.Context, key []byte) (Item, bool, error) {
	var missed addr
	for {
		v, found, err := c.db.eng.get(nil, key)
		if err != nil {
			return Item{}, false, err
		}
		if !found {
			return Item{}, false, c.db.settle(ctx)
		}
		s, err := decodeSlot(v)
		if err != nil {
			return Item{}, false, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		if c.layout.Load().spec.expired(s.time, s.ttl, c.clock.now()) {
			return Item{}, false, nil
		}
		v, found, err = c.db.eng.get(make([]byte, 0, s.size), logKey(tableLog, c.num, s.addr))
		if err != nil {
			return Item{}, false, err
		}
		if !found && s.addr != missed { // replaced between the two gets
			missed = s.addr
			continue
		}
		if !found {
			return Item{}, false, fmt.Errorf("%w: no entry at LSN %d of log %d", ErrCorrupt, s.lsn, s.log)
		}
		if s.lsn > c.head.Load() {
			if err := c.db.settle(ctx); err != nil {
				return Item{}, false, err
			}
		}
		e, err := decodeEntry(v)
		if err != nil {
			return Item{}, false, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		return e.item(s.lsn), true, nil
	}
}

// item is the entry as a document; it refers to the entry's body.
func (e *entry) item(lsn int64) Item {
	return Item{
		ID: string(e.id), Key: changefeed.PartitionKey(e.pk), ETag: string(e.etag), LSN: lsn,
		Time: time.UnixMilli(e.time).UTC(), Body: e.body,
	}
}
