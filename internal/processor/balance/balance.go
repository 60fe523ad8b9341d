// Package balance decides which instance of a unit should have which lease.
//
// In each round every instance computes [Compute] of what it knows. It is a pure function, so
// instances that know the same come to the same plan without a word:
//
//   - Quotas: of P leases and W instances each gets P/W, rounded down or up. Those that have
//     most keep the larger quotas, so that nothing moves without need. What is above an
//     instance's limit is shared among the others; if all are full, leases stay without an owner.
//   - Free leases go to instances below their quota, each lease to the one with the highest
//     rendezvous score, so that no two reach for the same lease.
//   - An instance above its quota gives the surplus away: only it can, so a planned move is
//     drained and costs no duplicate. The receiver finds itself named as owner.
//   - A lease that is splitting counts for nobody, because it is about to be deleted. When its
//     owner has died, the instance with the highest score of all finishes the split.
//   - An owner without an epoch is another kind of processor: it has a quota too, but it knows
//     nothing of giving, so its surplus is stolen. So is that of an instance that should have
//     given long ago and did not.
//
// Instances that know different things come to plans that do not fit. The conditional writes
// of the leases then let one of them through, and the next round mends the rest.
package balance

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// Owner is one process: two processes with one instance name are two owners. The zero Owner
// is nobody; an owner without an epoch is another kind of processor.
type Owner struct {
	Instance, Epoch string
}

// Lease is the part of a lease that a plan depends on.
type Lease struct {
	Token     string
	Owner     Owner
	Free      bool // it may be taken: it has no owner, or one that was silent for too long
	Splitting bool // others are about to replace it
	Fenced    bool // its owner has not begun yet, because the one before may not have stopped
	Overdue   bool // somebody should have taken or given it long ago
}

// Plan lists the leases that one instance should take, steal or give, by their indexes.
type Plan struct {
	Take     []int         // free leases
	Give     map[int]Owner // leases of this instance that should be another's
	Steal    []int         // from owners that do not give
	Expected int           // how many leases others should give to this instance
	Waiting  []int         // leases that somebody should take, or another owner give
	Unowned  int           // leases that nobody may have, because all instances are full
}

// Compute makes the plan of me, who is among the instances that are alive. Most is how many leases
// an instance may have; one without an entry has no limit.
func Compute(me Owner, alive []Owner, most map[Owner]int, leases []Lease) Plan {
	s := newShares(alive, most, leases)
	p := Plan{Give: map[int]Owner{}, Waiting: slices.Concat(s.free, s.orphans), Unowned: s.unowned}
	for _, i := range s.free {
		if to, ok := s.receiver(i); ok && to == me || leases[i].Overdue && !s.isFull(me, len(p.Take)) {
			p.Take = append(p.Take, i)
		}
	}
	for _, i := range s.orphans {
		if s.preferred(i) == me || leases[i].Overdue {
			p.Take = append(p.Take, i)
		}
	}
	for _, from := range s.owners {
		surplus := s.surplus(from)
		if from != me {
			p.Waiting = append(p.Waiting, surplus...)
		}
		for _, i := range surplus {
			to, ok := s.receiver(i)
			switch {
			case !ok:
			case from == me:
				p.Give[i] = to
			case to == me && (s.foreign[from] || leases[i].Overdue):
				p.Steal = append(p.Steal, i)
			case to == me:
				p.Expected++
			}
		}
	}
	return p
}

// shares are who has which leases, and how many each should have.
type shares struct {
	leases  []Lease
	owners  []Owner // those that have a quota, by their names
	foreign map[Owner]bool
	owned   map[Owner][]int
	free    []int
	orphans []int // leases whose split nobody finishes
	quota   map[Owner]int
	deficit map[Owner]int // leases that an owner still lacks of its quota
	most    map[Owner]int
	unowned int
}

func newShares(alive []Owner, most map[Owner]int, leases []Lease) *shares {
	s := &shares{leases: leases, most: most, owners: slices.Clone(alive), foreign: map[Owner]bool{}, owned: map[Owner][]int{}}
	counted := 0
	for i, l := range leases {
		switch {
		case l.Splitting && l.Free:
			s.orphans = append(s.orphans, i)
		case l.Splitting:
		case l.Free:
			s.free = append(s.free, i)
			counted++
		default:
			s.owned[l.Owner] = append(s.owned[l.Owner], i)
			counted++
			s.admit(l.Owner)
		}
	}
	slices.SortFunc(s.owners, func(a, b Owner) int {
		return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Epoch, b.Epoch))
	})
	s.divide(counted)
	return s
}

// admit gives a quota to an owner of another kind, which shows no presence. An owner with an
// epoch that shows none has just died: its leases will expire.
func (s *shares) admit(o Owner) {
	if o != (Owner{}) && o.Epoch == "" && !slices.Contains(s.owners, o) {
		s.owners = append(s.owners, o)
		s.foreign[o] = true
	}
}

// divide sets the quotas: those that have most keep the larger ones.
func (s *shares) divide(leases int) {
	s.quota, s.deficit = map[Owner]int{}, map[Owner]int{}
	byLoad := slices.Clone(s.owners)
	slices.SortStableFunc(byLoad, func(a, b Owner) int { return cmp.Compare(len(s.owned[b]), len(s.owned[a])) })
	for isFull := true; isFull; { // whoever has less than an equal share leaves more to the others
		isFull = false
		byLoad = slices.DeleteFunc(byLoad, func(o Owner) bool {
			most, limited := s.most[o]
			if !limited || most > leases/len(byLoad) {
				return false
			}
			s.quota[o], isFull = most, true
			leases -= most
			return true
		})
	}
	for i, o := range byLoad {
		s.quota[o] = leases / len(byLoad)
		if i < leases%len(byLoad) {
			s.quota[o]++
		}
	}
	if len(byLoad) == 0 {
		s.unowned = leases
	}
	for _, o := range s.owners {
		s.deficit[o] = max(0, s.quota[o]-len(s.owned[o]))
	}
}

// isFull reports whether an owner may not have more leases than it has, and so many.
func (s *shares) isFull(o Owner, more int) bool {
	most, limited := s.most[o]
	return limited && len(s.owned[o])+more >= most
}

// receiver picks, of the owners below their quota that can take, the one with the highest
// score for a lease, and counts the lease as its own.
func (s *shares) receiver(lease int) (best Owner, ok bool) {
	var top uint64
	for _, o := range s.owners {
		if s.deficit[o] == 0 || s.foreign[o] {
			continue
		}
		if score := rendezvous(s.leases[lease].Token, o); !ok || score > top {
			best, top, ok = o, score, true
		}
	}
	if ok {
		s.deficit[best]--
	}
	return best, ok
}

// preferred is the owner with the highest score for a lease.
func (s *shares) preferred(lease int) (best Owner) {
	var top uint64
	for _, o := range s.owners {
		if score := rendezvous(s.leases[lease].Token, o); !s.foreign[o] && score >= top {
			best, top = o, score
		}
	}
	return best
}

// surplus is what an owner has above its quota: the leases with its lowest scores.
func (s *shares) surplus(o Owner) []int {
	n := len(s.owned[o]) - s.quota[o]
	if n <= 0 {
		return nil
	}
	movable := slices.DeleteFunc(slices.Clone(s.owned[o]), func(i int) bool { return s.leases[i].Fenced })
	slices.SortStableFunc(movable, func(a, b int) int {
		return cmp.Compare(rendezvous(s.leases[a].Token, o), rendezvous(s.leases[b].Token, o))
	})
	return movable[:min(n, len(movable))]
}

// rendezvous scores a lease for an owner; each pair has its own fixed random number
// (highest random weight hashing, Thaler and Ravishankar 1996).
func rendezvous(token string, o Owner) uint64 {
	h := fnv.New64a()
	for _, part := range []string{token, o.Instance, o.Epoch} {
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
