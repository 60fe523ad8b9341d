// Package balance decides which instance of a unit should own which lease.
//
// In each round every instance calls [Compute] with the instance's own view. Compute is a pure function, so instances
// with the same view make the same plan without communication:
//
//   - Quotas: each instance receives leases in proportion to its weight, rounded down or up. The instances with the
//     most leases keep the larger quotas, so that no lease moves without need. If a share exceeds an instance's limit,
//     the others share the rest; if all are full, leases stay without an owner.
//   - By load: if all instances ask for that, loads are shared instead of numbers of leases, see load.go.
//   - Free leases go to instances below their quota, each lease to the instance with the highest rendezvous score, so
//     that no two instances take the same lease.
//   - An instance above its quota gives the surplus away. Only this instance can, so a planned move drains the batches
//     and causes no duplicates. The receiver finds itself in the owner field.
//   - A splitting lease counts for no instance, because the lease will soon be deleted. If the owner has died, the
//     instance with the highest score of all finishes the split.
//   - A paused lease counts for no instance, and stays without an owner.
//   - An owner without an epoch is another kind of processor. Such an owner has a quota too, but never gives leases, so
//     others steal the surplus. Others also steal the surplus of an instance that should have given leases long ago and
//     did not.
//
// Instances with different views make plans that conflict. The conditional writes of the leases then let one plan
// succeed, and the next round repairs the rest.
package balance

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// Owner is a process: two processes with the same instance name are two owners. The zero Owner means no owner; an owner
// without an epoch is another kind of processor.
type Owner struct {
	Instance, Epoch string
}

// Capacity says how many leases an instance should have. The zero Capacity is a weight of 1 without a limit.
type Capacity struct {
	Weight int  // the share of the instance, compared with the shares of the others; 0 is 1
	Most   int  // limits the leases; 0 is no limit
	ByLoad bool // share by load, if all other instances do the same
}

// Lease contains the parts of a lease that decide a plan.
type Lease struct {
	Token   string
	Owner   Owner
	Free    bool // can be taken: no owner, or an owner that was silent for too long
	Stage   Stage
	Fenced  bool  // the owner has not begun yet, because the previous owner may not have stopped
	Overdue bool  // an instance should have taken or given the lease long ago
	Load    int64 // changes per minute, and changes behind; 0 is idle or unknown
}

// Stage says whether a lease has work for an owner.
type Stage uint8

// The stages.
const (
	Working   Stage = iota
	Splitting       // other leases are about to replace this lease
	Paused          // an operator has paused the lease: nobody may take or give it, and it counts for no instance
)

// Plan lists the leases that an instance should take, steal or give, by their indexes.
type Plan struct {
	Take     []int         // free leases
	Give     map[int]Owner // leases of this instance for another owner
	Steal    []int         // from owners that do not give
	Expected int           // how many leases other instances should give to this instance
	Waiting  []int         // leases that an instance should take, or another owner should give
	Unowned  int           // leases that no instance may own, because all instances are full
}

// Compute makes the plan of me, who is among the live instances. An instance without an entry in capacity has the zero
// [Capacity].
func Compute(me Owner, alive []Owner, capacity map[Owner]Capacity, leases []Lease) Plan {
	s := newShares(alive, capacity, leases)
	p := Plan{Give: map[int]Owner{}, Waiting: slices.Concat(s.free, s.orphans), Unowned: s.unowned}
	for _, i := range s.free {
		if to, ok := s.pickReceiver(i); ok && to == me || leases[i].Overdue && !s.isFull(me, len(p.Take)) {
			p.Take = append(p.Take, i)
		}
	}
	for _, i := range s.orphans {
		if s.preferredOwner(i) == me || leases[i].Overdue {
			p.Take = append(p.Take, i)
		}
	}
	for _, from := range s.owners {
		surplus := s.surplusLeases(from)
		if from != me {
			p.Waiting = append(p.Waiting, surplus...)
		}
		for _, i := range surplus {
			to, ok := s.pickReceiver(i)
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

// shares says which owner has which leases, and how many each owner should have.
type shares struct {
	leases   []Lease
	owners   []Owner // owners with a quota, by their names
	foreign  map[Owner]bool
	owned    map[Owner][]int
	free     []int
	orphans  []int // splitting leases without an owner
	quota    map[Owner]int
	deficit  map[Owner]int // leases that an owner lacks up to its quota
	capacity map[Owner]Capacity
	receiver map[int]Owner // by load: the next owners of leases; nil is by number
	unowned  int
}

func newShares(alive []Owner, capacity map[Owner]Capacity, leases []Lease) *shares {
	s := &shares{
		leases: leases, capacity: capacity, owners: slices.Clone(alive), foreign: map[Owner]bool{},
		owned: map[Owner][]int{},
	}
	counted := 0
	for i, l := range leases {
		switch {
		case l.Stage == Splitting && l.Free:
			s.orphans = append(s.orphans, i)
		case l.Stage != Working:
		case l.Free:
			s.free = append(s.free, i)
			counted++
		default:
			s.owned[l.Owner] = append(s.owned[l.Owner], i)
			counted++
			s.admitForeign(l.Owner)
		}
	}
	slices.SortFunc(s.owners, func(a, b Owner) int {
		return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Epoch, b.Epoch))
	})
	s.setQuotas(counted)
	if s.isByLoad() {
		s.shareByLoad()
	}
	return s
}

// admitForeign gives a quota to an owner of another kind, which shows no presence. An owner with an epoch and without
// presence has just died, and the leases will expire.
func (s *shares) admitForeign(o Owner) {
	if o != (Owner{}) && o.Epoch == "" && !slices.Contains(s.owners, o) {
		s.owners = append(s.owners, o)
		s.foreign[o] = true
	}
}

// setQuotas sets the quotas. An owner whose limit is below its share leaves more to the others.
func (s *shares) setQuotas(leases int) {
	s.quota, s.deficit = map[Owner]int{}, map[Owner]int{}
	open := slices.Clone(s.owners)
	for isFull := true; isFull; {
		isFull = false
		total := s.totalWeight(open)
		open = slices.DeleteFunc(open, func(o Owner) bool {
			most := s.capacity[o].Most
			if most == 0 || most > leases*s.weight(o)/total {
				return false
			}
			s.quota[o], isFull = most, true
			leases -= most
			return true
		})
	}
	s.shareByWeight(open, leases)
	for _, o := range s.owners {
		s.deficit[o] = max(0, s.quota[o]-len(s.owned[o]))
	}
}

// shareByWeight sets the quotas of owners without a limit that matters: the exact shares, rounded down. Of the owners
// whose exact share is larger, those with the most leases above their quotas receive a further lease, then those with
// the largest fractions, then the first by name. Leases up to the quota must not decide: while instances take free
// leases one after another, each would see another favorite, and a lease would be left.
func (s *shares) shareByWeight(owners []Owner, leases int) {
	total, left := s.totalWeight(owners), leases
	for _, o := range owners {
		s.quota[o] = leases * s.weight(o) / total
		left -= s.quota[o]
	}
	fraction := func(o Owner) int { return leases * s.weight(o) % total }
	larger := slices.DeleteFunc(slices.Clone(owners), func(o Owner) bool { return fraction(o) == 0 })
	surplus := func(o Owner) int { return max(0, len(s.owned[o])-s.quota[o]) }
	slices.SortStableFunc(larger, func(a, b Owner) int {
		return cmp.Or(
			cmp.Compare(surplus(b), surplus(a)),
			cmp.Compare(fraction(b), fraction(a)),
		)
	})
	for _, o := range larger[:min(left, len(larger))] {
		s.quota[o]++
	}
	if len(owners) == 0 {
		s.unowned = leases
	}
}

// weight returns the weight of an owner.
func (s *shares) weight(o Owner) int { return max(1, s.capacity[o].Weight) }

// totalWeight returns the sum of the weights of owners.
func (s *shares) totalWeight(of []Owner) (total int) {
	for _, o := range of {
		total += s.weight(o)
	}
	return total
}

// isFull reports whether an owner, with more further leases, has reached its limit.
func (s *shares) isFull(o Owner, more int) bool {
	most := s.capacity[o].Most
	return most > 0 && len(s.owned[o])+more >= most
}

// pickReceiver picks the owner with the highest score for a lease, among the owners below their quota that can take
// leases, and counts the lease for this owner.
func (s *shares) pickReceiver(lease int) (best Owner, ok bool) {
	if s.receiver != nil {
		best, ok = s.receiver[lease]
		return best, ok
	}
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

// preferredOwner returns the owner with the highest score for a lease.
func (s *shares) preferredOwner(lease int) (best Owner) {
	var top uint64
	for _, o := range s.owners {
		if score := rendezvous(s.leases[lease].Token, o); !s.foreign[o] && score >= top {
			best, top = o, score
		}
	}
	return best
}

// surplusLeases returns an owner's leases above its quota: the leases with the lowest scores.
func (s *shares) surplusLeases(o Owner) []int {
	if s.receiver != nil {
		return slices.DeleteFunc(slices.Clone(s.owned[o]), func(i int) bool {
			_, moves := s.receiver[i]
			return !moves
		})
	}
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

// rendezvous scores a lease for an owner; each pair has its own fixed random number (highest random weight hashing,
// Thaler and Ravishankar 1996).
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
