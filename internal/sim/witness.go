package sim

import (
	"context"
	"strconv"
	"time"

	"github.com/millrace/changefeed"
)

// The witness compares every write of a lease with the model, at the moment when the store
// has taken it: a defect shows where it happens, and not when its consequence is found.

// witness is a lease store that sees every write of a process arrive.
type witness struct {
	changefeed.LeaseStore
	*ledger
	by *instance
}

// Create checks a lease once it is stored. With the marker of the unit every key has a lease,
// so from then on none may go without others that cover its changes.
func (w witness) Create(ctx context.Context, l changefeed.Record) (changefeed.Record, error) {
	got, err := w.LeaseStore.Create(ctx, l)
	w.note("%s creates %s %q for %s/%s at %v: %v", w.by, l.Kind, l.Token, l.Owner, l.Epoch, l.Position, err)
	switch {
	case err != nil:
	case l.Kind == changefeed.KindLease:
		w.created(w.by, got)
	case l.Kind == changefeed.KindInfo:
		w.begin()
	}
	return got, err
}

// Update checks a lease as the store has it: a planted bug lies between the process and the
// witness, and shows in what is stored.
func (w witness) Update(ctx context.Context, l changefeed.Record) (changefeed.Record, error) {
	got, err := w.LeaseStore.Update(ctx, l)
	w.note("%s writes %s %q for %s/%s at %v, attempts %d, %v: %v", w.by, l.Kind, l.Token, l.Owner, l.Epoch, l.Position, l.Attempts, l.State, err)
	if err == nil && l.Kind == changefeed.KindLease {
		w.updated(w.by, got)
	}
	return got, err
}

// Delete checks that nothing is lost with a lease.
func (w witness) Delete(ctx context.Context, l changefeed.Record) error {
	err := w.LeaseStore.Delete(ctx, l)
	w.note("%s deletes %s %q: %v", w.by, l.Kind, l.Token, err)
	if err == nil && l.Kind == changefeed.KindLease {
		w.removed(l)
	}
	return err
}

// Follow passes the ability on: an embedded interface hides the others of its value.
func (w witness) Follow(ctx context.Context, cursor string) ([]changefeed.Record, string, time.Time, error) {
	return w.LeaseStore.(changefeed.Follower).Follow(ctx, cursor)
}

// stored is a lease as it is in the store.
func (g *ledger) stored(l changefeed.Record) changefeed.Record {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.model.leases[l.Token].Record
}

// created checks a new lease: all before its position is done, and a child begins where
// its parent ends.
func (g *ledger) created(by *instance, l changefeed.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l.Free() {
		g.model.leases[l.Token] = kept{l, nil} // its maker may be at work on an earlier lease, which was deleted
	} else {
		g.model.leases[l.Token], g.model.owned[place{by, l.Token}] = kept{l, by}, time.Now()
	}
	g.passesNothing(nil, l)
	generation := generationOf(l)
	if generation == 0 {
		return
	}
	for _, p := range g.model.parents {
		if p.Range.Contains(l.Range) && generationOf(p) == generation-1 && same(p.Position, l.Position) &&
			p.Attempts == l.Attempts && p.Mode == l.Mode {
			return
		}
	}
	g.breach("child %s of generation %d, at %v with %d attempts, is like no parent", l.Token, generation, l.Position, l.Attempts)
}

// same compares two positions with their starts.
func same(a, b changefeed.Position) bool {
	return a.Token == b.Token && a.Start.String() == b.Start.String()
}

// generationOf is how many splits a lease is away from the first leases.
func generationOf(l changefeed.Record) int {
	n, _ := strconv.Atoi(l.Properties["changefeed.generation"])
	return n
}

// updated checks the change of a lease.
func (g *ledger) updated(by *instance, l changefeed.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	was, known := g.model.leases[l.Token]
	g.model.leases[l.Token] = kept{l, by}
	if l.State == changefeed.StateRetired {
		g.coversOpen(l)
		delete(g.model.leases, l.Token)
		return
	}
	if l.State == changefeed.StateSplitting {
		g.model.parents = append(g.model.parents, l)
	}
	if !known {
		return
	}
	if was.Owner != l.Owner || was.Epoch != l.Epoch {
		g.model.owned[place{by, l.Token}] = time.Now()
	}
	g.moved(by, was.Record, l)
	g.passesNothing(g.model.tenures[place{by, l.Token}], l)
}

// moved compares a lease with its state before: its position is one that the writer has
// reached, or the old one, and its attempts are those of the next batch.
func (g *ledger) moved(by *instance, was, l changefeed.Record) {
	t := g.model.tenures[place{by, l.Token}]
	if t == nil {
		t = &tenure{}
	}
	at := l.Position.Token
	switch {
	case lsnOf(at) < lsnOf(was.Position.Token):
		g.breach("position of %s moved back from %v to %v by %q", l.Token, was.Position, l.Position, l.Owner)
	case was.Position.Token == "":
		return // it begins
	case l.Position.Start.String() != was.Position.Start.String():
		g.breach("start of %s changed from %v to %v", l.Token, was.Position.Start, l.Position.Start)
	case at != was.Position.Token && !t.reached[at] && !g.muddled.Load():
		g.breach("position of %s moved from %v to %v, where %s has not come", l.Token, was.Position, l.Position, by)
	case at != was.Position.Token && l.Attempts != 0 && l.Attempts != t.counted(at):
		g.breach("attempts of %s are %d, though it moved on from %v to %v, want %d", l.Token, l.Attempts, was.Position, l.Position, t.counted(at))
	case at == was.Position.Token && l.Attempts != was.Attempts && (l.Attempts < was.Attempts || l.Attempts > t.counted(at)):
		g.breach("attempts of %s at %v went from %d to %d, want at most %d", l.Token, l.Position, was.Attempts, l.Attempts, t.counted(at))
	}
}

// passesNothing checks that all before the position of a lease is done, or was asked to be
// checkpointed by hand: a handler asks before it knows that the checkpoint is stored. A breach
// is reported once, so what was passed counts as done from then on.
func (g *ledger) passesNothing(t *tenure, l changefeed.Record) {
	at := lsnOf(l.Position.Token)
	for v, e := range g.open {
		if v.lsn <= at && l.Range.Holds(e.epk) {
			if t == nil || !t.asked[v] {
				g.breach("position of %s is %v, which passes %s %s LSN %d", l.Token, l.Position, v.key, v.id, v.lsn)
			}
			g.done(v)
		}
	}
}

// begin notes that the unit has begun: there is a lease for each range.
func (g *ledger) begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.model.begun = true
}

// removed checks that others cover the changes that a removed lease still had to deliver.
// Before the unit has begun, a lease that overlaps others may go, and the rest of its range
// gets another.
func (g *ledger) removed(l changefeed.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.model.leases, l.Token)
	if g.model.begun || !l.Free() || l.Expiration != 0 {
		g.coversOpen(l)
	}
}

// coversOpen checks that for all open changes in the range of a lease there is another
// lease, or was until an operator deleted it: then there is a hole, which is repaired.
func (g *ledger) coversOpen(gone changefeed.Record) {
	for v, e := range g.open {
		if !gone.Range.Holds(e.epk) {
			continue
		}
		covered := false
		for token, l := range g.model.leases {
			covered = covered || token != gone.Token && l.Range.Holds(e.epk) && lsnOf(l.Position.Token) < v.lsn
		}
		for _, l := range g.model.deleted {
			covered = covered || l.Range.Holds(e.epk) && lsnOf(l.Position.Token) < v.lsn
		}
		if !covered {
			g.breach("lease %s is gone, and no other has %s %s LSN %d", gone.Token, v.key, v.id, v.lsn)
		}
	}
}
