package changefeed

import (
	"cmp"
	"hash/fnv"
	"slices"
	"time"
)

// How leases are balanced
//
// In each round every instance computes [balance] of what it knows. It is a pure
// function, so instances that know the same come to the same plan without a word:
//
//   - Quotas: with P leases and W workers each gets P/W rounded down or up; those
//     that have most keep the larger quotas, so that nothing moves without need.
//   - Free and expired leases go to workers below their quota, each lease to the one
//     with the highest rendezvous score, so that no two reach for the same lease.
//   - A worker above its quota gives the surplus away: only it can, so a planned move
//     is drained and costs no duplicate. The receiver finds itself named as owner.
//   - A lease that is splitting counts for nobody: it is about to be deleted. When its
//     owner has died, the one with the highest score of all finishes the split.
//   - An owner without an epoch is another processor: it is a worker too, but it knows
//     nothing of giving, so what it has too much is stolen from it. So it is from one of
//     ours that should have given long ago, and did not. A thief does not begin before
//     the old owner must have stopped (see fence).
//
// Instances that know different things come to plans that do not fit. The ETags then
// let one of them through, and the next round mends the rest.

// owner is one process: two processes with one instance name are two owners.
type owner struct {
	instance, epoch string
}

func (l Record) owner() owner { return owner{l.Owner, l.Epoch} }

// situation is what a plan is made of.
type situation struct {
	leases     []Record // one for each range
	hosts      []owner  // instances that show presence, this one included
	now        time.Time
	expiration time.Duration
	overdue    map[string]bool // leases, by id, that somebody should have taken or given long ago
}

// plan is what one instance should do.
type plan struct {
	take     []Record        // free or expired
	give     map[Range]owner // leases of this instance that should be others'
	steal    []Record        // from owners that do not give
	expected int             // leases that others should give to this instance
}

// balance computes what me should do.
func balance(s situation, me owner) plan {
	w := weigh(s)
	p := plan{give: map[Range]owner{}}
	for _, l := range w.free {
		if to, ok := w.neediest(l); ok && to == me || s.overdue[l.ID] {
			p.take = append(p.take, l)
		}
	}
	for _, l := range w.orphans {
		if w.nearest(l) == me || s.overdue[l.ID] {
			p.take = append(p.take, l)
		}
	}
	for _, from := range w.workers {
		for _, l := range w.surplus(from) {
			to, ok := w.neediest(l)
			switch {
			case !ok:
			case from == me:
				p.give[l.Range] = to
			case to == me && (w.foreign[from] || s.overdue[l.ID]):
				p.steal = append(p.steal, l)
			case to == me:
				p.expected++
			}
		}
	}
	return p
}

// scales hold who has what, and who should have how much.
type scales struct {
	now     time.Time
	workers []owner // in the order of their names
	foreign map[owner]bool
	owned   map[owner][]Record
	free    []Record
	orphans []Record // splits that nobody finishes
	quota   map[owner]int
	lack    map[owner]int // leases that a worker still needs to reach its quota
}

func weigh(s situation) scales {
	w := scales{now: s.now, foreign: map[owner]bool{}, owned: map[owner][]Record{}}
	w.workers = slices.Clone(s.hosts)
	live := 0
	for _, l := range s.leases {
		o := l.owner()
		free := l.Free() && !l.Fence.After(s.now) || !l.Free() && l.expired(s.now, s.expiration)
		switch {
		case l.State == StateSplitting && free:
			w.orphans = append(w.orphans, l)
		case free:
			w.free = append(w.free, l)
		}
		if l.State == StateSplitting {
			continue
		}
		live++
		if free {
			continue
		}
		w.owned[o] = append(w.owned[o], l)
		// An owner with an epoch is one of ours that has just died: its leases will expire.
		if !l.Free() && o.epoch == "" && !slices.Contains(w.workers, o) {
			w.workers = append(w.workers, o)
			w.foreign[o] = true
		}
	}
	slices.SortFunc(w.workers, func(a, b owner) int {
		return cmp.Or(cmp.Compare(a.instance, b.instance), cmp.Compare(a.epoch, b.epoch))
	})
	w.share(live)
	return w
}

// share sets the quotas: those that have most keep the larger ones.
func (w *scales) share(leases int) {
	w.quota, w.lack = map[owner]int{}, map[owner]int{}
	if len(w.workers) == 0 {
		return
	}
	byLoad := slices.Clone(w.workers)
	slices.SortStableFunc(byLoad, func(a, b owner) int { return cmp.Compare(len(w.owned[b]), len(w.owned[a])) })
	for i, o := range byLoad {
		w.quota[o] = leases / len(byLoad)
		if i < leases%len(byLoad) {
			w.quota[o]++
		}
		w.lack[o] = max(0, w.quota[o]-len(w.owned[o]))
	}
}

// neediest picks, among the workers below their quota that can take, the one with the
// highest score for the lease, and counts the lease as its own.
func (w *scales) neediest(l Record) (best owner, ok bool) {
	var top uint64
	for _, o := range w.workers {
		if w.lack[o] == 0 || w.foreign[o] {
			continue
		}
		if score := rendezvous(l.Token, o); !ok || score > top {
			best, top, ok = o, score, true
		}
	}
	if ok {
		w.lack[best]--
	}
	return best, ok
}

// nearest is the worker with the highest score for the lease.
func (w *scales) nearest(l Record) (best owner) {
	var top uint64
	for _, o := range w.workers {
		if score := rendezvous(l.Token, o); !w.foreign[o] && score >= top {
			best, top = o, score
		}
	}
	return best
}

// surplus is what a worker has above its quota: those that fit it least.
func (w *scales) surplus(o owner) []Record {
	n := len(w.owned[o]) - w.quota[o]
	if n <= 0 {
		return nil
	}
	movable := slices.DeleteFunc(slices.Clone(w.owned[o]), func(l Record) bool {
		return l.Fence.After(w.now)
	})
	slices.SortStableFunc(movable, func(a, b Record) int {
		return cmp.Compare(rendezvous(a.Token, o), rendezvous(b.Token, o))
	})
	return movable[:min(n, len(movable))]
}

// rendezvous scores a lease for an owner; each pair has its own fixed random number
// (highest random weight hashing, Thaler and Ravishankar 1996).
func rendezvous(token string, o owner) uint64 {
	h := fnv.New64a()
	for _, part := range []string{token, o.instance, o.epoch} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return mix(h.Sum64())
}

// mix spreads the last bytes of an FNV hash over all bits.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
