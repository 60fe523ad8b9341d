package tidy

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"
)

// unwrapped are documents whose lines may be longer: those that a program writes.
var unwrapped = []string{"docs/reference/"}

// checkProseLength finds long lines in documents. A row of a table is one line in any case, and so is code; a long span
// of code or a link may have a line of its own.
func checkProseLength(r *repo) (found []finding) {
	for _, p := range r.paths {
		if path.Ext(p) != ".md" || hasPrefixOf(p, unwrapped) || strings.Contains(p, "testdata/") {
			continue
		}
		fenced := false
		for i, line := range strings.Split(r.text[p], "\n") {
			text := strings.TrimSpace(line)
			if strings.HasPrefix(text, "```") {
				fenced = !fenced
			}
			width := utf8.RuneCountInString(line)
			if fenced || width <= maxLineWidth || strings.HasPrefix(text, "|") || !canBeBroken(text) {
				continue
			}
			found = append(found, finding{p, fmt.Sprintf("line %d: %d characters, limit %d", i+1, width, maxLineWidth)})
		}
	}
	return found
}

// hasPrefixOf reports whether a path begins with one of several texts.
func hasPrefixOf(path string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// canBeBroken reports whether a line has a space outside of code and links, after the mark of a list.
func canBeBroken(text string) bool {
	text = strings.TrimLeft(text, "-*>0123456789. ")
	return strings.Contains(link.ReplaceAllString(quoted.ReplaceAllString(text, ""), ""), " ")
}
