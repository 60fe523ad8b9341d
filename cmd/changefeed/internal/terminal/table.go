package terminal

import "strings"

// Table lays rows out in aligned columns, in lines of at most room cells; 0 is no limit. The first row is the heading,
// and the last column is for notes. If a row does not fit, its note is wrapped below the row. If the other columns do
// not fit either, they are divided among several lines. No cell is cut, because people copy from tables.
func Table(rows [][]string, room int) string {
	widths := columnWidths(rows)
	if Fits(rows, room) {
		return layOut(rows, widths, []int{len(widths)})
	}
	// Notes are sentences: at the end of a wide row a terminal would break them, and the columns, anywhere.
	last := len(widths) - 1
	return layOut(rows, widths, divide(widths[:last], room), func(row []string) string {
		if row[last] == "" || row[last] == noValue {
			return ""
		}
		return Wrap(strings.Repeat(" ", lineIndent)+row[last], 0, room, lineIndent) + "\n"
	})
}

// Columns lays rows out as [Table] does, for rows without notes: the last column is like the others.
func Columns(rows [][]string, room int) string {
	widths := columnWidths(rows)
	if Fits(rows, room) {
		return layOut(rows, widths, []int{len(widths)})
	}
	return layOut(rows, widths, divide(widths, room))
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
