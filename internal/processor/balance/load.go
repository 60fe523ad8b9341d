package balance

import (
	"cmp"
	"math"
	"slices"
)

// Leases shared by load
//
// If all instances ask for that, an instance should have a load in proportion to its weight, instead of a number of
// leases. Nothing moves while each instance is within a tenth of its share. Otherwise leases move from a more loaded to
// the least loaded instance, as long as a move leaves both with less than the more loaded instance had. So each move
// makes the largest loads smaller, and the moves come to an end. The plan is carried on until no move is left, so
// the next plan has none, unless the loads have changed. All numbers are integers, so all machines plan the same.

// loads is the state of a plan by load.
type loads struct {
	*shares
	of       []int64         // load of each lease
	total    int64           // of all leases
	carried  map[Owner]int64 // load of each owner
	assigned map[Owner][]int // leases of each owner
}

// maxLoad bounds the load of a lease, so that no product overflows.
const maxLoad = 1 << 30

// isByLoad reports whether all owners share the leases by load. Another kind of processor does not.
func (s *shares) isByLoad() bool {
	return len(s.owners) > 0 && !slices.ContainsFunc(s.owners, func(o Owner) bool { return !s.capacity[o].ByLoad })
}

// shareByLoad sets the receivers of the leases that should have another owner.
func (s *shares) shareByLoad() {
	l := &loads{
		shares: s, of: make([]int64, len(s.leases)), carried: map[Owner]int64{}, assigned: map[Owner][]int{},
	}
	counted := slices.Clone(s.free)
	for _, o := range s.owners {
		counted = append(counted, s.owned[o]...)
	}
	sum := int64(0)
	for _, i := range counted {
		l.of[i] = min(max(0, s.leases[i].Load), maxLoad)
		sum += l.of[i]
	}
	for _, i := range counted { // an idle lease has a tenth of the mean, so that idle leases are shared too
		l.of[i] += 1 + sum/int64(10*len(counted))
		l.total += l.of[i]
	}
	for _, o := range s.owners {
		for _, i := range s.owned[o] {
			l.assign(i, o)
		}
	}
	s.receiver, s.unowned = map[int]Owner{}, 0
	l.assignFree()
	for range len(counted) * len(s.owners) {
		if !l.moveOne() {
			break
		}
	}
	for _, o := range s.owners {
		for _, i := range l.assigned[o] {
			if s.leases[i].Free || s.leases[i].Owner != o {
				s.receiver[i] = o
			}
		}
	}
}

func (l *loads) assign(lease int, to Owner) {
	l.assigned[to] = append(l.assigned[to], lease)
	l.carried[to] += l.of[lease]
}

// assignFree assigns the free leases, the largest loads first, each to the owner with the least load for its weight.
func (l *loads) assignFree() {
	free := slices.Clone(l.free)
	slices.SortStableFunc(free, func(a, b int) int {
		return cmp.Or(cmp.Compare(l.of[b], l.of[a]), cmp.Compare(l.leases[a].Token, l.leases[b].Token))
	})
	for _, i := range free {
		open := l.openOwners()
		if len(open) == 0 {
			l.unowned++
			continue
		}
		l.assign(i, slices.MinFunc(open, func(a, b Owner) int {
			return cmp.Or(
				cmp.Compare((l.carried[a]+l.of[i])*l.wide(b), (l.carried[b]+l.of[i])*l.wide(a)),
				cmp.Compare(rendezvous(l.leases[i].Token, b), rendezvous(l.leases[i].Token, a)),
			)
		}))
	}
}

// openOwners returns the owners that may have a further lease.
func (l *loads) openOwners() []Owner {
	return slices.DeleteFunc(slices.Clone(l.owners), func(o Owner) bool {
		most := l.capacity[o].Most
		return most > 0 && len(l.assigned[o]) >= most
	})
}

// wide returns the weight of an owner, for products of loads.
func (l *loads) wide(o Owner) int64 { return int64(l.weight(o)) }

// compareLoads compares the loads of two owners for their weights.
func (l *loads) compareLoads(a, b Owner) int {
	return cmp.Compare(l.carried[a]*l.wide(b), l.carried[b]*l.wide(a))
}

// hasTooMany reports whether an owner has more leases than its limit, as after a split.
func (l *loads) hasTooMany(o Owner) bool {
	most := l.capacity[o].Most
	return most > 0 && len(l.assigned[o]) > most
}

// moveOne makes the next move, if there is one: to the least loaded owner, from an owner with too many leases, or from
// the most loaded owner that has a suitable lease.
func (l *loads) moveOne() bool {
	open := l.openOwners()
	if len(open) == 0 {
		return false
	}
	to := slices.MinFunc(open, l.compareLoads)
	givers := slices.Clone(l.owners)
	slices.SortStableFunc(givers, func(a, b Owner) int { return l.compareLoads(b, a) })
	if n := slices.IndexFunc(givers, l.hasTooMany); n > 0 {
		givers[0], givers[n] = givers[n], givers[0]
	}
	all := int64(l.totalWeight(l.owners))
	lacks := 10*l.carried[to]*all < 9*l.total*l.wide(to)
	for _, from := range givers {
		if over := 10*l.carried[from]*all > 11*l.total*l.wide(from); !over && !lacks && !l.hasTooMany(from) {
			return false
		}
		if n, ok := l.pickLease(from, to); ok {
			i := l.assigned[from][n]
			l.assigned[from] = slices.Delete(l.assigned[from], n, n+1)
			l.carried[from] -= l.of[i]
			l.assign(i, to)
			return true
		}
	}
	return false
}

// pickLease picks the lease whose move leaves the smallest maximum of two owners, if that is smaller than the load of
// the giver, or if the giver has too many leases. n is the place among the giver's leases.
func (l *loads) pickLease(from, to Owner) (n int, ok bool) {
	least := l.carried[from] * l.wide(to)
	if l.hasTooMany(from) {
		least = math.MaxInt64
	}
	for at, i := range l.assigned[from] {
		after := max((l.carried[from]-l.of[i])*l.wide(to), (l.carried[to]+l.of[i])*l.wide(from))
		if !l.leases[i].Fenced && after < least {
			n, least, ok = at, after, true
		}
	}
	return n, ok
}
