package docstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/internal/epk"
	"github.com/millrace/changefeed/internal/service"
)

// LogicalPartition is a partition key of a container, with its documents. The key is
// read and hashed once for everything that a request does with it. It remains valid
// when partitions split and merge.
type LogicalPartition struct {
	c   *Container
	pk  string           // the key as the store has it
	epk string           // its effective partition key; empty for one that lacks its last levels
	rng changefeed.Range // of epk, or of all keys that begin like pk
}

// LogicalPartition finds a partition key. A hierarchical key may lack its last levels:
// then it can be read and not written.
func (c *Container) LogicalPartition(key changefeed.PartitionKey) (LogicalPartition, error) {
	rng, pk, err := c.layout.Load().keyRange(string(key))
	if err != nil {
		return LogicalPartition{}, fmt.Errorf("locate in %q: %w", c.ID(), err)
	}
	if pk == "" {
		pk, err = canonicalKey(string(key))
		return LogicalPartition{c: c, pk: pk, rng: rng}, err
	}
	return LogicalPartition{c: c, pk: pk, epk: rng.Min, rng: rng}, nil
}

// Key returns the partition key in the one form that it has in the store.
func (p *LogicalPartition) Key() changefeed.PartitionKey { return changefeed.PartitionKey(p.pk) }

// Range returns the place of the key in the key space.
func (p *LogicalPartition) Range() changefeed.Range { return p.rng }

// Partition returns the physical partition that has the key now, and the LSN of its
// newest change.
func (p *LogicalPartition) Partition() (part changefeed.Partition, newest int64) {
	at := p.c.layout.Load().at(p.rng.Min)
	return changefeed.Partition{ID: at.id(), Range: at.rng, Parents: at.parents}, min(at.newest.Load(), p.c.head.Load())
}

// Item returns a document, or [changefeed.ErrNotFound].
func (p *LogicalPartition) Item(ctx context.Context, id string) (Item, error) {
	if err := p.c.usable(ctx); err != nil {
		return Item{}, err
	}
	epk := p.epk
	if epk == "" {
		var err error
		if epk, err = p.c.layout.Load().hashKey(p.pk); err != nil { // says which levels are missing
			return Item{}, err
		}
	}
	it, found, err := p.c.item(ctx, docKey(p.c.num, epk, p.pk, id))
	if err == nil && !found {
		err = changefeed.ErrNotFound
	}
	if err != nil {
		return Item{}, fmt.Errorf("read item %q of %q: %w", id, p.c.ID(), err)
	}
	return it, nil
}

// Commit is the answer to a batch of writes. Partition and Newest are set for a refused
// batch too, because the server's answer has a session token either way.
type Commit struct {
	Results   []changefeed.Result  // one for each write; nil when the batch was refused
	Charge    float64              // request units of all of them
	Partition changefeed.Partition // the physical partition that has the key
	Newest    int64                // LSN of its newest change
}

// Commit is [Container.Commit] with conditions for some of the writes, by index. Where
// the document exists and does not meet the condition, the batch is refused with
// [changefeed.ErrPrecondition]. The server needs this for the condition of a patch,
// which must be decided in the write's turn and not before.
func (p *LogicalPartition) Commit(ctx context.Context, writes []changefeed.Write, conds map[int]Condition) (Commit, error) {
	r, err := p.c.commit(ctx, *p, writes, conds)
	var done Commit
	done.Partition, done.Newest = p.Partition()
	if err != nil {
		done.Charge = service.MinCharge
		return done, err
	}
	done.Results = r.results
	for i := range r.results {
		done.Charge += r.results[i].Charge
	}
	return done, nil
}

// chargeOf returns the charge of a write that leaves, or reads, a document of so many
// bytes.
func chargeOf(op changefeed.WriteOp, bytes int) float64 {
	switch op {
	case changefeed.WriteRead:
		return service.ReadCharge(bytes)
	case changefeed.WritePatch:
		return service.PatchCharge(bytes)
	}
	return service.WriteCharge(bytes)
}

// item returns the document that a request of a single write has made.
func (r *request) item() Item {
	made := r.results[0]
	return Item{
		ID: r.ops[0].id, Key: changefeed.PartitionKey(r.pk), ETag: made.ETag, LSN: made.LSN,
		Time: time.UnixMilli(r.time).UTC(), Body: made.Body,
	}
}

// hashKey returns the effective partition key of a key.
func (l *layout) hashKey(pk string) (string, error) {
	parsed, err := epk.Parse(pk)
	if err != nil {
		return "", refuse("partition key is %s: %v", pk, err)
	}
	if len(parsed) != len(l.paths) {
		return "", fmt.Errorf("%w: %s has %d components: want %d, one for each of %s",
			ErrKeyMismatch, pk, len(parsed), len(l.paths), strings.Join(l.spec.Paths, " "))
	}
	h, err := epk.Hash(l.kind, parsed)
	if err != nil {
		return "", refuse("partition key %s: %v", pk, err)
	}
	return h, nil
}
