package sql

import (
	"bytes"
	"slices"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// Conversions between strings, numbers, arrays and objects.

// parsing makes a function that parses a string as JSON of some kinds; any other text gives undefined. As in the
// service, white space around the JSON is allowed.
func parsing(kinds ...kind) *function {
	return &function{1, 1, false, func(_ *frame, args []value) value {
		if args[0].kind != str {
			return value{}
		}
		text := bytes.TrimSpace(args[0].bytes())
		if _, ok := rawjson.Check(text); !ok {
			return value{}
		}
		v := rawValue(text)
		if slices.Contains(kinds, v.kind) {
			return v
		}
		return value{}
	}}
}

// conversions are the functions by name.
var conversions = map[string]*function{
	"TOSTRING":        {1, 1, false, toString},
	"STRINGTONUMBER":  parsing(number),
	"STRINGTOBOOLEAN": parsing(isTrue, isFalse),
	"STRINGTONULL":    parsing(null),
	"STRINGTOARRAY":   parsing(array),
	"STRINGTOOBJECT":  parsing(object),
	"OBJECTTOARRAY":   {1, 3, false, objectToArray},
}

// toString writes any value as JSON, but returns a string unchanged.
func toString(f *frame, args []value) value {
	if args[0].kind == str {
		return args[0]
	}
	return f.madeText(args[0].plainJSON())
}

// objectToArray makes [{"k": name, "v": value}, …]. The caller can replace the names k and v.
func objectToArray(f *frame, args []value) value {
	if args[0].kind != object || !areText(args[1:]...) {
		return value{}
	}
	names := []string{"k", "v"}
	for i, v := range args[1:] {
		names[i] = string(v.bytes())
	}
	out := arrayWriter{f: f}
	for _, member := range rawjson.Distinct(args[0].raw) {
		if !f.spendWork(itemWork) {
			break
		}
		pair := objectNode{[]field{
			newField(names[0], constant{rawValue(member.Key)}),
			newField(names[1], constant{rawValue(member.Value)}),
		}}
		out.add(pair.eval(f))
	}
	return out.value()
}
