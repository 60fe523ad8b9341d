package terminal

import (
	"strings"
	"unicode/utf8"
)

// Reflow puts the lines of a paragraph together and cuts them anew. Of an indented line it folds what stands in its last
// column; a line of one column, as an example is, stays as it is, because it may be copied.
func Reflow(text string, room int) string {
	var lines, paragraph []string
	end := func() {
		if len(paragraph) > 0 {
			lines = append(lines, Wrap(strings.Join(paragraph, " "), 0, room, 0))
			paragraph = nil
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" && line[0] != ' ' {
			paragraph = append(paragraph, line)
			continue
		}
		end()
		if gap := strings.LastIndex(line, "  "); gap >= 0 && strings.TrimSpace(line[:gap]) != "" {
			column := gap + len("  ")
			line = line[:column] + Wrap(line[column:], utf8.RuneCountInString(line[:column]), room, column)
		}
		lines = append(lines, line)
	}
	end()
	return strings.Join(lines, "\n")
}
