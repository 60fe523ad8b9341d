package docstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/epk"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// LogicalPartition is a partition key of a container, with its documents. The key is
// read and hashed once for everything that a request does with it. It remains valid
// when partitions split and merge.
type LogicalPartition struct {
	c   *Container
	pk  string     // the key as the store has it
	epk string     // its effective partition key; empty for one that lacks its last levels
	rng feed.Range // of epk, or of all keys that begin like pk
}

// LogicalPartition finds a partition key. A hierarchical key may lack its last levels:
// then it can be read and not written.
func (c *Container) LogicalPartition(key feed.PartitionKey) (LogicalPartition, error) {
	rng, pk, err := c.layout.Load().keyRange(string(key))
	if err != nil {
		return LogicalPartition{}, fmt.Errorf("locate in %q: %w", c.ID(), err)
	}
	if pk == "" {
		whole, err := pkey.Canonical(string(key))
		return LogicalPartition{c: c, pk: string(whole), rng: rng}, err
	}
	return LogicalPartition{c: c, pk: pk, epk: rng.Min, rng: rng}, nil
}

// Key returns the partition key in the one form that it has in the store.
func (p *LogicalPartition) Key() feed.PartitionKey { return feed.PartitionKey(p.pk) }

// Range returns the place of the key in the key space.
func (p *LogicalPartition) Range() feed.Range { return p.rng }

// Whole reports whether the key has all its levels, so that it can be that of a document.
func (p *LogicalPartition) Whole() bool { return p.epk != "" }

// Partition returns the physical partition that has the key now, and the LSN of its
// newest change.
func (p *LogicalPartition) Partition() (part feed.Partition, newest int64) {
	at := p.c.layout.Load().at(p.rng.Min)
	return at.describe(), min(at.newest.Load(), p.c.head.Load())
}

// Item returns a document, or [feed.ErrNotFound].
func (p *LogicalPartition) Item(ctx context.Context, id string) (Item, error) {
	if err := p.c.checkUsable(ctx); err != nil {
		return Item{}, err
	}
	epk := p.epk
	if epk == "" {
		var err error
		if epk, err = p.c.layout.Load().hashKey(p.pk); err != nil { // says which levels are missing
			return Item{}, err
		}
	}
	item, found, err := index{p.c}.item(ctx, docKey(p.c.num, epk, p.pk, id))
	if err == nil && !found {
		err = feed.ErrNotFound
	}
	if err != nil {
		return Item{}, fmt.Errorf("read item %q of %q: %w", id, p.c.ID(), err)
	}
	return item, nil
}

// Condition reports whether a write may go ahead, given the present document with its
// system properties. Be quick there, because all writers wait, and do not keep body,
// whose bytes belong to the group being committed.
type Condition func(body []byte) (bool, error)

// Write is a write of a batch, with what a server knows of it.
type Write struct {
	feed.Write

	// If decides, in the committer and not before, about a document that exists: one
	// that does not meet it refuses the batch, with [feed.ErrPrecondition]. Nil
	// accepts any.
	If Condition

	// Checked says that Body is JSON in UTF-8. A server that took a batch apart knows,
	// and spares the store another look at each byte.
	Checked bool

	// Owned says that the caller does not use Body again, whatever becomes of the write. The
	// store then adds its system properties in place, if Body has capacity for them.
	Owned bool
}

// Commit is the answer to a batch of writes. Partition and Newest are set for a refused
// batch too, because the server's answer has a session token either way.
type Commit struct {
	Results   []feed.Result  // one for each write; nil when the batch was refused
	Charge    float64        // request units of all of them
	Partition feed.Partition // the physical partition that has the key
	Newest    int64          // LSN of its newest change
}

// Commit is [Container.Commit] for writes with conditions.
func (p *LogicalPartition) Commit(ctx context.Context, writes []Write) (Commit, error) {
	tx, err := p.commitBatch(ctx, writes)
	var done Commit
	done.Partition, done.Newest = p.Partition()
	if err != nil {
		done.Charge = service.MinCharge
		return done, err
	}
	done.Results = tx.results
	for i := range tx.results {
		done.Charge += tx.results[i].Charge
	}
	return done, nil
}

// commitBatch carries out a batch; without a key, under that of the first body.
func (p *LogicalPartition) commitBatch(ctx context.Context, writes []Write) (*transaction, error) {
	c := p.c
	if err := c.checkUsable(ctx); err != nil {
		return nil, err
	}
	l := c.layout.Load()
	tx, err := p.prepareBatch(l, writes)
	if err != nil {
		return nil, err
	}
	if err := c.db.committer.submit(ctx, tx); err != nil {
		// The cause of an ended context is the caller's own error, which may wrap any
		// of ours and says nothing about a write.
		if ctx.Err() == nil && refused(err) {
			return nil, &feed.WriteError{Index: tx.failed, Write: writes[tx.failed].Write, Err: err}
		}
		return nil, fmt.Errorf("commit to %q: %w", l.spec.ID, err)
	}
	return tx, nil
}

// prepareBatch prepares a batch: all work that can be done in the caller's goroutine is
// done here, because the committer serves every writer of the store.
func (p *LogicalPartition) prepareBatch(l *layout, writes []Write) (*transaction, error) {
	if len(writes) == 0 || len(writes) > maxBatch {
		return nil, fmt.Errorf("%w: %d writes: want 1 to %d", ErrBatchLimit, len(writes), maxBatch)
	}
	pk, err := p.pk, error(nil)
	tx := &transaction{c: p.c}
	if tx.writes = tx.single.write[:]; len(writes) > 1 {
		tx.writes = make([]write, len(writes))
	}
	for i, w := range writes {
		tx.writes[i].Write = w
		if pk, err = tx.writes[i].parseBody(p.c, l, pk); err != nil {
			return nil, &feed.WriteError{Index: i, Write: w.Write, Err: err}
		}
		tx.size += len(w.Body)
	}
	// A single write is bound by the limit of a document alone.
	if len(writes) > 1 && tx.size > maxBatchBytes {
		return nil, fmt.Errorf("%w: %d bytes: want at most %d", ErrBatchLimit, tx.size, maxBatchBytes)
	}
	if pk == "" {
		return nil, refuse("partition key is empty: want one such as %s", feed.Key("London"))
	}
	tx.pk, tx.epk = pk, p.epk
	if p.epk == "" {
		if tx.epk, err = l.hashKey(pk); err != nil {
			return nil, err
		}
	}
	for i := range tx.writes {
		w := &tx.writes[i]
		w.key = docKey(p.c.num, tx.epk, tx.pk, w.id)
	}
	return tx, nil
}

// chargeOf returns the charge of a write that leaves, or reads, a document of so many
// bytes.
func chargeOf(op feed.WriteOp, bytes int) float64 {
	switch op {
	case feed.WriteRead:
		return service.ReadCharge(bytes)
	case feed.WritePatch:
		return service.PatchCharge(bytes)
	}
	return service.WriteCharge(bytes)
}

// item returns the document that a transaction of a single write has made.
func (tx *transaction) item() Item {
	made := tx.results[0]
	return Item{
		ID: tx.writes[0].id, Key: feed.PartitionKey(tx.pk), ETag: made.ETag, LSN: made.LSN,
		Time: time.UnixMilli(tx.time).UTC(), Body: made.Body,
	}
}

// hashKey returns the effective partition key of a key.
func (l *layout) hashKey(pk string) (string, error) {
	k, err := pkey.Parse(pk)
	if err != nil {
		return "", err
	}
	return l.place(&k)
}

// place is hashKey of a key that was read.
func (l *layout) place(k *pkey.Key) (string, error) {
	if k.Len() != len(l.paths) {
		return "", fmt.Errorf("%w: %s has %d components: want %d, one for each of %s",
			ErrKeyMismatch, k.Text(), k.Len(), len(l.paths), strings.Join(l.spec.Paths, " "))
	}
	hash, err := epk.Hash(l.kind, k.Components())
	if err != nil {
		return "", refuse("partition key %s: %v", k.Text(), err)
	}
	return hash, nil
}
