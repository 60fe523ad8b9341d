package confirm

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

func TestOnlyTheRightAnswerDeletes(t *testing.T) {
	for _, tt := range []struct {
		word, answer string
		sure         bool
	}{
		{"", "y\n", true},
		{"", " YES \n", true},
		{"", "\n", false},
		{"", "", false}, // Ctrl-D
		{"", "no\n", false},
		{"shop/orders", "shop/orders\n", true},
		{"shop/orders", "y\n", false},
		{"shop/orders", "SHOP/ORDERS\n", false},
	} {
		var shown bytes.Buffer
		person := Person{Present: true, In: strings.NewReader(tt.answer), Out: &shown}
		sure, err := Flags{}.Ask(t.Context(), person, Question{Text: "Delete\x1b it?", Word: tt.word})
		if sure != tt.sure || errors.Is(err, ErrDeclined) == tt.sure {
			t.Errorf("%q to a question for %q: got %v, %v, want %v", tt.answer, tt.word, sure, err, tt.sure)
		}
		if got := shown.String(); !strings.HasPrefix(got, "Delete it? ") || !strings.Contains(got, tt.word) {
			t.Errorf("the question is %q", got)
		}
	}
}

func TestNobodyIsAskedWithAFlag(t *testing.T) {
	nobody := Person{}
	if sure, err := (Flags{Yes: true}).Ask(t.Context(), nobody, Question{}); !sure || err != nil {
		t.Errorf("--yes: got %v, %v", sure, err)
	}
	if sure, err := (Flags{Yes: true, DryRun: true}).Ask(t.Context(), nobody, Question{}); sure || err != nil {
		t.Errorf("--yes --dry-run: got %v, %v", sure, err)
	}
}

func TestWithoutATerminalAFlagIsRequired(t *testing.T) {
	for _, person := range []Person{{}, AtTerminal(t.Context(), &bytes.Buffer{})} {
		sure, err := Flags{}.Ask(t.Context(), person, Question{})
		if sure || !errors.As(err, new(usage.Error)) || !strings.Contains(err.Error(), "--yes is missing") {
			t.Errorf("got %v, %v", sure, err)
		}
	}
}

func TestAnInterruptIsNoAnswer(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	end()
	person := Person{Present: true, In: strings.NewReader("y\n"), Out: &bytes.Buffer{}}
	if sure, err := (Flags{}).Ask(ctx, person, Question{}); sure || !errors.Is(err, ErrDeclined) {
		t.Errorf("got %v, %v", sure, err)
	}
}
