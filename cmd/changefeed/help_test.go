package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/millrace/changefeed/internal/terminal"
)

// TestHelpFitsATerminal: but for examples, which are copied.
func TestHelpFitsATerminal(t *testing.T) {
	all := [][]string{{"--help"}}
	for _, c := range commands() {
		all = append(all, []string{c.Name(), "--help"})
	}
	for _, args := range all {
		text := command(t, args...)
		if !strings.Contains(text, "\nUsage:\n") {
			t.Errorf("help of %s: %q", args[0], text)
		}
		for line := range strings.SplitSeq(text, "\n") {
			example := strings.HasPrefix(line, "  ") && strings.Contains(line, "changefeed ") || strings.HasPrefix(line, "    --jwks")
			if n := utf8.RuneCountInString(line); n > terminal.Narrow && !example {
				t.Errorf("help of %s has a line of %d characters: %s", args[0], n, line)
			}
		}
	}
}
