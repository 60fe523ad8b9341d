package sim

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
)

// The rules of pauses and resets:
//
//   - after a pause has returned and until its resume is called, no handler has a batch of its range
//   - a lease moves back, or over unhandled changes, only by a reset at an operator's request, to the requested
//     position, and by one request once
//   - a returned reset was carried out
//   - every change after the position of a reset is handled again, and no owner after the reset gets one before it
//   - no owner from before a reset writes the lease after it
//   - exactly the changes named by an operator are skipped, and a replay of a key delivers all of the key after its
//     position: see singles.go

// steering is the knowledge of the ledger about pauses and resets.
type steering struct {
	paused   []feed.Range             // their pauses have returned
	requests map[string]ask           // for resets, by their callers
	made     map[string]feed.Position // resets that were carried out by owners, by callers and leases
	times    map[version]time.Time    // when it was acknowledged
	reopened map[version]time.Time    // when a reset has asked for it again
	resets   []reset                  // in their order
	had      []spot                   // positions that leases had

	singles map[string]*single    // requests for a skip or a replay, by their callers
	served  map[string]bool       // those that were carried out
	merged  time.Time             // when partitions were merged last
	skipped map[version]time.Time // changes that were skipped, and have not been asked for again
}

// ask is a request for a reset.
type ask struct {
	of feed.Range
	at feed.Position
}

// reset is a reset carried out.
type reset struct {
	of feed.Range
	at feed.Position
	on time.Time
}

// spot is a position of a lease.
type spot struct {
	of feed.Range
	at feed.Position
}

func newSteering() steering {
	return steering{
		requests: map[string]ask{}, made: map[string]feed.Position{}, times: map[version]time.Time{},
		reopened: map[version]time.Time{}, singles: map[string]*single{}, served: map[string]bool{},
		skipped: map[version]time.Time{},
	}
}

// notePaused notes the return of a pause.
func (g *ledger) notePaused(of feed.Range) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.calls {
		if c.of.Overlaps(of) && !c.by.isDead() && c.ctx.Err() == nil {
			g.breach("pause: %s is at work on %s, and the pause of %s has returned", c.by, c.token, of)
		}
	}
	for _, l := range g.model.leases {
		if l.State == feed.StateLive && l.Range.Overlaps(of) && !l.Free() && !records.IsLate(l.Record) {
			g.breach("pause: %s belongs to %s, and the pause of %s has returned", l.Token, l.Owner, of)
		}
	}
	g.steering.paused = append(g.steering.paused, of)
}

// noteResuming notes the call of a resume.
func (g *ledger) noteResuming(of feed.Range) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.steering.paused = slices.DeleteFunc(g.steering.paused, of.Contains)
}

// noteRequestRemoved notes the deletion of a document. A pause whose request is deleted is over.
func (g *ledger) noteRequestRemoved(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.steering.paused = slices.DeleteFunc(g.steering.paused, func(r feed.Range) bool {
		return strings.HasSuffix(id, "."+notes.Control{Action: notes.Pause, Min: r.Min, Max: r.Max}.Token())
	})
}

// checkPaused checks that a batch is not of a paused range.
func (g *ledger) checkPaused(c *call) {
	for _, r := range g.steering.paused {
		if c.of.Overlaps(r) {
			g.breach("pause: %s got a batch of %s, and %s is paused", c.by, c.token, r)
		}
	}
}

// noteControl notes a request for a reset, and checks its position.
func (g *ledger) noteControl(by *instance, record feed.Record) {
	c, err := notes.ReadControl(record.Properties)
	if by.single != nil && err == nil && record.State == feed.StateLive {
		g.noteSingle(by, record)
	}
	if !by.steers || err != nil || c.Action != notes.Reset || record.State != feed.StateLive {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	at, err := records.PositionOf(c.To)
	if err != nil {
		g.breach("request %s: %v", record.Token, err)
	}
	of := feed.Range{Min: c.Min, Max: c.Max}
	g.checkWanted(by, of, at)
	g.steering.requests[record.Properties[notes.CallerProperty]] = ask{of, at}
}

// checkWanted checks that a call of the operator gives a lease a position it was to give.
func (g *ledger) checkWanted(by *instance, of feed.Range, at feed.Position) {
	if by.wants == nil {
		g.breach("reset: a call that resets nothing gives %s the position %v", of, at)
	} else if wrong := by.wants(of, at); wrong != "" {
		g.breach("reset: %s is given the position %v: %s", of, at, wrong)
	}
}

// noteReset carries a reset out in the model, and reports true, if a write is one. A write moving a lease in another
// way is none, and is judged as any write.
func (g *ledger) noteReset(by *instance, was, record feed.Record) bool {
	caller := records.LastReset(record).Caller
	switch {
	case by.steers && by.wants == nil:
		return false
	case by.steers:
		g.checkWanted(by, record.Range, record.Position)
	case caller == "" || caller == records.LastReset(was).Caller:
		return false // if it moves the lease, it is no reset
	default:
		asked, known := g.steering.requests[caller]
		if !known || asked.of != record.Range || !same(asked.at, record.Position) {
			g.breach("reset: %s has reset %s to %v for %s, who has asked %+v", by, record.Token, record.Position, caller,
				asked)
		}
		if _, twice := g.steering.made[caller+record.Token]; twice {
			g.breach("reset: %s has reset %s for %s again", by, record.Token, caller)
		}
		g.steering.made[caller+record.Token] = record.Position
	}
	if was.State != feed.StateLive || record.State != feed.StateLive || !record.Free() || record.Attempts != 0 {
		g.breach("reset: %s has reset %s in state %v, from %v, owner %q, attempts %d: want a live lease without an owner",
			by, record.Token, record.State, was.State, record.Owner, record.Attempts)
	}
	for _, name := range []string{
		notes.DoneProperty, notes.HeldProperty, notes.AsideProperty, notes.OutageProperty, notes.SkipsProperty,
	} {
		if record.Properties[name] != "" {
			g.breach("reset: %s still says %s of the old position: %s", record.Token, name, record.Properties[name])
		}
	}
	g.applyReset(record)
	return true
}

// applyReset opens every change after a reset's position again, and takes those before it for done: an operator wants
// them skipped.
func (g *ledger) applyReset(record feed.Record) {
	now := time.Now()
	g.steering.resets = append(g.steering.resets, reset{record.Range, record.Position, now})
	g.tell("reset of %s to %v", record.Token, record.Position)
	for key, items := range g.items {
		place := g.placeOf(key)
		if !record.Range.Holds(place) {
			continue
		}
		g.freed[key] = true // it is not held any more, and its letters stay
		for _, versions := range items {
			for _, v := range versions {
				if after, known := g.isAfter(v, record.Position); after && known {
					g.reopen(v, now)
				} else {
					delete(g.open, v)
				}
			}
		}
	}
}

// reopen opens a change again.
func (g *ledger) reopen(v version, now time.Time) {
	g.open[v], g.steering.reopened[v] = entry{g.placeOf(v.key), now}, now
	delete(g.steering.skipped, v)
}

// isParkedAgain reports whether a change asked for again by a reset needs no handler, because its letter stays.
func (g *ledger) isParkedAgain(v version) bool {
	return !g.steering.reopened[v].IsZero() && g.hasLetter(v)
}

// noteDropped notes an operator's drop of a letter, so nobody need have its change.
func (g *ledger) noteDropped(v version) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.open, v)
}

// isReopenedSince reports whether a reset has asked for a change again after a time: work begun earlier does not count.
func (g *ledger) isReopenedSince(v version, begun time.Time) bool {
	return g.isOpen(v) && g.steering.reopened[v].After(begun)
}

// checkTerm checks that no earlier owner writes a lease, and that no term is left out.
func (g *ledger) checkTerm(by *instance, was, record feed.Record) {
	if records.IsMarkedPaused(was) && !records.IsMarkedPaused(record) &&
		slices.ContainsFunc(g.steering.paused, record.Range.Overlaps) {
		g.breach("pause: %s has removed the mark of %s, which is paused", by, record.Token)
	}
	before, now := records.TermOf(was), records.TermOf(record)
	if g.foreign || was.State == feed.StateRetired {
		return
	}
	if now < before || was.Free() && !record.Free() && now != before+1 {
		g.breach("term of %s went from %d to %d by %s, owner %q to %q", record.Token, before, now, by, was.Owner,
			record.Owner)
	}
}

// checkSeen checks that a writer has seen the replaced version of the lease.
func (g *ledger) checkSeen(by *instance, sent feed.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if was, known := g.model.leases[sent.Token]; known && was.ETag != sent.ETag {
		g.breach("%s has written over version %s of %s, and has seen %s", by, was.ETag, sent.Token, sent.ETag)
	}
}

// notePosition notes a position of a lease, so the operator can go back to it.
func (g *ledger) notePosition(record feed.Record) {
	const most = 100
	if record.Position.Token == "" {
		return
	}
	g.steering.had = append(g.steering.had, spot{record.Range, record.Position})
	if n := len(g.steering.had); n > most {
		g.steering.had = g.steering.had[n-most:]
	}
}

// drawPosition draws a present or former position of a lease.
func (g *ledger) drawPosition(dice *rand.Rand) (of feed.Range, at feed.Position, found bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.steering.had) == 0 {
		return of, at, false
	}
	s := g.steering.had[dice.IntN(len(g.steering.had))]
	return s.of, feed.At(s.at.Token), true
}

// checkSnapshot checks that all before the positions of a snapshot is done, unless a reset has asked for it again since
// the call began.
func (g *ledger) checkSnapshot(s *admin.Snapshot, begun time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range s.Leases {
		of, err := feed.ParseRange(p.Range)
		if err != nil {
			g.breach("snapshot: %v", err)
		}
		for v, e := range g.open {
			if of.Holds(e.epk) && v.lsn <= lsnOf(p.Token) && !g.isAskedFor(v) && !g.isParkedAgain(v) &&
				!g.isReopenedSince(v, begun) {
				g.breach("snapshot: %s is at %s, and LSN %d of %s is not done", p.Range, p.Token, v.lsn, v.key)
			}
		}
	}
}

// isAskedFor reports whether a handler has asked for a change to be checkpointed by hand: it asks before it knows of a
// stored checkpoint.
func (g *ledger) isAskedFor(v version) bool {
	for _, t := range g.model.tenures {
		if t.asked[v] {
			return true
		}
	}
	return false
}

// checkStep checks that the steps reported as done by a reset were done since.
func (g *ledger) checkStep(step admin.Step, begun time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.ContainsFunc(g.steering.resets, func(r reset) bool {
		return r.of == step.Lease.Range && same(r.at, step.To) && !r.on.Before(begun)
	}) {
		g.breach("reset: the call says that %s is at %v, and nobody has reset it", step.Lease.Token, step.To)
	}
}

// checkRoot checks that an owner gets nothing from before the position at which it has begun, but changes of keys set
// aside by the lease.
func (g *ledger) checkRoot(t *tenure, by *instance, b *feed.Batch) {
	if b.Redriven || t.root == "" {
		return
	}
	for _, c := range b.Changes {
		isAside := slices.ContainsFunc(t.aside.aside.Keys, func(k notes.AsideKey) bool {
			return k.Key == string(c.PartitionKey) && lsnOf(k.From) < c.LSN
		})
		if c.LSN <= lsnOf(t.root) && !isAside {
			g.breach("%s got LSN %d of %s again, and its lease %s began at %s", by, c.LSN, c.PartitionKey, b.LeaseToken,
				t.root)
		}
	}
}

// checkSteered checks that a unit is as if it had never been paused, when all pauses are over.
func (w *world) checkSteered() {
	found, now, err := w.unit.List(w.ctx)
	if err != nil {
		w.ledger.fail("list: %v", err)
	}
	for _, r := range found {
		expired := r.TTL > 0 && now.After(r.Updated.Add(r.TTL))
		switch {
		case r.Kind == feed.KindLease && r.State != feed.StateRetired && records.IsMarkedPaused(r):
			w.ledger.fail("resume: lease %s has the mark of a pause at the end", r.Token)
		case r.Kind == feed.KindLease && r.State == feed.StateLive && r.Free():
			w.ledger.fail("resume: lease %s has no owner at the end", r.Token)
		case r.Kind == feed.KindRequest && r.State == feed.StateLive && notes.IsControl(r.Properties) && !expired &&
			!w.steerer.mayStay(r):
			w.ledger.fail("resume: request %s is live at the end", r.Token)
		}
	}
}
