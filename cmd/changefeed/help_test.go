package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
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
			example := strings.HasPrefix(line, "  ") && strings.Contains(line, "changefeed ") ||
				strings.HasPrefix(line, "    --jwks")
			if n := utf8.RuneCountInString(line); n > terminal.Narrow && !example {
				t.Errorf("help of %s has a line of %d characters: %s", args[0], n, line)
			}
		}
	}
}

// A shell offers files where a command reads files, and nothing where it does not.
func TestShellsCompleteFilesWhereFilesAreRead(t *testing.T) {
	const files, nothing, directories = ":0", ":4", ":16"
	for line, want := range map[string]string{
		"import": files, "run": files, "dlq list": files, "dlq retry": files, "tail": nothing, "dlq": nothing,
		"serve --jwks": files, "serve --cert": files, "import --rejects": files,
		"bench --dir": files, "serve --db": directories, "serve --key": nothing,
	} {
		out := command(t, append(append([]string{"__complete"}, strings.Fields(line)...), "")...)
		if lines := strings.Fields(out); len(lines) == 0 || lines[len(lines)-1] != want {
			t.Errorf("%s: got %q, want the directive %s", line, out, want)
		}
	}
}
