package terminal

import "testing"

func TestTextIsWrappedBetweenWords(t *testing.T) {
	for _, tt := range []struct {
		text         string
		room, indent int
		want         string
	}{
		{"one two three", 0, 2, "one two three"},
		{"one two three", 13, 2, "one two three"},
		{"one two three", 12, 2, "one two\n  three"},
		{"one two three", 7, 4, "one two three"},
		{"a  lot  of    space", 9, 2, "a  lot\n  of\n  space"},
		{"unbreakable word", 5, 0, "unbreakable\nword"},
		{"a unbreakable word", 5, 2, "a unbreakable\n  word"}, // another line would begin in the same column
		{"äöü äöü äöü", 7, 0, "äöü äöü\näöü"},
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
	for seconds, want := range map[float64]string{0: "0s", 1.26: "1.3s", 59.9: "59.9s", 75.4: "1m15s", 3600: "1h0m0s"} {
		if got := Seconds(seconds); got != want {
			t.Errorf("%v s: got %s, want %s", seconds, got, want)
		}
	}
}

func TestATextIsClippedBetweenCharacters(t *testing.T) {
	for n, want := range map[int]string{-1: "", 0: "", 2: "äö", 3: "äöü", 4: "äöü"} {
		if got := Clip("äöü", n); got != want {
			t.Errorf("%d characters: got %q, want %q", n, got, want)
		}
	}
}
