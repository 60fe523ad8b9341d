package main

import (
	"fmt"
	"strings"
	"testing"
)

// Whoever chooses all changes of a batch and then leaves one out skips the others alone.
func TestAChangeThatIsLeftOutIsNotSkipped(t *testing.T) {
	w := newWorld(t, 1)
	w.write(`{"id":"good","city":"Oslo"}`, `{"id":"bad","city":"Rome","bad":true}`)
	tab := page(t, w.instance("a", fails, "--ui-write").dashboard(t), 1280, 900)
	shows(t, tab, ".findings", "failure")
	press(t, tab, "-FF")
	shows(t, tab, ".detail", "What is known")
	pressIn(t, tab, ".detail", "Skip…")
	shows(t, tab, "dialog", "Choose the changes to skip.")
	box := func(of string) {
		t.Helper()
		evaluate[bool](t, tab, fmt.Sprintf(`[...document.querySelectorAll('dialog label')]
			.find((l) => l.innerText.includes(%q)).querySelector('input').click() ?? true`, of))
	}
	box("all 2 changes")
	shows(t, tab, "dialog", "2 of 2 changes are chosen.")
	box(`"good"`)
	shows(t, tab, "dialog", "1 of 2 changes are chosen.")
	pressIn(t, tab, "dialog", "Skip")
	shows(t, tab, "dialog", "Done.")
	shows(t, tab, "dialog .lines", `skipped change "bad"`)
	if said := evaluate[string](t, tab, `document.querySelector('dialog .lines').innerText`); strings.Contains(said, "good") {
		t.Errorf("the dialog says %q: want no word of the change that was left out", said)
	}
}
