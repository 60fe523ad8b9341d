package sql

import (
	"math"
	"math/rand/v2"
)

// Functions of numbers. They all use Go's package math.

// ofNumber makes a function of a number. A result that is not a number, as for SQRT(-1), becomes undefined.
func ofNumber(compute func(float64) float64) *function {
	return &function{1, 1, false, func(_ *frame, args []value) value {
		if args[0].kind != number {
			return value{}
		}
		return numberValue(compute(args[0].float()))
	}}
}

// ofNumbers makes a function of two numbers. If least is 1, the second is optional, and its default is fallback.
func ofNumbers(least int, fallback float64, compute func(x, y float64) float64) *function {
	return &function{least, 2, false, func(_ *frame, args []value) value {
		y := fallback
		if len(args) > 1 {
			if args[1].kind != number {
				return value{}
			}
			y = args[1].float()
		}
		if args[0].kind != number {
			return value{}
		}
		return numberValue(compute(args[0].float(), y))
	}}
}

const halfTurn = 180 // degrees

// mathFunctions are the functions by name. ROUND rounds halves away from zero.
var mathFunctions = map[string]*function{
	"ABS":       ofNumber(math.Abs),
	"ACOS":      ofNumber(math.Acos),
	"ASIN":      ofNumber(math.Asin),
	"ATAN":      ofNumber(math.Atan),
	"CEILING":   ofNumber(math.Ceil),
	"COS":       ofNumber(math.Cos),
	"COT":       ofNumber(func(x float64) float64 { return 1 / math.Tan(x) }),
	"DEGREES":   ofNumber(func(x float64) float64 { return x * halfTurn / math.Pi }),
	"EXP":       ofNumber(math.Exp),
	"FLOOR":     ofNumber(math.Floor),
	"LOG10":     ofNumber(math.Log10),
	"RADIANS":   ofNumber(func(x float64) float64 { return x * math.Pi / halfTurn }),
	"ROUND":     ofNumber(math.Round),
	"SIGN":      ofNumber(sign),
	"SIN":       ofNumber(math.Sin),
	"SQRT":      ofNumber(math.Sqrt),
	"SQUARE":    ofNumber(func(x float64) float64 { return x * x }),
	"TAN":       ofNumber(math.Tan),
	"TRUNC":     ofNumber(math.Trunc),
	"ATN2":      ofNumbers(2, 0, math.Atan2),
	"POWER":     ofNumbers(2, 0, math.Pow),
	"LOG":       ofNumbers(1, math.E, func(x, base float64) float64 { return math.Log(x) / math.Log(base) }),
	"NUMBERBIN": ofNumbers(1, 1, func(x, bin float64) float64 { return math.Floor(x/bin) * bin }),
	"PI":        {0, 0, false, func(*frame, []value) value { return numberValue(math.Pi) }},
	"RAND":      {0, 0, false, func(*frame, []value) value { return numberValue(rand.Float64()) }},
}

// sign returns -1, 0 or 1.
func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return 0
}
