package sql

import "github.com/millrace/changefeed/internal/cosmosdb/rawjson"

// Functions of arrays and sets. An array is split into values only if a function needs all values at once. The memory
// for this is counted, because an array of 2 MB may have a million elements.

// arrayFunctions are the functions whose first argument is an array. The set functions differ only in the values of
// both arrays that they keep.
var arrayFunctions = map[string]*function{
	"ARRAY_LENGTH": ofArrays(1, func(f *frame, a []value) value { return numberValue(float64(f.countElements(a[0]))) }),
	"ARRAY_CONCAT": ofArrays(-1, func(f *frame, a []value) value {
		w := arrayWriter{f: f}
		for _, v := range a {
			w.addAll(f.elementsOf(v))
		}
		return w.value()
	}),
	"ARRAY_SLICE":        {2, 3, false, arraySlice},
	"ARRAY_CONTAINS":     {2, 3, false, arrayContains},
	"ARRAY_CONTAINS_ANY": {2, -1, true, func(f *frame, a []value) value { return containsSome(f, a, false) }},
	"ARRAY_CONTAINS_ALL": {2, -1, true, func(f *frame, a []value) value { return containsSome(f, a, true) }},
	"SETUNION": setFunction(func(_, _ map[string]bool) func(string) bool {
		return func(string) bool { return true }
	}),
	"SETINTERSECT": setFunction(func(x, y map[string]bool) func(string) bool {
		return func(key string) bool { return x[key] && y[key] }
	}),
	"SETDIFFERENCE": setFunction(func(x, y map[string]bool) func(string) bool {
		return func(key string) bool { return x[key] && !y[key] }
	}),
}

// ofArrays makes a function of n arrays; if n is -1, of two or more.
func ofArrays(n int, compute func(f *frame, args []value) value) *function {
	least := n
	if n < 0 {
		least = 2
	}
	return &function{least, n, false, func(f *frame, args []value) value {
		for _, v := range args {
			if v.kind != array {
				return value{}
			}
		}
		return compute(f, args)
	}}
}

// elementsOf returns the values of an array.
func (f *frame) elementsOf(arr value) []value {
	n := f.countElements(arr)
	if !f.holdBytes(n * valueSize) {
		return nil
	}
	all := make([]value, 0, n)
	for raw := range rawjson.Elements(arr.raw) {
		if !f.spendWork(itemWork) {
			break
		}
		all = append(all, rawValue(raw))
	}
	return all
}

// The bytes that a value and its key in a set take while a function has split an array.
const (
	valueSize = 64
	keySize   = 100 // in addition to its text
)

// countElements returns the number of elements in an array. countElements must walk over the text, because the text
// does not contain the number.
func (f *frame) countElements(arr value) (n int) {
	if !f.spendWork(len(arr.raw)) {
		return 0
	}
	for range rawjson.Elements(arr.raw) {
		n++
	}
	return n
}

// holdBytes counts bytes of an array that is being split, and reports whether to go on.
func (f *frame) holdBytes(bytes int) bool {
	f.spread += bytes
	if f.spread > maxHeld {
		f.failWith(failf(-1, "The query needs more than %d MB of memory.", maxHeld>>20))
	}
	if f.meter != nil && f.ended == nil {
		f.ended = f.meter.Hold(bytes)
	}
	if f.ended != nil {
		f.failWith(failf(-1, "The query was ended."))
	}
	return f.err == nil
}

// releaseTo releases all bytes held since the count was before.
func (f *frame) releaseTo(before int) {
	if more := f.spread - before; more > 0 && f.meter != nil {
		_ = f.meter.Hold(-more) // cannot fail: releases bytes
	}
	f.spread = before
}

// addAll appends values.
func (w *arrayWriter) addAll(values []value) {
	for _, v := range values {
		w.add(v)
	}
}

// arraySlice is ARRAY_SLICE(array, start, count). A negative start counts from the end.
func arraySlice(f *frame, args []value) value {
	start, ok := args[1].length()
	if args[0].kind != array || !ok {
		return value{}
	}
	all := f.elementsOf(args[0])
	if start < 0 {
		start = max(0, len(all)+start)
	}
	all = all[min(start, len(all)):]
	if len(args) > 2 {
		count, ok := args[2].length()
		if !ok {
			return value{}
		}
		all = all[:min(max(count, 0), len(all))]
	}
	out := arrayWriter{f: f}
	out.addAll(all)
	return out.value()
}

// arrayContains is ARRAY_CONTAINS(array, value, partial). If partial is true, an object of the array may have more
// members than the object that is searched.
func arrayContains(f *frame, args []value) value {
	if args[0].kind != array || len(args) > 2 && !args[2].isBool() {
		return value{}
	}
	partial := len(args) > 2 && args[2].kind == isTrue
	for raw := range rawjson.Elements(args[0].raw) {
		v := rawValue(raw)
		if !f.spendWork(itemWork + costToCompare(v, args[1])) {
			break
		}
		if equal(v, args[1]) || partial && f.hasMembers(v, args[1]) {
			return boolValue(true)
		}
	}
	return boolValue(false)
}

// hasMembers reports whether an object has all members of another object, with equal values.
func (f *frame) hasMembers(v, wanted value) bool {
	if v.kind != object || wanted.kind != object {
		return false
	}
	for _, member := range rawjson.Distinct(wanted.raw) {
		got := rawjson.Lookup(v.raw, string(member.Key.Name()))
		if !f.spendWork(len(v.raw)+deepWork*len(member.Value)) || got == nil ||
			!equal(rawValue(got), rawValue(member.Value)) {
			return false
		}
	}
	return true
}

// containsSome is ARRAY_CONTAINS_ANY(array, a, b, …) or, if all is true, ARRAY_CONTAINS_ALL. An array may or may not
// contain undefined, so with an undefined argument the result is undefined, unless another value decides.
func containsSome(f *frame, args []value, all bool) value {
	if args[0].kind != array {
		return value{}
	}
	have := f.keysOf(f.elementsOf(args[0]))
	unknown := false
	for _, v := range args[1:] {
		switch {
		case !f.spendWork(deepWork * len(v.raw)):
			return value{}
		case v.kind == undefined:
			unknown = true
		case have[canonical(v)] != all:
			return boolValue(!all)
		}
	}
	if unknown {
		return value{}
	}
	return boolValue(all)
}

// canonical returns the canonical text of a value, by which sets compare values.
func canonical(v value) string { return string(appendCanonical(nil, v, 0)) }

// keysOf returns the set of the values' canonical texts.
func (f *frame) keysOf(values []value) map[string]bool {
	keys := map[string]bool{}
	for _, v := range values {
		if !f.spendWork(itemWork + deepWork*len(v.raw)) {
			break
		}
		key := canonical(v)
		if !keys[key] && !f.holdBytes(keySize+len(key)) {
			break
		}
		keys[key] = true
	}
	return keys
}

// setFunction makes a function of two arrays. Its result contains the distinct values of both arrays, in their order,
// that in selects by the key sets of both arrays.
func setFunction(in func(x, y map[string]bool) func(key string) bool) *function {
	return ofArrays(2, func(f *frame, args []value) value {
		x, y := f.elementsOf(args[0]), f.elementsOf(args[1])
		wanted := in(f.keysOf(x), f.keysOf(y))
		seen := map[string]bool{}
		out := arrayWriter{f: f}
		for _, v := range append(x, y...) {
			if key := canonical(v); !seen[key] && wanted(key) {
				seen[key] = true
				out.add(v)
			}
		}
		return out.value()
	})
}
