package unit

import (
	"slices"
	"strings"
	"unicode"

	"github.com/millrace/changefeed/internal/spelling"
)

// A mistyped name makes a unit that handles everything a second time, and nothing fails. So units on one container with
// similar names are told of, unless the names look intended, or the user says that they are.

// findAlike finds the units with similar names; all are the units of the lease container.
func (u *Unit) findAlike(all []*Unit) {
	for _, other := range all {
		if u.IsAlike(other) {
			u.Alike = append(u.Alike, other.Processor)
		}
	}
}

// IsAlike reports whether another unit on the same container has a name that may be meant for this one.
func (u *Unit) IsAlike(other *Unit) bool {
	return u.Processor != "" && u.Processor != other.Processor && u.Container == other.Container &&
		IsAlike(u.Processor, other.Processor) && !u.areIntended(other.Processor)
}

// areIntended reports whether the user has named this unit and another one as intended. One name is not enough: it may
// be the other that is mistyped.
func (u *Unit) areIntended(other string) bool {
	return slices.Contains(u.intended, u.Processor) && slices.Contains(u.intended, other)
}

// IsAlike reports whether one of two different names may be the other, mistyped. Names that differ in their digits
// alone, such as mailer and mailer2, are intended, and so is a name that goes on after a separator, such as
// mailer-audit. Names of one or two letters are all near each other, so they say nothing.
func IsAlike(a, b string) bool {
	if min(len(a), len(b)) <= 2 {
		return false
	}
	return a != b && withoutDigits(a) != withoutDigits(b) && !goesOn(a, b) && !goesOn(b, a) &&
		len(spelling.Nearest(a, []string{b}))+len(spelling.Nearest(b, []string{a})) > 0
}

func withoutDigits(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, name)
}

// goesOn reports whether a name is another one with more words.
func goesOn(long, short string) bool {
	rest, is := strings.CutPrefix(long, short)
	return is && len(rest) > 1 && strings.ContainsAny(rest[:1], "-_.:/ ")
}
