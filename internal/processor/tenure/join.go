package tenure

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/processor/dispatch"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
)

// How one lease replaces two neighbouring leases
//
// Two leases can only be joined exactly when both are at the same LSN. So the workers of both meet first, in memory:
//
//	1  each worker stops reading, and handles all that it has read
//	2  the worker that is behind reads up to the LSN of the other, and no further
//
// If that takes longer than Options.Drain, or if both skip different changes from there because they began at different
// times, both go on as if nothing had happened. Otherwise both workers end and write:
//
//	3  each marks its lease as splitting, without parts  (updates under their ETags: only the owner can)
//	4  the left worker creates the lease of both         (its rank is above both, see package rank)
//	5  each deletes its lease                            (or marks it retired, without the right to delete)
//
// A crash before step 4 leaves leases that are marked and not covered: the next owner makes each of them live again, at
// the position where it was. A crash after step 4 leaves marked leases that a lease of a higher rank covers: the next
// owner deletes each of them. This is also what older versions do with a splitting lease without parts.
//
// The answer to the create may be lost, and the create may arrive late. So each mark says until when the lease of both
// must exist, by the store's clock. A lease that is created later counts as deleted. Nobody makes a marked lease live
// again before that time, and then only if two listings do not show the lease of both: during a split of that lease, a
// single listing may show neither the lease nor its parts.

// join is the work of one of the workers.
type join struct {
	w    *worker
	seat *instance.Seat
}

// meet brings the lease to the LSN of a neighbouring lease, so that both can be joined. If the leases cannot be joined
// now, meet returns no Ending, and the work goes on.
func (j join) meet() instance.Ending {
	j.w.dropReadAhead()
	ctx, cancel := context.WithTimeout(j.w.held.UntilStopped, j.w.in.Options.Drain)
	defer cancel()
	if ok := j.agree(ctx); !ok || !j.w.held.Ending().None() {
		j.w.held.Leave()
		j.w.in.Wake() // a lease that was given to this instance for the join may be too many now
		return j.w.held.Ending()
	}
	return instance.Ending{Why: feed.ReasonJoined, Seat: j.seat}
}

// agree brings both leases to the same LSN, and reports whether a lease that goes on there skips the same changes as
// each of them.
func (j join) agree(ctx context.Context) (ok bool) {
	lsn, ok := j.settle(ctx)
	if !ok {
		return false
	}
	mine := instance.Word{LSN: lsn, Since: j.w.in.View.Since(j.w.dispatcher.ReadFrom())}
	other, ok := j.seat.Exchange(ctx, mine)
	if !ok || !j.readUpTo(ctx, lsn, other.LSN) {
		return false
	}
	if !mine.Since.IsZero() && !mine.Since.Equal(other.Since) && j.isBeyond(ctx, mine.Since) {
		mine.Since, j.seat.Past = time.Time{}, true
	}
	other, ok = j.seat.Exchange(ctx, mine)
	return ok && mine.Since.Equal(other.Since)
}

// mostLooks limits the reads that look for the end of the feed.
const mostLooks = 10

// isBeyond reports whether all changes after the position were committed at a time or later: the next change was, or
// there is none yet.
func (j join) isBeyond(ctx context.Context, since time.Time) bool {
	at := feed.Position{Token: j.w.dispatcher.ReadFrom().Token}
	for range mostLooks {
		page, err := j.w.fetchPage(ctx, at)
		if err != nil {
			return false // the next read of the work tells the user
		}
		if len(page.Changes) > 0 {
			return !slices.ContainsFunc(page.Changes, func(c feed.Change) bool { return c.Time.Before(since) })
		}
		lsn, counted := records.TokenLSN(j.w.in.Source, page.Next.Token)
		if page.Next.Token == at.Token || counted && page.Head > 0 && lsn >= page.Head { // the end of the feed
			return since.Add(records.ClockGrain).Before(j.w.in.View.Now())
		}
		at.Token = page.Next.Token
	}
	return false
}

// settlePause is how often a worker looks whether all that it has read is done.
const settlePause = 20 * time.Millisecond

// settle waits until all that was read is done, and returns the LSN of the position.
func (j join) settle(ctx context.Context) (lsn int64, ok bool) {
	j.w.held.Activity.WorkerDoes(feed.ActivityWaiting)
	for {
		at, settled := dispatch.Settled(j.w.dispatcher)
		if settled {
			return records.TokenLSN(j.w.in.Source, at.Token)
		}
		if pause.For(ctx, settlePause) != nil {
			return 0, false
		}
	}
}

// readUpTo reads and delivers the changes up to the LSN of the neighbour, and reports whether all of them are done. A
// worker that is ahead has nothing to read.
func (j join) readUpTo(ctx context.Context, lsn, end int64) (ok bool) {
	for lsn < end {
		page, err := j.w.fetchPage(ctx, j.w.dispatcher.ReadFrom())
		if err != nil {
			return false // the next read of the work tells the user
		}
		if page, ok = j.cutPage(page, end); !ok {
			return false
		}
		page.Changes = j.w.in.Wanted(page.Changes)
		if len(page.Changes) == 0 {
			j.w.dispatcher.Pass(page.Next, 0, false)
		} else if e := j.w.dispatcher.Deliver(page); !e.None() {
			return false
		}
		before := lsn
		if lsn, ok = j.settle(ctx); !ok {
			return false
		}
		if lsn == before && pause.For(ctx, settlePause) != nil { // a replica lags behind
			return false
		}
	}
	return true
}

// cutPage drops the changes of a page after an LSN, and ends the page there.
func (j join) cutPage(page feed.Page, end int64) (cut feed.Page, ok bool) {
	next, counted := records.TokenLSN(j.w.in.Source, page.Next.Token)
	if !counted || next <= end {
		return page, counted
	}
	for n, c := range page.Changes {
		if c.LSN > end {
			page.Changes = page.Changes[:n]
			break
		}
	}
	page.Next, ok = records.PositionAfter(j.w.in.Source, end, page.Next)
	return page, ok
}

// joinLease replaces the lease and its neighbour by a lease of both.
func (j join) joinLease() feed.Reason {
	defer j.seat.End()
	if !j.w.held.Ending().None() { // told to stop since
		return j.w.giveUp(j.w.held.Ending())
	}
	mine, err := j.markJoining()
	if err != nil {
		j.w.held.Report(j.w.held.UntilLost, feed.OriginLeaseStore, fmt.Errorf("join: %w", err))
		return feed.ReasonLost // the next owner, which may be this instance, goes on
	}
	heard, ok := j.seat.Exchange(j.w.held.UntilDrained, instance.Word{Lease: mine})
	made := instance.Unmade
	switch {
	case j.seat.IsLeft && ok:
		made = j.makeJoint(mine, heard.Lease)
		j.seat.Say(instance.Word{Made: made})
	case ok:
		made = j.hearWhetherMade()
	case !j.seat.IsLeft && !j.seat.IsOver(): // the other worker may have the mark of this lease
		made = instance.MadePerhaps
	}
	return j.endJoin(made)
}

// markJoining marks the lease as about to be joined, and returns the lease as stored.
func (j join) markJoining() (mine feed.Record, err error) {
	j.w.dispatcher.Freeze() // the lease of both begins at the stored position
	ctx, cancel := context.WithTimeout(j.w.held.UntilDrained, j.w.in.Options.Drain)
	defer cancel()
	if j.seat.Past {
		if err := j.w.keeper.dropStart(ctx); err != nil {
			return mine, err
		}
	}
	until := j.w.in.View.Now().Add(j.w.in.Options.Expiration)
	if err := j.w.keeper.storeWith(ctx, func(l *feed.Record) {
		if l.State == feed.StateLive {
			records.MarkJoining(l, j.seat.Of, until)
		}
	}); err != nil {
		return mine, err
	}
	err = j.w.keeper.changeNextWrite(ctx, func(*feed.Record) { mine = j.w.keeper.stored })
	return mine, err
}

// endJoin deletes the lease, if the lease of both was made; makes it live again, if it never will be; and otherwise
// leaves the lease to expire, because no instance may begin before that is known.
func (j join) endJoin(made instance.Made) feed.Reason {
	switch made {
	case instance.MadeInTime:
		ctx, cancel := context.WithTimeout(j.w.held.UntilDrained, records.StoreTimeout)
		defer cancel()
		if err := j.w.deleteLease(ctx); err != nil { // the next owner tries again
			j.w.held.Report(j.w.held.UntilLost, feed.OriginLeaseStore, fmt.Errorf("join: %w", err))
		}
		return feed.ReasonJoined
	case instance.Unmade:
		e := instance.Ending{Why: feed.ReasonJoined, Undone: true}
		if _, stopping := j.w.in.Claims.All(); !stopping {
			e.To = j.w.in.Me
		}
		return j.w.writeNextOwner(e)
	}
	return feed.ReasonLost
}

// makeJoint creates the lease of two marked leases, with this instance as owner, begins to work on it, and says whether
// the lease exists.
func (j join) makeJoint(left, right feed.Record) instance.Made {
	joint, until, ok := j.planJoint(left, right)
	if !ok || !j.w.in.Claims.Claim(joint.Range) {
		return instance.Unmade
	}
	for failures := 1; ; failures++ {
		started := time.Now()
		joint.Timestamp = instance.Timestamp() // a create that is late is then not taken for another
		records.SetDue(&joint, until)
		ctx, cancel := context.WithTimeout(j.w.held.UntilDrained, records.StoreTimeout)
		got, err := j.w.in.View.CreateAnew(ctx, joint)
		made, known := j.judgeJoint(ctx, left, got, err, until)
		cancel()
		switch {
		case known && made && err == nil:
			j.w.in.Begin(got, started, false)
			return instance.MadeInTime
		case known && made: // the next round begins, as with a gift
			j.w.in.Claims.Free(joint.Range)
			return instance.MadeInTime
		case known:
			j.w.in.Claims.Free(joint.Range)
			return instance.Unmade
		case !j.w.held.Ending().None():
			j.w.in.Claims.Free(joint.Range)
			return instance.MadePerhaps
		}
		if err != nil {
			j.w.held.Report(j.w.held.UntilStopped, feed.OriginLeaseStore, fmt.Errorf("join: %w", err))
		}
		j.w.held.Backoff(failures, 0)
	}
}

// hearWhetherMade waits for the left worker to say whether the lease of both exists.
func (j join) hearWhetherMade() instance.Made {
	heard, ok := j.seat.Hear(j.w.held.UntilDrained)
	if !ok && !j.seat.IsOver() {
		return instance.MadePerhaps
	}
	if !ok { // the worker may have said so just before it ended
		heard, _ = j.seat.Hear(j.w.held.UntilDrained)
	}
	return heard.Made
}

// planJoint returns the lease that replaces two marked leases, and until when its create has to arrive. ok is false if
// the leases cannot be joined after all.
func (j join) planJoint(left, right feed.Record) (joint feed.Record, until time.Time, ok bool) {
	ctx, cancel := context.WithTimeout(j.w.held.UntilDrained, records.StoreTimeout)
	defer cancel()
	partitions, err := j.w.in.Source.Partitions(ctx)
	if err == nil {
		err = j.w.in.View.List(ctx, time.Now())
	}
	l, marked := records.JoiningOf(left)
	r, alsoMarked := records.JoiningOf(right)
	if err != nil || !marked || !alsoMarked || !j.w.in.View.CanJoin(left, right) {
		j.w.held.Report(j.w.held.UntilStopped, feed.OriginSource, err)
		return joint, until, false
	}
	joint = records.Joint(left, right)
	for _, of := range []feed.Record{left, right} { // another kind of processor ignores the marks
		if now, _ := j.w.in.View.Get(of.ID); records.OwnerOf(now) != j.w.in.Me {
			return joint, until, false
		}
	}
	if slices.ContainsFunc(j.w.in.View.Pauses(), joint.Range.Overlaps) { // the lease of both would be paused as a whole
		return joint, until, false
	}
	if others := j.w.in.View.LeasesWhere(func(other feed.Record) bool {
		return other.ID != left.ID && other.ID != right.ID && other.State != feed.StateRetired &&
			other.Range.Overlaps(joint.Range)
	}); len(others) > 0 {
		return joint, until, false // one of them would be read beside the lease of both
	}
	until = l.Until
	if r.Until.Before(until) {
		until = r.Until
	}
	joint.Owner, joint.Epoch, joint.Expiration = j.w.in.Me.Instance, j.w.in.Me.Epoch, j.w.in.Options.Expiration
	records.BeginTerm(&joint)
	return joint, until, isInOne(partitions, joint.Range) && j.leavesEnough()
}

// leavesEnough reports whether the unit keeps as many leases as it should have, if all leases are joined that are
// marked. An instance with another view may have chosen other pairs. Of two such instances, the one that marks later
// sees the marks of the other one.
func (j join) leavesEnough() bool {
	left := map[string]bool{}
	all, _ := j.w.in.View.Leases()
	for _, l := range all {
		keys := l.Range.String()
		if mark, joining := records.JoiningOf(l); joining {
			keys = mark.Into
		}
		left[keys] = true
	}
	return len(left) >= j.seat.Least
}

// isInOne reports whether a single partition contains a range.
func isInOne(partitions []feed.Partition, r feed.Range) bool {
	for _, p := range partitions {
		if p.Range.Contains(r) {
			return true
		}
	}
	return false
}

// judgeJoint says whether the lease of both exists, after the answer to a create; left is one of the two leases. known
// is false as long as a create may still arrive in time.
func (j join) judgeJoint(ctx context.Context, left, got feed.Record, err error, until time.Time) (made, known bool) {
	if err == nil {
		j.w.in.View.Put(got)
		if records.IsLate(got) {
			return false, true
		}
		// the worker must see what was asked of the leases meanwhile
		return true, j.w.in.View.List(ctx, time.Now()) == nil
	}
	over := j.w.in.View.Now().After(until.Add(records.ClockGrain))
	if j.w.in.View.List(ctx, time.Now()) != nil {
		return false, false
	}
	made = len(j.w.uncoveredParts(left)) == 0
	return made, made || over
}

// awaitJoint waits until it is sure whether the lease of both leases exists, if an earlier owner has begun to join the
// lease. sure is false if the work must end before.
func awaitJoint(w *worker) (joining, sure bool) {
	mark, joining := records.JoiningOf(w.held.Lease)
	if !joining {
		return false, true
	}
	ctx, cancel := context.WithTimeout(w.held.UntilStopped, records.StoreTimeout)
	defer cancel()
	if w.in.View.List(ctx, time.Now()) == nil && len(w.uncoveredParts(w.held.Lease)) == 0 {
		return true, true
	}
	return true, pause.For(w.held.UntilStopped, mark.Until.Add(2*records.ClockGrain).Sub(w.in.View.Now())) == nil
}
