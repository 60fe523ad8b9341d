package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
)

// What a history of leases must be
//
// Each lease is a register of its own. Its history is right if some order of the requests,
// none before it was sent or after it was answered, explains every answer when
//
//   - a write is carried out exactly if its ETag is the stored one
//   - a listing shows the last write
//   - a lease is written by who owns it. Who does not may only take it: when it is free, or when its owner has been
//     silent for its expiration or has not begun since it was handed over, or at any time if it then does not move the
//     position before the end of this time
//   - the position never moves back, but in a retired lease made anew, or by a reset
//   - an operator writes a lease nobody works on, and leaves it without an owner; so does who removes an old mark
//
// A write without an answer may have had its effect before anybody was shown what it
// wrote. If nobody ever was, it had none that matters: the next write would have needed
// its ETag. Porcupine looks for the order.

// record is a lease in the model. The zero record is none.
type record struct {
	content
	there  bool
	by     *instance // who wrote it
	etag   string
	sent   int64 // when the write was begun that made it, by everybody's clock
	valid  int64 // how long its owner may be silent
	barred int64 // when the position may move, after a theft
	asMade bool  // its maker has not written it since it was made, and has said until when the create had to arrive

	unbegun bool // it was handed over, and its receiver has not begun
}

// content is the part of a write a listing must show again.
type content struct {
	lease    string // its token
	owner    owner
	token    string // the position's
	state    feed.State
	attempts int
	stamp    int64
	reset    string // for whom
	paused   bool
}

// isUntouched reports a lease nobody has worked on, as far as others can know. It may be left over from a late create:
// then whoever sees others cover its range removes it.
func (r record) isUntouched() bool {
	return r.there && (r.owner.name == "" && r.valid == 0 || r.asMade)
}

// mayBecome reports whether anybody may write a record over this one: to remove it without the right to delete, to
// adopt it because its create was late, or to make it anew as after a delete.
func (r record) mayBecome(next record) bool {
	removed, again := next.state == feed.StateRetired, next.isUntouched() && next.token == r.token
	return r.isUntouched() && (removed || again) || r.state == feed.StateRetired && next.state == feed.StateLive
}

// contentOf is the content of a lease.
func contentOf(record feed.Record) content {
	return content{
		record.Token,
		owner{record.Owner, record.Epoch},
		record.Position.Token, record.State,
		record.Attempts, record.Timestamp.UnixNano(), record.Properties[notes.ResetProperty],
		records.IsMarkedPaused(record),
	}
}

// lsn is how far the position is.
func (c content) lsn() int64 { return lsnOf(c.token) }

// look is a request in the history of one lease.
type look struct {
	*request
	shown   feed.Record
	present bool
}

// checkHistories examines the history of each lease, and reports wrong ones to the ledger. A write without an answer is
// known to have arrived if somebody was shown its content.
func (h *history) checkHistories(g *ledger) {
	h.mu.Lock()
	defer h.mu.Unlock()
	shown := map[content]sight{}
	for _, s := range h.sights {
		if c := contentOf(s.lease); shown[c].at == 0 {
			shown[c] = s
		}
	}
	looks := map[string][]*look{}
	for _, q := range h.requests {
		q.me = h.owners[q.by]
		writes := q.verb == create || q.verb == update
		if first, known := shown[contentOf(q.sent)]; known && writes && q.ending == unknown {
			q.told, q.etag = max(q.asked, first.at), first.lease.ETag
		}
		// A delete without an answer stays in, although nobody can be shown it: the
		// lease may be gone by it.
		if q.verb == remove || q.verb != list && q.told != never {
			looks[q.sent.Token] = append(looks[q.sent.Token], &look{request: q})
		}
	}
	for token, all := range looks {
		for _, q := range h.requests {
			if q.verb == list && q.ending == done {
				record, present := q.listed[token]
				all = append(all, &look{q, record, present})
			}
		}
		if at := explain(all); at != nil {
			slices.SortFunc(all, func(a, b *look) int { return cmp.Compare(a.asked, b.asked) })
			for _, l := range all {
				g.note("history of %s: %d-%d: %v, ETag %s, then %s", token, l.asked, l.told, l, l.sent.ETag, l.etag)
			}
			g.fail("history of %s: no order explains what %v", token, at)
		}
	}
}

// explain returns nil if the answers have an explanation, and else the request at which the
// longest explanation ends.
func explain(looks []*look) fmt.Stringer {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{record{}} },
		Step: func(state, input, _ any) (next []any) {
			for _, r := range input.(*look).statesAfter(state.(record)) {
				next = append(next, r)
			}
			return next
		},
	}
	var operations []porcupine.Operation
	for _, l := range looks {
		operations = append(operations, porcupine.Operation{Input: l, Call: l.asked, Return: l.told})
	}
	result, info := porcupine.CheckOperationsVerbose(model.ToModel(), operations, 0)
	if result == porcupine.Ok {
		return nil
	}
	return firstOutside(looks, info.PartialLinearizations()[0])
}

// firstOutside is the first request for which the longest of some orders has no place.
func firstOutside(looks []*look, orders [][]int) (first *look) {
	longest := slices.MaxFunc(orders, func(a, b []int) int { return len(a) - len(b) })
	for i, l := range looks {
		if !slices.Contains(longest, i) && (first == nil || l.told < first.told) {
			first = l
		}
	}
	return first
}

// String describes a request of a broken history.
func (l *look) String() string {
	what := [...]string{"lists", "creates", "updates", "deletes"}[l.verb]
	how := [...]string{"no answer", "done", "conflict", "not found"}[l.ending]
	return fmt.Sprintf("%v was told at %s, when it %s %+v, sees %+v: %s",
		l.by, l.begun.Format("15:04:05.000"), what, contentOf(l.sent), contentOf(l.shown), how)
}

// statesAfter lists the possible states of the lease after a request which found it as r: none, if the answer cannot
// be. A write without an answer may have been carried out or not.
func (l *look) statesAfter(r record) []record {
	next, allowed := l.recordAfter(r)
	switch {
	case allowed && l.ending == done:
		return []record{next}
	case allowed && l.ending == unknown:
		return []record{r, next}
	case l.isRefused(r):
		return []record{r}
	}
	return nil
}

// recordAfter is the record after the request was carried out, and whether this may happen to r.
func (l *look) recordAfter(r record) (next record, allowed bool) {
	switch l.verb {
	case create:
		return l.storedRecord(), !r.there
	case update:
		next, allowed = l.updatedRecord(r)
		return next, allowed && l.meetsCondition(r)
	case remove:
		return record{}, l.meetsCondition(r) && (r.owner == l.me || r.isUntouched())
	}
	return r, l.present == r.there && (!r.there || contentOf(l.shown) == r.content && l.shown.ETag == r.etag)
}

// meetsCondition reports whether the condition of a write holds: that nothing is there, or the version its sender has
// seen.
func (l *look) meetsCondition(r record) bool {
	if l.verb == create {
		return !r.there
	}
	return r.there && r.etag == l.sent.ETag
}

// isRefused reports whether the answer can mean that the request has left r as it was.
func (l *look) isRefused(r record) bool {
	switch l.ending {
	case unknown:
		return true
	case conflict:
		return r.there && !l.meetsCondition(r)
	case missing:
		return !r.there
	}
	return false
}

// storedRecord is the record left by the request's write.
func (l *look) storedRecord() record {
	return record{
		content: contentOf(l.sent), there: true, by: l.by, etag: l.etag, sent: l.begun.UnixNano(),
		valid: int64(l.sent.Expiration), asMade: l.verb == create && l.sent.Properties[notes.DueProperty] != "",
		unbegun: records.IsUnbegun(l.sent),
	}
}

// updatedRecord is the record after an update, and whether its writer may have made it of r.
func (l *look) updatedRecord(r record) (next record, allowed bool) {
	next = l.storedRecord()
	barred := r.barred
	// A release or a handover whose answer was lost is sent again. Meanwhile the handler may have confirmed more
	// changes. Nobody has had the lease in between, because the ETag is that of the first write, and a receiver writes
	// before it begins.
	isFurther := (r.owner.name == "" || r.unbegun) && r.lsn() <= next.lsn()
	again := r.by == l.by && next.owner == r.owner && (next.token == r.token || isFurther)
	switch {
	case l.by.steers:
		return l.steeredRecord(r, next)
	case r.mayBecome(next): // to make a lease over one that counts as deleted is to create it
		next.asMade = r.state == feed.StateRetired && l.sent.Properties[notes.DueProperty] != ""
		return next, true
	case r.owner == l.me && next.isReset(r):
		return next, true
	case r.paused && !next.paused && next.owner == (owner{}) && next.token == r.token: // the pause is over
		next.barred = barred
		return next, r.owner.name == "" || l.endedAt() >= r.sent+r.valid
	}
	if r.owner != l.me && !again {
		if next.owner != l.me || next.token != r.token {
			return next, false // neither by the owner nor to take the lease
		}
		if r.owner.name != "" && !r.unbegun {
			barred = max(barred, r.sent+r.valid)
		}
	}
	if !l.sent.Fence.IsZero() && next.token == r.token || r.token == "" && r.owner == l.me {
		next.barred = barred
		return next, true
	}
	return next, l.endedAt() >= barred && next.lsn() >= r.lsn()
}

// isReset reports whether a record is the one before after a reset by the owner.
func (r record) isReset(before record) bool {
	return r.owner == owner{} && r.reset != "" && r.reset != before.reset
}

// steeredRecord is the record after an operator's update, and whether an operator may have made it of r: the lease has
// no owner, or one who has been silent for too long. The witness knows which positions operators have asked for.
func (l *look) steeredRecord(r, next record) (record, bool) {
	if next.owner != (owner{}) {
		return next, false
	}
	barred := r.barred
	if r.owner.name != "" {
		barred = max(barred, r.sent+r.valid)
	}
	return next, l.endedAt() >= barred
}

// endedAt is when a request has ended at the latest. A write without an answer may arrive at any time, so after any
// bar.
func (l *look) endedAt() int64 {
	if l.ending == unknown {
		return never
	}
	return l.ended.UnixNano()
}
