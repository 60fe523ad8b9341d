package manual

import (
	"strings"
)

// Roff returns the page in the language of man(1). The other pages are named as references.
func (p Page) Roff(version string, others []string) string {
	var b strings.Builder
	name := PageName(p.Name)
	b.WriteString(`.TH "` + strings.ToUpper(name) + `" "1" "" "` + escaped(version) + `" "changefeed"` + "\n")
	b.WriteString(".SH NAME\n" + escaped(name) + ` \- ` + escaped(strings.TrimSuffix(p.Summary, ".")) + "\n")
	if p.Usage != "" {
		b.WriteString(".SH SYNOPSIS\n.nf\n" + verbatim(p.Usage) + ".fi\n")
	}
	if p.Examples != "" {
		b.WriteString(".SH EXAMPLES\n.nf\n" + verbatim(p.Examples) + ".fi\n")
	}
	if p.About != "" {
		b.WriteString(".SH DESCRIPTION\n")
		writeParagraphs(&b, p.About)
	}
	writeLists(&b, "COMMANDS", p.Commands)
	writeLists(&b, "OPTIONS", p.Flags)
	if len(others) > 0 {
		for i, other := range others {
			others[i] = `\fB` + escaped(PageName(other)) + `\fR(1)`
		}
		b.WriteString(".SH SEE ALSO\n" + strings.Join(others, ", ") + "\n")
	}
	return b.String()
}

// PageName returns the name of the page of a command, such as changefeed-tail.
func PageName(command string) string { return strings.ReplaceAll(command, " ", "-") }

// writeParagraphs writes paragraphs, and indented lines as they are.
func writeParagraphs(b *strings.Builder, text string) {
	indented, begins := false, true
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		switch is := strings.HasPrefix(line, " "); {
		case line == "":
			begins = true
			continue
		case is != indented && is:
			b.WriteString(".PP\n.nf\n")
		case is != indented:
			b.WriteString(".fi\n.PP\n")
		case begins && !is:
			b.WriteString(".PP\n")
		}
		indented, begins = strings.HasPrefix(line, " "), false
		b.WriteString(verbatim(line))
	}
	if indented {
		b.WriteString(".fi\n")
	}
}

// writeLists writes lists under one heading.
func writeLists(b *strings.Builder, heading string, lists []Section) {
	if len(lists) == 0 {
		return
	}
	b.WriteString(".SH " + heading + "\n")
	for _, s := range lists {
		b.WriteString(".SS " + escaped(s.Title) + "\n")
		for _, r := range s.Rows {
			b.WriteString(".TP\n\\fB" + escaped(r.Term) + "\\fR\n" + verbatim(r.About))
		}
	}
}

// verbatim returns lines that begin with no request.
func verbatim(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		line = escaped(line)
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		lines[i] = line
	}
	return strings.Join(lines, "\n") + "\n"
}

// escaped returns a text in which no character has a meaning for roff, and quotes and dashes are those of a command
// line.
func escaped(text string) string {
	return strings.NewReplacer(`\`, `\e`, `-`, `\-`, `'`, `\(aq`, "`", `\(ga`, `^`, `\(ha`, `~`, `\(ti`, `"`, `\(dq`,
		`≤`, `\(<=`, `…`, `...`).Replace(text)
}
