package notes_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/proof/rewriter"
)

// The newest lines stay, members of a later version too, and the same line is added once.
func TestAHistoryKeepsTheNewestLines(t *testing.T) {
	later := map[string]string{
		"team": "red", notes.HistoryProperty: `[{"id":"x","action":"defrost","degrees":3}]`,
	}
	for i := range notes.MaxLines - 1 {
		var added bool
		var err error
		later, added, err = notes.AddLine(later, notes.Line{ID: fmt.Sprint(i), At: time.Unix(1, 0)})
		if !added || err != nil {
			t.Fatal(added, err)
		}
	}
	stored := later[notes.HistoryProperty]
	if !strings.HasPrefix(stored, `[{"id":"x","action":"defrost","degrees":3},`) {
		t.Errorf("the line of a later version is not there as it was: %.80s", stored)
	}
	if like := rewriter.LooksLike(stored); like != "" {
		t.Errorf("the history looks like a %s", like)
	}
	if _, added, err := notes.AddLine(later, notes.Line{ID: "7"}); added || err != nil {
		t.Errorf("the same line again: added %v, %v", added, err)
	}
	full, _, err := notes.AddLine(later, notes.Line{ID: "last"})
	if err != nil {
		t.Fatal(err)
	}
	lines, err := notes.ReadHistory(full)
	if n := len(lines); err != nil || n != notes.MaxLines || lines[0].ID != "0" || lines[n-1].ID != "last" ||
		full["team"] != "red" {
		t.Errorf("%d lines, %v, of %v, want %d from 0 to last", n, err, full["team"], notes.MaxLines)
	}
}

// A line has bounds of its own: a part of a position would be another position.
func TestALineIsClipped(t *testing.T) {
	l := notes.Line{ID: "a", By: strings.Repeat("b", 1000), Moves: make([]notes.Move, 100)}
	l.Moves[0] = notes.Move{
		Lease: "-FF", From: notes.Target{Token: strings.Repeat("1", 2000)}, To: notes.Target{Token: "2"},
	}
	all, _, err := notes.AddLine(nil, l)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := notes.ReadHistory(all)
	if err != nil || len(lines) != 1 {
		t.Fatal(lines, err)
	}
	got := lines[0]
	if len(got.Moves) != notes.MaxMoves || got.Moves[0].From != (notes.Target{}) || got.Moves[0].To.Token != "2" ||
		len(got.By) != 200 || !strings.HasSuffix(got.By, "…") {
		t.Errorf("the line is %+v", got)
	}
	if l.Moves[0].From.Token == "" {
		t.Error("the caller's line was changed")
	}
}

// What is no history is no empty history.
func TestWhatIsNoHistoryIsAnError(t *testing.T) {
	for _, stored := range []string{"nothing", `{"id":"a"}`, `["a"]`, `[{"id":7}]`} {
		properties := map[string]string{notes.HistoryProperty: stored}
		if _, err := notes.ReadHistory(properties); err == nil {
			t.Errorf("%s was read", stored)
		}
		if got, _, err := notes.AddLine(properties, notes.Line{ID: "b"}); err == nil {
			t.Errorf("%s has got a line: %v", stored, got)
		}
	}
}
