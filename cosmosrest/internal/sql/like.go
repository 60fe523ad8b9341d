package sql

import (
	"slices"
	"unicode/utf8"
)

// LIKE has its own matcher. A translation to a regular expression would have to escape, compile and cache the
// pattern, and each document may contain another pattern.

// like is x LIKE pattern. In the pattern, % is any text, _ is any character, [a-f] and [^a-f] are a character in or
// not in a set, and the character after escape is literal.
type like struct{ x, pattern, escape node }

func (n like) eval(f *frame) value {
	x, pattern := n.x.eval(f), n.pattern.eval(f)
	if x.kind != str || pattern.kind != str {
		return value{}
	}
	escape := utf8.RuneError
	if n.escape != nil {
		e := n.escape.eval(f)
		if e.kind != str || utf8.RuneCount(e.bytes()) != 1 {
			return value{}
		}
		escape, _ = utf8.DecodeRune(e.bytes())
	}
	// The largest possible work of the match is spent in advance, although most matches take less, because the
	// matcher cannot stop in between.
	if !f.spendWork(writeWork*len(pattern.bytes()) + len(x.bytes())*(1+len(pattern.bytes()))) {
		return value{}
	}
	return boolValue(matchWildcards([]rune(string(x.bytes())), wildcards([]rune(string(pattern.bytes())), escape)))
}

// wildcard is a character of a pattern, or %.
type wildcard struct {
	any  bool
	set  func(rune) bool // nil: exactly char
	char rune
}

// wildcards splits a pattern. A bracket without a closing bracket is literal, so the place of the last closing
// bracket is found first.
func wildcards(pattern []rune, escape rune) []wildcard {
	var out []wildcard
	closing := len(pattern) - 1 // of the last set
	for closing >= 0 && pattern[closing] != ']' {
		closing--
	}
	for rest := pattern; len(rest) > 0; {
		c := rest[0]
		rest = rest[1:]
		switch {
		case c == escape && escape != utf8.RuneError && len(rest) > 0:
			out = append(out, wildcard{char: rest[0]})
			rest = rest[1:]
		case c == '%':
			out = append(out, wildcard{any: true})
		case c == '_':
			out = append(out, wildcard{set: func(rune) bool { return true }})
		case c == '[' && len(pattern)-len(rest) <= closing:
			end := slices.Index(rest, ']')
			out = append(out, wildcard{set: inSet(rest[:end])})
			rest = rest[end+1:]
		default:
			out = append(out, wildcard{char: c})
		}
	}
	return out
}

// inSet makes the test for a set such as a-fxyz or ^0-9.
func inSet(set []rune) func(rune) bool {
	outside := len(set) > 0 && set[0] == '^'
	if outside {
		set = set[1:]
	}
	return func(r rune) bool {
		for i := 0; i < len(set); i++ {
			// A dash at the end of a set is literal.
			if i+2 < len(set) && set[i+1] == '-' {
				if set[i] <= r && r <= set[i+2] {
					return !outside
				}
				i += 2
			} else if set[i] == r {
				return !outside
			}
		}
		return outside
	}
}

// matchWildcards goes back only to the last %, so the match takes at most len(text) times len(pattern) steps.
// Backtracking to every % would take exponentially many steps.
func matchWildcards(text []rune, pattern []wildcard) bool {
	i, j, star, from := 0, 0, -1, 0
	for i < len(text) {
		switch {
		case j < len(pattern) && pattern[j].any:
			star, from = j, i
			j++
		case j < len(pattern) && pattern[j].takes(text[i]):
			i++
			j++
		case star >= 0:
			from++
			i, j = from, star+1
		default:
			return false
		}
	}
	for j < len(pattern) && pattern[j].any {
		j++
	}
	return j == len(pattern)
}

// takes reports whether the wildcard matches a character.
func (w wildcard) takes(r rune) bool {
	if w.set != nil {
		return w.set(r)
	}
	return w.char == r
}
