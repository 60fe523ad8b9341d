package docstore

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
)

func TestUniqueKeyValueHasOneTextForOneValue(t *testing.T) {
	paths := []pkey.Path{{"a"}, {"b", "c"}}
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
		got, err := uniqueKeyValue([]byte(body), []pkey.Path{{"a"}})
		if !errors.Is(err, feed.ErrBadRequest) || !strings.Contains(err.Error(), "unique key /a") {
			t.Errorf("%s: %s, %v, want a bad request for /a", body, got, err)
		}
	}
}

func TestUniqueKeyValuesAreEqualOnlyForEqualValues(t *testing.T) {
	paths := []pkey.Path{{"a"}, {"b"}, {"c", "a"}}
	at := func(v any, p pkey.Path) any {
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
