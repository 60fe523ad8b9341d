package terminal

import (
	"strings"
	"testing"
)

func TestTextIsWrappedBetweenWords(t *testing.T) {
	for _, tt := range []struct {
		text         string
		room, indent int
		want         string
	}{
		{"one two three", 0, 2, "one two three"},
		{"one two three", 13, 2, "one two three"},
		{"one two three", 12, 2, "one two\n  three"},
		{"one two three", 7, 4, "one two\n three"}, // a large indent is smaller on a narrow terminal
		{"a  lot  of    space", 9, 2, "a  lot\n  of\n  space"},
		{"unbreakable word", 5, 0, "unbreakable\nword"},
		{"a unbreakable word", 5, 2, "a unbreakable\n  word"}, // another line would begin in the same column
		{"äöü äöü äöü", 7, 0, "äöü äöü\näöü"},
		{"東京 東京 東京", 9, 0, "東京 東京\n東京"},
	} {
		if got := Wrap(tt.text, 0, tt.room, tt.indent); got != tt.want {
			t.Errorf("wrapped(%q, 0, %d, %d) = %q, want %q", tt.text, tt.room, tt.indent, got, tt.want)
		}
	}
}

// The last column of a line is left free, and even the narrowest terminal has one.
func TestALineHasRoom(t *testing.T) {
	for width, want := range map[int]int{80: 79, 2: 1, 1: 1} {
		if got := (Terminal{Width: func() int { return width }}).Room(); got != want {
			t.Errorf("a terminal of %d columns has room for %d, want %d", width, got, want)
		}
	}
	if got := (Terminal{}).Room(); got != 0 {
		t.Errorf("what is no terminal has room for %d, want any number", got)
	}
}

func TestTimesAreRounded(t *testing.T) {
	for seconds, want := range map[float64]string{0: "0s", 1.26: "1.3s", 59.9: "59.9s", 75.4: "1m15s", 3600: "1h"} {
		if got := Seconds(seconds); got != want {
			t.Errorf("%v s: got %s, want %s", seconds, got, want)
		}
	}
}

// The far column of a narrow terminal has no room for words.
func TestATextInAFarColumnBeginsOnTheNextLine(t *testing.T) {
	if got, want := Wrap("never an older one", 32, 39, 32), "\n    never an older one"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNumbersAreReadable(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", -100: "-100"} {
		if got := Number(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
	for n, want := range map[int64]string{
		0: "0 bytes", 999: "999 bytes", 1000: "1.0 KB", 22_336_872: "22.3 MB",
		999_949: "999.9 KB", 999_960: "1.0 MB", 999_950_000: "1.0 GB",
		5e9: "5.0 GB", 7.25e12: "7.2 TB", 4e15: "4000.0 TB",
	} {
		if got := Size(n); got != want {
			t.Errorf("%d bytes: got %s, want %s", n, got, want)
		}
	}
}

// An ideogram fills two cells, as does an emoji of several characters; a combining mark fills none.
func TestTheWidthOfATextIsThatOnATerminal(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "host": 4, "東京": 4, "e\u0301": 1, "👩‍👩‍👧": 2, "🇩🇪": 2, "…": 1, "█": 1,
	} {
		if got := Width(text); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
	if got := Shorten("東京ホスト", 6); got != "東京…" || Width(got) > 6 {
		t.Errorf("got %q", got)
	}
	if got := Shorten("東京", 4); got != "東京" {
		t.Errorf("a text that fits was shortened to %q", got)
	}
}

func TestATextIsClippedBetweenCharacters(t *testing.T) {
	for n, want := range map[int]string{-1: "", 0: "", 2: "äö", 3: "äöü", 4: "äöü"} {
		if got := Clip("äöü", n); got != want {
			t.Errorf("%d characters: got %q, want %q", n, got, want)
		}
	}
}

func TestATextKeepsItsJoinersAndLosesWhatControlsATerminal(t *testing.T) {
	const family = "👩‍👩‍👧" // three people and two joiners
	for _, f := range []func(string) string{OneLine, Harmless} {
		if got := f(family); got != family {
			t.Errorf("got %q, want %q", got, family)
		}
		got := f("a\x1b[2J\u202eb\u009bc")
		if strings.ContainsAny(got, "\x1b\u202e\u009b") || !strings.Contains(got, "b") {
			t.Errorf("got %q, want no control characters", got)
		}
	}
}

func TestTheSecretsOfAURLAreNotShown(t *testing.T) {
	for text, want := range map[string]string{
		`ADDRESS is "https://ann:pw@host:8081/d/c": want`: `ADDRESS is "https://…@host:8081/d/c": want`,
		"parse https://ann:p/w@host/d: bad":               "parse https://…@host/d: bad",
		"https://ann:p@w@host/d":                          "https://…@host/d",
		"nats://token@host:4222":                          "nats://…@host:4222",
		"https://host/d/c?sv=1&sig=a%2Fb%3D&x=1":          "https://host/d/c?sv=1&sig=…&x=1",
		"http://127.0.0.1:8081/d/a@b and c@d":             "http://127.0.0.1:8081/d/a@b and c@d",
		"want amqp://USER:PASSWORD@HOST/VHOST":            "want amqp://USER:PASSWORD@HOST/VHOST",
	} {
		if got := WithoutSecrets(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// A shell takes the word as the text it is.
func TestAWordForAShellIsQuotedIfItMustBe(t *testing.T) {
	for text, want := range map[string]string{
		"cosmos:shop/leases":  "cosmos:shop/leases",
		"docstore:d/1#orders": "docstore:d/1#orders",
		"https://h:8081/a/b":  "https://h:8081/a/b",
		"":                    "''",
		"#mailer":             "'#mailer'",
		"my mailer":           "'my mailer'",
		"it's":                `'it'\''s'`,
		"$(rm -rf x)":         "'$(rm -rf x)'",
		"a\x1b[2J":            "'a [2J'",
		"http://h/a%2Fb/ü":    "'http://h/a%2Fb/ü'",
	} {
		if got := ShellWord(text); got != want {
			t.Errorf("%q is the word %s, want %s", text, got, want)
		}
	}
}
