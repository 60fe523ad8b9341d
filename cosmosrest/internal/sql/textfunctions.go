package sql

import (
	"bytes"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/millrace/changefeed/internal/rawjson"
)

// Functions of strings. Characters are Unicode code points, counted from 0, so positions do
// not depend on how a string is encoded. A result that may be longer than the arguments is
// made by frame.text, which bounds it.

// ofText makes a function of one string.
func ofText(do func(s []byte) []byte) *function {
	return &function{1, 1, false, func(f *frame, a []value) value {
		if a[0].kind != str {
			return value{}
		}
		return f.text(do(a[0].bytes()))
	}}
}

// textFunctions are the functions by name.
var textFunctions = map[string]*function{
	"LOWER":   ofText(bytes.ToLower),
	"UPPER":   ofText(bytes.ToUpper),
	"REVERSE": ofText(reverse),
	"TRIM":    trim(bytes.TrimSpace, bytes.Trim),
	"LTRIM":   trim(func(s []byte) []byte { return bytes.TrimLeftFunc(s, unicode.IsSpace) }, bytes.TrimLeft),
	"RTRIM":   trim(func(s []byte) []byte { return bytes.TrimRightFunc(s, unicode.IsSpace) }, bytes.TrimRight),
	"LENGTH": {1, 1, false, func(_ *frame, a []value) value {
		if a[0].kind != str {
			return value{}
		}
		return numberValue(float64(utf8.RuneCount(a[0].bytes())))
	}},
	"CONCAT":      {2, -1, false, concat},
	"SUBSTRING":   {3, 3, false, substring},
	"LEFT":        {2, 2, false, left},
	"RIGHT":       {2, 2, false, right},
	"INDEX_OF":    {2, 3, false, indexOf},
	"REPLACE":     {3, 3, false, replace},
	"REPLICATE":   {2, 2, false, replicate},
	"REGEXMATCH":  {2, 3, false, regexMatch},
	"STRINGJOIN":  {2, 2, false, stringJoin},
	"STRINGSPLIT": {2, 2, false, stringSplit},
}

// areText reports whether all values are strings.
func areText(values ...value) bool {
	return !slices.ContainsFunc(values, func(v value) bool { return v.kind != str })
}

// reverse turns the characters around, and not the bytes.
func reverse(s []byte) []byte {
	runes := []rune(string(s))
	slices.Reverse(runes)
	return []byte(string(runes))
}

// trim makes a function that removes white space, or the characters of the second argument.
func trim(plain func([]byte) []byte, set func([]byte, string) []byte) *function {
	return &function{1, 2, false, func(f *frame, a []value) value {
		switch {
		case !areText(a...):
			return value{}
		case len(a) == 1:
			return f.text(plain(a[0].bytes()))
		}
		return f.text(set(a[0].bytes(), string(a[1].bytes())))
	}}
}

// concat is CONCAT(a, b, …).
func concat(f *frame, a []value) value {
	if !areText(a...) {
		return value{}
	}
	var b []byte
	for _, v := range a {
		b = append(b, v.bytes()...)
	}
	return f.text(b)
}

// slice is count characters of s from start on; places outside of s are clamped.
func slice(s []byte, start, count int) []byte {
	runes := []rune(string(s))
	start = min(max(start, 0), len(runes))
	end := min(start+max(count, 0), len(runes))
	return []byte(string(runes[start:end]))
}

// substring is SUBSTRING(s, start, count). A start before the first character gives the
// empty string.
func substring(f *frame, a []value) value {
	start, ok := a[1].length()
	count, ok2 := a[2].length()
	switch {
	case a[0].kind != str || !ok || !ok2:
		return value{}
	case start < 0:
		return textValue("")
	}
	return f.text(slice(a[0].bytes(), start, count))
}

// left, right and the others below are the functions of their names.
func left(f *frame, a []value) value {
	n, ok := a[1].length()
	if a[0].kind != str || !ok {
		return value{}
	}
	return f.text(slice(a[0].bytes(), 0, n))
}

func right(f *frame, a []value) value {
	n, ok := a[1].length()
	if a[0].kind != str || !ok {
		return value{}
	}
	s := a[0].bytes()
	return f.text(slice(s, utf8.RuneCount(s)-max(n, 0), max(n, 0)))
}

// indexOf counts in characters, though it searches bytes: in valid UTF-8 a match begins at
// a character.
func indexOf(_ *frame, a []value) value {
	if !areText(a[:2]...) {
		return value{}
	}
	s, from := a[0].bytes(), 0
	if len(a) > 2 {
		n, ok := a[2].length()
		if !ok {
			return value{}
		}
		from = min(max(n, 0), utf8.RuneCount(s))
	}
	rest := slice(s, from, len(s))
	i := bytes.Index(rest, a[1].bytes())
	if i < 0 {
		return numberValue(-1)
	}
	return numberValue(float64(from + utf8.RuneCount(rest[:i])))
}

// replace is REPLACE(s, old, by). The size of the result is known before it is made.
func replace(f *frame, a []value) value {
	if !areText(a...) {
		return value{}
	}
	s, old, by := a[0].bytes(), a[1].bytes(), a[2].bytes()
	if len(old) == 0 {
		return a[0]
	}
	if bytes.Count(s, old)*len(by) > maxText {
		return value{}
	}
	return f.text(bytes.ReplaceAll(s, old, by))
}

// maxReplicate bounds the result of REPLICATE, in bytes, as the service does.
const maxReplicate = 10_000

func replicate(f *frame, a []value) value {
	n, ok := a[1].length()
	if a[0].kind != str || !ok || n < 0 || n*len(a[0].bytes()) > maxReplicate {
		return value{}
	}
	return f.text(bytes.Repeat(a[0].bytes(), n))
}

// stringJoin is StringJoin(array, separator). Its parts stay in place until their sum is
// known to fit.
func stringJoin(f *frame, a []value) value {
	if a[0].kind != array || a[1].kind != str {
		return value{}
	}
	var parts [][]byte
	size := 0
	for raw := range rawjson.Elements(a[0].raw) {
		v := rawValue(raw)
		if v.kind != str {
			return value{}
		}
		parts = append(parts, v.bytes())
		size += len(raw) + len(a[1].bytes())
	}
	if size > maxText {
		return value{}
	}
	return f.text(bytes.Join(parts, a[1].bytes()))
}

// stringSplit is StringSplit(s, separator). An empty separator splits into characters.
func stringSplit(f *frame, a []value) value {
	if !areText(a...) {
		return value{}
	}
	w := arrayWriter{f: f}
	for part := range bytes.SplitSeq(a[0].bytes(), a[1].bytes()) {
		if f.err != nil {
			break
		}
		w.add(textValue(part))
	}
	return w.value()
}

// Go's regular expressions take time linear in the text, which is why a pattern of a
// stranger may be run at all. They lack look-around and back-references, so a pattern with
// those is an error.
const (
	maxPattern  = 4 << 10 // bytes of a regular expression
	maxProgram  = 10_000  // its steps, with those that it repeats
	maxPatterns = 32      // that a run keeps compiled
	compileWork = 500     // to compile a step
)

// regexMatch is RegexMatch(s, pattern, modifiers). The modifier x of the service has no
// counterpart.
func regexMatch(f *frame, a []value) value {
	if !areText(a...) {
		return value{}
	}
	pattern := string(a[1].bytes())
	if len(a) > 2 {
		flags := string(a[2].bytes())
		if strings.Trim(flags, "ims") != "" {
			f.fail(failf(-1, "RegexMatch does not support the modifiers %s: want i, m or s.", clip(flags)))
			return value{}
		}
		if flags != "" {
			pattern = "(?" + flags + ")" + pattern
		}
	}
	re := f.regexp(pattern)
	if re == nil || !f.spend(slowWork*len(a[0].bytes())*re.steps) {
		return value{}
	}
	return boolValue(re.Match(a[0].bytes()))
}

// expression is a compiled regular expression. A character of a text may cost as many steps
// as it has.
type expression struct {
	*regexp.Regexp
	steps int
}

// regexp compiles a pattern, or returns the one compiled before. When enough are held, all
// are dropped: a query with so many patterns computes them, and will hardly come back to
// any.
func (f *frame) regexp(pattern string) *expression {
	if re := f.patterns[pattern]; re != nil {
		return re
	}
	if len(pattern) > maxPattern {
		f.fail(failf(-1, "The regular expression is %d bytes long: want at most %d.", len(pattern), maxPattern))
		return nil
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	steps := 0
	if err == nil {
		steps = stepsOf(parsed)
	}
	if steps > maxProgram {
		f.fail(failf(-1, "The regular expression %s has %d steps, with those that it repeats: want at most %d.", clip(pattern), steps, maxProgram))
	}
	if !f.spend(compileWork * steps) {
		return nil
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		f.fail(failf(-1, "RegexMatch does not support the regular expression %s: %v.", clip(pattern), err))
		return nil
	}
	if f.patterns == nil || len(f.patterns) >= maxPatterns {
		f.patterns = map[string]*expression{}
	}
	f.patterns[pattern] = &expression{re, steps}
	return f.patterns[pattern]
}

// stepsOf is about the length of the program of a regular expression. x{1000} is short to
// write and long to run, so repetitions are multiplied out before the pattern is compiled.
func stepsOf(re *syntax.Regexp) int {
	n := 1
	if re.Op == syntax.OpLiteral {
		n = len(re.Rune)
	}
	for _, sub := range re.Sub {
		n += stepsOf(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min+1, re.Max)
	}
	return n
}
