package terminal

import (
	"slices"
	"strings"

	"github.com/millrace/changefeed/internal/sentence"
)

// maxLines is how many lines a row fills at most: in longer rows nobody finds a column.
const maxLines = 3

// Table lays rows out in aligned columns, in lines of at most room cells; 0 is no limit. The first row is the heading,
// and the last column is for notes. If a row does not fit, its note follows below the row. If the other columns do not
// fit either, they are divided among several lines. A row has maxLines lines at most: long notes end with an ellipsis,
// and whole columns are left out, those with the numbers in spare first, then from the right. The last line says what
// is left out. No other cell is cut, because people copy from tables. Cells control no terminal, whoever has written
// them.
func Table(rows [][]string, room int, spare ...int) string {
	rows = harmlessRows(rows)
	if Fits(rows, room) {
		widths := columnWidths(rows)
		return layOut(rows, widths, []int{len(widths)})
	}
	// Notes are sentences: at the end of a wide row a terminal would break them, and the columns, anywhere.
	last, lines := len(rows[0])-1, maxLines
	if slices.ContainsFunc(rows[1:], func(row []string) bool { return hasNote(row) }) {
		lines--
	}
	rows, left := leaveOut(rows, room, lines, spare)
	last -= len(left)
	widths := columnWidths(rows)
	ends := divide(widths[:last], room)
	isCut := false
	text := layOut(rows, widths, ends, func(row []string) string {
		if !hasNote(row) {
			return ""
		}
		note, cut := shortenLines(Wrap(strings.Repeat(" ", lineIndent)+row[last], 0, room, lineIndent), room,
			max(1, maxLines-len(ends)))
		isCut = isCut || cut
		return note + "\n"
	})
	if isCut {
		left = append(left, "ends of notes")
	}
	if len(left) > 0 {
		text += Wrap("no room for "+strings.Join(left, ", ")+": see -o json", 0, room, rowIndent) + "\n"
	}
	return text
}

// harmlessRows returns rows whose cells are on one line, without characters that control a terminal. A cell without
// such characters stays as it is, with all its blanks.
func harmlessRows(rows [][]string) [][]string {
	clean := make([][]string, len(rows))
	for i, row := range rows {
		clean[i] = slices.Clone(row)
		for j, cell := range row {
			if strings.ContainsFunc(cell, func(r rune) bool { return !sentence.IsShown(r) }) {
				clean[i][j] = OneLine(cell)
			}
		}
	}
	return clean
}

// hasNote reports whether a row has a note.
func hasNote(row []string) bool { note := row[len(row)-1]; return note != "" && note != noValue }

// leaveOut leaves columns out until a row has some lines at most, and returns their headings. The first column stays,
// which names the row.
func leaveOut(rows [][]string, room, lines int, spare []int) (kept [][]string, left []string) {
	shown := make([]int, len(rows[0])-1)
	for i := range shown {
		shown[i] = i
	}
	kept = rows
	for len(shown) > 1 && len(divide(columnWidths(kept)[:len(shown)], room)) > lines {
		drop := shown[len(shown)-1]
		if len(spare) > 0 {
			drop, spare = spare[0], spare[1:]
		}
		shown = slices.DeleteFunc(shown, func(i int) bool { return i == drop })
		left = append(left, rows[0][drop])
		kept = nil
		for _, row := range rows {
			var cells []string
			for _, i := range shown {
				cells = append(cells, row[i])
			}
			kept = append(kept, append(cells, row[len(row)-1]))
		}
	}
	return kept, left
}

// shortenLines returns at most n lines of a text, with an ellipsis if there are more.
func shortenLines(text string, room, n int) (short string, cut bool) {
	lines := strings.Split(text, "\n")
	if len(lines) <= n {
		return text, false
	}
	rest := lines[n-1] + " " + strings.TrimSpace(lines[n])
	return strings.Join(append(lines[:n-1:n-1], Shorten(rest, room)), "\n"), true
}

// Columns lays rows out as [Table] does, for rows without notes: the last column is like the others. A cell may be a
// part of a document here: one that would fill more than two lines ends with an ellipsis.
func Columns(rows [][]string, room int) string {
	rows = harmlessRows(rows)
	widths := columnWidths(rows)
	if Fits(rows, room) {
		return layOut(rows, widths, []int{len(widths)})
	}
	isCut, longest := false, (maxLines-1)*room-lineIndent
	for i, row := range rows {
		for j, cell := range row {
			if Width(cell) > longest {
				rows[i][j], isCut = Shorten(cell, longest), true
			}
		}
		rows[i] = append(row, "") // without a note
	}
	text := Table(rows, room)
	if isCut {
		text += Wrap("no room for ends of values: see -o json", 0, room, rowIndent) + "\n"
	}
	return text
}

// Fits reports whether each row fits in a line of at most room cells; 0 is no limit.
func Fits(rows [][]string, room int) bool {
	return room == 0 || lineWidth(columnWidths(rows), 0) <= room
}

// LongestCell returns the width of the widest cell that fits in a line of at most room cells.
func LongestCell(room int) int { return max(1, room-lineIndent) }

const (
	columnGap  = 2
	rowIndent  = 2
	lineIndent = 4 // of the other lines of a row
)

// columnWidths returns the width of the widest cell of each column.
func columnWidths(rows [][]string) []int {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], Width(cell))
		}
	}
	return widths
}

// lineWidth returns the width of a line of columns: the first line of a row, or another.
func lineWidth(widths []int, line int) int {
	width := rowIndent - columnGap
	if line > 0 {
		width = lineIndent - columnGap
	}
	for _, w := range widths {
		width += columnGap + w
	}
	return width
}

// divide divides columns among lines, and returns the end of each line. A cell that fits in no line stays in the line
// of the cells before, because a terminal breaks the cell anyway.
func divide(widths []int, room int) (ends []int) {
	from := 0
	for i := range widths {
		if i > from && lineWidth(widths[from:i+1], len(ends)) > room && lineWidth(widths[i:i+1], len(ends)+1) <= room {
			ends = append(ends, i)
			from = i
		}
	}
	return append(ends, len(widths))
}

// layOut writes rows whose lines end after some columns. The notes follow the rows, except for the heading.
func layOut(rows [][]string, widths, ends []int, notes ...func(row []string) string) string {
	var b strings.Builder
	for n, row := range rows {
		from := 0
		for line, end := range ends {
			indent := rowIndent
			if line > 0 {
				indent = lineIndent
			}
			var text strings.Builder
			text.WriteString(strings.Repeat(" ", indent))
			for i := from; i < end; i++ {
				text.WriteString(row[i] + strings.Repeat(" ", widths[i]-Width(row[i])+columnGap))
			}
			b.WriteString(strings.TrimRight(text.String(), " ") + "\n")
			from = end
		}
		for _, note := range notes {
			if n > 0 {
				b.WriteString(note(row))
			}
		}
	}
	return b.String()
}

// noValue stands in a cell without a text.
const noValue = "-"

// OrDash returns a text, or a dash for an empty text, so that the columns stay distinguishable.
func OrDash(text string) string {
	if text == "" {
		return noValue
	}
	return text
}
