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

// The lease store has no table of its own: records are documents of an ordinary container. So ETags, expiry and the
// change feed are the container's. You can read and repair the documents through the server, and hosts of the .NET
// processor can share them there.

// Leases are the records of a deployment unit in a lease container. The records are documents in the format of the
// .NET processor. Leases is a [feed.LeaseStore] and a [feed.Follower].
type Leases struct {
	c      *Container
	unit   leasedoc.Unit
	prefix *leasedoc.UnitPrefix
	path   string // partition key path: /id or /partitionKey
}

// host is the account host in the ids of a new unit's documents. If a unit was created through the server, under
// another name of this machine, that unit is found too.
const host = "localhost"

// LeaseSpec returns the specification of a lease container, for [DB.CreateContainer]. The partition key is /id.
// Records may expire, so the records of ended instances disappear.
func LeaseSpec(id string) ContainerSpec {
	return ContainerSpec{ID: id, Paths: []string{"/id"}, DefaultTTL: new(NoDefaultTTL)}
}

// NewLeases returns the lease store of a processor name for a monitored container. The lease container must have the
// partition key /id or /partitionKey, otherwise you get [ErrLeaseKey]; [LeaseSpec] returns a suitable specification.
// If the name is not valid as part of an id, you get [ErrProcessorName].
func NewLeases(ctx context.Context, leases *Container, processor string, monitored *Container) (*Leases, error) {
	if !leasedoc.IsProcessor(processor) {
		return nil, fmt.Errorf("%w: %q: want a name that tells this deployment unit from others, "+
			"without / \\ ? # and U+0000", ErrProcessorName, processor)
	}
	if err := leases.checkUsable(ctx); err != nil {
		return nil, fmt.Errorf("open leases: %w", err)
	}
	if err := monitored.checkUsable(ctx); err != nil {
		return nil, fmt.Errorf("open leases: %w", err)
	}
	l := leases.layout.Load()
	if !l.byID {
		return nil, fmt.Errorf("%w: container %q has %s: want /id or /partitionKey", ErrLeaseKey, l.spec.ID,
			strings.Join(l.spec.Paths, " "))
	}
	rid, err := decodeRID(monitored.rid)
	if err != nil {
		return nil, err
	}
	s := &Leases{c: leases, path: l.spec.Paths[0], unit: leasedoc.Unit{
		Processor: processor, Host: host, DatabaseRID: encodeRID(rid[:4]), ContainerRID: monitored.rid,
		Database: monitored.Database(), Container: monitored.ID(),
	}}
	s.prefix = leasedoc.NewUnitPrefix(s.unit)
	// If the unit has documents already, the unit keeps their prefix: see Prefix.
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
	s.prefix.Learn(ids...)
	return s, nil
}

// Prefix returns the common beginning of the ids of the unit's documents. A .NET processor with this name and account
// uses the same prefix. A unit created under another name of this machine, such as 127.0.0.1 for localhost,
// keeps the prefix of its existing documents, because a second prefix would create a second unit. As long as a unit has
// no leases, its prefix may change.
func (s *Leases) Prefix() string { return s.prefix.String() }

// Searched returns all prefixes that List reads: those of the names of this machine, and that of the older Java
// processor. If a record has another prefix than [Leases.Prefix], its Err is set.
func (s *Leases) Searched() []string { return s.unit.Searched() }

// List implements [feed.LeaseStore]. The time is the container's, taken before the records are read, so no record
// looks too old.
func (s *Leases) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	now := s.c.clock.time()
	var found []Item
	var ids []string
	for _, prefix := range s.unit.Searched() {
		items, err := index{s.c}.withIDs(ctx, prefix+".")
		if err != nil {
			return nil, now, fmt.Errorf("list leases: %w", err)
		}
		found = append(found, items...)
		for i := range items {
			ids = append(ids, items[i].ID)
		}
	}
	s.prefix.Learn(ids...)
	var records []feed.Record
	for i := range found {
		if record, ok := s.unit.Record(s.Prefix(), found[i].ID, found[i].Body); ok {
			record.Updated = found[i].Time.UTC()
			records = append(records, record)
		}
	}
	return records, now, nil
}

// record reads a record from a document; at is the time of the document's commit in the store.
func (s *Leases) record(body []byte, at time.Time) feed.Record {
	record := leasedoc.Unmarshal(s.Prefix(), body)
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
	record.ID, record.ETag = leasedoc.ID(s.prefix.Keep(), record.Kind, record.Token), ""
	return s.writeRecord(ctx, feed.WriteCreate, record)
}

// Update implements [feed.LeaseStore].
func (s *Leases) Update(ctx context.Context, record feed.Record) (feed.Record, error) {
	record.ETag = exact(record.ETag)
	return s.writeRecord(ctx, feed.WriteReplace, record)
}

// exact returns an ETag that matches at most a single version. For the container, an empty ETag matches any version,
// but a lease must never be written without a condition.
func exact(etag string) string {
	if etag == "" || etag == "*" {
		return `"no version"`
	}
	return etag
}

// writeRecord stores a record as a document in the format of the .NET processor. writeRecord returns the record as
// stored, because the next write needs its ETag.
func (s *Leases) writeRecord(ctx context.Context, op feed.WriteOp, record feed.Record) (feed.Record, error) {
	doc, err := leasedoc.Marshal(s.Prefix(), s.path, record)
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
		id = leasedoc.ID(s.Prefix(), record.Kind, record.Token)
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

// key returns the partition key of a record: its id, or the key in its document, because a container with
// /partitionKey may contain documents of other processors with their own keys.
func (s *Leases) key(id string, record feed.Record) (feed.PartitionKey, error) {
	if len(record.Raw) == 0 || s.path == "/id" {
		return feed.Key(id), nil
	}
	doc, err := parseDocument(record.Raw, s.c.layout.Load().paths)
	return doc.key, err
}

// Follow implements [feed.Follower] with the container's change feed. The cursor is an LSN of the lease container,
// quoted as in a position.
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

// followGather is how long Follow collects changes before returning them. Instances renew their leases in bursts, and
// a single answer for a burst saves each follower most of the work.
const followGather = 300 * time.Millisecond

// awaitGather waits for followGather, or until ctx or the store ends.
func (s *Leases) awaitGather(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, followGather, errGathered)
	defer cancel()
	if err := s.c.db.awaitEvent(ctx, nil); !errors.Is(err, errGathered) {
		return err
	}
	return nil
}

var errGathered = errors.New("gathered for long enough")

// recordsSince waits until the head passes an LSN, and reads the unit's records up to the new head. recordsSince
// takes the gate's channel before the head, so a write in between closes that channel and wakes recordsSince.
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
		s.prefix.Learn(change.ID)
		if _, _, ok := leasedoc.KindOf(s.Prefix(), change.ID); ok {
			records = append(records, s.record(change.Body, change.Time))
		}
	}
	return records, head, nil
}

// readTo reads the changes of all partitions from an LSN up to at least another.
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
