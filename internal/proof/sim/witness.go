package sim

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
)

// The witness compares every write of a lease with the model, at the moment when the store
// has taken it: a defect shows where it happens, and not when its consequence is found.

// witness is a lease store which sees the arrival of every write of a process. A write cut off in the store could have
// been stored and not seen, so none is: links lose requests and answers before and after it.
type witness struct {
	feed.LeaseStore
	ledger *ledger
	by     *instance
}

// Create checks a lease once it is stored. With the marker of the unit every key has a lease, so from then on none may
// go unless others cover its changes.
func (w witness) Create(ctx context.Context, record feed.Record) (feed.Record, error) {
	got, err := w.LeaseStore.Create(context.WithoutCancel(ctx), record)
	w.ledger.note("%s creates %s %q for %s/%s at %v: %v", w.by, record.Kind, record.Token, record.Owner, record.Epoch,
		record.Position, err)
	switch {
	case err != nil:
	case record.Kind == feed.KindLease:
		w.ledger.checkCreated(w.by, got)
	case record.Kind == feed.KindInfo:
		w.ledger.noteBegun()
	case record.Kind == feed.KindRequest:
		w.ledger.noteControl(w.by, got)
	}
	return got, err
}

// Update checks a lease as the store has it: a planted bug lies between the process and the
// witness, and shows in what is stored.
func (w witness) Update(ctx context.Context, record feed.Record) (feed.Record, error) {
	got, err := w.LeaseStore.Update(context.WithoutCancel(ctx), record)
	w.ledger.note("%s writes %s %q for %s/%s at %v, attempts %d, %v, %s: %v", w.by, record.Kind, record.Token,
		record.Owner, record.Epoch, record.Position, record.Attempts, record.State, said(record), err)
	switch {
	case err != nil:
	case record.Kind == feed.KindLease:
		if w.by.steers {
			w.ledger.checkSeen(w.by, record)
		}
		w.ledger.checkUpdated(w.by, got)
	case record.Kind == feed.KindRequest:
		w.ledger.noteControl(w.by, got)
	}
	return got, err
}

// Delete checks that nothing is lost with a lease.
func (w witness) Delete(ctx context.Context, record feed.Record) error {
	err := w.LeaseStore.Delete(context.WithoutCancel(ctx), record)
	w.ledger.note("%s deletes %s %q: %v", w.by, record.Kind, record.Token, err)
	if err == nil && record.Kind == feed.KindLease {
		w.ledger.checkRemoved(record)
	}
	return err
}

// Follow passes the ability on: an embedded interface hides the others of its value.
func (w witness) Follow(ctx context.Context, cursor string) ([]feed.Record, string, time.Time, error) {
	return w.LeaseStore.(feed.Follower).Follow(ctx, cursor)
}

// storedLease is a lease as it is in the store.
func (g *ledger) storedLease(record feed.Record) feed.Record {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.model.leases[record.Token].Record
}

// checkCreated checks a new lease: all before its position is done, and a child begins where
// its parent ends.
func (g *ledger) checkCreated(by *instance, record feed.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if record.Free() {
		// its maker may be at work on an earlier lease, which was deleted
		g.model.leases[record.Token] = kept{record, nil}
		if by.steers {
			g.checkWanted(by, record.Range, record.Position)
			g.applyReset(record)
			return
		}
	} else {
		g.model.leases[record.Token], g.model.owned[place{by, record.Token}] = kept{record, by}, time.Now()
	}
	if !records.IsLate(record) { // else it counts as deleted, and a reset may have come since it was sent
		g.passesNothing(nil, record)
	}
	generation := generationOf(record)
	if generation == 0 {
		return
	}
	for _, p := range g.model.parents {
		if p.Range.Contains(record.Range) && generationOf(p) == generation-1 && same(p.Position, record.Position) &&
			p.Attempts == record.Attempts && p.Mode == record.Mode {
			return
		}
	}
	if g.isJoint(record) {
		return
	}
	g.breach("child %s of generation %d, at %v with %d attempts, is like no parent", record.Token, generation,
		record.Position, record.Attempts)
}

// isJoint reports whether a lease replaces two leases at its position. A late create, or one no longer shown as late by
// the store's clock, may come when both have gone: then other leases cover its range.
func (g *ledger) isJoint(record feed.Record) bool {
	for _, p := range g.model.parents {
		for _, q := range g.model.parents {
			if p.Range.Min == record.Range.Min && p.Range.Max == q.Range.Min && q.Range.Max == record.Range.Max &&
				max(generationOf(p), generationOf(q)) == generationOf(record)-1 &&
				goesOn(p.Position, record.Position) && goesOn(q.Position, record.Position) &&
				p.Attempts+q.Attempts == 0 {
				return true
			}
		}
	}
	return false
}

// same compares two positions with their starts.
func same(a, b feed.Position) bool {
	return a.Token == b.Token && a.Start.String() == b.Start.String()
}

// isDropped reports whether a mark drops the start of a lease that is about to be joined, because the lease has come
// beyond it.
func isDropped(record feed.Record) bool {
	return record.Properties[notes.JoiningProperty] != "" && record.Position.Start.IsZero()
}

// goesOn reports whether a lease of two goes on where one of them ended. Its start may be dropped, or be that of the
// unit, which means none with a token: whether changes are skipped for that shows in what is delivered.
func goesOn(old, joint feed.Position) bool {
	a, b := old.Start.Time(), joint.Start.Time()
	return old.Token == joint.Token && (a.IsZero() || b.IsZero() || a.Equal(b))
}

// generationOf is how many splits a lease is away from the first leases.
func generationOf(record feed.Record) int {
	return int(notes.Number(record.Properties, notes.GenerationProperty))
}

// checkUpdated checks the change of a lease.
func (g *ledger) checkUpdated(by *instance, record feed.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	was, known := g.model.leases[record.Token]
	g.model.leases[record.Token] = kept{record, by}
	if record.State == feed.StateRetired {
		g.coversOpen(record)
		delete(g.model.leases, record.Token)
		return
	}
	if record.State == feed.StateSplitting {
		g.model.parents = append(g.model.parents, record)
	}
	if !known {
		return
	}
	if was.Owner != record.Owner || was.Epoch != record.Epoch {
		g.model.owned[place{by, record.Token}] = time.Now()
	}
	g.checkTerm(by, was.Record, record)
	g.notePosition(record)
	if g.noteReset(by, was.Record, record) {
		return
	}
	g.noteServed(by, was.Record, record)
	g.noteCounted(record)
	g.checkMoved(by, was.Record, record)
	g.passesNothing(g.model.tenures[place{by, record.Token}], record)
}

// checkMoved compares a lease with its state before: its position is one the writer has reached, or the old one, and
// its attempts are those of the next batch.
func (g *ledger) checkMoved(by *instance, was, record feed.Record) {
	t := g.model.tenures[place{by, record.Token}]
	if t == nil {
		t = &tenure{}
	}
	at := record.Position.Token
	counted, stays := t.callsAfter(at), at == was.Position.Token
	switch {
	case lsnOf(at) < lsnOf(was.Position.Token):
		g.breach("position of %s moved back from %v to %v by %q", record.Token, was.Position, record.Position,
			record.Owner)
	case was.Position.Token == "":
		return // it begins
	case record.Position.Start.String() != was.Position.Start.String() && !isDropped(record):
		g.breach("start of %s changed from %v to %v", record.Token, was.Position.Start, record.Position.Start)
	case !g.strict:
		g.movedFreely(by, t, was, record)
	case !stays && !t.reached[at] && !g.muddled.Load() && !g.model.isOfNeighbour(by, t, at) &&
		!t.hasReachedNearly(at):
		g.breach("position of %s moved from %v to %v, where %s has not come", record.Token, was.Position,
			record.Position, by)
	// a call may have begun since the write
	case !stays && record.Attempts != 0 && record.Attempts != counted && record.Attempts != counted-1:
		g.breach("attempts of %s are %d, though it moved on from %v to %v, want %d or one less", record.Token,
			record.Attempts, was.Position, record.Position, counted)
	case record.Attempts == 0 && (t.isHandled(at) || t.isOther && at == t.root): // and is not to come again
	case stays && record.Attempts != was.Attempts && (record.Attempts < was.Attempts || record.Attempts > counted):
		g.breach("attempts of %s at %v went from %d to %d, want at most %d", record.Token, record.Position,
			was.Attempts, record.Attempts, counted)
	}
}

// movedFreely compares a lease with its state before in a world which is not strict: its position is one the writer has
// read, and its attempts are no more than some change after it has had.
func (g *ledger) movedFreely(by *instance, t *tenure, was, record feed.Record) {
	at := record.Position.Token
	waits := g.foreign && lsnOf(at) < t.read // before a key that is set aside, because a .NET host may take the lease
	if at != was.Position.Token && !t.tokens[at] && !waits && !g.model.isOfNeighbour(by, t, at) {
		g.breach("position of %s moved from %v to %v, where %s has not read", record.Token, was.Position,
			record.Position, by)
	}
	if record.Attempts == 0 || record.Attempts == was.Attempts && at == was.Position.Token {
		return
	}
	most := 0
	for _, calls := range []map[version]int{g.begun, g.noted} {
		for v, n := range calls {
			if v.lsn > lsnOf(at) && record.Range.Holds(g.placeOf(v.key)) {
				most = max(most, n)
			}
		}
	}
	if record.Attempts > most {
		g.breach("attempts of %s at %v are %d, and no change after it had more than %d", record.Token, record.Position,
			record.Attempts, most)
	}
}

// passesNothing checks that all before the position of a lease is done, was asked to be checkpointed by hand, or
// belongs to a key set aside: a handler asks before it knows of a stored checkpoint. A breach is reported once, so what
// was passed counts as done from then on.
func (g *ledger) passesNothing(t *tenure, record feed.Record) {
	at := lsnOf(record.Position.Token)
	note := g.noteOf(record)
	for v, e := range g.open {
		passed := v.lsn <= at || v.lsn <= note.done.Through && !slices.Contains(note.done.Open, v.lsn) ||
			note.hasDone(v)
		if passed && record.Range.Holds(e.epk) && !note.keepsAside(v) {
			if (t == nil || !t.asked[v]) && !g.isParkedAgain(v) {
				g.breach("position of %s is %v, and done after it %+v, which passes %s %s LSN %d", record.Token,
					record.Position, note, v.key, v.id, v.lsn)
			}
			g.markDone(v)
		}
	}
}

// note is what a lease says beside its position.
type note struct {
	done  notes.Done
	aside notes.Aside
}

// noteOf reads the notes of a lease as their writer means them, so whatever the partitions are by now.
func (g *ledger) noteOf(record feed.Record) (n note) {
	for name, into := range map[string]any{notes.DoneProperty: &n.done, notes.AsideProperty: &n.aside} {
		text := record.Properties[name]
		if text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(text), into); err != nil {
			g.breach("property %s of %s: %v", name, record.Token, err)
		}
	}
	for i := range n.done.Open[min(1, len(n.done.Open)):] { // they are written as differences
		n.done.Open[i+1] += n.done.Open[i]
	}
	if n.done.At != record.Position.Token {
		n.done = notes.Done{}
	}
	return n
}

// keepsAside reports whether a change comes again because its key is set aside.
func (n *note) keepsAside(v version) bool {
	return slices.ContainsFunc(n.aside.Keys, func(k notes.AsideKey) bool {
		return k.Key == string(v.key) && k.LSN <= v.lsn && lsnOf(k.From) < v.lsn
	})
}

// hasDone reports whether a change does not come again because its key is set aside and continues after it.
func (n *note) hasDone(v version) bool {
	return slices.ContainsFunc(n.aside.Keys, func(k notes.AsideKey) bool {
		return k.Key == string(v.key) && v.lsn < k.LSN
	})
}

// noteBegun notes the beginning of the unit: there is a lease for each range.
func (g *ledger) noteBegun() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.model.begun = true
}

// checkRemoved checks that others cover the changes a removed lease still had to deliver. Before the unit has begun, a
// lease overlapping others may go, and the rest of its range gets another.
func (g *ledger) checkRemoved(record feed.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.model.leases, record.Token)
	if g.model.begun || !record.Free() || record.Expiration != 0 {
		g.coversOpen(record)
	}
}

// coversOpen checks that for all open changes in the range of a lease there is another
// lease, or was until an operator deleted it: then there is a hole, which is repaired.
func (g *ledger) coversOpen(gone feed.Record) {
	for v, e := range g.open {
		if !gone.Range.Holds(e.epk) {
			continue
		}
		covered := false
		for token, l := range g.model.leases {
			covered = covered || token != gone.Token && g.stillGives(l.Record, v, e)
		}
		for _, record := range g.model.deleted {
			covered = covered || g.stillGives(record, v, e)
		}
		if !covered {
			g.breach("lease %s is gone, and no other has %s %s LSN %d", gone.Token, v.key, v.id, v.lsn)
		}
	}
}

// stillGives reports whether a change comes from an open lease.
func (g *ledger) stillGives(record feed.Record, v version, e entry) bool {
	if !record.Range.Holds(e.epk) {
		return false
	}
	note := g.noteOf(record)
	return lsnOf(record.Position.Token) < v.lsn || note.keepsAside(v)
}

// noteCounted notes a call counted by a lease before it is begun, because it may end the process.
func (g *ledger) noteCounted(record feed.Record) {
	s := g.noteOf(record).done.Suspect
	if s == nil {
		return
	}
	for key, items := range g.items {
		for _, versions := range items {
			for _, v := range versions {
				for _, run := range s.Tried {
					// of a transaction all its changes, which is a bound
					each := func() string { return run.Letters[0] }
					if run.Has(string(key), v.lsn, each) {
						g.noted[v] = max(g.noted[v], run.Calls)
					}
				}
			}
		}
	}
}

// said are the notes of a record, for the story.
func said(record feed.Record) string {
	p := record.Properties
	return "done " + p[notes.DoneProperty] + " held " + p[notes.HeldProperty] + " aside " + p[notes.AsideProperty] +
		" paused " + p[notes.PausedProperty] + " reset " + p[notes.ResetProperty] +
		" skips " + p[notes.SkipsProperty] + " served " + p[notes.ServedProperty]
}
