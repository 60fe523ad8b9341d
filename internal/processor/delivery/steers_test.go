package delivery

import (
	"slices"

	"github.com/millrace/changefeed/internal/notes"
)

// What an operator does with single changes and keys, between two owners: a change is skipped, or a key is replayed.
// The owner has ended in good order, or has died: then the lease is changed as it was stored last.

// amended returns the lease that an operator would change.
func (w *world) amended(dead bool) storedLease {
	if dead {
		return w.lease
	}
	at, n := w.leaseNow()
	return storedLease{at, n}
}

// maySkip reports whether the lease fails at a change.
func (l *storedLease) maySkip(c *truth) bool {
	runs := slices.Clone(l.notes.Tried)
	if l.notes.Suspect != nil {
		runs = append(runs, l.notes.Suspect.Tried...)
	}
	for _, k := range l.notes.Aside {
		if k.Key == c.key {
			runs = k.Tried
		}
	}
	name := letterName(c.lsn, c.place)
	return !l.says(c) && slices.ContainsFunc(runs, func(r notes.Run) bool {
		return r.Failing > 0 && r.Has(c.key, c.lsn, func() string { return name })
	})
}

// mayReplay reports whether a key can be replayed from before a change.
func (l *storedLease) mayReplay(c *truth) bool {
	return c.lsn <= l.at && c.place == 0 && !slices.ContainsFunc(l.notes.Aside, func(k Aside) bool {
		return k.Key == c.key && k.LSN <= c.lsn
	})
}

// steerings are what an operator may do now. 1 is after the death of the owner.
func (w *world) steerings(may func(possible bool, kind deed, at int, how outcome)) {
	for i, c := range w.all {
		for _, dead := range []bool{false, true} {
			possible, how := len(w.flying) == 0, fine
			if dead {
				possible, how = w.left.crash > 0, failed
			}
			if possible && w.left.skip > 0 {
				lease := w.amended(dead)
				may(lease.maySkip(c), skipIt, i, how)
			}
			if possible && w.left.replay > 0 {
				lease := w.amended(dead)
				may(lease.mayReplay(c), replayIt, i, how)
			}
		}
	}
}

// steer ends the engine, changes the lease, and begins the next engine.
func (w *world) steer(a action) {
	c := w.all[a.at]
	w.amend = func() { w.skip(c) }
	if a.kind == replayIt {
		w.amend = func() { w.replay(c) }
	}
	if a.how == fine {
		w.left.stop++ // it is not one of those that the bounds count
		w.stop()
	} else {
		w.crash(0)
	}
}

// skip has a change skipped.
func (w *world) skip(c *truth) {
	w.left.skip--
	if !w.lease.maySkip(c) {
		return
	}
	c.skipped = true
	w.lease.notes.Skips = append(slices.Clone(w.lease.notes.Skips), notes.Skip{
		Key: c.key, LSN: c.lsn, ID: letterName(c.lsn, c.place),
	})
}

// replay has the changes of a key come again from one on.
func (w *world) replay(first *truth) {
	w.left.replay--
	if !w.lease.mayReplay(first) {
		return
	}
	w.replayed = true
	for _, c := range w.all {
		if c.key == first.key && c.lsn >= first.lsn {
			*c = truth{
				lsn: c.lsn, place: c.place, key: c.key, hidden: c.hidden, poison: c.poison, calls: c.calls,
				forgotten: true,
			}
		}
	}
	for i := range w.box {
		w.box[i].old = w.box[i].old || w.box[i].key == first.key
	}
	n := &w.lease.notes
	n.Held = slices.DeleteFunc(slices.Clone(n.Held), func(h heldKey) bool { return h.Key == first.key })
	n.Recalls = slices.DeleteFunc(slices.Clone(n.Recalls), func(r notes.Recall) bool { return r.Key == first.key })
	n.Skips = slices.DeleteFunc(slices.Clone(n.Skips), func(s notes.Skip) bool { return s.Key == first.key })
	n.Aside = slices.DeleteFunc(slices.Clone(n.Aside), func(k Aside) bool { return k.Key == first.key })
	n.Aside = append(n.Aside, Aside{
		AsideKey: notes.AsideKey{
			Key: first.key, LSN: first.lsn, Last: max(w.lease.at, n.Through), Covered: w.lease.at, Passed: true,
		},
		From: first.lsn - 1,
	})
}
