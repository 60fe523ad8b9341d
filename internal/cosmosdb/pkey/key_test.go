package pkey

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/epk"
)

func TestParseGivesEachKeyOneText(t *testing.T) {
	key, undefined := feed.Key, feed.Undefined
	for text, want := range map[string]feed.PartitionKey{
		`["London"]`:                           key("London"),
		`[""]`:                                 key(""),
		`["a b<&>"]`:                           key("a b<&>"),
		`[]`:                                   key(),
		`[{}]`:                                 key(undefined),
		`[{ }]`:                                key(undefined),
		`[null]`:                               key(nil),
		`[true]`:                               key(true),
		`[false]`:                              key(false),
		`[5]`:                                  key(5),
		`[5.0]`:                                key(5),
		`[-1.5e3]`:                             key(-1500),
		`[-0]`:                                 key(0),
		`[12345678901234567890]`:               key(12345678901234567890.0),
		"[\"a\", 5,\ttrue , null, {}]":         key("a", 5, true, nil, undefined),
		" [ \"a\" ] ":                          key("a"),
		`["\u00e9\ud83d\ude00\/\b\f\n\r\t"]`:   key("é😀/\b\f\n\r\t"),
		`["t\u00e9\"\u9c40\U0001f600",5,true]`: key("té\"鱀😀", 5, true),
		`["\a\v\x7f\x01\\"]`:                   key("\a\v\x7f\x01\\"),
		`["\xff"]`:                             key("\ufffd"),
		`["\ud83d"]`:                           key("\ufffd"),
		`["\ud83dx"]`:                          key("\ufffdx"),
		`["\ud83d\u0041"]`:                     key("\ufffdA"),
		`["é"]`:                                key("é"),
	} {
		got, err := Canonical(text)
		if err != nil || got != want {
			t.Errorf("parse %q: %s, %v, want %s", text, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		``, `x`, `"a"`, `[`, `["a`, `["a"`, `["a",]`, `["a"]]`, `["a"] x`, `[a]`, `[nul]`, `[+1]`, `[01]`, `[1.]`,
		`[NaN]`, `[{"a":1}]`, `[["a"]]`, `[1e400]`,
		`["\`, `["\q"]`, `["\u12"]`, `["\x4"]`, `["\U00110000"]`, `["\uzzzz"]`, "[\"\xff\"]", `[,]`, `{}`, `["a" "b"]`,
		string(feed.Key([]string{"a"})),
	} {
		if got, err := Parse(text); !errors.Is(err, feed.ErrBadRequest) ||
			!strings.Contains(err.Error(), "partition key") {
			t.Errorf("parse %.40q: %+v, %v, want a bad request that names it", text, got, err)
		}
	}
}

func TestAKeyKeepsItsFirstComponentsAndCountsAll(t *testing.T) {
	for text, want := range map[string]epk.Components{
		`[]`:                    {},
		`["a"]`:                 {epk.String("a")},
		`[-0,{},"\u0061"]`:      {epk.Number(0), epk.Component{}, epk.String("a")},
		`[1,null,true,false,5]`: {epk.Number(1), epk.Null(), epk.Bool(true)},
	} {
		k, err := Parse(text)
		if err != nil || k.Len() != strings.Count(text, ",")+min(len(want), 1) || len(k.Components()) != len(want) {
			t.Fatalf("%s: %d components, %v", text, k.Len(), err)
		}
		for i, c := range k.Components() {
			if c != want[i] {
				t.Errorf("%s: component %d is %+v, want %+v", text, i, c, want[i])
			}
		}
	}
}

// The values of a document make the key that [feed.Key] makes of them, and its text
// is read as the same key.
func TestTheKeyOfValuesIsReadAgain(t *testing.T) {
	paths := []Path{{"a"}, {"b"}}
	value := rapid.OneOf(
		rapid.Float64().Filter(func(f float64) bool {
			return f-f == 0
		}).AsAny(), rapid.String().AsAny(), rapid.Bool().AsAny(), rapid.Just[any](nil),
		rapid.Just[any](feed.Undefined),
	)
	rapid.Check(t, func(t *rapid.T) {
		var raw [2][]byte
		var values [2]any
		for i := range values {
			if values[i] = value.Draw(t, "value"); values[i] != any(feed.Undefined) {
				raw[i], _ = json.Marshal(values[i])
			}
		}
		key, err := Of(paths, raw[:])
		if want := feed.Key(values[:]...); err != nil || key != want {
			t.Fatalf("key of %s is %s, %v, want %s", raw, key, err, want)
		}
		if again, err := Canonical(string(key)); err != nil || again != key || Loose(paths, raw[:]) != key {
			t.Fatalf("%s reads as %s, %v", key, again, err)
		}
	})
}

// A store and a header may write a number in many ways, and it is one key in one place.
func TestANumberIsOneKey(t *testing.T) {
	for _, texts := range [][]string{
		{"0", "-0", "0.0", "-0e1"},
		{"100", "1E2", "1e2", "100.0"},
		{"9007199254740992", "9007199254740993", "9.007199254740992e15"}, // the same float64
	} {
		want := place(t, texts[0])
		for _, text := range texts {
			key, err := Of([]Path{{"a"}}, [][]byte{[]byte(text)})
			read, refused := Canonical("[" + text + "]")
			if err != nil || refused != nil || string(key) != "["+texts[0]+"]" || read != key ||
				place(t, text) != want {
				t.Errorf("%s is %s, %v, and read as %s, %v, at %s, want %s as [%s]",
					text, key, err, read, refused, place(t, text), want, texts[0])
			}
		}
	}
}

// place is where the key of one number is.
func place(t *testing.T, number string) string {
	t.Helper()
	k, err := Parse("[" + number + "]")
	if err != nil {
		t.Fatal(err)
	}
	at, err := epk.Hash(epk.HashV2, k.Components())
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestAValueThatIsNoKeyIsRefusedOrAbsent(t *testing.T) {
	paths := []Path{{"a"}, {"b"}}
	const outOfRange = `the number 1e999 is out of range: want one that a float64 holds`
	for value, want := range map[string]string{`{"x":1}`: "", `[ ]`: "", `1e999`: outOfRange} {
		values := [][]byte{[]byte(value), []byte(`"b"`)}
		key, err := Of(paths, values)
		switch {
		case want == "" && (err != nil || key != feed.Key(feed.Undefined, "b")):
			t.Errorf("%s: %s, %v, want no value", value, key, err)
		case want != "" && (!errors.Is(err, feed.ErrBadRequest) || !strings.HasSuffix(err.Error(), want)):
			t.Errorf("%s: %s, %v, want %s", value, key, err, want)
		}
		if got, want := Loose(paths, values), feed.Key(feed.Undefined, "b"); got != want {
			t.Errorf("%s: %s to a client, want %s", value, got, want)
		}
	}
}

// What Go's quoting makes of a string is read as that string.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "a", "é\"\\", "\a\x00😀\x7f", "\xff", `["a",1]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := Canonical("[" + strconv.QuoteToASCII(s) + "]")
		if want := feed.Key(string([]rune(s))); err != nil || got != want {
			t.Fatalf("parse %q quoted: %s, %v, want %s", s, got, err, want)
		}
		if key, err := Canonical(s); err == nil { // any text: an error, or a text that stays
			if again, err := Canonical(string(key)); err != nil || again != key {
				t.Fatalf("parse %q: %s, then %s, %v", s, key, again, err)
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	for name, text := range map[string]string{"plain": `["customer-4711"]`, "escaped": `["caf\u00e9",5]`} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
