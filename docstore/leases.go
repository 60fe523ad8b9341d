package docstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/docstore/internal/engine"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/leasedoc"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// The lease store has no table of its own: records are documents of an ordinary
// container. So ETags, expiry and the change feed are the container's, the documents
// can be read and repaired over the server, and hosts of the .NET processor share them
// there.

// Leases are the records of one deployment unit in a lease container, as documents in
// the form of the .NET processor: a [feed.LeaseStore] and a
// [feed.Follower].
type Leases struct {
	c      *Container
	unit   leasedoc.Unit
	prefix string
	path   string // partition key path: /id or /partitionKey
}

// host is the account host in the ids of a new unit's documents. A unit that was begun
// over the server, under another name of this machine, is found too.
const host = "localhost"

// LeaseSpec is the spec of a lease container for [DB.CreateContainer]: the partition key is
// /id, and records may expire, so that those of ended instances disappear.
func LeaseSpec(id string) ContainerSpec {
	return ContainerSpec{ID: id, Paths: []string{"/id"}, DefaultTTL: new(NoDefaultTTL)}
}

// NewLeases returns the lease store of a processor name for a monitored container. The
// lease container must have the partition key /id or /partitionKey ([ErrLeaseKey]);
// [LeaseSpec] describes a good one. A name that cannot be part of an id is
// [ErrProcessorName].
func NewLeases(ctx context.Context, leases *Container, processor string, monitored *Container) (*Leases, error) {
	if !leasedoc.IsProcessor(processor) {
		return nil, fmt.Errorf("%w: %q: want a name that tells this deployment unit from others, without / \\ ? and #",
			ErrProcessorName, processor)
	}
	if err := leases.checkUsable(ctx); err != nil {
		return nil, fmt.Errorf("open leases: %w", err)
	}
	if err := monitored.checkUsable(ctx); err != nil {
		return nil, fmt.Errorf("open leases: %w", err)
	}
	l := leases.layout.Load()
	if !l.byID {
		return nil, fmt.Errorf("%w: container %q has %s: want /id or /partitionKey", ErrLeaseKey, l.spec.ID, strings.Join(l.spec.Paths, " "))
	}
	rid, err := decodeRID(monitored.rid)
	if err != nil {
		return nil, err
	}
	s := &Leases{c: leases, path: l.spec.Paths[0], unit: leasedoc.Unit{
		Processor: processor, Host: host, DatabaseRID: encodeRID(rid[:4]), ContainerRID: monitored.rid,
		Database: monitored.Database(), Container: monitored.ID(),
	}}
	// The prefix of a unit is that of the documents that are there: see Prefix.
	var ids []string
	for _, prefix := range s.unit.Prefixes() {
		items, err := index{leases}.withIDs(ctx, prefix+".")
		if err != nil {
			return nil, fmt.Errorf("open leases: %w", err)
		}
		for _, item := range items {
			ids = append(ids, item.ID)
		}
	}
	s.prefix = s.unit.Choose(ids)
	return s, nil
}

// Prefix returns the common beginning of the ids of the unit's documents: that of a
// .NET processor with this name and account. A unit that was made under another name of
// this machine, such as 127.0.0.1 for localhost, keeps the prefix that its documents
// have, because a second prefix would make a second unit.
func (s *Leases) Prefix() string { return s.prefix }

// Searched returns all prefixes that List reads: those of the names of this machine,
// and that of Java's older processor. Records under another prefix than that of
// [Leases.Prefix] have Err set.
func (s *Leases) Searched() []string { return s.unit.Searched() }

// List implements [feed.LeaseStore]. The time is the container's, taken before
// the records are read: so no record looks older than true.
func (s *Leases) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	now := s.c.clock.time()
	var records []feed.Record
	for _, prefix := range s.unit.Searched() {
		items, err := index{s.c}.withIDs(ctx, prefix+".")
		if err != nil {
			return nil, now, fmt.Errorf("list leases: %w", err)
		}
		for _, item := range items {
			if record, ok := s.unit.Record(s.prefix, item.ID, item.Body); ok {
				record.Updated = item.Time.UTC()
				records = append(records, record)
			}
		}
	}
	return records, now, nil
}

// record reads a document and takes its time from the store.
func (s *Leases) record(body []byte, at time.Time) feed.Record {
	record := leasedoc.Unmarshal(s.prefix, body)
	record.Updated = at.UTC()
	return record
}

// withIDs returns the documents whose ids begin with prefix, from the index by id.
func (x index) withIDs(ctx context.Context, prefix string) (items []Item, err error) {
	if err := x.c.checkUsable(ctx); err != nil {
		return nil, err
	}
	keys, err := keysWithIDs(x.c.db.eng.Cursor, x.c.num, prefix)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		item, found, err := x.item(ctx, key)
		if err != nil {
			return nil, err
		}
		if found {
			items = append(items, item)
		}
	}
	return items, nil
}

// keysWithIDs returns the keys in the primary index of ids that begin with prefix.
func keysWithIDs(open openCursor, cont uint32, prefix string) (keys [][]byte, err error) {
	from := append(tableKey(tableID, cont, len(prefix)), prefix...)
	it, err := open(from, engine.After(from))
	if err != nil {
		return nil, err
	}
	defer it.CloseInto(&err, "close cursor")
	for ok := it.First(); ok; ok = it.Next() {
		id, epk, pk, err := splitID(tailOf(it.Key()))
		if err != nil {
			return nil, err
		}
		keys = append(keys, docKey(cont, string(epk), string(pk), string(id)))
	}
	return keys, it.Err()
}

// Create implements [feed.LeaseStore].
func (s *Leases) Create(ctx context.Context, record feed.Record) (feed.Record, error) {
	record.ID, record.ETag = leasedoc.ID(s.prefix, record.Kind, record.Token), ""
	return s.writeRecord(ctx, feed.WriteCreate, record)
}

// Update implements [feed.LeaseStore].
func (s *Leases) Update(ctx context.Context, record feed.Record) (feed.Record, error) {
	record.ETag = exact(record.ETag)
	return s.writeRecord(ctx, feed.WriteReplace, record)
}

// exact returns an ETag that matches one version at most. To the container an empty
// ETag means any version, and a lease must never be written without a condition.
func exact(etag string) string {
	if etag == "" || etag == "*" {
		return `"no version"`
	}
	return etag
}

// writeRecord stores a record as a document of the .NET processor, and returns it as stored, because
// the next write needs its ETag.
func (s *Leases) writeRecord(ctx context.Context, op feed.WriteOp, record feed.Record) (feed.Record, error) {
	doc, err := leasedoc.Marshal(s.prefix, s.path, record)
	if err != nil {
		return record, fmt.Errorf("%s lease %s: %w", verb(op), record.Token, err)
	}
	item, err := s.c.commitOne(ctx, "", feed.Write{Op: op, Body: doc, IfMatch: record.ETag})
	if err != nil {
		return record, fmt.Errorf("%s lease %s: %w", verb(op), record.Token, err)
	}
	stored := s.record(item.Body, item.Time)
	stored.Charge = service.WriteCharge(len(item.Body))
	return stored, nil
}

// Delete implements [feed.LeaseStore].
func (s *Leases) Delete(ctx context.Context, record feed.Record) error {
	id := record.ID
	if id == "" {
		id = leasedoc.ID(s.prefix, record.Kind, record.Token)
	}
	key, err := s.key(id, record)
	if err != nil {
		return fmt.Errorf("delete lease %s: %w", record.Token, err)
	}
	if err := s.c.Delete(ctx, key, id, exact(record.ETag)); err != nil {
		return fmt.Errorf("delete lease %s: %w", record.Token, err)
	}
	return nil
}

// key returns the partition key of a record: its id, or the key in its document,
// because a container of /partitionKey may hold documents of other processors with keys
// of their own.
func (s *Leases) key(id string, record feed.Record) (feed.PartitionKey, error) {
	if len(record.Raw) == 0 || s.path == "/id" {
		return feed.Key(id), nil
	}
	doc, err := parseDocument(record.Raw, s.c.layout.Load().paths)
	return doc.key, err
}

// Follow implements [feed.Follower] by the container's own change feed.
// The cursor is an LSN of the lease container, quoted as in a position.
func (s *Leases) Follow(ctx context.Context, cursor string) ([]feed.Record, string, time.Time, error) {
	if cursor == "" {
		if err := s.c.checkUsable(ctx); err != nil {
			return nil, "", time.Time{}, fmt.Errorf("follow leases: %w", err)
		}
		return nil, service.Token(s.c.head.Load()), s.c.clock.time(), nil
	}
	lsn, err := parseToken(cursor)
	if err != nil {
		return nil, "", time.Time{}, fmt.Errorf("follow leases: %w", err)
	}
	for {
		changed, head, err := s.recordsSince(ctx, lsn)
		if err != nil {
			return nil, "", time.Time{}, fmt.Errorf("follow leases: %w", err)
		}
		if len(changed) > 0 {
			return changed, service.Token(head), s.c.clock.time(), nil
		}
		lsn = head
	}
}

// followGather is how long changes are gathered before Follow returns them: instances
// renew their leases in bursts, and one answer for a burst saves each follower most of
// its work.
const followGather = 300 * time.Millisecond

// awaitGather waits for followGather, unless ctx or the store ends before.
func (s *Leases) awaitGather(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, followGather, errGathered)
	defer cancel()
	if err := s.c.db.awaitEvent(ctx, nil); !errors.Is(err, errGathered) {
		return err
	}
	return nil
}

var errGathered = errors.New("gathered for long enough")

// recordsSince waits until the head passes an LSN, and reads the unit's records up to the new
// head.
// The gate's channel is taken before the head is read: a write in between closes that
// channel, and is not slept through.
func (s *Leases) recordsSince(ctx context.Context, lsn int64) ([]feed.Record, int64, error) {
	for {
		ch := s.c.gate.next()
		if err := s.c.checkUsable(ctx); err != nil {
			return nil, 0, err
		}
		if s.c.head.Load() > lsn {
			break
		}
		if err := s.c.db.awaitEvent(ctx, ch); err != nil {
			return nil, 0, err
		}
	}
	if err := s.awaitGather(ctx); err != nil {
		return nil, 0, err
	}
	head := s.c.head.Load()
	changes, err := s.readTo(ctx, lsn, head)
	if errors.Is(err, feed.ErrGone) { // a split came in between
		return s.recordsSince(ctx, lsn)
	}
	if err != nil {
		return nil, 0, err
	}
	slices.SortFunc(changes, func(a, b feed.Change) int { return cmp.Compare(a.LSN, b.LSN) })
	var records []feed.Record
	for _, change := range changes {
		if _, _, ok := leasedoc.KindOf(s.prefix, change.ID); ok {
			records = append(records, s.record(change.Body, change.Time))
		}
	}
	return records, head, nil
}

// readTo reads the changes of all partitions from one LSN to another at least.
func (s *Leases) readTo(ctx context.Context, lsn, head int64) (changes []feed.Change, err error) {
	for _, part := range s.c.layout.Load().parts {
		for at := lsn; at < head; {
			page, err := s.c.Read(ctx, part.rng, feed.At(service.Token(at)), feed.ReadOptions{})
			if err != nil {
				return nil, err
			}
			changes = append(changes, page.Changes...)
			if at, err = parseToken(page.Next.Token); err != nil {
				return nil, err
			}
		}
	}
	return changes, nil
}
