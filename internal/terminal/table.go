package terminal

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// Table lays rows out in aligned columns, in lines of at most room characters, 0 for any number. The first row is the
// heading, and the last column is for notes: where they do not fit, each is wrapped below its row.
func Table(rows [][]string, room int) string {
	table := aligned(rows)
	if room == 0 || widest(table) <= room {
		return strings.Join(table, "")
	}
	var short [][]string
	for _, row := range rows {
		short = append(short, row[:len(row)-1])
	}
	// Notes are sentences: at the end of a wide row a terminal would break them
	// anywhere, and the columns with them.
	table = aligned(short)
	for i, row := range rows[1:] {
		if note := row[len(row)-1]; note != "" {
			table[i+1] += Wrap("    "+note, 0, room, 4) + "\n"
		}
	}
	return strings.Join(table, "")
}

// aligned lays rows out as lines with aligned columns.
func aligned(rows [][]string) []string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, "  "+strings.Join(row, "\t"))
	}
	_ = t.Flush() // writes to memory
	return slices.Collect(strings.Lines(b.String()))
}

// widest is the width of the widest line, with its indentation of two.
func widest(lines []string) (most int) {
	for _, line := range lines {
		most = max(most, utf8.RuneCountInString(strings.TrimSpace(line))+2)
	}
	return most
}

// OrDash is a text, or a dash for none, so that columns can be told apart.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
