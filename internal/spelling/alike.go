package spelling

import (
	"strings"
	"unicode"
)

// IsAlike reports whether one of two different names may be the other, mistyped. Names that differ in their digits
// alone, such as mailer and mailer2, are intended, and so is a name that goes on after a separator, such as
// mailer-audit. Names of one or two letters are all near each other, so they say nothing.
func IsAlike(a, b string) bool {
	if min(len(a), len(b)) <= 2 {
		return false
	}
	return a != b && withoutDigits(a) != withoutDigits(b) && !goesOn(a, b) && !goesOn(b, a) &&
		len(Nearest(a, []string{b}))+len(Nearest(b, []string{a})) > 0
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
