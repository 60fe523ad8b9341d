package sql_test

import (
	"math"
	"math/big"
)

// The second evaluation of functions on whole numbers, vectors and bins of time: by numbers of any size.

func init() {
	for name, f := range map[string]func(a, b *big.Int) *big.Int{
		"INTADD":    func(a, b *big.Int) *big.Int { return a.Add(a, b) },
		"INTSUB":    func(a, b *big.Int) *big.Int { return a.Sub(a, b) },
		"INTMUL":    func(a, b *big.Int) *big.Int { return a.Mul(a, b) },
		"INTDIV":    func(a, b *big.Int) *big.Int { return divided(a, b, a.Quo) },
		"INTMOD":    func(a, b *big.Int) *big.Int { return divided(a, b, a.Rem) },
		"INTBITAND": func(a, b *big.Int) *big.Int { return a.And(a, b) },
		"INTBITOR":  func(a, b *big.Int) *big.Int { return a.Or(a, b) },
		"INTBITXOR": func(a, b *big.Int) *big.Int { return a.Xor(a, b) },
		"INTBITLEFTSHIFT": func(a, b *big.Int) *big.Int {
			return a.Mul(a, new(big.Int).Exp(big.NewInt(2), places(b), nil))
		},
		"INTBITRIGHTSHIFT": func(a, b *big.Int) *big.Int { return a.Rsh(a, uint(places(b).Int64())) },
	} {
		builtins[name] = builtin{"nn", func(a []any) any {
			return wholes(a, func(n []*big.Int) *big.Int { return f(n[0], n[1]) })
		}}
	}
	builtins["INTBITNOT"] = builtin{"n", func(a []any) any {
		return wholes(a, func(n []*big.Int) *big.Int { return n[0].Sub(big.NewInt(-1), n[0]) })
	}}
	builtins["VECTORDISTANCE"] = builtin{"aa", cosine}
}

// places is a number of places modulo 64.
func places(b *big.Int) *big.Int { return b.Mod(b, big.NewInt(64)) }

// divided is nil for a division by 0.
func divided(a, b *big.Int, by func(x, y *big.Int) *big.Int) *big.Int {
	if b.Sign() == 0 {
		return nil
	}
	return by(a, b)
}

// wholes computes with whole numbers of 64 bits, and keeps the last 64 bits of the result.
func wholes(args []any, f func(n []*big.Int) *big.Int) any {
	var all []*big.Int
	for _, v := range args {
		x := v.(float64)
		if x != math.Floor(x) || x < -(1<<63) || x >= 1<<63 {
			return undefined
		}
		if math.Abs(x) > 1<<53 {
			panic(unclear{"more digits than a double has"})
		}
		n, _ := big.NewFloat(x).Int(nil)
		all = append(all, n)
	}
	n := f(all)
	if n == nil {
		return undefined
	}
	modulus := new(big.Int).Lsh(big.NewInt(1), 64)
	n.Mod(n, modulus)
	if n.Bit(63) == 1 {
		n.Sub(n, modulus)
	}
	if n.BitLen() > 53 {
		panic(unclear{"more digits than a double has"})
	}
	x, _ := new(big.Float).SetInt(n).Float64()
	return x
}

// cosine is the cosine of the angle between two vectors, with many digits.
func cosine(a []any) any {
	x, y := a[0].([]any), a[1].([]any)
	if len(x) != len(y) || len(x) == 0 {
		return undefined
	}
	sum := func(x, y []any) float64 {
		out := new(big.Float).SetPrec(4000)
		for i := range x {
			f, ok := x[i].(float64)
			g, ok2 := y[i].(float64)
			if !ok || !ok2 {
				return math.NaN()
			}
			out.Add(out, new(big.Float).SetPrec(4000).Mul(big.NewFloat(f), big.NewFloat(g)))
		}
		f, _ := out.Float64()
		return f
	}
	v := sum(x, y) / math.Sqrt(sum(x, x)) / math.Sqrt(sum(y, y))
	if v != 0 && v != 1 && v != -1 && !math.IsNaN(v) {
		panic(unclear{"the last digit of a quotient"})
	}
	return number(v)
}
