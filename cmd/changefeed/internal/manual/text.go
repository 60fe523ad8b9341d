package manual

import (
	"strings"
	"unicode/utf8"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
)

// widestTerm is the greatest width of the first column of a list. A longer term has a line of its own.
const widestTerm = 28

// Text returns the page as help in lines of at most 80 columns, whatever the terminal is, because help is often read in
// narrow windows and copied into documents. Examples stay as they are.
func (p Page) Text() string {
	var b strings.Builder
	b.WriteString(p.Summary + "\n")
	if p.Usage != "" {
		b.WriteString("\nUsage:\n  " + terminal.Wrap(p.Usage, 2, terminal.Narrow, 6) + "\n")
	}
	if p.Examples != "" {
		b.WriteString("\nExamples:\n" + p.Examples + "\n")
	}
	if p.About != "" {
		b.WriteString("\n" + terminal.Reflow(strings.Trim(p.About, "\n"), terminal.Narrow) + "\n")
	}
	for _, s := range p.Commands {
		s.write(&b)
	}
	if len(p.Topics) > 0 {
		Section{"Topics", p.Topics}.write(&b)
	}
	for _, s := range p.Flags {
		s.write(&b)
	}
	if len(p.Commands) > 0 {
		b.WriteString("\n" + p.Name + " COMMAND --help explains a command.\n")
	}
	return b.String()
}

// write writes a list in two columns.
func (s Section) write(b *strings.Builder) {
	// If some flags have a short name, the others stand below their long names.
	indent := "  "
	for _, r := range s.Rows {
		if isShort(r.Term) {
			indent = strings.Repeat(" ", len("  -x, "))
		}
	}
	terms, column := make([]string, len(s.Rows)), len(indent)+len("  ")
	for i, r := range s.Rows {
		terms[i] = indent + r.Term
		if isShort(r.Term) {
			terms[i] = "  " + r.Term
		}
		if n := utf8.RuneCountInString(terms[i]) + len("  "); n <= widestTerm {
			column = max(column, n)
		}
	}
	b.WriteString("\n" + s.Title + ":\n")
	for i, r := range s.Rows {
		if gap := column - utf8.RuneCountInString(terms[i]); gap >= len("  ") {
			b.WriteString(terms[i] + strings.Repeat(" ", gap))
		} else {
			b.WriteString(terms[i] + "\n" + strings.Repeat(" ", column))
		}
		b.WriteString(terminal.Wrap(r.About, column, terminal.Narrow, column) + "\n")
	}
}

// isShort reports whether a term begins with the short name of a flag.
func isShort(term string) bool { return len(term) > 1 && term[0] == '-' && term[1] != '-' }
