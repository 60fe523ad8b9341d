package wire

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/changefeed"
)

func TestParseKey(t *testing.T) {
	key, undefined := changefeed.Key, changefeed.Undefined
	for text, want := range map[string]changefeed.PartitionKey{
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
		`[-1.5e3]`:                             `[-1.5e3]`,
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
		got, err := ParseKey(text)
		if err != nil || got != want {
			t.Errorf("parse %q: %s, %v, want %s", text, got, err, want)
		}
	}
}

func TestParseKeyRefuses(t *testing.T) {
	for _, text := range []string{
		`x`, `"a"`, `[`, `["a`, `["a"`, `["a",]`, `["a"]]`, `["a"] x`, `[a]`, `[nul]`, `[+1]`, `[01]`, `[1.]`, `[NaN]`, `[{"a":1}]`, `[["a"]]`,
		`["\`, `["\q"]`, `["\u12"]`, `["\x4"]`, `["\U00110000"]`, `["\uzzzz"]`, "[\"\xff\"]", `[,]`, `{}`,
		`["` + strings.Repeat("a", maxKeyText) + `"]`,
	} {
		if got, err := ParseKey(text); err == nil {
			t.Errorf("parse %.40q: %s, want an error", text, got)
		} else if e, ok := errors.AsType[*Error](err); !ok || e.Status != 400 || !strings.Contains(e.Message, "partition key") {
			t.Errorf("parse %.40q: %v, want a 400 that names it", text, err)
		}
	}
}

// What Go's quoting makes of a string is read as that string.
func FuzzParseKey(f *testing.F) {
	for _, s := range []string{"", "a", "é\"\\", "\a\x00😀\x7f", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text := "[" + strconv.QuoteToASCII(s) + "]"
		got, err := ParseKey(text)
		if len(text) > maxKeyText {
			return
		}
		if want := changefeed.Key(string([]rune(s))); err != nil || got != want {
			t.Fatalf("parse %s: %s, %v, want %s", text, got, err, want)
		}
		_, _ = ParseKey(s) // must not fail in another way than by its error
	})
}
