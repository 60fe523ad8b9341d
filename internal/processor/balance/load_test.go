package balance

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// loaded returns the load of each instance for its weight, as a share of the mean.
func (f *fleet) loaded() map[Owner]float64 {
	carried, total, weights := map[Owner]float64{}, 0.0, 0.0
	for _, l := range f.leases {
		carried[l.Owner] += float64(l.Load)
		total += float64(l.Load)
	}
	for _, o := range f.alive {
		weights += float64(max(1, f.capacity[o].Weight))
	}
	for _, o := range f.alive {
		carried[o] *= weights / total / float64(max(1, f.capacity[o].Weight))
	}
	return carried
}

// byLoad makes all instances share by load.
func (f *fleet) byLoad(weights ...int) {
	f.capacity = map[Owner]Capacity{}
	for i, o := range f.alive {
		f.capacity[o] = Capacity{ByLoad: true}
		if i < len(weights) {
			f.capacity[o] = Capacity{ByLoad: true, Weight: weights[i]}
		}
	}
}

// From any distribution, one round of shared knowledge is enough: then nothing moves, every lease has an owner, and no
// instance is without a lease while another has two.
func TestSharesByLoadComeToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c", "d", "e"}[:rapid.IntRange(1, 5).Draw(t, "hosts")]
		f := newFleet(rapid.IntRange(1, 30).Draw(t, "leases"), names...)
		f.byLoad()
		for i := range f.leases {
			f.leases[i].Load = rapid.SampledFrom([]int64{0, 1, 10, 100, 1000, 5000, math.MaxInt64}).Draw(t, "load")
			if h := rapid.IntRange(-1, len(names)-1).Draw(t, "owner"); h >= 0 {
				f.leases[i].Owner, f.leases[i].Free = f.alive[h], false
			}
		}
		f.round(t)
		counts := f.counts()
		if counts[Owner{}] != 0 {
			t.Fatalf("%d leases have no owner", counts[Owner{}])
		}
		most := 0
		for _, n := range counts {
			most = max(most, n)
		}
		for _, o := range f.alive {
			if counts[o] == 0 && most > 1 {
				t.Fatalf("%v has no lease, and another instance has %d", o, most)
			}
		}
		if moves := f.round(t); moves != 0 {
			t.Fatalf("%d moves in the second round", moves)
		}
	})
}

// Every world of three instances and up to six leases with three loads comes to rest after a round.
func TestEverySmallFleetComesToRestByLoad(t *testing.T) {
	worlds := 0
	for leases := range 6 {
		kinds := 1
		for range leases {
			kinds *= 12
		}
		for world := 0; world < kinds; world += 1 + kinds/20000 {
			f := newFleet(leases, "a", "b", "c")
			f.byLoad(1, 2, 3)
			for i, rest := 0, world; i < leases; i, rest = i+1, rest/12 {
				f.leases[i].Load = []int64{0, 10, 100}[rest%3]
				if n := rest / 3 % 4; n < 3 {
					f.leases[i].Owner, f.leases[i].Free = f.alive[n], false
				}
			}
			f.round(t)
			if moves := f.round(t); moves != 0 {
				t.Fatalf("world %d of %d leases: %d moves in the second round", world, leases, moves)
			}
			worlds++
		}
	}
	t.Logf("%d worlds", worlds)
}

// Many leases of different loads are shared within a tenth, by the weights.
func TestLoadsAreSharedByWeight(t *testing.T) {
	f := newFleet(60, "a", "b", "c")
	f.byLoad(1, 2, 1)
	for i := range f.leases {
		f.leases[i].Load = int64(i * i)
		f.leases[i].Owner, f.leases[i].Free = f.alive[0], false
	}
	f.round(t)
	for o, share := range f.loaded() {
		if share < 0.88 || share > 1.12 {
			t.Errorf("%v has %.2f of its share", o, share)
		}
	}
}

// Nothing moves while each instance is within a tenth of its share, though the numbers of leases differ.
func TestNothingMovesWithinATenthOfTheMean(t *testing.T) {
	for _, c := range []struct {
		loads []int64 // the first is of a, the others are of b
		moves int
	}{
		{[]int64{1000, 500, 500}, 0},
		{[]int64{1090, 600, 310}, 0},
		{[]int64{960, 1000, 20}, 0}, // a move would help
		{[]int64{1000, 2000, 1000}, 1},
		{[]int64{100_000, 10, 10, 10}, 0}, // a move would not help
	} {
		f := newFleet(len(c.loads), "a", "b")
		f.byLoad()
		for i, load := range c.loads {
			f.leases[i].Load, f.leases[i].Free, f.leases[i].Owner = load, false, f.alive[min(i, 1)]
		}
		if moves := f.round(t); moves != c.moves {
			t.Errorf("loads %v: %d moves, want %d", c.loads, moves, c.moves)
		}
	}
}

// A further instance receives leases, though all others are within a tenth of their shares.
func TestANewcomerReceivesALoad(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m"}
	f := newFleet(120, names...)
	f.byLoad()
	for i := range f.leases {
		f.leases[i].Load, f.leases[i].Owner, f.leases[i].Free = 100, f.alive[i%12], false
	}
	f.round(t)
	if n := f.counts()[f.alive[12]]; n < 8 || n > 10 {
		t.Errorf("the newcomer has %d leases of 120, want about a thirteenth", n)
	}
}

// If one instance does not share by load, as one of an older version, all share by number.
func TestLoadsCountOnlyIfAllInstancesAsk(t *testing.T) {
	f := newFleet(9, "a", "b", "c")
	f.byLoad()
	f.capacity[f.alive[1]] = Capacity{}
	for i := range f.leases {
		f.leases[i].Load = 1
	}
	f.leases[0].Load = 100_000
	f.round(t)
	for _, o := range f.alive {
		if n := f.counts()[o]; n != 3 {
			t.Errorf("%v has %d leases, want 3", o, n)
		}
	}
}

// After a split an instance may have more leases than its limit. It gives them away, whatever the loads are.
func TestLeasesAboveALimitAreGivenByLoad(t *testing.T) {
	f := newFleet(6, "a", "b")
	f.byLoad()
	f.give(5, f.alive[0])
	f.give(1, f.alive[1])
	f.leases[5].Load = 1000
	f.capacity[f.alive[0]] = Capacity{ByLoad: true, Most: 2}
	f.round(t)
	if n := f.counts(); n[f.alive[0]] != 2 || n[f.alive[1]] != 4 {
		t.Errorf("leases of each owner are %v, want 2 and 4", n)
	}
	if moves := f.round(t); moves != 0 {
		t.Errorf("%d moves in the second round", moves)
	}
}

// An instance with more leases than its limit gives one away also if another has a higher load, and all loads are about
// equal.
func TestALeaseAboveALimitIsGivenAmongEqualLoads(t *testing.T) {
	f := newFleet(5, "a", "b", "c")
	f.byLoad()
	for i, load := range []int64{80, 80, 80, 310, 305} {
		f.leases[i].Load, f.leases[i].Free, f.leases[i].Owner = load, false, f.alive[max(0, i-2)]
	}
	if moves := f.round(t); moves != 0 {
		t.Fatalf("%d moves without a limit, want none", moves)
	}
	f.capacity[f.alive[0]] = Capacity{ByLoad: true, Most: 2}
	if moves, n := f.round(t), f.counts(); moves != 1 || n[f.alive[0]] != 2 {
		t.Errorf("%d moves, and the leases of each owner are %v, want that a gives one", moves, n)
	}
}

// Limits count beside loads, and leases that no instance may own are counted.
func TestLimitsAreKeptByLoad(t *testing.T) {
	f := newFleet(10, "a", "b")
	f.byLoad()
	f.capacity[f.alive[0]] = Capacity{ByLoad: true, Most: 2}
	f.capacity[f.alive[1]] = Capacity{ByLoad: true, Most: 5}
	f.round(t)
	p := Compute(f.alive[0], f.alive, f.capacity, f.leases)
	if got := fmt.Sprint(f.counts()[f.alive[0]], f.counts()[f.alive[1]], p.Unowned); got != "2 5 3" {
		t.Errorf("leases of each and without an owner: %s, want 2 5 3", got)
	}
}

// The most loaded instance has a single lease, which it keeps: the next one gives.
func TestAnInstanceWithoutALeaseGetsOneOfTheNextLoaded(t *testing.T) {
	f := newFleet(4, "a", "b", "c")
	f.byLoad()
	for i, load := range []int64{5000, 1000, 1000, 1000} {
		owner := f.alive[min(i, 1)]
		f.leases[i].Load, f.leases[i].Owner, f.leases[i].Free = load, owner, false
	}
	f.round(t)
	counts := f.counts()
	if a, b, c := counts[f.alive[0]], counts[f.alive[1]], counts[f.alive[2]]; a != 1 || b != 2 || c != 1 {
		t.Errorf("the instances have %d, %d and %d leases, want 1, 2 and 1", a, b, c)
	}
}
