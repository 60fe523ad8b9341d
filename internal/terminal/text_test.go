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
		{"äöü äöü äöü", 7, 0, "äöü äöü\näöü"},
	} {
		if got := Wrap(tt.text, 0, tt.room, tt.indent); got != tt.want {
			t.Errorf("wrapped(%q, 0, %d, %d) = %q, want %q", tt.text, tt.room, tt.indent, got, tt.want)
		}
	}
}
