package balance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// A new unit has the same number of leases for each partition, and at least as many as it must have.
func TestTheGridHasAsManyLeasesAsANewUnit(t *testing.T) {
	for _, c := range []struct{ partitions, least, want int }{
		{1, 0, 1}, {3, 0, 3}, {3, 3, 3}, {3, 4, 6}, {1, 7, 7}, {0, 0, 1}, {0, 5, 5},
	} {
		if got := Grid(c.partitions, c.least); got != c.want {
			t.Errorf("%d partitions and at least %d leases: %d, want %d", c.partitions, c.least, got, c.want)
		}
	}
}

func TestTheNarrowestPairsAreJoined(t *testing.T) {
	for _, c := range []struct {
		widths []float64
		homes  []int
		most   int
		want   []int
	}{
		{[]float64{1, 1, 1, 1}, []int{0, 0, 0, 0}, 4, nil},
		{[]float64{1, 1, 1, 1}, []int{0, 0, 0, 0}, 3, []int{0}},
		{[]float64{1, 1, 1, 1}, []int{0, 0, 0, 0}, 1, []int{0, 2}},
		{[]float64{2, 1, 1, 2}, []int{0, 0, 0, 0}, 1, []int{1}},
		{[]float64{1, 1, 2, 2}, []int{0, 1, 1, 1}, 3, []int{1}},
		{[]float64{1, 1, 2, 2}, []int{0, 1, 2, -1}, 1, nil},
		{[]float64{1, 1}, []int{-1, -1}, 1, nil},
		{nil, nil, 1, nil},
	} {
		if got := Joins(c.widths, c.homes, c.most); !slices.Equal(got, c.want) {
			t.Errorf("leases of %v in %v, at most %d: %v are joined with the next, want %v", c.widths, c.homes, c.most,
				got, c.want)
		}
	}
}

// fleetOfLeases is a unit of which only the widths of the leases and their partitions are known.
type fleetOfLeases struct {
	widths []float64
	homes  []int
}

// join carries out one of the pairs.
func (f fleetOfLeases) join(i int) fleetOfLeases {
	return fleetOfLeases{
		slices.Concat(f.widths[:i], []float64{f.widths[i] + f.widths[i+1]}, f.widths[i+2:]),
		slices.Concat(f.homes[:i+1], f.homes[i+2:]),
	}
}

// cut carries out the cuts of a plan.
func (f fleetOfLeases) cut(parts []int) (g fleetOfLeases) {
	for i, n := range parts {
		for range n {
			g.widths, g.homes = append(g.widths, f.widths[i]/float64(n)), append(g.homes, f.homes[i])
		}
	}
	return g
}

// In every small unit, whichever leases it has and whoever carries out a part of the plan first: joins come to rest at
// the number of a new unit, or where each partition has a single lease; no lease has keys of two partitions; what was
// joined is not cut, and what was cut is not joined.
func TestEverySmallUnitComesToRest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for partitions := 1; partitions <= 3; partitions++ {
		for leases := partitions; leases <= 9; leases++ {
			for least := range 10 {
				for range 20 {
					f := fleetOfLeases{}
					for i := range leases {
						f.widths = append(f.widths, float64(1+rng.IntN(3)))
						f.homes = append(f.homes, i*partitions/leases)
					}
					what := fmt.Sprintf("%+v, at least %d", f, least)
					most, steps := Grid(partitions, least), 0
					for {
						pairs := Joins(f.widths, f.homes, most)
						if len(pairs) == 0 {
							break
						}
						i := pairs[rng.IntN(len(pairs))]
						if f.homes[i] != f.homes[i+1] {
							t.Fatalf("%s: leases of two partitions are joined", what)
						}
						if f = f.join(i); len(f.widths) < most || steps > 10 {
							t.Fatalf("%s: %d leases after %d joins, want at least %d", what, len(f.widths), steps, most)
						}
						steps++
					}
					if len(f.widths) > most {
						t.Fatalf("%s: rests with %d leases, want %d", what, len(f.widths), most)
					}
					g := f.cut(Parts(f.widths, least))
					if steps > 0 && len(g.widths) != len(f.widths) {
						t.Fatalf("%s: joined to %d leases, then cut into %d", what, len(f.widths), len(g.widths))
					}
					if again := Joins(g.widths, g.homes, most); len(again) > 0 {
						t.Fatalf("%s: cut into %d leases, then %v are joined", what, len(g.widths), again)
					}
				}
			}
		}
	}
}
