package program

import (
	"bytes"
	"log/slog"
)

// lineLog logs the output of a program, line by line. Only one goroutine uses a lineLog.
type lineLog struct {
	log  *slog.Logger
	part []byte // of a line without an end
}

// maxLine is the largest number of bytes in a logged line; longer lines are cut.
const maxLine = 16 << 10

// Write implements [io.Writer].
func (l *lineLog) Write(p []byte) (int, error) {
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
func (l *lineLog) endLine() {
	l.writeLine(l.part)
	l.part = nil
}

// writeLine logs a line, unless it is blank.
func (l *lineLog) writeLine(line []byte) {
	if line = bytes.TrimRight(line, " \r\t"); len(line) > 0 {
		l.log.Warn(string(bytes.ToValidUTF8(line, []byte("�"))), "origin", "program")
	}
}
