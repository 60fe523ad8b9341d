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

// LogicalPartition is a partition key of a container, with its documents. The key is read and hashed once, for
// everything a request does with the key. You can use a LogicalPartition after partitions split and merge.
type LogicalPartition struct {
	c   *Container
	pk  string     // the key in its stored form
	epk string     // effective partition key; empty if pk lacks its last levels
	rng feed.Range // place of epk, or of all keys that begin with pk
}

// LogicalPartition finds a partition key. If a hierarchical key lacks its last levels, you can read but not write.
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

// Key returns the partition key in its stored form.
func (p *LogicalPartition) Key() feed.PartitionKey { return feed.PartitionKey(p.pk) }

// Range returns the place of the key in the key space.
func (p *LogicalPartition) Range() feed.Range { return p.rng }

// Whole reports whether the key has all its levels, so a document can have this key.
func (p *LogicalPartition) Whole() bool { return p.epk != "" }

// Partition returns the physical partition of the key now, and the LSN of the partition's newest change.
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
		if epk, err = p.c.layout.Load().hashKey(p.pk); err != nil { // the error names the missing levels
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

// Condition decides whether a write may go ahead, given the present document with its system properties. Be fast,
// because all writers wait. Do not keep body, because its bytes belong to the group being committed.
type Condition func(body []byte) (bool, error)

// Write is a write of a batch, together with facts a server knows about the write.
type Write struct {
	feed.Write

	// If is a condition on the existing document. The committer evaluates If at the time of the write. If the result
	// is false, the batch is refused with [feed.ErrPrecondition]. Nil accepts any document.
	If Condition

	// Checked means that you have checked Body to be JSON in UTF-8. A server which has parsed a batch knows this
	// already, and the store then skips the check.
	Checked bool

	// Owned means: you will not use Body again, whether the write succeeds or not. The store then adds its system
	// properties in place, if Body has the capacity.
	Owned bool

	// Bare leaves out the system properties _self and _attachments, in the stored document too. A patch leaves a
	// document as it is.
	Bare bool

	// Joined means that this write and the write before are carried out together or not at all, as the two writes of a
	// rename. Only [LogicalPartition.CommitEach] needs it.
	Joined bool
}

// Commit is the answer to a batch of writes. Partition and Newest are set even if the batch was refused, because the
// server's answer always has a session token.
type Commit struct {
	Results   []feed.Result  // a result per write; nil if the batch was refused
	Charge    float64        // request units of all writes together
	Partition feed.Partition // the physical partition of the key
	Newest    int64          // LSN of the partition's newest change
}

// Commit is [Container.Commit] for writes with conditions.
func (p *LogicalPartition) Commit(ctx context.Context, writes []Write) (Commit, error) {
	tx, err := p.commitBatch(ctx, writes, nil)
	return p.answer(tx, err), err
}

// CommitEach is [LogicalPartition.Commit] for writes that do not depend on each other. All of them have the same LSN. A
// write that is refused has no effect, and the others are carried out: refusals[i] is the reason why writes[i] was
// refused, or nil. If err is not nil, no write has taken effect.
func (p *LogicalPartition) CommitEach(ctx context.Context, writes []Write) (done Commit, refusals []error, err error) {
	tx, err := p.commitBatch(ctx, writes, make([]error, len(writes)))
	if err == nil {
		refusals = tx.refusals // after an error the committer may still use them
	}
	return p.answer(tx, err), refusals, err
}

// answer returns the answer to a batch.
func (p *LogicalPartition) answer(tx *transaction, err error) (done Commit) {
	done.Partition, done.Newest = p.Partition()
	if err != nil {
		done.Charge = service.MinCharge
		return done
	}
	done.Results = tx.results
	for i := range tx.results {
		done.Charge += tx.results[i].Charge
	}
	return done
}

// commitBatch carries out a batch. If p has no key, the key is that of the first body. If refusals is nil, a refused
// write refuses the batch; otherwise the reason of each refusal is put there.
func (p *LogicalPartition) commitBatch(ctx context.Context, writes []Write, refusals []error) (*transaction, error) {
	c := p.c
	if err := c.checkUsable(ctx); err != nil {
		return nil, err
	}
	l := c.layout.Load()
	tx, err := p.prepareBatch(l, writes, refusals)
	if err != nil {
		return nil, err
	}
	if err := c.db.committer.submit(ctx, tx); err != nil {
		// If the context ended, the error is its cause: the caller's own error, which may wrap any of our errors and
		// says nothing about a write.
		if ctx.Err() == nil && refused(err) {
			return nil, &feed.WriteError{Index: tx.failed, Write: writes[tx.failed].Write, Err: err}
		}
		return nil, fmt.Errorf("commit to %q: %w", l.spec.ID, err)
	}
	return tx, nil
}

// prepareBatch prepares a batch. prepareBatch does all the work the caller's goroutine can do, because the committer
// serves every writer of the store.
func (p *LogicalPartition) prepareBatch(l *layout, writes []Write, refusals []error) (*transaction, error) {
	if len(writes) == 0 || len(writes) > maxBatch {
		return nil, fmt.Errorf("%w: %d writes: want 1 to %d", ErrBatchLimit, len(writes), maxBatch)
	}
	pk := p.pk
	tx := &transaction{c: p.c, refusals: refusals}
	if tx.writes = tx.single.write[:]; len(writes) > 1 {
		tx.writes = make([]write, len(writes))
	}
	for i, w := range writes {
		tx.writes[i].Write = w
		tx.size += len(w.Body)
		key, err := tx.writes[i].parseBody(p.c, l, pk)
		switch {
		case err == nil:
			pk = key
		case refusals == nil || !refused(err):
			return nil, &feed.WriteError{Index: i, Write: w.Write, Err: err}
		default:
			refusals[i] = err
		}
	}
	// For a single write, only the limit of a document counts.
	if len(writes) > 1 && tx.size > maxBatchBytes {
		return nil, fmt.Errorf("%w: %d bytes: want at most %d", ErrBatchLimit, tx.size, maxBatchBytes)
	}
	if pk == "" {
		return nil, refuse("partition key is empty: want one such as %s", feed.Key("London"))
	}
	tx.pk, tx.epk = pk, p.epk
	if p.epk == "" {
		var err error
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

// chargeOf returns the charge for the write, or the read, of a document of this size.
func chargeOf(op feed.WriteOp, bytes int) float64 {
	switch op {
	case feed.WriteRead:
		return service.ReadCharge(bytes)
	case feed.WritePatch:
		return service.PatchCharge(bytes)
	}
	return service.WriteCharge(bytes)
}

// item returns the document stored by a transaction of a single write.
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

// place is hashKey for a parsed key.
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
