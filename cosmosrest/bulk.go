package cosmosrest

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Bulks: operations that do not depend on each other, as SDKs gather them for one
// partition.

// bulk carries out operations: those of one key in order, those of different keys at the
// same time, so that they share a flush of the disk.
type bulk struct {
	steps    []step
	places   []logical // where each goes
	outcomes []outcome
	answered atomic.Int64 // bytes of items in the outcomes
}

// writeBulk carries out a bulk. Unless the client wants to stop at the first error, all run
// at once.
func writeBulk(c *call, cont *docstore.Container, steps []step) ([]outcome, error) {
	b := bulk{steps: steps, places: make([]logical, len(steps)), outcomes: make([]outcome, len(steps))}
	if err := b.locateOperations(c, cont); err != nil {
		return nil, err
	}
	if c.in.Header(wire.HeaderContinueOnErr) != "" && !c.in.Flag(wire.HeaderContinueOnErr) {
		b.runUntilError(c.ctx)
	} else {
		b.runAll(c.ctx)
	}
	b.answerSessions(c)
	return b.outcomes, nil
}

// answerSessions charges each operation, and answers with the session token of every
// partition that was written or read.
func (b *bulk) answerSessions(c *call) {
	var sessions []string
	var newest int64
	seen := map[string]bool{}
	for i := range b.steps {
		p := &b.places[i]
		c.chargeRequest(p.cont, p.part.ID, b.outcomes[i].charge)
		_, newest = p.Partition()
		if !seen[p.part.ID] {
			seen[p.part.ID] = true
			sessions = append(sessions, service.SessionToken(p.part.ID, newest))
		}
	}
	c.out.Range = b.places[len(b.places)-1].part.ID // as the LSN
	c.out.SetLSN(newest)
	c.out.Set(wire.AnswerSession, strings.Join(sessions, ","))
}

// locateOperations finds the partition of each operation. If the client named a range that was split
// since, or that a key is not in, nothing at all is done, so that the client can sort its
// operations anew.
func (b *bulk) locateOperations(c *call, cont *docstore.Container) error {
	own, err := c.in.Key()
	if err != nil {
		return err
	}
	// A client sorts its operations by the ranges that it knows. The header is how it
	// learns that these are out of date.
	var wanted feed.Partition
	if id := c.in.Header(wire.HeaderRangeID); id != "" {
		if wanted, err = c.findPartition(cont, id); err != nil {
			return err
		}
	}
	for i := range b.steps {
		s, key := &b.steps[i], own
		if s.keyed {
			if key, err = wire.Key(s.key); err != nil {
				return wire.BadRequest("operation %d of the batch: partitionKey: %v", i, err)
			}
		}
		if key == "" {
			return wire.BadRequest(`operation %d of the batch: partitionKey is missing: want a string such as "[\"London\"]"`, i)
		}
		p, err := locate(cont, key)
		switch {
		case err != nil: // nobody can say where the operation would go
			return wire.BadRequest("operation %d of the batch: partitionKey: %v", i, err)
		case wanted.ID != "" && p.part.ID != wanted.ID:
			return wire.Gone("operation %d of the batch is of partition %s, not of %s: read the ranges again", i, p.part.ID, wanted.ID)
		}
		b.places[i] = p
	}
	return b.admitOperations(c)
}

// admitOperations refuses what cannot be carried out: operations that make no sense, those whose
// partition has used up its budget, and reads that the session is ahead of. If all
// partitions have used up theirs, the request is refused as a whole, because SDKs wait for
// as long as an answer says and not for as long as a result does.
func (b *bulk) admitOperations(c *call) error {
	budgets := map[string]error{} // by partition: why it takes nothing, or nil
	var full error
	throttled := true
	for i := range b.places {
		p := &b.places[i]
		if _, asked := budgets[p.part.ID]; !asked {
			err := c.admitRequest(p.cont, p.part.ID)
			budgets[p.part.ID] = err
			full, throttled = cmp.Or(full, err), throttled && err != nil
		}
		if err := cmp.Or(b.steps[i].wrong, budgets[p.part.ID], p.checkSession(&c.in, b.steps[i:i+1])); err != nil {
			b.outcomes[i] = refused(err)
		}
	}
	if throttled {
		return full
	}
	return nil
}

// runAll runs all keys at the same time, and operations of the same key in order, because two of
// them may write the same item.
func (b *bulk) runAll(ctx context.Context) {
	lines := map[feed.PartitionKey][]int{} // by key, the indexes of its operations
	for i, p := range b.places {
		lines[p.Key()] = append(lines[p.Key()], i)
	}
	var wait sync.WaitGroup
	for _, line := range lines {
		wait.Go(func() {
			for _, i := range line {
				b.runOperation(ctx, i)
			}
		})
	}
	wait.Wait()
}

// runUntilError runs the operations in order, and none after the first that fails.
func (b *bulk) runUntilError(ctx context.Context) {
	for i := range b.steps {
		if b.runOperation(ctx, i); b.outcomes[i].status < http.StatusBadRequest {
			continue
		}
		for rest := i + 1; rest < len(b.steps); rest++ {
			b.outcomes[rest] = dependent
		}
		return
	}
}

// runOperation carries out an operation, unless it was refused before.
func (b *bulk) runOperation(ctx context.Context, i int) {
	if b.outcomes[i].status != 0 {
		return
	}
	s, p := &b.steps[i], b.places[i]
	done, err := p.Commit(ctx, []docstore.Write{s.write})
	if err != nil {
		b.outcomes[i] = refused(err)
		return
	}
	b.outcomes[i] = b.cutToFit(s.outcomeOf(done.Results[0]), s.write.Op)
}

// cutToFit is an outcome cut to the room in the answer, which is no larger than a page: a
// read must be sent again in another request, and a patched item is left out. Other bodies
// came with the request, so their size is bounded by it.
func (b *bulk) cutToFit(o outcome, op feed.WriteOp) outcome {
	made := op == feed.WriteRead || op == feed.WritePatch // the others came with the request
	if !made || len(o.body) == 0 || b.answered.Add(int64(len(o.body))) <= wire.MaxPage {
		return o
	}
	if op == feed.WriteRead {
		return outcome{status: http.StatusRequestEntityTooLarge, sub: wire.SubAnswerTooLarge, charge: o.charge, message: "the answer has no room for the item: want fewer reads in one request"}
	}
	o.body = nil
	return o
}
