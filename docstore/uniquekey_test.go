package docstore

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/changefeed"
)

func TestParseKeyPathReadsNamesAndQuotes(t *testing.T) {
	for path, want := range map[string]keyPath{
		`/a`:               {"a"},
		`/id`:              {"id"},
		`/address/city`:    {"address", "city"},
		`/a*/b?/_ts`:       {"a*", "b?", "_ts"},
		`/ü/日本`:            {"ü", "日本"},
		`/"a/b"/c`:         {"a/b", "c"},
		`/'a "b"'/"it's"`:  {`a "b"`, "it's"},
		`/"a\"b\\"/'\''`:   {`a"b\`, "'"},
		`/"*"/'?'/"[]"/""`: {"*", "?", "[]", ""},
		`/a"b`:             {`a"b`},
		`/my prop`:         {"my prop"},
	} {
		got, err := parseKeyPath(path)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", path, got, err, want)
		}
	}
}

func TestParseKeyPathSaysWhatIsWrong(t *testing.T) {
	for path, want := range map[string]string{
		``:         `path "" does not begin with a slash: want one as in /tenant`,
		`tenant`:   `path "tenant" does not begin with a slash: want one as in /tenant`,
		`/`:        `a slash has no name behind it: want one as in /tenant`,
		`/a/`:      `a slash has no name behind it: want one as in /tenant`,
		`/a//b`:    `a slash has no name behind it: want one as in /tenant`,
		`/*`:       `segment * is a wildcard: want a name, or "*" for a property of that name`,
		`/a/?`:     `segment ? is a wildcard: want a name, or "?" for a property of that name`,
		`/a/[]/b`:  `segment [] is a wildcard: want a name, or "[]" for a property of that name`,
		`/"a`:      `segment "a has no closing quote`,
		`/'a\'`:    `segment 'a\' has no closing quote`,
		`/"a\`:     `segment "a\ has no closing quote`,
		`/"a"b`:    `path "/\"a\"b" goes on behind a quote: want a slash there`,
		`/_etag`:   `path "/_etag" leads to a system property: want one of your own`,
		"/a\xff/b": `path "/a\xff/b" is not UTF-8: want one as in /tenant`,
	} {
		p, err := parseKeyPath(path)
		if !errors.Is(err, changefeed.ErrBadRequest) {
			t.Errorf("%s: %q, %v, want a bad request", path, p, err)
		} else if !strings.HasSuffix(err.Error(), "bad request: "+want) {
			t.Errorf("%s:\n got %v\nwant %s", path, err, want)
		}
	}
}

func TestContainersHaveOneToThreeDifferentKeyPaths(t *testing.T) {
	for _, paths := range [][]string{{"/a"}, {"/a", "/a/b", "/b"}} {
		if p, err := parseKeyPaths(paths); err != nil || len(p) != len(paths) {
			t.Errorf("%q: %q, %v", paths, p, err)
		}
	}
	for _, paths := range [][]string{nil, {"/a", "/b", "/c", "/d"}, {"/a", `/"a"`}, {"/a", "b"}} {
		if p, err := parseKeyPaths(paths); !errors.Is(err, changefeed.ErrBadRequest) {
			t.Errorf("%q: %q, %v, want a bad request", paths, p, err)
		}
	}
}

func TestAKeyPathReadsItsOwnText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ab/\\"'*? ]{0,5}`))
		want := keyPath(rapid.SliceOfN(name, 1, 4).Draw(t, "names"))
		if got, err := parseKeyPath(want.String()); isSystem(want[0]) != (err != nil) || err == nil && !slices.Equal(got, want) {
			t.Fatalf("%s: %q, %v, want %q", want, got, err, want)
		}
	})
}

func FuzzKeyPath(f *testing.F) {
	for _, path := range []string{"/a/b", `/"a\"/b"/'c'`, "/", `/"`, `/'\`, "a"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		p, err := parseKeyPath(path)
		if err != nil {
			if !errors.Is(err, changefeed.ErrBadRequest) {
				t.Errorf("%q: %v, want a bad request", path, err)
			}
			return
		}
		if again, err := parseKeyPath(p.String()); err != nil || !slices.Equal(again, p) {
			t.Errorf("%q: reads as %q, then as %q, %v", path, p, again, err)
		}
	})
}

func TestUniqueKeyValueHasOneTextForOneValue(t *testing.T) {
	paths := []keyPath{{"a"}, {"b", "c"}}
	for body, want := range map[string]string{
		`{"id":"1"}`:                                  `[null,null]`,
		`{"a":null,"b":{"c":null}}`:                   `[null,null]`,
		`{"a":"x","b":{"c":5}}`:                       `["x",5]`,
		` { "b" : { "c" : 5.0 } , "a" : "\u0078" } `:  `["x",5]`,
		`{"a":"x,null","b":7}`:                        `["x,null",null]`,
		`{"a":{"y":[1.0, 2e0],"x":"<"},"b":{"c":[]}}`: `[{"x":"<","y":[1,2]},[]]`,
		`{"a":1,"a":"1"}`:                             `["1",null]`,
	} {
		if got, err := uniqueKeyValue([]byte(body), paths); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", body, got, err, want)
		}
	}
}

func TestUniqueKeyValueRefusesNumbersOutOfRange(t *testing.T) {
	for _, body := range []string{`{"a":1e999}`, `{"a":[1,{"b":-1e999}]}`} {
		got, err := uniqueKeyValue([]byte(body), []keyPath{{"a"}})
		if !errors.Is(err, changefeed.ErrBadRequest) || !strings.Contains(err.Error(), "unique key /a") {
			t.Errorf("%s: %s, %v, want a bad request for /a", body, got, err)
		}
	}
}

func TestUniqueKeyValuesAreEqualOnlyForEqualValues(t *testing.T) {
	paths := []keyPath{{"a"}, {"b"}, {"c", "a"}}
	at := func(v any, p keyPath) any {
		for _, name := range p {
			m, _ := v.(map[string]any)
			v = m[name]
		}
		return v
	}
	rapid.Check(t, func(t *rapid.T) {
		var keys [2]string
		var values [2][]any
		for i := range keys {
			body := drawObject(t, 3)
			key, err := uniqueKeyValue([]byte(body), paths)
			if err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			var v any
			if err := json.Unmarshal([]byte(body), &v); err != nil {
				t.Fatal(err)
			}
			keys[i] = string(key)
			for _, p := range paths {
				values[i] = append(values[i], at(v, p))
			}
		}
		if same := reflect.DeepEqual(values[0], values[1]); same != (keys[0] == keys[1]) {
			t.Fatalf("%v and %v have the keys %s and %s", values[0], values[1], keys[0], keys[1])
		}
	})
}
