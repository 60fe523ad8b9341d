package terminal

import "strings"

// Reflow joins the lines of a paragraph and breaks them anew. In an indented line, Reflow wraps only the text in the
// last column. An indented line with a single column, such as an example, stays unchanged, because people may copy such
// a line.
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
			line = line[:column] + Wrap(line[column:], Width(line[:column]), room, column)
		}
		lines = append(lines, line)
	}
	end()
	return strings.Join(lines, "\n")
}
