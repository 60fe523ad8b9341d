package docstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Container is a set of documents with a partition key and a change feed. It is a [feed.Source], [feed.Waiter],
// [feed.Counter], [feed.Locator], [feed.Sequencer] and [feed.Committer]. You may call all methods concurrently.
//
// Readers use no locks. To publish a group, the committer first stores the counts, then the head, and then opens the
// gates. A reader who takes the head first therefore sees at least everything published with that head.
type Container struct {
	db   *DB
	num  uint32
	rid  string
	own  []byte // rid, decoded
	self string

	systemSize int // bytes of a document's system properties, without the ETag

	layout  atomic.Pointer[layout] // replaced by the committer
	head    atomic.Int64           // newest LSN that readers may see
	gate    gate                   // the head has moved
	dropped atomic.Bool
	alarm   alarm // of the sweeper; nothing is due before this time
	hint    pageHint

	applied    atomic.Int64 // the last group with a write of this container; see awaitSafe
	newestTime atomic.Int64 // commit time of the head, Unix ms
	clock      *clock

	lsn     int64    // of the last group; only for the committer
	tallies *tallies // the same
}

// Item is a document as stored.
//
// Time is the time of the commit, in whole milliseconds; the system property _ts in Body has whole seconds.
type Item struct {
	ID   string
	Key  feed.PartitionKey
	ETag string
	LSN  int64
	Time time.Time       // of the last write
	Body json.RawMessage // with system properties

	// Number is the number in the resource id. Numbers grow with the order of creation, and a document keeps its
	// number. Only documents that version 0.x created before resource ids had numbers have a hash instead.
	Number int64
}

const (
	maxBatch      = service.MaxBatch     // writes in a batch
	maxBatchBytes = service.MaxBatchSize // and their bytes in total
	maxBatchMade  = 16 << 20             // bytes in total of the documents that its patches and reads produce
)

// ID returns the container's id, unique in its database.
func (c *Container) ID() string { return c.layout.Load().spec.ID }

// Database returns the id of the container's database.
func (c *Container) Database() string { return c.layout.Load().spec.Database }

// Name returns the name by which [DB.Container] finds the container: database/id, or
// the id alone in the [DefaultDatabase].
func (c *Container) Name() string { return c.layout.Load().spec.shortName() }

// Version returns the ETag of the specification, which changes with each [DB.ReplaceContainer], and the time of the
// last change.
func (c *Container) Version() (etag string, changed time.Time) {
	l := c.layout.Load()
	return l.etag, time.UnixMilli(l.changed).UTC()
}

// RID returns the container's resource id. If a container is deleted and created again, its resource id changes, so
// clients with a cached id notice.
func (c *Container) RID() string { return c.rid }

// newContainer creates a container without its layout and head. newContainer computes everything that depends on the
// resource id alone, because every answer needs these values.
func newContainer(db *DB, num uint32, rid string) *Container {
	c := &Container{db: db, num: num, rid: rid, clock: newClock(), alarm: alarm{wake: db.wake}}
	c.tallies = &tallies{c: c, cells: db.cells, rows: map[tallyAt]row{}, dirty: map[tallyAt]row{}}
	if own, err := decodeRID(rid); err == nil {
		c.own, c.self = own, "dbs/"+encodeRID(own[:4])+"/colls/"+rid+"/"
	}
	most := service.System{Container: c.self, RID: itemRID(c.own, 1, "", "")}
	c.systemSize = most.Size()
	return c
}

// Self returns the container's link by resource ids, with a slash at the end.
func (c *Container) Self() string { return c.self }

// Spec returns a copy of the present specification, with all defaults set.
func (c *Container) Spec() ContainerSpec { return c.layout.Load().spec.clone() }

// Head returns the newest LSN of the container, 0 before the first write.
func (c *Container) Head() int64 { return c.head.Load() }

// Count returns the number of documents. An expired document counts until the sweeper deletes the document, within
// about a second, because the store maintains the count and does not compute it.
func (c *Container) Count() int64 {
	var n int64
	for _, part := range c.layout.Load().parts {
		n += part.docs.Load()
	}
	return n
}

// Partitions returns the physical partitions, sorted by range.
func (c *Container) Partitions(ctx context.Context) ([]feed.Partition, error) {
	if err := c.checkUsable(ctx); err != nil {
		return nil, err
	}
	return describe(c.layout.Load().parts), nil
}

// checkUsable returns why the container cannot be used, or nil.
func (c *Container) checkUsable(ctx context.Context) error {
	if err := c.db.closed(); err != nil {
		return err
	}
	if c.dropped.Load() {
		return fmt.Errorf("container %q: %w", c.ID(), feed.ErrNotFound)
	}
	return context.Cause(ctx)
}

// wakeAll wakes all waiters of the container, so they notice that the container or the store is closed.
func (c *Container) wakeAll() {
	for _, part := range c.layout.Load().parts {
		part.gate.open()
	}
	c.gate.open()
}

// Commit implements [feed.Committer]: all writes are carried out under the same LSN, or none. If a write caused the
// error, the error is a [feed.WriteError] with the index of the write.
func (c *Container) Commit(ctx context.Context, key feed.PartitionKey, writes []feed.Write) ([]feed.Result, error) {
	if key == "" {
		return nil, refuse("partition key is empty: want one such as %s", feed.Key("London"))
	}
	p, err := c.LogicalPartition(key)
	if err != nil {
		return nil, err
	}
	list := make([]Write, len(writes))
	for i, w := range writes {
		list[i].Write = w
	}
	tx, err := p.commitBatch(ctx, list, nil)
	if err != nil {
		return nil, err
	}
	return tx.results, nil
}

// refused reports whether a single write of a batch caused err, and not the batch as a whole.
func refused(err error) bool {
	for _, is := range []error{feed.ErrConflict, feed.ErrBadRequest, feed.ErrNotFound} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

// commitOne commits a single write. If key is empty, the key is read from the body. An error names the operation and
// the container, instead of the index in a batch.
func (c *Container) commitOne(ctx context.Context, key feed.PartitionKey, w feed.Write) (Item, error) {
	p := LogicalPartition{c: c}
	var err error
	if key != "" {
		p, err = c.LogicalPartition(key)
	}
	var tx *transaction
	if err == nil {
		tx, err = p.commitBatch(ctx, []Write{{Write: w}}, nil)
	}
	if err != nil {
		if we, ok := errors.AsType[*feed.WriteError](err); ok {
			err = we.Err
		}
		return Item{}, fmt.Errorf("%s in %q: %w", verb(w.Op), c.ID(), err)
	}
	return tx.item(), nil
}

// verb returns the operation's name for errors.
func verb(o feed.WriteOp) string {
	return [...]string{"upsert", "create", "replace", "patch", "delete", "read"}[o]
}

// Create adds a document. The partition key is read from the body. Errors: [feed.ErrConflict] if the id is taken in
// the document's logical partition, [feed.ErrBadRequest] if the body is not a valid document of this container, and
// [ErrUniqueKey] if another document of the logical partition has the same unique key.
func (c *Container) Create(ctx context.Context, body []byte) (Item, error) {
	return c.commitOne(ctx, "", feed.Write{Op: feed.WriteCreate, Body: body})
}

// Upsert adds a document, or replaces the document with the same id. Key and errors are as for [Container.Create],
// without ErrConflict for the id.
func (c *Container) Upsert(ctx context.Context, body []byte) (Item, error) {
	return c.commitOne(ctx, "", feed.Write{Op: feed.WriteUpsert, Body: body})
}

// Replace replaces a document if its ETag is ifMatch, or without a condition if ifMatch is empty. Errors:
// [feed.ErrNotFound], and [feed.ErrPrecondition] if the ETag differs.
func (c *Container) Replace(ctx context.Context, body []byte, ifMatch string) (Item, error) {
	return c.commitOne(ctx, "", feed.Write{Op: feed.WriteReplace, Body: body, IfMatch: ifMatch})
}

// Patch changes parts of a document, by up to 10 operations in order. Either all operations take effect, or none.
// Errors are as for [Container.Replace].
func (c *Container) Patch(ctx context.Context, key feed.PartitionKey, id string, ops []feed.PatchOp,
	ifMatch string,
) (Item, error) {
	return c.commitOne(ctx, key, feed.Write{Op: feed.WritePatch, ID: id, Patch: ops, IfMatch: ifMatch})
}

// Delete removes a document if its ETag is ifMatch, or without a condition if ifMatch is empty. Errors are as for
// [Container.Replace].
func (c *Container) Delete(ctx context.Context, key feed.PartitionKey, id, ifMatch string) error {
	_, err := c.commitOne(ctx, key, feed.Write{Op: feed.WriteDelete, ID: id, IfMatch: ifMatch})
	return err
}

// Item returns a document, or [feed.ErrNotFound].
func (c *Container) Item(ctx context.Context, key feed.PartitionKey, id string) (Item, error) {
	if err := c.checkUsable(ctx); err != nil {
		return Item{}, err
	}
	p, err := c.LogicalPartition(key)
	if err != nil {
		return Item{}, err
	}
	return p.Item(ctx, id)
}

// item returns the document at a key of the primary index. item reads the index and then the log without a snapshot,
// because a writer rarely comes in between. If a writer does, the second read finds nothing, and the loop reads the
// index again. If the loop misses the same address twice, the store is damaged.
func (x index) item(ctx context.Context, key []byte) (Item, bool, error) {
	var missed addr
	for {
		value, found, err := x.c.db.eng.Get(nil, key)
		if err != nil {
			return Item{}, false, err
		}
		if !found {
			return Item{}, false, x.c.db.awaitSafe(ctx, x.c)
		}
		s, err := decodeSlot(value)
		if err != nil {
			return Item{}, false, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		if x.c.layout.Load().spec.expired(s.time, s.ttl, x.c.clock.now()) {
			return Item{}, false, nil
		}
		value, found, err = x.c.db.eng.Get(make([]byte, 0, s.size), logKey(tableLog, x.c.num, s.addr))
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
		// The version is applied but may not be safe on the disk yet: see awaitSafe.
		if s.lsn > x.c.head.Load() {
			if err := x.c.db.awaitSafe(ctx, x.c); err != nil {
				return Item{}, false, err
			}
		}
		e, err := decodeEntry(value)
		if err != nil {
			return Item{}, false, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		return e.itemOf(&s), true, nil
	}
}

// itemOf returns the entry as a document. The document's body shares the entry's bytes.
func (e *entry) itemOf(s *slot) Item {
	item := e.item(s.lsn)
	item.Number = s.number(string(item.Key), item.ID)
	return item
}

// item returns the document without its number.
func (e *entry) item(lsn int64) Item {
	return Item{
		ID: string(e.id), Key: feed.PartitionKey(e.pk), ETag: string(e.etag), LSN: lsn,
		Time: time.UnixMilli(e.time).UTC(), Body: e.body,
	}
}
