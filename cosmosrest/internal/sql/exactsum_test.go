package sql

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// sumOf is the exact sum of numbers, rounded once.
func sumOf(numbers []float64) float64 {
	sum := new(big.Float).SetPrec(4000)
	for _, n := range numbers {
		sum.Add(sum, new(big.Float).SetPrec(4000).SetFloat64(n))
	}
	f, _ := sum.Float64()
	return f
}

func TestASumIsExact(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		numbers := make([]float64, r.IntN(12))
		for i := range numbers {
			switch r.IntN(4) {
			case 0:
				numbers[i] = float64(r.IntN(100_000)) / 100
			case 1:
				numbers[i] = math.Ldexp(r.Float64()-0.5, r.IntN(200)-100)
			case 2:
				numbers[i] = math.Ldexp(1, r.IntN(120)-60) * float64(1-2*r.IntN(2))
			default:
				numbers[i] = -numbers[r.IntN(i+1)]
			}
		}
		var s exactSum
		for _, n := range numbers {
			s.include(n)
		}
		if got, want := s.value(), sumOf(numbers); got != want {
			t.Fatalf("the sum of %v is %v, want %v", numbers, got, want)
		}
	}
}

func TestSumsAreRoundedOnce(t *testing.T) {
	docs := []string{
		`{"n":0.1}`, `{"n":0.2}`, `{"n":0.3}`, `{"n":0.4}`, `{"n":0.5}`, `{"n":0.6}`, `{"n":0.7}`,
		`{"n":0.8}`,
	}
	for query, want := range map[string]string{
		"SELECT VALUE SUM(c.n) FROM c": "3.6", // 3.5999999999999996 one after the other
		"SELECT VALUE AVG(c.n) FROM c": "0.45",
		"SELECT VALUE SUM(c.x) FROM c": "0",
	} {
		if got, err := run(t, query, docs); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", query, got, err, want)
		}
	}
}
