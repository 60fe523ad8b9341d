package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/pause"
)

// Worlds with dead letters: a system needed by handlers is down for a while, the letter box fails, and an operator
// mends changes, has letters handled again, releases keys and drops letters.

// trouble is a fault outside of the processes, and until when it lasts.
type trouble struct {
	mu      sync.Mutex
	down    time.Time // the handler fails for every key
	blinks  bool      // ... but for a call now and then
	boxed   time.Time // the letter box is not well
	illness illness
	mended  map[feed.PartitionKey]bool
}

// illness is how the letter box is not well.
type illness int

const (
	failing illness = iota
	hanging
	lagging // it answers late, and takes letters late
)

// lag is how late a lagging letter box is.
const lag = 30 * time.Second

// isDown reports whether a call of a handler fails because a system it needs is down.
func (t *trouble) isDown(d *rand.Rand) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.down.After(time.Now()) && !(t.blinks && d.IntN(8) == 0)
}

// isPoison reports whether handlers fail on a change each time.
func (t *trouble) isPoison(v version) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.mended[v.key] && isPoison(v)
}

// fateInBox is the lot of a request to the letter box.
func (s letters) fateInBox() fate {
	f := s.drawFate()
	t := &s.by.world.trouble
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case f.err != nil || !t.boxed.After(time.Now()) || s.by.world.isCalm():
	case t.illness == failing:
		f.err = errBox
	case t.illness == hanging:
		f.hang = true
	default:
		s.changeState(func(l *link) { f.before, f.late = l.upTo(lag), true })
	}
	return f
}

// operate is the work of the operator and of bad luck, until the faults end.
func (w *world) operate(dice *rand.Rand) {
	for {
		timer := time.NewTimer(time.Duration(dice.Int64N(int64(25 * time.Second))))
		select {
		case <-timer.C:
		case <-w.quiet:
			timer.Stop()
			return
		}
		if w.isReady() {
			w.takeTurn(dice)
		}
	}
}

// takeTurn does one thing.
func (w *world) takeTurn(dice *rand.Rand) {
	t := &w.trouble
	until := time.Now().Add(time.Duration(dice.Int64N(int64(90 * time.Second))))
	key := feed.Key(w.cityName(dice.IntN(w.keys)))
	switch what := dice.IntN(9); {
	case what < 3:
		w.box.redriveSome(w, dice)
	case what == 3:
		w.box.dropLetter(w, dice)
	case what < 6:
		w.ledger.note("the changes of %s are mended", key)
		t.mu.Lock()
		t.mended[key] = true
		t.mu.Unlock()
	case what == 6 && w.weather.outages:
		t.mu.Lock()
		t.down, t.blinks = until, dice.IntN(2) == 0
		t.mu.Unlock()
		w.ledger.note("all handlers fail until %s, some calls succeed %v", until.Format(time.TimeOnly), t.blinks)
		w.sufferAll(until)
	case what > 6 && w.weather.boxes:
		t.mu.Lock()
		t.boxed, t.illness = until, illness(dice.IntN(3))
		t.mu.Unlock()
		w.ledger.note("the letter box is ill until %s: %d", until.Format(time.TimeOnly), t.illness)
		w.sufferAll(until.Add(lag))
	}
}

// sufferAll notes trouble with all processes for a while.
func (w *world) sufferAll(until time.Time) {
	w.noteStorm(until)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bad = later(w.bad, until)
}

// noteOutage notes a process's sight of an outage, or of its end.
func (i *instance) noteOutage(_ context.Context, o feed.Outage) {
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	if i.down = o.Ended.IsZero(); !i.down {
		i.sound = later(i.sound, time.Now())
	}
}

// dropLetter has an operator drop a letter.
func (b *box) dropLetter(w *world, dice *rand.Rand) {
	found := b.lettersOf("")
	if len(found) == 0 {
		return
	}
	l := found[dice.IntN(len(found))]
	w.ledger.note("an operator drops %s %s", l.Change.PartitionKey, l.ID)
	w.ledger.noteDropped(versionOf(l.Change))
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.letters, nameOf(l.Change.PartitionKey, l.ID))
}

// checkUnparked checks that a letter removed by a process was handled.
func (g *ledger) checkUnparked(by *instance, l feed.DeadLetter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := versionOf(l.Change)
	g.tell("%s removes the letter of %s %s LSN %d", by, v.key, v.id, v.lsn)
	if !g.handled[v] {
		g.breach("%s removes the letter of %s %s LSN %d, which nobody has handled", by, v.key, v.id, v.lsn)
	}
}

// inTurn checks that the held letters of a key are handed over in their order. A process that had the lease before may
// have sent a letter that arrives when the others are listed. The next owner finds its change in the feed and parks it
// before the others, unless the item was written or deleted since: then nobody misses that version. After a merge of
// partitions, changes of a held key that were handled before come again and are parked, perhaps while a retry is under
// way: a change that was handled has no turn any more.
func (w *world) inTurn(by *instance, b *feed.Batch) {
	if !b.Redriven {
		return
	}
	c := b.Changes[0]
	held := false
	for _, l := range w.box.lettersOf(c.PartitionKey) {
		held = held || versionOf(l.Change) == versionOf(c) && l.Disposition == feed.DispositionHeld
	}
	for _, l := range w.box.lettersOf(c.PartitionKey) {
		if held && l.Disposition == feed.DispositionHeld && l.Change.LSN < c.LSN &&
			!w.ledger.isHandled(versionOf(l.Change)) &&
			!(w.box.isLateFor(by, l) && w.ledger.isReplaced(versionOf(l.Change))) {
			w.ledger.fail("order: %s got the held letter of %s LSN %d before that of LSN %d", by, c.PartitionKey, c.LSN,
				l.Change.LSN)
		}
	}
}

// heldKeys are the keys held by leases, and those set aside. What was noted for another position counts no more: a .NET
// host that has moved a lease has handled those keys, and nobody of ours need have had the lease since.
func (w *world) heldKeys() (held, aside []string) {
	records, _, err := w.unit.List(w.ctx)
	if err != nil {
		w.ledger.fail("list: %v", err)
	}
	for _, record := range records {
		if record.Kind != feed.KindLease || record.State != feed.StateLive || w.isSpare(record, records) {
			continue
		}
		in := notes.Place{
			Position: record.Position.Token, LSN: lsnOf(record.Position.Token), Min: record.Range.Min,
			Max: record.Range.Max,
		}
		h, err := notes.ReadHeld(record.Properties[notes.HeldProperty], in)
		if err != nil {
			w.ledger.fail("lease %s: held: %v", record.Token, err)
		}
		held = append(held, h.Keys...)
		text := record.Properties[notes.AsideProperty]
		a, err := notes.ReadAside(text, in)
		if err != nil && !errors.Is(err, notes.ErrMoved) {
			w.ledger.fail("lease %s: aside: %v", record.Token, err)
		}
		if len(a.Keys) > 0 {
			aside = append(aside, record.Token+": "+text)
		}
	}
	slices.Sort(held)
	return slices.Compact(held), aside
}

// isSpare reports whether a lease is ignored and left to its user to delete: a .NET host has made it beside one of ours
// for the same range, which an instance has.
func (w *world) isSpare(lease feed.Record, all []feed.Record) bool {
	of := w.rangeOf(lease)
	return lease.Epoch == "" && slices.ContainsFunc(all, func(r feed.Record) bool {
		return r.Kind == feed.KindLease && r.State == feed.StateLive && r.Token != lease.Token && r.Epoch != "" &&
			w.rangeOf(r) == of
	})
}

// rangeOf is the range of a lease. One of an older version knows its partition alone.
func (w *world) rangeOf(lease feed.Record) feed.Range {
	partitions, err := w.orders.Partitions(w.ctx)
	if err != nil {
		w.ledger.fail("list partitions: %v", err)
	}
	for _, p := range partitions {
		if lease.Range.Empty() && p.ID == lease.Token {
			return p.Range
		}
	}
	return lease.Range
}

// releaseHeld has every key released which is held without a letter, and checks that none is left.
func (w *world) releaseHeld() {
	held, _ := w.heldKeys()
	for _, key := range held {
		if err := w.box.redriveOrRelease(w, feed.DeadLetter{Change: feed.Change{PartitionKey: feed.PartitionKey(key)}},
			true); err != nil {
			w.ledger.fail("release %s: %v", key, err)
		}
	}
	round, _ := w.longestWaits()
	_ = pause.For(w.ctx, round+w.longestBeat())
	held, aside := w.heldKeys()
	for _, key := range held {
		w.ledger.fail("%s is held at the end", key)
	}
	for _, text := range aside {
		w.ledger.fail("keys are set aside at the end: %s", text)
	}
}
