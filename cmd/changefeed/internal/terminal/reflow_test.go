package terminal

import "testing"

func TestTextIsFolded(t *testing.T) {
	const text = "one two\nthree four five\n\n  a  one two three\n  a long line of one column\n\n"
	const want = "one two three\nfour five\n\n  a  one two\n     three\n  a long line of one column\n\n"
	if got := Reflow(text, 14); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
