package terminal

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// Table lays rows out in aligned columns, in lines of at most room characters; 0 is no limit. The first row is the
// heading, and the last column is for notes. If the notes do not fit, each note is wrapped below the row. If the other
// columns do not fit either, and the first column is wide, as with ranges, the first column has a line above the
// others. No cell is cut, because people copy from tables.
func Table(rows [][]string, room int) string {
	table := aligned(rows, 0)
	if room == 0 || widest(table) <= room {
		return strings.Join(table, "")
	}
	// Notes are sentences: at the end of a wide row a terminal would break them, and the columns, anywhere.
	last := len(rows[0]) - 1
	table = aligned(columns(rows, 0, last), 0)
	if widest(table) > room && widest(aligned(columns(rows, 0, 1), 0)) > room/wideColumn {
		table = aligned(columns(rows, 1, last), 1)
		for i, row := range rows {
			table[i] = "  " + row[0] + "\n" + table[i]
		}
	}
	for i, row := range rows[1:] {
		if note := row[last]; note != "" {
			table[i+1] += Wrap("    "+note, 0, room, 4) + "\n"
		}
	}
	return strings.Join(table, "")
}

// wideColumn: a wide column fills more than this part of a line.
const wideColumn = 3

// columns returns some columns of rows.
func columns(rows [][]string, from, to int) (some [][]string) {
	for _, row := range rows {
		some = append(some, row[from:to])
	}
	return some
}

// aligned lays rows out as lines with aligned columns, indented by level.
func aligned(rows [][]string, level int) []string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.Repeat("  ", level+1)+strings.Join(row, "\t"))
	}
	_ = t.Flush() // writes to memory
	return slices.Collect(strings.Lines(b.String()))
}

// widest returns the width of the widest line, with an indentation of two.
func widest(lines []string) (most int) {
	for _, line := range lines {
		most = max(most, utf8.RuneCountInString(strings.TrimSpace(line))+2)
	}
	return most
}

// OrDash returns a text, or a dash for an empty text, so that the columns stay distinguishable.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
