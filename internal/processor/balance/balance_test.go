package balance

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// fleet is a world for plans: leases, and the instances that see them.
type fleet struct {
	capacity map[Owner]Capacity
	leases   []Lease
	alive    []Owner
}

func newFleet(leases int, instances ...string) *fleet {
	f := &fleet{}
	for i := range leases {
		f.leases = append(f.leases, Lease{Token: fmt.Sprint(i), Free: true})
	}
	for _, name := range instances {
		f.alive = append(f.alive, Owner{name, "epoch-" + name})
	}
	return f
}

// round lets every instance act once on the same knowledge and returns how many leases
// moved; two instances that reach for one lease fail the test.
func (f *fleet) round(t interface{ Fatalf(string, ...any) }) (moves int) {
	next := slices.Clone(f.leases)
	touched := map[int]Owner{}
	set := func(lease int, by, to Owner) {
		if other, twice := touched[lease]; twice {
			t.Fatalf("%v and %v both move lease %d", other, by, lease)
		}
		touched[lease] = by
		next[lease].Owner, next[lease].Free = to, false
	}
	for _, me := range f.alive {
		p := Compute(me, f.alive, f.capacity, f.leases)
		for _, lease := range slices.Concat(p.Take, p.Steal) {
			set(lease, me, me)
		}
		for lease, to := range p.Give {
			set(lease, me, to)
		}
	}
	f.leases = next
	return len(touched)
}

func (f *fleet) counts() map[Owner]int {
	n := map[Owner]int{}
	for _, l := range f.leases {
		n[l.Owner]++
	}
	return n
}

func (f *fleet) give(n int, to Owner) {
	for i := range f.leases {
		if f.leases[i].Free && n > 0 {
			f.leases[i].Owner, f.leases[i].Free = to, false
			n--
		}
	}
}

func TestBalanceCases(t *testing.T) {
	const foreign = "dotnet"
	for _, c := range []struct {
		name  string
		hosts []string
		owned map[string]int // foreign owners have no epoch
		total int
		want  map[string]int // after one round
		moves int
	}{
		{"no leases", []string{"a"}, nil, 0, map[string]int{}, 0},
		{"one host takes all free leases at once", []string{"a"}, nil, 100, map[string]int{"a": 100}, 100},
		{"two hosts share free leases", []string{"a", "b"}, nil, 9, map[string]int{"a": 5, "b": 4}, 9},
		{
			"a newcomer is given half",
			[]string{"a", "b"},
			map[string]int{"a": 100},
			100,
			map[string]int{"a": 50, "b": 50},
			50,
		},
		{
			"nothing moves when quotas hold",
			[]string{"a", "b"},
			map[string]int{"a": 4, "b": 5},
			9,
			map[string]int{"a": 4, "b": 5},
			0,
		},
		{
			"more hosts than leases",
			[]string{"a", "b", "c"},
			map[string]int{"a": 2},
			2,
			map[string]int{"a": 1, "b": 1},
			1,
		},
		{
			"a foreign owner is a worker and is stolen from",
			[]string{"a"},
			map[string]int{foreign: 10},
			10,
			map[string]int{foreign: 5, "a": 5},
			5,
		},
		{
			"a foreign owner below its quota is left to itself",
			[]string{"a"},
			map[string]int{"a": 5, foreign: 5},
			10,
			map[string]int{"a": 5, foreign: 5},
			0,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFleet(c.total, c.hosts...)
			if c.total == 0 {
				f.leases = nil
			}
			for _, name := range append(c.hosts, foreign) {
				o := Owner{name, "epoch-" + name}
				if name == foreign {
					o.Epoch = ""
				}
				f.give(c.owned[name], o)
			}
			moves := f.round(t)
			got := map[string]int{}
			for o, n := range f.counts() {
				got[o.Instance] = n
			}
			if moves != c.moves || fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("got %v after %d moves, want %v after %d", got, moves, c.want, c.moves)
			}
		})
	}
}

func TestExpiredLeasesAreTakenByAllSurvivorsAtOnce(t *testing.T) {
	f := newFleet(300, "a", "b", "c", "d")
	f.round(t)
	f.alive = f.alive[:3]
	for i := range f.leases {
		f.leases[i].Free = f.leases[i].Owner.Instance == "d"
	}
	if moves := f.round(t); moves != 75 {
		t.Errorf("%d leases moved, want the 75 of the dead host", moves)
	}
	for o, n := range f.counts() {
		if n != 100 {
			t.Errorf("%v has %d leases, want 100", o, n)
		}
	}
}

func TestLeasesOfAHostThatHasJustDiedAreLeftToExpire(t *testing.T) {
	f := newFleet(10, "a", "b")
	f.round(t)
	f.alive = f.alive[:1]
	if moves := f.round(t); moves != 0 {
		t.Errorf("%d leases moved before they had expired", moves)
	}
}

func TestOverdueLeasesAreAnybodys(t *testing.T) {
	f := newFleet(4, "a", "b")
	for i := range f.leases {
		f.leases[i].Overdue = true
	}
	f.leases[3].Stage = Splitting
	for _, me := range f.alive {
		if p := Compute(me, f.alive, f.capacity, f.leases); len(p.Take) != 4 {
			t.Errorf("%v took %d of 4 leases that nobody took, one of them to finish its split", me, len(p.Take))
		}
	}
}

// An instance takes overdue leases up to its limit, and no further.
func TestOverdueLeasesAreTakenUpToTheLimit(t *testing.T) {
	for most, want := range map[int]int{0: 3, 1: 1, 2: 2} {
		f := newFleet(3, "a")
		for i := range f.leases {
			f.leases[i].Overdue = true
		}
		f.capacity = map[Owner]Capacity{f.alive[0]: {Most: most}}
		if p := Compute(f.alive[0], f.alive, f.capacity, f.leases); len(p.Take) != want {
			t.Errorf("with a limit of %d, %d of 3 overdue leases are taken, want %d", most, len(p.Take), want)
		}
	}
}

// From any distribution the fleet is balanced after one round of shared knowledge, with
// no more moves than the excess asks for, and then rests.
func TestBalanceConvergesInOneRoundWithMinimalMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		leases := rapid.IntRange(1, 60).Draw(t, "leases")
		names := []string{"a", "b", "c", "d", "e", "f", "g"}[:rapid.IntRange(1, 7).Draw(t, "hosts")]
		f := newFleet(leases, names...)
		for i := range f.leases {
			if h := rapid.IntRange(-1, len(names)-1).Draw(t, "owner"); h >= 0 {
				f.leases[i].Owner, f.leases[i].Free = f.alive[h], false
			}
		}
		need := 0
		low, high := leases/len(names), (leases+len(names)-1)/len(names)
		free := f.counts()[Owner{}]
		excess := 0
		for _, h := range f.alive {
			excess += max(0, f.counts()[h]-high)
			need += max(0, low-f.counts()[h])
		}
		moves := f.round(t)
		if most := max(free+excess, need, free); moves > most+len(names) {
			t.Fatalf("%d moves for %d free, %d in excess, %d needed", moves, free, excess, need)
		}
		for _, h := range f.alive {
			if n := f.counts()[h]; n < low || n > high {
				t.Fatalf("%v has %d of %d leases, want %d to %d", h, n, leases, low, high)
			}
		}
		if moves := f.round(t); moves != 0 {
			t.Fatalf("%d more moves when balanced", moves)
		}
	})
}

// Instances take free leases one after another, each with a view of its moment: an instance that comes late sees what
// the others have taken meanwhile, or a part of that. No lease is left for the next round, and none is moved.
func TestInstancesThatTakeOneAfterAnotherLeaveNoLease(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(rapid.IntRange(1, 30).Draw(t, "leases"), "a", "b", "c", "d", "e")
		f.alive = f.alive[:rapid.IntRange(1, 5).Draw(t, "instances")]
		f.capacity = map[Owner]Capacity{}
		for _, o := range f.alive {
			f.capacity[o] = Capacity{Weight: rapid.IntRange(0, 3).Draw(t, "weight of "+o.Instance)}
		}
		views := [][]Lease{slices.Clone(f.leases)} // after each write of a lease
		for _, me := range rapid.Permutation(f.alive).Draw(t, "order") {
			seen := views[rapid.IntRange(0, len(views)-1).Draw(t, "view of "+me.Instance)]
			for _, i := range Compute(me, f.alive, f.capacity, seen).Take {
				if !f.leases[i].Free {
					t.Fatalf("%v reaches for lease %d of %v", me, i, f.leases[i].Owner)
				}
				f.leases[i].Owner, f.leases[i].Free = me, false
				views = append(views, slices.Clone(f.leases))
			}
		}
		for i, l := range f.leases {
			if l.Free {
				t.Errorf("lease %d is left: %v", i, f.counts())
			}
		}
		if moves := f.round(t); moves > 0 {
			t.Errorf("%d leases are moved afterwards: %v", moves, f.counts())
		}
	})
}

// A lease whose owner has not begun yet is not moved once more.
func TestALeaseBehindAFenceStays(t *testing.T) {
	for _, byLoad := range []bool{false, true} {
		f := newFleet(2, "a", "b")
		if byLoad {
			f.byLoad()
		}
		f.give(2, f.alive[0])
		f.leases[0].Fenced, f.leases[1].Fenced = true, true
		if p := Compute(f.alive[0], f.alive, f.capacity, f.leases); len(p.Give) != 0 {
			t.Errorf("by load: %v: gives %v", byLoad, p.Give)
		}
		f.leases[1].Fenced = false
		if p := Compute(f.alive[0], f.alive, f.capacity, f.leases); len(p.Give) != 1 || p.Give[1] != f.alive[1] {
			t.Errorf("by load: %v: gives %v, want lease 1", byLoad, p.Give)
		}
	}
}

// What is given too late is noted by all, and stolen by the one to whom it should go.
func TestASurplusThatIsNotGivenIsStolen(t *testing.T) {
	f := newFleet(4, "a", "b")
	f.give(4, f.alive[0])
	p := Compute(f.alive[1], f.alive, f.capacity, f.leases)
	if len(p.Waiting) != 2 || p.Expected != 2 || len(p.Steal) != 0 {
		t.Fatalf("plan %+v, want two leases expected", p)
	}
	for _, i := range p.Waiting {
		f.leases[i].Overdue = true
	}
	if p := Compute(f.alive[1], f.alive, f.capacity, f.leases); len(p.Steal) != 2 || p.Expected != 0 {
		t.Errorf("plan %+v, want two leases stolen", p)
	}
	if p := Compute(f.alive[0], f.alive, f.capacity, f.leases); len(p.Waiting) != 0 || len(p.Give) != 2 {
		t.Errorf("plan %+v, want two leases given", p)
	}
}

// A split whose owner has died is finished by one instance, and its lease counts for nobody.
func TestASplitWithoutAnOwnerIsFinishedByOne(t *testing.T) {
	f := newFleet(1, "a", "b", "c")
	f.leases[0].Stage = Splitting
	finishers := 0
	for _, me := range f.alive {
		p := Compute(me, f.alive, f.capacity, f.leases)
		finishers += len(p.Take)
		if len(p.Waiting) != 1 { // or nobody would notice that it waits for too long
			t.Errorf("%v sees %d leases waiting, want the one that is splitting", me, len(p.Waiting))
		}
	}
	if finishers != 1 {
		t.Errorf("%d instances finish the split, want 1", finishers)
	}
	f.give(1, Owner{"d", "dead"})
	if p := Compute(f.alive[0], f.alive, f.capacity, f.leases); len(p.Take)+len(p.Give)+len(p.Steal)+p.Expected != 0 {
		t.Errorf("plan %+v for a split that its owner works on", p)
	}
}

// A processor of another make knows nothing of our splits: it is left out, whatever its score.
func TestASplitIsFinishedByOneOfUs(t *testing.T) {
	f := newFleet(21, "a", "b")
	f.give(1, Owner{Instance: "net"})
	for i := range f.leases[1:] {
		f.leases[i+1].Stage = Splitting
	}
	finishers := 0
	for _, me := range f.alive {
		finishers += len(Compute(me, f.alive, f.capacity, f.leases).Take)
	}
	if finishers != 20 {
		t.Errorf("%d splits of 20 are finished", finishers)
	}
}

// What is about to be replaced makes no share larger.
func TestALeaseThatIsSplittingCountsForNobody(t *testing.T) {
	f := newFleet(3, "a", "b")
	f.give(3, f.alive[0])
	f.leases[0].Stage = Splitting
	if p := Compute(f.alive[0], f.alive, f.capacity, f.leases); len(p.Give) != 1 {
		t.Errorf("gives %v, want one of the two leases that count", p.Give)
	}
}

// A lease that was freed behind a fence has no owner and cannot be taken yet: nobody has a share of the others.
func TestNobodyHasNoShare(t *testing.T) {
	f := newFleet(3, "a")
	f.leases[0].Free, f.leases[0].Fenced = false, true
	if p := Compute(f.alive[0], f.alive, f.capacity, f.leases); len(p.Take) != 2 || len(p.Steal) != 0 {
		t.Errorf("plan %+v, want both leases taken that are free", p)
	}
}

// A listing has its own order, and a machine that restarts a process in time has two of one name: instances come to the
// same plan all the same.
func TestAPlanDependsOnNoOrder(t *testing.T) {
	for leases := range 12 {
		f := newFleet(leases, "a", "b", "c")
		f.alive = append(f.alive, Owner{"a", "another"}, Owner{"a", "third"})
		taken := map[int]Owner{}
		for range len(f.alive) {
			f.alive = append(f.alive[1:], f.alive[0])
			me := f.alive[2]
			for _, i := range Compute(me, f.alive, f.capacity, f.leases).Take {
				if other, twice := taken[i]; twice {
					t.Errorf("%v and %v both take lease %d of %d", other, me, i, leases)
				}
				taken[i] = me
			}
		}
		if len(taken) != leases {
			t.Errorf("%d leases are taken of %d", len(taken), leases)
		}
	}
}

// An owner with an epoch that shows no presence has died: others need not be fair to it, and
// cannot steal from it.
func TestTheDeadHaveNoShare(t *testing.T) {
	me, dead, net := Owner{"a", "1"}, Owner{"b", "2"}, Owner{"net", ""}
	var leases []Lease
	for i, o := range []Owner{dead, dead, dead, net} {
		leases = append(leases, Lease{Token: fmt.Sprint(i), Owner: o})
	}
	if s := newShares([]Owner{me}, nil, leases); !slices.Equal(s.owners, []Owner{me, net}) || s.foreign[dead] ||
		!s.foreign[net] {
		t.Errorf("owners %v, foreign %v", s.owners, s.foreign)
	}
	if p := Compute(me, []Owner{me}, nil, leases); len(p.Steal) != 0 {
		t.Errorf("%d leases are stolen", len(p.Steal))
	}
}

// A host that knows nothing of us takes what it wants: nothing free is kept for it.
func TestNothingFreeIsKeptForForeignHosts(t *testing.T) {
	me := Owner{"a", "1"}
	for _, token := range []string{"1", "2", "3", "4", "5", "6"} {
		var leases []Lease
		for _, name := range []string{"much", "much", "much", "much", "little", ""} {
			leases = append(leases, Lease{Token: token, Owner: Owner{Instance: name}, Free: name == ""})
		}
		if p := Compute(me, []Owner{me}, nil, leases); len(p.Take) != 1 {
			t.Errorf("%d leases are taken, want the one that is free", len(p.Take))
		}
	}
}

// Nobody gets more than it may have; the others share the rest, and what nobody may have is counted.
func TestLimitsAreKept(t *testing.T) {
	for _, c := range []struct {
		leases  int
		most    []int // of each instance, 0 is none
		want    []int
		unowned int
	}{
		{10, []int{0, 0}, []int{5, 5}, 0},
		{10, []int{2, 0}, []int{2, 8}, 0},
		{10, []int{5, 5}, []int{5, 5}, 0},
		{11, []int{5, 0}, []int{5, 6}, 0},
		{10, []int{1, 3, 0}, []int{1, 3, 6}, 0},
		{10, []int{1, 4, 5}, []int{1, 4, 5}, 0},
		{10, []int{2, 3}, []int{2, 3}, 5},
		{1, []int{1, 1}, []int{0, 1}, 0},
	} {
		names := []string{"a", "b", "c"}[:len(c.most)]
		f := newFleet(c.leases, names...)
		f.capacity = map[Owner]Capacity{}
		for i, most := range c.most {
			if most > 0 {
				f.capacity[f.alive[i]] = Capacity{Most: most}
			}
		}
		for range 3 {
			f.round(t)
		}
		counts := f.counts()
		var got []int
		for _, o := range f.alive {
			got = append(got, counts[o])
		}
		unowned := Compute(f.alive[0], f.alive, f.capacity, f.leases).Unowned
		if sorted := slices.Sorted(slices.Values(got)); !slices.Equal(sorted, slices.Sorted(slices.Values(c.want))) ||
			unowned != c.unowned {
			t.Errorf("%+v: got %v, %d without an owner", c, got, unowned)
		}
		for i := range f.leases {
			f.leases[i].Overdue = true
		}
		f.round(t)
		for i, most := range c.most {
			if n := f.counts()[f.alive[i]]; most > 0 && n > most {
				t.Errorf("%+v: instance %d has %d when leases are overdue", c, i, n)
			}
		}
	}
}
