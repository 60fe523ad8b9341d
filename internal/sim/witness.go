package sim

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/changefeed"
)

// The witness compares every write of a lease with the model, at the moment when the store
// has taken it: a defect shows where it happens, and not when its consequence is found.

// witness is a lease store that sees every write of a process arrive. A write that was cut off in the store could have been
// stored and not seen, so none is: links lose requests and answers before and after it.
type witness struct {
	changefeed.LeaseStore
	*ledger
	by *instance
}

// Create checks a lease once it is stored. With the marker of the unit every key has a lease,
// so from then on none may go without others that cover its changes.
func (w witness) Create(ctx context.Context, record changefeed.Record) (changefeed.Record, error) {
	got, err := w.LeaseStore.Create(context.WithoutCancel(ctx), record)
	w.note("%s creates %s %q for %s/%s at %v: %v", w.by, record.Kind, record.Token, record.Owner, record.Epoch, record.Position, err)
	switch {
	case err != nil:
	case record.Kind == changefeed.KindLease:
		w.created(w.by, got)
	case record.Kind == changefeed.KindInfo:
		w.begin()
	}
	return got, err
}

// Update checks a lease as the store has it: a planted bug lies between the process and the
// witness, and shows in what is stored.
func (w witness) Update(ctx context.Context, record changefeed.Record) (changefeed.Record, error) {
	got, err := w.LeaseStore.Update(context.WithoutCancel(ctx), record)
	w.note("%s writes %s %q for %s/%s at %v, attempts %d, %v: %v", w.by, record.Kind, record.Token, record.Owner, record.Epoch, record.Position, record.Attempts, record.State, err)
	if err == nil && record.Kind == changefeed.KindLease {
		w.updated(w.by, got)
	}
	return got, err
}

// Delete checks that nothing is lost with a lease.
func (w witness) Delete(ctx context.Context, record changefeed.Record) error {
	err := w.LeaseStore.Delete(context.WithoutCancel(ctx), record)
	w.note("%s deletes %s %q: %v", w.by, record.Kind, record.Token, err)
	if err == nil && record.Kind == changefeed.KindLease {
		w.removed(record)
	}
	return err
}

// Follow passes the ability on: an embedded interface hides the others of its value.
func (w witness) Follow(ctx context.Context, cursor string) ([]changefeed.Record, string, time.Time, error) {
	return w.LeaseStore.(changefeed.Follower).Follow(ctx, cursor)
}

// stored is a lease as it is in the store.
func (g *ledger) stored(record changefeed.Record) changefeed.Record {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.model.leases[record.Token].Record
}

// created checks a new lease: all before its position is done, and a child begins where
// its parent ends.
func (g *ledger) created(by *instance, record changefeed.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if record.Free() {
		g.model.leases[record.Token] = kept{record, nil} // its maker may be at work on an earlier lease, which was deleted
	} else {
		g.model.leases[record.Token], g.model.owned[place{by, record.Token}] = kept{record, by}, time.Now()
	}
	g.passesNothing(nil, record)
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
	g.breach("child %s of generation %d, at %v with %d attempts, is like no parent", record.Token, generation, record.Position, record.Attempts)
}

// same compares two positions with their starts.
func same(a, b changefeed.Position) bool {
	return a.Token == b.Token && a.Start.String() == b.Start.String()
}

// generationOf is how many splits a lease is away from the first leases.
func generationOf(record changefeed.Record) int {
	n, _ := strconv.Atoi(record.Properties["changefeed.generation"])
	return n
}

// updated checks the change of a lease.
func (g *ledger) updated(by *instance, record changefeed.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	was, known := g.model.leases[record.Token]
	g.model.leases[record.Token] = kept{record, by}
	if record.State == changefeed.StateRetired {
		g.coversOpen(record)
		delete(g.model.leases, record.Token)
		return
	}
	if record.State == changefeed.StateSplitting {
		g.model.parents = append(g.model.parents, record)
	}
	if !known {
		return
	}
	if was.Owner != record.Owner || was.Epoch != record.Epoch {
		g.model.owned[place{by, record.Token}] = time.Now()
	}
	g.moved(by, was.Record, record)
	g.passesNothing(g.model.tenures[place{by, record.Token}], record)
}

// moved compares a lease with its state before: its position is one that the writer has
// reached, or the old one, and its attempts are those of the next batch.
func (g *ledger) moved(by *instance, was, record changefeed.Record) {
	t := g.model.tenures[place{by, record.Token}]
	if t == nil {
		t = &tenure{}
	}
	at := record.Position.Token
	switch {
	case lsnOf(at) < lsnOf(was.Position.Token):
		g.breach("position of %s moved back from %v to %v by %q", record.Token, was.Position, record.Position, record.Owner)
	case was.Position.Token == "":
		return // it begins
	case g.lanes:
		return // pages are not followed
	case record.Position.Start.String() != was.Position.Start.String():
		g.breach("start of %s changed from %v to %v", record.Token, was.Position.Start, record.Position.Start)
	case at != was.Position.Token && !t.reached[at] && !g.muddled.Load():
		g.breach("position of %s moved from %v to %v, where %s has not come", record.Token, was.Position, record.Position, by)
	case at != was.Position.Token && record.Attempts != 0 && record.Attempts != t.counted(at):
		g.breach("attempts of %s are %d, though it moved on from %v to %v, want %d", record.Token, record.Attempts, was.Position, record.Position, t.counted(at))
	case at == was.Position.Token && record.Attempts != was.Attempts && (record.Attempts < was.Attempts || record.Attempts > t.counted(at)):
		g.breach("attempts of %s at %v went from %d to %d, want at most %d", record.Token, record.Position, was.Attempts, record.Attempts, t.counted(at))
	}
}

// passesNothing checks that all before the position of a lease is done, or was asked to be
// checkpointed by hand: a handler asks before it knows that the checkpoint is stored. A breach
// is reported once, so what was passed counts as done from then on.
func (g *ledger) passesNothing(t *tenure, record changefeed.Record) {
	at := lsnOf(record.Position.Token)
	note := noteOf(record)
	for v, e := range g.open {
		passed := v.lsn <= at || v.lsn <= note.Through && !slices.Contains(note.Open, v.lsn)
		if passed && record.Range.Holds(e.epk) {
			if t == nil || !t.asked[v] {
				g.breach("position of %s is %v, and done after it %+v, which passes %s %s LSN %d", record.Token, record.Position, note, v.key, v.id, v.lsn)
			}
			g.done(v)
		}
	}
}

// doneNote is what a lease says is done after its position.
type doneNote struct {
	Through int64
	Open    []int64
}

func noteOf(record changefeed.Record) (n doneNote) {
	_ = json.Unmarshal([]byte(record.Properties["changefeed.done"]), &n) // there may be none
	for i := range n.Open[min(1, len(n.Open)):] {                        // they are written as differences
		n.Open[i+1] += n.Open[i]
	}
	return n
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
func (g *ledger) removed(record changefeed.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.model.leases, record.Token)
	if g.model.begun || !record.Free() || record.Expiration != 0 {
		g.coversOpen(record)
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
		for _, record := range g.model.deleted {
			covered = covered || record.Range.Holds(e.epk) && lsnOf(record.Position.Token) < v.lsn
		}
		if !covered {
			g.breach("lease %s is gone, and no other has %s %s LSN %d", gone.Token, v.key, v.id, v.lsn)
		}
	}
}
