package balance

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// From any distribution, each instance has its share by weight, rounded down or up, after one round of shared
// knowledge, with no more moves than necessary. Then nothing moves.
func TestLeasesAreSharedByWeight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		leases := rapid.IntRange(1, 60).Draw(t, "leases")
		names := []string{"a", "b", "c", "d", "e"}[:rapid.IntRange(1, 5).Draw(t, "hosts")]
		f := newFleet(leases, names...)
		f.capacity = map[Owner]Capacity{}
		total := 0
		for _, o := range f.alive {
			weight := rapid.SampledFrom([]int{0, 1, 2, 3, 7, 1000}).Draw(t, "weight")
			f.capacity[o] = Capacity{Weight: weight}
			total += max(1, weight)
		}
		for i := range f.leases {
			if h := rapid.IntRange(-1, len(names)-1).Draw(t, "owner"); h >= 0 {
				f.leases[i].Owner, f.leases[i].Free = f.alive[h], false
			}
		}
		before := f.counts()
		excess, lack := 0, 0
		shareOf := func(o Owner) (low, high int) {
			share := leases * max(1, f.capacity[o].Weight)
			return share / total, (share + total - 1) / total
		}
		for _, o := range f.alive {
			low, high := shareOf(o)
			excess, lack = excess+max(0, before[o]-high), lack+max(0, low-before[o])
		}
		moves := f.round(t)
		if most := max(before[Owner{}]+excess, lack) + len(names); moves > most {
			t.Fatalf("%d moves, want at most %d", moves, most)
		}
		for _, o := range f.alive {
			if low, high := shareOf(o); f.counts()[o] < low || f.counts()[o] > high {
				t.Fatalf("%v with weight %d of %d has %d of %d leases, want %d to %d", o, f.capacity[o].Weight, total,
					f.counts()[o], leases, low, high)
			}
		}
		if moves := f.round(t); moves != 0 {
			t.Fatalf("%d more moves when balanced", moves)
		}
	})
}

// In every small world, with every weight, limit and distribution, the second round moves nothing.
func TestEverySmallFleetComesToRest(t *testing.T) {
	worlds := 0
	for leases := range 5 {
		for weights := range 27 {
			for limited := range 3 {
				for owners := range int(math.Pow(4, float64(leases))) {
					f := newFleet(leases, "a", "b", "c")
					f.capacity = map[Owner]Capacity{}
					for i, o := range f.alive {
						f.capacity[o] = Capacity{Weight: weights / int(math.Pow(3, float64(i))) % 3}
					}
					f.capacity[f.alive[0]] = Capacity{Weight: f.capacity[f.alive[0]].Weight, Most: limited}
					for i := range f.leases {
						if n := owners >> (2 * i) & 3; n < 3 {
							f.leases[i].Owner, f.leases[i].Free = f.alive[n], false
						}
					}
					f.round(t)
					if moves := f.round(t); moves != 0 {
						t.Fatalf("%d leases, weights %v: %d moves in the second round", leases, f.capacity, moves)
					}
					if free := f.counts()[Owner{}]; free != 0 {
						t.Fatalf("%d leases, weights %v: %d have no owner", leases, f.capacity, free)
					}
					worlds++
				}
			}
		}
	}
	t.Logf("%d worlds", worlds)
}

// An instance without a weight, as of an older version, has a weight of 1. Limits count beside weights.
func TestSharesByWeight(t *testing.T) {
	for _, c := range []struct {
		leases   int
		capacity []Capacity
		want     []int
	}{
		{9, []Capacity{{}, {Weight: 2}}, []int{3, 6}},
		{10, []Capacity{{Weight: 1}, {Weight: 2}}, []int{3, 7}},
		{11, []Capacity{{Weight: 1}, {Weight: 2}}, []int{4, 7}},
		{12, []Capacity{{Weight: 3, Most: 2}, {Weight: 1}, {Weight: 4}}, []int{2, 2, 8}},
		{13, []Capacity{{Weight: 4, Most: 5}, {Weight: 1}, {Weight: 1}}, []int{5, 4, 4}},
		{4, []Capacity{{Weight: 1}, {Weight: 1000}}, []int{0, 4}},
		{5, []Capacity{{Weight: 1, Most: 1}, {Weight: 4}}, []int{1, 4}},
		{3, []Capacity{{Weight: 1, Most: 5}, {Weight: 2, Most: 1}}, []int{2, 1}},
	} {
		f := newFleet(c.leases, []string{"a", "b", "c"}[:len(c.capacity)]...)
		f.capacity = map[Owner]Capacity{}
		for i, of := range c.capacity {
			f.capacity[f.alive[i]] = of
		}
		f.round(t)
		var got []int
		for _, o := range f.alive {
			got = append(got, f.counts()[o])
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%d leases, capacity %+v: got %v, want %v", c.leases, c.capacity, got, c.want)
		}
	}
}

func TestTheWidestLeasesAreCut(t *testing.T) {
	for _, c := range []struct {
		widths []float64
		least  int
		want   []int
	}{
		{nil, 3, nil},
		{[]float64{1}, 0, []int{1}},
		{[]float64{1}, 5, []int{5}},
		{[]float64{0.25, 0.25, 0.25, 0.25}, 6, []int{2, 2, 1, 1}},
		{[]float64{0.25, 0.25, 0.5}, 4, []int{1, 1, 2}},
		{[]float64{0.25, 0.25, 0.5}, 3, []int{1, 1, 1}},
		{[]float64{0.125, 0.125, 0.75}, 8, []int{1, 1, 6}},
		{[]float64{0, 1}, 4, []int{1, 3}},
		{[]float64{0, 0}, 4, []int{1, 1}}, // cannot be cut
	} {
		if got := Parts(c.widths, c.least); !slices.Equal(got, c.want) {
			t.Errorf("widths %v, least %d: got %v, want %v", c.widths, c.least, got, c.want)
		}
	}
}

// Whoever cuts first, and whatever the others have seen by then, each lease is cut into the same parts.
func TestCutsDoNotDependOnTheirOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var widths []float64
		for range rapid.IntRange(1, 8).Draw(t, "leases") {
			widths = append(widths, float64(int64(1)<<rapid.IntRange(0, 6).Draw(t, "width")))
		}
		least := rapid.IntRange(0, 40).Draw(t, "least")
		plan := Parts(widths, least)
		total := 0
		for _, n := range plan {
			total += n
		}
		if total != max(least, len(widths)) {
			t.Fatalf("%d parts, want %d", total, max(least, len(widths)))
		}
		// cut some leases, and compare the plan of the others
		var now []float64
		var want []int
		for i, width := range widths {
			if !rapid.Bool().Draw(t, fmt.Sprint("cut ", i)) {
				now, want = append(now, width), append(want, plan[i])
				continue
			}
			for range plan[i] {
				now, want = append(now, width/float64(plan[i])), append(want, 1)
			}
		}
		if got := Parts(now, least); !slices.Equal(got, want) {
			t.Fatalf("widths %v for %d leases: plan %v; with %v the plan is %v, want %v", widths, least, plan, now, got,
				want)
		}
	})
}

// An instance whose share is a whole number gives what it has above the share, though another share is rounded up.
func TestAnExactShareDoesNotGrow(t *testing.T) {
	f := newFleet(6, "a", "b", "c")
	f.capacity = map[Owner]Capacity{f.alive[0]: {Weight: 2}}
	f.give(6, f.alive[0])
	f.round(t)
	if n := f.counts()[f.alive[0]]; n != 3 {
		t.Errorf("the instance with half of the weight has %d of 6 leases", n)
	}
}
