package sql

import (
	"maps"
	"slices"
)

// Functions that make one value of the elements of an array.

// arrayStatistics are the functions by name. The first four have the rules of the aggregates without the prefix: an
// element of another type makes the result undefined.
var arrayStatistics = map[string]*function{
	"ARRAY_MAX": ofArrays(1, aggregateElements("MAX")),
	"ARRAY_MIN": ofArrays(1, aggregateElements("MIN")),
	"ARRAY_SUM": ofArrays(1, aggregateElements("SUM")),
	"ARRAY_AVG": ofArrays(1, aggregateElements("AVG")),

	"ARRAY_MEDIAN": ofArrays(1, median),
	"SETEQUAL": ofArrays(2, func(f *frame, args []value) value {
		return boolValue(maps.Equal(f.keysOf(f.elementsOf(args[0])), f.keysOf(f.elementsOf(args[1]))))
	}),
}

// aggregateElements makes the function that applies an aggregate to the elements of an array. Without elements, the
// sum is 0, and the others are undefined.
func aggregateElements(name string) func(f *frame, args []value) value {
	return func(f *frame, args []value) value {
		agg, all := aggregate{name: name}, f.elementsOf(args[0])
		if len(all) == 0 && name == "AVG" {
			return value{}
		}
		var state accumulator
		for _, v := range all {
			state.add(agg, v)
		}
		return state.result(agg)
	}
}

// median is ARRAY_MEDIAN(array): the element in the middle of the sorted numbers, or the mean of both.
func median(f *frame, args []value) value {
	var sorted []float64
	for _, v := range f.elementsOf(args[0]) {
		if v.kind != number {
			return value{}
		}
		sorted = append(sorted, v.float())
	}
	slices.Sort(sorted)
	middle := len(sorted) / 2
	switch {
	case len(sorted) == 0:
		return value{}
	case len(sorted)%2 == 1:
		return numberValue(sorted[middle])
	}
	return numberValue((sorted[middle-1] + sorted[middle]) / 2)
}
