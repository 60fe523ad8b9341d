package child

import "bytes"

// A LineLog logs the output of a program, line by line. Only one goroutine uses a LineLog.
type LineLog struct {
	// Say logs a line, as the methods of a logger do.
	Say func(line string, args ...any)

	part []byte // of a line without an end
}

// maxLine is the largest number of bytes in a logged line; longer lines are cut.
const maxLine = 16 << 10

// Write implements [io.Writer].
func (l *LineLog) Write(p []byte) (int, error) {
	l.part = append(l.part, p...)
	for {
		line, rest, isWhole := bytes.Cut(l.part, []byte("\n"))
		if !isWhole && len(line) <= maxLine {
			return len(p), nil
		}
		if len(line) > maxLine {
			line, rest = l.part[:maxLine], l.part[maxLine:]
		}
		l.writeLine(line)
		l.part = append(l.part[:0], rest...)
	}
}

// endLine logs a line without an end.
func (l *LineLog) endLine() {
	l.writeLine(l.part)
	l.part = nil
}

// writeLine logs a line, unless it is blank.
func (l *LineLog) writeLine(line []byte) {
	if line = bytes.TrimRight(line, " \r\t"); len(line) > 0 {
		l.Say(string(bytes.ToValidUTF8(line, []byte("�"))), "origin", "program")
	}
}
