package docstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
)

func patchOp(op, path, value string) feed.PatchOp {
	if op == "move" {
		return feed.PatchOp{Op: op, Path: path, From: value}
	}
	return feed.PatchOp{Op: op, Path: path, Value: json.RawMessage(value)}
}

func TestPatchDoesAsTheServiceDoes(t *testing.T) {
	for _, c := range []struct{ body, op, path, value, want string }{
		{`{}`, "add", "/a", `1`, `{"a":1}`},
		{`{"b":2 }`, "add", "/a", ` "x" `, `{"b":2 ,"a":"x"}`},
		{`{"a":1,"b":2}`, "add", "/a", `[1.0]`, `{"a":[1.0],"b":2}`},
		{`{"a":{"b":{}}}`, "add", "/a/b/c", `true`, `{"a":{"b":{"c":true}}}`},
		{`{"a":[1,2]}`, "add", "/a/0", `0`, `{"a":[0,1,2]}`},
		{`{"a":[1,2]}`, "add", "/a/2", `3`, `{"a":[1,2,3]}`},
		{`{"a":[1,2]}`, "add", "/a/-", `3`, `{"a":[1,2,3]}`},
		{`{"a":[ ]}`, "add", "/a/-", `3`, `{"a":[ 3]}`},
		{`{"a":[[1],[2]]}`, "add", "/a/1/0", `3`, `{"a":[[1],[3,2]]}`},
		{`{"a":{}}`, "add", "/a/-", `3`, `{"a":{"-":3}}`},
		{`{"a":1}`, "add", "/b", ``, `{"a":1,"b":null}`},
		{`{}`, "add", "/a~1b~0c~01", `1`, `{"a/b~c~1":1}`},
		{`{}`, "add", `/"\`, `1`, `{"\"\\":1}`},
		{`{}`, "add", "/", `1`, `{"":1}`},
		{`{"\u0061":1}`, "add", "/a", `2`, `{"\u0061":2}`},

		{`{}`, "set", "/a", `1`, `{"a":1}`},
		{`{"a":1}`, "set", "/a", `null`, `{"a":null}`},
		{`{"a":[1,2]}`, "set", "/a/0", `0`, `{"a":[0,2]}`},
		{`{"a":[1,2]}`, "set", "/a/-", `3`, `{"a":[1,2,3]}`},

		{`{"a":{"b":1}}`, "replace", "/a/b", `2`, `{"a":{"b":2}}`},
		{`{"a":[1, 2]}`, "replace", "/a/1", `3`, `{"a":[1, 3]}`},
		{`{"a":1,"a":2}`, "replace", "/a", `3`, `{"a":1,"a":3}`},

		{`{"a":1}`, "remove", "/a", ``, `{}`},
		{`{"a":1, "b":2, "c":3}`, "remove", "/b", ``, `{"a":1,"c":3}`},
		{`{"a":1,"b":2,"a":3}`, "remove", "/a", ``, `{"b":2}`},
		{`{"a":[1, 2, 3]}`, "remove", "/a/2", ``, `{"a":[1, 2]}`},
		{`{"a":[1]}`, "remove", "/a/0", ``, `{"a":[]}`},

		{`{"a":1}`, "incr", "/a", `2`, `{"a":3}`},
		{`{}`, "incr", "/a", `2.50`, `{"a":2.50}`},
		{`{"a":1.5}`, "incr", "/a", `-0.25`, `{"a":1.25}`},
		{`{"a":9007199254740993}`, "incr", "/a", `1`, `{"a":9007199254740994}`},
		{`{"a":9007199254740993}`, "incr", "/a", `0`, `{"a":9007199254740993}`},
		{`{"a":9223372036854775807}`, "incr", "/a", `1`, `{"a":9.2233720368547758e+018}`},
		{`{"a":-9223372036854775808}`, "incr", "/a", `-1`, `{"a":-9.2233720368547758e+018}`},
		{`{"a":[1,2]}`, "incr", "/a/1", `0`, `{"a":[1,2]}`},
		{`{"b":1.0,"a":1,"c":12345678901234567890}`, "incr", "/a", `1`, `{"b":1.0,"a":2,"c":12345678901234567890}`},

		{`{"a":1.0,"b":{}}`, "move", "/b/a", `/a`, `{"b":{"a":1.0}}`},
		{`{"a":1,"b":2}`, "move", "/b", `/a`, `{"b":1}`},
		{`{"a":{"b":1}}`, "move", "/a", `/a/b`, `{"a":1}`},
		{`{"a":[1,2,3]}`, "move", "/a/2", `/a/0`, `{"a":[2,3,1]}`},
		{`{"a":[1,2,3]}`, "move", "/a/-", `/a/0`, `{"a":[2,3,1]}`},
	} {
		got, err := applyPatch([]byte(c.body), []feed.PatchOp{patchOp(c.op, c.path, c.value)})
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s %s %s: %s, %v, want %s", c.body, c.op, c.path, c.value, got, err, c.want)
		}
	}
}

func TestPatchSaysWhatIsWrong(t *testing.T) {
	const body = `{"id":"1","n":5,"s":"x","a":[1,2],"o":{"p":null}}`
	const index = "want an index below that, or - to append"
	for _, c := range []struct{ op, path, value, want string }{
		{"add", "", `1`, `path "" is not a JSON pointer: want one as in /address/city`},
		{"add", "x", `1`, `path "x" is not a JSON pointer: want one as in /address/city`},
		{"add", "/x~2", `1`, `path "/x~2" has a ~ by itself: want ~0 for ~ and ~1 for /`},
		{"add", "/x/~", `1`, `path "/x/~" has a ~ by itself: want ~0 for ~ and ~1 for /`},
		{"add", "/x/y", `1`, `nothing is at segment "x": want an object or array`},
		{"add", "/n/y", `1`, `nothing can be at segment "y" of the number 5: want an object or array`},
		{"add", "/o/p/q", `1`, `nothing can be at segment "q" of null: want an object or array`},
		{"add", "/a/3", `1`, `array has 2 elements and none at "3": ` + index},
		{"add", "/a/01", `1`, `array has 2 elements and none at "01": ` + index},
		{"add", "/a/+1", `1`, `array has 2 elements and none at "+1": ` + index},
		{"add", "/a/-1", `1`, `array has 2 elements and none at "-1": ` + index},
		{"add", "/a/x", `1`, `array has 2 elements and none at "x": ` + index},
		{"add", "/a/99999999999999999999", `1`, `array has 2 elements and none at "99999999999999999999": ` + index},
		{"add", "/x", `{`, `value is not JSON, at byte 1: unexpected end of JSON input`},
		{"add", "/x", "\"\xff\"", `value is not UTF-8: want JSON`},
		{"set", "/a/2", `1`, `array has 2 elements and none at "2": ` + index},
		{"replace", "/x", `1`, `nothing is at segment "x": want something that exists`},
		{"replace", "/a/2", `1`, `nothing is at segment "2": want something that exists`},
		{"replace", "/a/-", `1`, `nothing is at segment "-": want something that exists`},
		{"remove", "/o/x", ``, `nothing is at segment "x": want something that exists`},
		{"incr", "/n", ``, `value is null: want a number`},
		{"incr", "/n", `"1"`, `value is the string "1": want a number`},
		{"incr", "/s", `1`, `the string "x" is there: want a number`},
		{"incr", "/n", `1e999`, `the number 5 plus the number 1e999 is out of range: want a sum that a float64 holds`},
		{"incr", "/a/2", `1`, `nothing is at segment "2": want something that exists`},
		{"incr", "/a/-", `1`, `nothing is at segment "-": want something that exists`},
		{"move", "/x", `/y`, `nothing is at segment "y": want something that exists`},
		{"move", "/x", ``, `path "" is not a JSON pointer: want one as in /address/city`},
		{"move", "/o/p", `/o`, `source "/o" is the path or contains it: want a path elsewhere`},
		{"move", "/o", `/o`, `source "/o" is the path or contains it: want a path elsewhere`},
		{"move", "/x/y", `/n`, `nothing is at segment "x": want an object or array`},
		{"move", "/x", `/id`, `id cannot be patched: want a path to another property`},
		{"remove", "/id", ``, `id cannot be patched: want a path to another property`},
		{"set", "/_ts", `1`, `_ts cannot be patched: want a path to another property`},
		{"set", "/_etag/x", `1`, `_etag cannot be patched: want a path to another property`},
		{"copy", "/x", `1`, `operation "copy" is unknown: want add, set, replace, remove, incr or move`},
	} {
		ops := []feed.PatchOp{patchOp("set", "/z", "1"), patchOp(c.op, c.path, c.value)}
		got, err := applyPatch([]byte(body), ops)
		if !errors.Is(err, feed.ErrBadRequest) {
			t.Errorf("%s %s %s: %s, %v, want a bad request", c.op, c.path, c.value, got, err)
			continue
		}
		begin := fmt.Sprintf("apply patch operation 1 (%s %q): ", c.op, c.path)
		if m := err.Error(); !strings.HasPrefix(m, begin) || !strings.HasSuffix(m, "bad request: "+c.want) {
			t.Errorf("%s %s %s:\n got %v\nwant %s", c.op, c.path, c.value, m, begin+c.want)
		}
	}
}

func TestPatchTakesOneToTenOperations(t *testing.T) {
	for _, n := range []int{0, 1, maxPatchOps, maxPatchOps + 1} {
		got, err := applyPatch([]byte(`{"a":0}`), slices.Repeat([]feed.PatchOp{patchOp("incr", "/a", "1")}, n))
		if n == 1 || n == maxPatchOps {
			if want := fmt.Sprintf(`{"a":%d}`, n); err != nil || string(got) != want {
				t.Errorf("%d operations: %s, %v, want %s", n, got, err, want)
			}
		} else if !errors.Is(err, feed.ErrBadRequest) {
			t.Errorf("%d operations: %s, %v, want a bad request", n, got, err)
		}
	}
}

func TestPatchRefusesAResultThatIsTooLarge(t *testing.T) {
	half := `"` + strings.Repeat("x", (maxDocument+maxSystem)/2) + `"`
	ops := []feed.PatchOp{patchOp("set", "/a", half), patchOp("set", "/b", half)}
	if _, err := applyPatch([]byte(`{}`), ops); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v, want %v", err, ErrTooLarge)
	}
}

func TestPatchLeavesItsBodyAlone(t *testing.T) {
	body := []byte(`{"a":[1,2,3],"b":1}`)
	before := string(body)
	for _, op := range []feed.PatchOp{
		patchOp("add", "/a/0", "0"), patchOp("set", "/b", "2"), patchOp("remove", "/a", ""),
		patchOp("incr", "/b", "1"), patchOp("move", "/c", "/a"),
	} {
		if _, err := applyPatch(body, []feed.PatchOp{op}); err != nil || string(body) != before {
			t.Errorf("%s %s: the body is %s, %v", op.Op, op.Path, body, err)
		}
	}
}

func TestPatchTouchesWhatIsAtAboveOrBelowItsPath(t *testing.T) {
	key := pkey.Path{"address", "city/town"}
	for _, c := range []struct {
		op   feed.PatchOp
		want bool
	}{
		{patchOp("set", "/address/city~1town", "1"), true},
		{patchOp("remove", "/address", ""), true},
		{patchOp("add", "/address/city~1town/x", "1"), true},
		{patchOp("move", "/x", "/address"), true},
		{patchOp("move", "/address/city~1town", "/x"), true},
		{patchOp("set", "/address/city", "1"), false},
		{patchOp("set", "/addresses", "1"), false},
		{patchOp("move", "/address/zip", "/zip"), false},
		{feed.PatchOp{Op: "set", Path: "/x", From: "/address"}, false},
		{patchOp("set", "address", "1"), false},
	} {
		ops := []feed.PatchOp{patchOp("set", "/other", "1"), c.op}
		if got := patchTouches(ops, key); got != c.want {
			t.Errorf("%s %s %s: %v, want %v", c.op.Op, c.op.Path, c.op.From, got, c.want)
		}
		err := keepsKey(ops, []pkey.Path{{"tenant"}, key})
		if c.want != errors.Is(err, feed.ErrBadRequest) || c.want && !strings.Contains(err.Error(), "operation 1 (") {
			t.Errorf("%s %s: %v, want a refusal: %v", c.op.Op, c.op.Path, err, c.want)
		}
	}
}

func TestPatchDoesAsPatchingMapsDoes(t *testing.T) {
	segment := rapid.SampledFrom([]string{"a", "b", "c", "0", "1", "-", "~0~1"})
	pointer := rapid.Map(rapid.SliceOfN(segment, 1, 3), func(s []string) string { return "/" + strings.Join(s, "/") })
	kind := rapid.SampledFrom([]string{"add", "set", "replace", "remove", "incr", "move"})
	rapid.Check(t, func(t *rapid.T) {
		body := []byte(drawObject(t, 4))
		var ops []feed.PatchOp
		for range rapid.IntRange(1, 4).Draw(t, "operations") {
			op := kind.Draw(t, "op")
			value := pointer.Draw(t, "from")
			if op == "incr" {
				value = strconv.Itoa(rapid.IntRange(-3, 3).Draw(t, "incr"))
			} else if op != "move" {
				value = drawValue(t, 2)
			}
			ops = append(ops, patchOp(op, pointer.Draw(t, "path"), value))
		}
		comparePatch(t, body, ops)
	})
}

func FuzzPatch(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":2}],"c":1}`), "add", "/a/1/b", "/c", []byte(`null`))
	f.Add([]byte(`{"a":1,"a":2 }`), "remove", "/a", "", []byte{})
	f.Add([]byte(`{"a":{"b":1}}`), "move", "/c~1", "/a/b", []byte{})
	f.Add([]byte(`{"\u0061":" \\\" "}`), "set", "/-", "", []byte(`{"x":[]}`))
	f.Fuzz(func(t *testing.T, body []byte, kind, path, from string, value []byte) {
		if checkJSON("body", body) != nil || bytes.TrimSpace(body)[0] != '{' {
			t.Skip()
		}
		op := feed.PatchOp{Op: kind, Path: path, From: from, Value: value}
		if kind != "incr" {
			comparePatch(t, body, []feed.PatchOp{op})
		} else if got, err := applyPatch(body, []feed.PatchOp{op}); err == nil && !json.Valid(got) {
			t.Errorf("%s: incr %s %s gives %s", body, path, value, got)
		}
	})
}

// comparePatch proves that a patch of the text does what a patch of maps does.
func comparePatch(t rapid.TB, body []byte, ops []feed.PatchOp) {
	t.Helper()
	want, refused := decode(body), error(nil)
	for _, op := range ops {
		if want, refused = patchMaps(want, op); refused != nil {
			break
		}
	}
	got, err := applyPatch(body, ops)
	if err != nil && !errors.Is(err, feed.ErrBadRequest) || (err != nil) != (refused != nil) {
		t.Fatalf("%s: %q: %v, want %v", body, ops, err, refused)
	}
	if err == nil && !reflect.DeepEqual(decode(got), want) {
		t.Fatalf("%s: %q: %s, want %v", body, ops, got, want)
	}
}

var errNaive = errors.New("refused")

// patchMaps applies one operation to decoded JSON, in the plainest way.
func patchMaps(root any, op feed.PatchOp) (any, error) {
	path, err := userPointer(op.Path)
	if err != nil {
		return nil, err
	}
	value := decode(op.Value)
	if len(strings.Trim(string(op.Value), " \t\r\n")) > 0 && checkJSON("value", op.Value) != nil {
		return nil, errNaive
	}
	if op.Op != "move" {
		return editAt(root, path, op.Op, value)
	}
	from, err := userPointer(op.From)
	if err != nil || strings.HasPrefix(op.Path+"/", op.From+"/") {
		return nil, errNaive
	}
	var moved any
	if err := readAt(root, from, &moved); err != nil {
		return nil, err
	}
	if root, err = editAt(root, from, "remove", nil); err != nil {
		return nil, err
	}
	return editAt(root, path, "add", moved)
}

func readAt(v any, path []string, into *any) error {
	for _, name := range path {
		switch parent := v.(type) {
		case map[string]any:
			child, ok := parent[name]
			if !ok {
				return errNaive
			}
			v = child
		case []any:
			i := arrayIndex(name)
			if i < 0 || i >= len(parent) {
				return errNaive
			}
			v = parent[i]
		default:
			return errNaive
		}
	}
	*into = v
	return nil
}

// editAt is a copy of v with the operation done at the path.
func editAt(v any, path []string, op string, value any) (any, error) {
	name := path[0]
	if len(path) > 1 {
		var child any
		if err := readAt(v, path[:1], &child); err != nil {
			return nil, err
		}
		child, err := editAt(child, path[1:], op, value)
		if err != nil {
			return nil, err
		}
		op, value = "replace", child
	}
	switch parent := v.(type) {
	case map[string]any:
		return editMap(maps.Clone(parent), name, op, value)
	case []any:
		return editSlice(slices.Clone(parent), name, op, value)
	}
	return nil, errNaive
}

func editMap(m map[string]any, name, op string, value any) (any, error) {
	old, exists := m[name]
	if !exists && (op == "replace" || op == "remove") {
		return nil, errNaive
	}
	switch op {
	case "add", "set", "replace":
		m[name] = value
		return m, nil
	case "remove":
		delete(m, name)
		return m, nil
	case "incr":
		if !exists {
			old = json.Number("0")
		}
		sum, err := naiveSum(old, value)
		m[name] = sum
		return m, err
	}
	return nil, errNaive
}

func editSlice(s []any, name, op string, value any) (any, error) {
	i := arrayIndex(name)
	if name == "-" && (op == "add" || op == "set") {
		return append(s, value), nil
	}
	if op == "add" && i == len(s) {
		return append(s, value), nil
	}
	if i < 0 || i >= len(s) {
		return nil, errNaive
	}
	switch op {
	case "add":
		return slices.Insert(s, i, value), nil
	case "set", "replace":
		s[i] = value
		return s, nil
	case "remove":
		return slices.Delete(s, i, i+1), nil
	case "incr":
		sum, err := naiveSum(s[i], value)
		s[i] = sum
		return s, err
	}
	return nil, errNaive
}

func naiveSum(a, b any) (any, error) {
	x, okX := a.(json.Number)
	y, okY := b.(json.Number)
	if !okX || !okY {
		return nil, errNaive
	}
	m, _ := x.Float64()
	n, _ := y.Float64()
	return json.Number(strconv.FormatFloat(m+n, 'f', -1, 64)), nil
}

func BenchmarkPatch(b *testing.B) {
	body := sampleBody()
	ops := []feed.PatchOp{patchOp("set", "/status", `"paid"`), patchOp("incr", "/lines/3/qty", "1")}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := applyPatch(body, ops); err != nil {
			b.Fatal(err)
		}
	}
}
