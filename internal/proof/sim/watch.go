package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/records"
)

// Starvation: a lease or an instance without its turn although nothing is wrong. Other
// checkers look at events; this one looks for events that are missing.

// patience is how long a lease or an instance may wait for its turn while its process is
// sound: requests fail all the same, and pauses after failures take up to half a minute.
const patience = 4 * time.Minute

// watch looks for leases and instances that starve.
func (w *world) watch() {
	if w.ledger.muddled.Load() {
		return
	}
	w.watchLeases()
	w.watchInstances()
	w.watchMarks()
}

// watchMarks looks for leases that nobody takes because of a pause that is over.
func (w *world) watchMarks() {
	long := time.Now().Add(-patience)
	isSound := slices.ContainsFunc(w.living(), func(i *instance) bool { return w.isSound(i, long) })
	w.mu.Lock()
	paused, changed := w.paused, w.resumed
	w.mu.Unlock()
	g := w.ledger
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.model.leases {
		if isSound && changed.Before(long) && l.Updated.Before(long) && records.HasOldMark(paused)(l.Record) {
			g.breach("starving: %s has the mark of a pause that is over, since %v", l.Token, l.Updated.Format(time.TimeOnly))
		}
	}
}

// watchLeases looks for leases whose owner is sound and does not hand over the changes that
// there are.
func (w *world) watchLeases() {
	g := w.ledger
	g.mu.Lock()
	defer g.mu.Unlock()
	long := time.Now().Add(-patience)
	for at, t := range g.model.tenures {
		if t.over || at.by.isDead() || t.turn.After(long) || !w.isSound(at.by, long) || g.isHandling(at) {
			continue
		}
		l := g.model.leases[at.token]
		for v, e := range g.open {
			if l.by == at.by && e.at.Before(long) && l.Range.Holds(e.epk) && !t.passed[v] {
				g.breach("starving: %s has had %s since %v and has not handed over LSN %d of %v", at.by, at.token,
					t.began.Format(time.TimeOnly), v.lsn, e.at.Format(time.TimeOnly))
				return
			}
		}
	}
}

// isHandling reports whether a handler is at work on a lease.
func (g *ledger) isHandling(at place) bool {
	for c := range g.calls {
		if c.by == at.by && c.token == at.token {
			return true
		}
	}
	return false
}

// isSound reports whether nothing has been wrong with a process since a time.
func (w *world) isSound(i *instance, since time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return i.sound.Before(since) && w.bad.Before(since) && !i.down && i.stopped.IsZero()
}

// watchInstances looks for sound instances without leases although there are enough for
// all, including those that others may still believe alive.
func (w *world) watchInstances() {
	for _, text := range w.listStarving() {
		w.ledger.fail("%s", text)
	}
}

// listStarving describes the instances that starve.
func (w *world) listStarving() (found []string) {
	w.mu.Lock()
	paused := w.paused
	w.mu.Unlock()
	leases := w.ledger.countLeases(paused)
	w.mu.Lock()
	defer w.mu.Unlock()
	now, hosts, total := time.Now(), 0, 0
	for _, i := range w.all {
		if i.stopped.IsZero() || now.Sub(i.stopped) < patience {
			hosts++
			total += max(1, i.opts.Weight)
		}
	}
	// An owner in trouble gives no lease away.
	holders := slices.DeleteFunc(slices.Clone(w.alive), func(i *instance) bool { return i.held == 0 })
	isSound := func(i *instance) bool { return !i.sound.After(now) }
	canShare := len(holders) == 0 || slices.ContainsFunc(holders, isSound)
	for _, i := range w.alive {
		if i.held > 0 || leases*max(1, i.opts.Weight) < total || !isSound(i) || !canShare || !w.isReady() {
			i.hungry = now
		}
		if from := later(later(i.hungry, i.sound), w.resumed); now.Sub(from) > patience {
			found = append(found, fmt.Sprintf("starving: %s has no lease since %v, %d leases for %d instances",
				i, from.Format(time.TimeOnly), leases, hosts))
			i.hungry = now
		}
	}
	return found
}

// countLeases is the number of leases outside of some ranges.
func (g *ledger) countLeases(without []feed.Range) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.model.leases {
		if !slices.ContainsFunc(without, l.Range.Overlaps) {
			n++
		}
	}
	return n
}

// later is the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
