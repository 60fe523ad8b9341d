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
)

// Bulks contain independent operations, which SDKs collect for the same partition.

// bulk carries out operations. Operations of the same key run in order, and different keys run at the same time, so
// they share a flush of the disk.
type bulk struct {
	steps    []step
	places   []logical // where each goes; zero if its key cannot be understood
	outcomes []outcome
	answered atomic.Int64 // bytes of items in the outcomes so far
}

// writeBulk carries out a bulk. All keys run at the same time, unless the client wants to stop at the first error.
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
	b.answerSessions(c, cont)
	return b.outcomes, nil
}

// answerSessions charges each operation, and answers with the session token of every partition that was written or
// read.
func (b *bulk) answerSessions(c *call, cont *docstore.Container) {
	var sessions []string
	var newest int64
	seen := map[string]bool{}
	for i := range b.steps {
		p := &b.places[i]
		if p.cont == nil { // no partition spends its budget on it
			c.out.Charge += b.outcomes[i].charge
			continue
		}
		c.chargeRequest(p.cont, p.part.ID, b.outcomes[i].charge)
		_, newest = p.Partition()
		if !seen[p.part.ID] {
			seen[p.part.ID] = true
			sessions = append(sessions, wire.SessionToken(c.out.Version, p.part.ID, newest))
		}
		c.out.Range = p.part.ID // as the LSN
	}
	if len(sessions) == 0 { // no operation has a partition
		part := cont.PartitionAt("")
		c.out.SetSession(part.ID, cont.Newest(part.Range.Min))
		return
	}
	c.out.SetLSN(newest)
	c.out.Set(wire.AnswerSession, strings.Join(sessions, ","))
}

// locateOperations finds the partition of each operation. If the client named a range that has been split, or if a
// key is outside the range, no operation is carried out, so the client can group its operations again.
func (b *bulk) locateOperations(c *call, cont *docstore.Container) error {
	own, err := c.in.Key()
	if err != nil {
		return err
	}
	// A client groups its operations by the ranges that it knows. With this header, the client learns that its ranges
	// are out of date.
	var wanted feed.Partition
	if id := c.in.Header(wire.HeaderRangeID); id != "" {
		if wanted, err = c.findPartition(cont, id); err != nil {
			return err
		}
	}
	for i := range b.steps {
		s := &b.steps[i]
		p, err := s.locateKey(cont, own)
		switch {
		case err != nil: // nobody can say where the operation would go
			s.wrong = cmp.Or(s.wrong, err)
			continue
		case wanted.ID != "" && p.part.ID != wanted.ID:
			return wire.Gone("operation %d of the batch is of partition %s, not of %s: read the ranges again", i,
				p.part.ID, wanted.ID)
		}
		b.places[i] = p
		s.wrong = cmp.Or(s.wrong, p.refuseLongKey(c.s, s.write.Op))
	}
	return b.admitOperations(c)
}

// locateKey finds the partition key of an operation; own is the key of the request, for an
// operation without a key.
func (s *step) locateKey(cont *docstore.Container, own feed.PartitionKey) (logical, error) {
	key := own
	if s.keyed {
		var err error
		if key, err = wire.Key(s.key); err != nil {
			return logical{}, wire.BadRequest("partitionKey: %v", err)
		}
	}
	if key == "" {
		return logical{}, wire.BadRequest(`partitionKey is missing: want a string such as "[\"London\"]"`)
	}
	p, err := locate(cont, key)
	if err != nil {
		return logical{}, wire.BadRequest("partitionKey: %v", err)
	}
	return p, nil
}

// admitOperations refuses what cannot be carried out: operations that make no sense, those whose
// partition has used up its budget, and reads that the session is ahead of. If all
// partitions have used up theirs, the request is refused as a whole, because SDKs wait for
// as long as an answer says and not for as long as a result does.
func (b *bulk) admitOperations(c *call) error {
	budgets := map[string]error{} // by partition: why the partition accepts no operation, or nil
	var full error
	throttled := true
	for i := range b.places {
		p := &b.places[i]
		if p.cont == nil {
			b.outcomes[i] = refused(b.steps[i].wrong)
			continue
		}
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

// runAll runs all keys at the same time. Operations of the same key run in order, because two of them may write the
// same item.
func (b *bulk) runAll(ctx context.Context) {
	lines := map[feed.PartitionKey][]int{} // by key, the indexes of the operations
	for i, p := range b.places {
		if b.outcomes[i].status == 0 { // not refused before
			lines[p.Key()] = append(lines[p.Key()], i)
		}
	}
	var wait sync.WaitGroup
	for _, line := range lines {
		wait.Go(func() { b.runLine(ctx, line) })
	}
	wait.Wait()
}

// runLine runs the operations of a key in order. As in the service, they have a single LSN, and an operation that is
// refused has no effect. Operations that are too large together run one by one.
func (b *bulk) runLine(ctx context.Context, line []int) {
	if len(line) > 1 && b.commitLine(ctx, line) == nil {
		return
	}
	for _, i := range line {
		b.runOperation(ctx, i)
	}
}

// commitLine runs the operations of a key that are not refused. After an error, no operation has run.
func (b *bulk) commitLine(ctx context.Context, line []int) error {
	steps := make([]step, len(line))
	for at, i := range line {
		steps[at] = b.steps[i]
	}
	writes, stepOf, err := writesOf(steps)
	if err != nil {
		return err
	}
	done, refusals, err := b.places[line[0]].CommitEach(ctx, writes)
	if err != nil {
		return err
	}
	outcomes := outcomesOf(steps, stepOf, done.Results)
	for w, at := range stepOf {
		if refusals[w] != nil {
			outcomes[at] = refused(refusals[w])
		}
	}
	for at, o := range outcomes {
		b.outcomes[line[at]] = b.cutToFit(o, steps[at].write.Op)
	}
	return nil
}

// runUntilError runs the operations in order until an operation fails.
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

// runOperation carries out an operation, unless the operation has been refused already.
func (b *bulk) runOperation(ctx context.Context, i int) {
	if b.outcomes[i].status != 0 {
		return
	}
	s, p := &b.steps[i], b.places[i]
	w := s.write
	writes := []docstore.Write{w}
	if old, renames := splitRename(&w); renames {
		writes = []docstore.Write{old, w}
	}
	done, err := p.Commit(ctx, writes)
	if err != nil {
		b.outcomes[i] = refused(err)
		return
	}
	last := len(done.Results) - 1
	o := s.outcomeOf(done.Results[last])
	for _, before := range done.Results[:last] {
		o.charge += before.Charge
	}
	b.outcomes[i] = b.cutToFit(o, s.write.Op)
}

// cutToFit cuts an outcome to the room left in the answer, which is at most as large as a page. If there is no room,
// a read is refused and must be sent again in another request, and the body of a patched item is left out. Other
// bodies came with the request, so the size of the request limits them.
func (b *bulk) cutToFit(o outcome, op feed.WriteOp) outcome {
	made := op == feed.WriteRead || op == feed.WritePatch // other bodies came with the request
	if !made || len(o.body) == 0 || b.answered.Add(int64(len(o.body))) <= wire.MaxPage {
		return o
	}
	if op == feed.WriteRead {
		return outcome{
			status: http.StatusRequestEntityTooLarge, sub: wire.SubAnswerTooLarge, charge: o.charge,
			message: "the answer has no room for the item: want fewer reads in one request",
		}
	}
	o.body = nil
	return o
}
