package sql

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Dates as texts: DATETIMEFORMAT and IS_DATETIME.
//
// The service's documentation gives examples of formats, but no list of specifiers. The specifiers here are the
// numeric ones of .NET. All other letters stand for themselves, as in the examples, except those that .NET gives a
// meaning which is not known of the service: with these the result is undefined.

// dateFunctions are the functions by name.
var dateFunctions = map[string]*function{
	"DATETIMEFORMAT": {2, 2, false, dateTimeFormat},
	"IS_DATETIME":    typeTest(isDateTime),
}

// datePattern is the form of a date, by the service's documentation.
var datePattern = regexp.MustCompile(
	`^\d{4}-\d{2}-\d{2}(Z|[ T]\d{2}:\d{2}:\d{2}(\.\d{1,7})?Z?)?$`)

// isDateTime reports whether a value is a date in this form, and on the calendar.
func isDateTime(v value) bool {
	_, ok := v.time()
	return ok && datePattern.Match(v.bytes())
}

// Specifiers that stand for names, zones and quotes in .NET.
const unknownSpecifiers = `tKzg%'"`

// dateTimeFormat is DateTimeFormat(date, format).
func dateTimeFormat(f *frame, args []value) value {
	t, ok := args[0].time()
	if !ok || args[1].kind != str {
		return value{}
	}
	format := string(args[1].bytes())
	var out strings.Builder
	for format != "" {
		if format[0] == '\\' && len(format) > 1 {
			// The first byte of a longer character stands for itself too, so all of its bytes do.
			out.WriteByte(format[1])
			format = format[2:]
			continue
		}
		n := span(format, func(c byte) bool { return c == format[0] })
		if strings.IndexByte(unknownSpecifiers, format[0]) >= 0 {
			return value{}
		}
		text, ok := datePart(t, format[0], n)
		if !ok {
			return value{}
		}
		out.WriteString(text)
		format = format[n:]
	}
	return f.madeText([]byte(out.String()))
}

// datePart returns the part of a date for a letter that is repeated n times. Letters that are no specifiers, and all
// other bytes, are returned as they are. ok is false for names of days and months.
func datePart(t time.Time, letter byte, n int) (text string, ok bool) {
	const halfDay = 12
	part := map[byte]int{
		'y': t.Year(), 'M': int(t.Month()), 'd': t.Day(), 'H': t.Hour(), 'h': (t.Hour()+halfDay-1)%halfDay + 1,
		'm': t.Minute(), 's': t.Second(),
	}
	switch number, known := part[letter]; {
	case letter == 'f' || letter == 'F':
		return secondFraction(t, letter, n)
	case !known:
		return strings.Repeat(string([]byte{letter}), n), true
	case letter == 'y' && n <= 2:
		return padded(number%100, n), true
	case letter != 'y' && n > 2 && (letter == 'M' || letter == 'd'):
		return "", false
	case letter != 'y':
		return padded(number, min(n, 2)), true
	default:
		return padded(number, n), true
	}
}

// secondFraction returns the first digits of the fraction of a second, at most seven; F leaves out zeros at the end.
func secondFraction(t time.Time, letter byte, n int) (text string, ok bool) {
	const digits = 7
	if n > digits {
		return "", false
	}
	text = padded(t.Nanosecond()/int(tick), digits)[:n]
	if letter == 'F' {
		text = strings.TrimRight(text, "0")
	}
	return text, true
}

// padded writes a number with at least some digits.
func padded(number, digits int) string {
	text := strconv.Itoa(number)
	return strings.Repeat("0", max(0, digits-len(text))) + text
}
