package sim

import (
	"slices"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/pause"
)

// Faults at random times: to processes, to their network, and to partitions.

// chaos does something bad every few seconds, until the time for faults is over. The pauses
// are random too, because a fault at each round would always meet the same steps.
func (w *world) chaos() {
	end := time.Now().Add(faultyTime)
	for time.Now().Before(end) {
		if pause.For(w.ctx, time.Duration(w.rng.Int64N(int64(40*time.Second)))) != nil {
			return
		}
		w.watch()
		w.disturb()
	}
}

// living are the running processes.
func (w *world) living() []*instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.alive)
}

// leave takes a process off the living. The time is kept, because others may believe it alive
// until its leases expire.
func (i *instance) leave() {
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	i.stopped = time.Now()
	i.world.alive = slices.DeleteFunc(i.world.alive, func(o *instance) bool { return o == i })
}

// suffer notes trouble with a process for a while, so that the watch does not blame the processor for it.
func (i *instance) suffer(until time.Time) {
	i.world.noteStorm(until)
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	i.sound = until
}

// noteWait notes the wait of a process for an answer. It gives up after a minute and tries again; several such waits in
// one split are longer than patience.
func (i *instance) noteWait(delay time.Duration) {
	until := time.Now().Add(min(delay, time.Minute))
	i.world.noteStorm(until)
	if delay < time.Minute/3 {
		return
	}
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	i.sound = later(i.sound, until)
}

// disturb does something to a process or to the stores: the faults of all worlds, and those of this world.
func (w *world) disturb() {
	alive := w.living()
	if len(alive) == 0 {
		w.start(w.drawName())
		return
	}
	if w.weather.foreign && w.isReady() && w.rng.IntN(5) == 0 {
		w.startNet()
		return
	}
	i, until := alive[w.rng.IntN(len(alive))], time.Now().Add(time.Duration(w.rng.Int64N(int64(2*time.Minute))))
	switch w.rng.IntN(10) {
	case 0, 1:
		if len(alive) < 6 {
			w.start(w.drawName())
		}
	case 2:
		i.kill()
	case 3:
		i.stopInOrder()
	case 4:
		// A reset connection fails at once, a hanging one only with the caller's patience.
		w.ledger.note("%s is cut off until %s", i, until.Format("15:04:05"))
		i.suffer(until)
		hang := w.rng.IntN(2) == 0
		i.link.changeState(func(l *link) { l.cut, l.hang = until, hang })
	case 5:
		// Unlike a process cut off, a frozen one does not notice: its leases expire while it believes to hold them.
		w.ledger.note("%s is frozen until %s", i, until.Format("15:04:05"))
		i.suffer(until)
		i.link.changeState(func(l *link) { l.frozen = later(l.frozen, until) })
	case 6:
		w.ledger.note("%s is throttled until %s", i, until.Format("15:04:05"))
		i.suffer(until)
		i.link.changeState(func(l *link) { l.full = until })
	case 7:
		w.split(w.orders)
		if w.rng.IntN(2) == 0 { // and undo it while the leases follow
			_ = pause.For(w.ctx, time.Duration(w.rng.Int64N(int64(80*time.Second))))
			w.merge(w.orders)
		}
	case 8:
		w.merge(w.orders)
	case 9:
		w.meddle(i)
		w.box.redriveSome(w, w.rng)
	}
}

// meddle does something only some worlds have.
func (w *world) meddle(i *instance) {
	if w.weather.rooms > 1 {
		if w.rng.IntN(2) == 0 {
			w.split(w.lobby)
		} else {
			w.merge(w.lobby)
		}
	}
	if w.weather.removal != noRemoval {
		w.removeDocument()
	}
	if w.weather.steps {
		by := time.Duration(w.rng.Int64N(int64(20*time.Minute))) - 10*time.Minute
		w.ledger.note("clock of %s steps by %v", i, by)
		i.link.wall.step(by)
		w.stepStore()
	}
}

// split splits a partition of a container. There are at most a dozen: more would make runs
// long and show nothing new.
func (w *world) split(c *docstore.Container) {
	partitions, err := c.Partitions(w.ctx)
	if err != nil || len(partitions) > 12 {
		return
	}
	w.splitAt(c, partitions[w.rng.IntN(len(partitions))].Range.Min)
}

// merge merges two partitions of a container.
func (w *world) merge(c *docstore.Container) {
	partitions, err := c.Partitions(w.ctx)
	if err != nil || len(partitions) < 2 {
		return
	}
	w.mergeAt(c, partitions[w.rng.IntN(len(partitions))].Range.Min)
}

// splitAt splits the partition of a key.
func (w *world) splitAt(c *docstore.Container, place string) {
	partitions, err := c.Partitions(w.ctx)
	if err != nil || len(partitions) > 12 {
		return
	}
	for _, partition := range partitions {
		if !partition.Range.Holds(place) {
			continue
		}
		w.noteMuddle()
		w.ledger.note("split of %s %s", c.ID(), partition.Range)
		if _, err := c.Split(w.ctx, partition.ID); err != nil {
			w.ledger.fail("split: %v", err)
		}
	}
}

// mergeAt merges the partition of a key with the next; the last, which has no next, with the partition before.
func (w *world) mergeAt(c *docstore.Container, place string) {
	partitions, err := c.Partitions(w.ctx)
	if err != nil || len(partitions) < 2 {
		return
	}
	w.noteMuddle()
	n := 0
	for n+2 < len(partitions) && !partitions[n].Range.Holds(place) {
		n++
	}
	w.ledger.note("merge of %s %s with %s", c.ID(), partitions[n].Range, partitions[n+1].Range)
	w.ledger.noteMerge()
	if _, err := c.Merge(w.ctx, partitions[n].ID, partitions[n+1].ID); err != nil {
		w.ledger.fail("merge: %v", err)
	}
}

// noteMuddle notes that a .NET host and an instance of ours may replace one lease at once. The .NET host does not look
// who owns it, so a range may end with two leases: they are reported, and not repaired. Two promises remain: nothing is
// lost, and each key keeps its order.
func (w *world) noteMuddle() {
	if w.weather.foreign {
		w.ledger.muddled.Store(true)
	}
}
