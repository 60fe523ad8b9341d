package sql

import (
	"bytes"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// Functions of strings. Characters are Unicode code points, counted from 0, so positions do not depend on the
// encoding of a string. If a result may be longer than the arguments, frame.madeText makes the result, because
// madeText limits the length.

// ofText makes a function of a string.
func ofText(compute func(text []byte) []byte) *function {
	return &function{1, 1, false, func(f *frame, args []value) value {
		if args[0].kind != str {
			return value{}
		}
		return f.madeText(compute(args[0].bytes()))
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

// reverse reverses the characters, not the bytes.
func reverse(text []byte) []byte {
	runes := []rune(string(text))
	slices.Reverse(runes)
	return []byte(string(runes))
}

// trim makes a function that removes white space, or the characters of the second argument.
func trim(plain func([]byte) []byte, set func([]byte, string) []byte) *function {
	return &function{1, 2, false, func(f *frame, args []value) value {
		switch {
		case !areText(args...):
			return value{}
		case len(args) == 1:
			return f.madeText(plain(args[0].bytes()))
		}
		return f.madeText(set(args[0].bytes(), string(args[1].bytes())))
	}}
}

// concat is CONCAT(a, b, …).
func concat(f *frame, args []value) value {
	if !areText(args...) {
		return value{}
	}
	var b []byte
	for _, v := range args {
		b = append(b, v.bytes()...)
	}
	return f.madeText(b)
}

// slice returns count characters of text from start. Positions outside the text are moved to its ends.
func slice(text []byte, start, count int) []byte {
	runes := []rune(string(text))
	start = min(max(start, 0), len(runes))
	end := min(start+max(count, 0), len(runes))
	return []byte(string(runes[start:end]))
}

// substring is SUBSTRING(s, start, count). If start is before the first character, the result is the empty string.
func substring(f *frame, args []value) value {
	start, ok := args[1].length()
	count, ok2 := args[2].length()
	switch {
	case args[0].kind != str || !ok || !ok2:
		return value{}
	case start < 0:
		return textValue("")
	}
	return f.madeText(slice(args[0].bytes(), start, count))
}

// left, right and the others below are the functions of the same names.
func left(f *frame, args []value) value {
	n, ok := args[1].length()
	if args[0].kind != str || !ok {
		return value{}
	}
	return f.madeText(slice(args[0].bytes(), 0, n))
}

func right(f *frame, args []value) value {
	n, ok := args[1].length()
	if args[0].kind != str || !ok {
		return value{}
	}
	text := args[0].bytes()
	return f.madeText(slice(text, utf8.RuneCount(text)-max(n, 0), max(n, 0)))
}

// indexOf returns the position in characters, although the search is in bytes: in valid UTF-8, a match begins at a
// character.
func indexOf(_ *frame, args []value) value {
	if !areText(args[:2]...) {
		return value{}
	}
	text, from := args[0].bytes(), 0
	if len(args) > 2 {
		n, ok := args[2].length()
		if !ok {
			return value{}
		}
		from = min(max(n, 0), utf8.RuneCount(text))
	}
	rest := slice(text, from, len(text))
	i := bytes.Index(rest, args[1].bytes())
	if i < 0 {
		return numberValue(-1)
	}
	return numberValue(float64(from + utf8.RuneCount(rest[:i])))
}

// replace is REPLACE(text, old, by). The size is computed before the result is made.
func replace(f *frame, args []value) value {
	if !areText(args...) {
		return value{}
	}
	text, old, by := args[0].bytes(), args[1].bytes(), args[2].bytes()
	if len(old) == 0 {
		return args[0]
	}
	if bytes.Count(text, old)*len(by) > maxText {
		return value{}
	}
	return f.madeText(bytes.ReplaceAll(text, old, by))
}

// maxReplicate limits the result of REPLICATE, in bytes, as the service does.
const maxReplicate = 10_000

// replicate is REPLICATE(s, n). The size is computed before the result is made.
func replicate(f *frame, args []value) value {
	n, ok := args[1].length()
	if args[0].kind != str || !ok || n < 0 || n*len(args[0].bytes()) > maxReplicate {
		return value{}
	}
	return f.madeText(bytes.Repeat(args[0].bytes(), n))
}

// stringJoin is StringJoin(array, separator). The parts are copied only after a check of their total size.
func stringJoin(f *frame, args []value) value {
	if args[0].kind != array || args[1].kind != str {
		return value{}
	}
	var parts [][]byte
	size := 0
	for raw := range rawjson.Elements(args[0].raw) {
		v := rawValue(raw)
		if v.kind != str {
			return value{}
		}
		parts = append(parts, v.bytes())
		size += len(raw) + len(args[1].bytes())
	}
	if size > maxText {
		return value{}
	}
	return f.madeText(bytes.Join(parts, args[1].bytes()))
}

// stringSplit is StringSplit(s, separator). An empty separator splits the string into characters.
func stringSplit(f *frame, args []value) value {
	if !areText(args...) {
		return value{}
	}
	out := arrayWriter{f: f}
	for part := range bytes.SplitSeq(args[0].bytes(), args[1].bytes()) {
		if f.err != nil {
			break
		}
		out.add(textValue(part))
	}
	return out.value()
}

// Go's regular expressions take time linear in the text, so a client's pattern can be run safely. They lack
// look-around and back-references; a pattern with these is an error.
const (
	maxPattern  = 4 << 10 // bytes of a regular expression
	maxProgram  = 10_000  // steps of its program, including repetitions
	maxPatterns = 32      // number of compiled patterns that a run keeps
	compileWork = 500     // work to compile a step
)

// regexMatch is RegexMatch(s, pattern, modifiers). Expressions of Go have no modifier x, so
// the pattern is written without what x ignores.
func regexMatch(f *frame, args []value) value {
	if !areText(args...) {
		return value{}
	}
	pattern := string(args[1].bytes())
	if len(args) > 2 {
		flags := string(args[2].bytes())
		if strings.Trim(flags, "imsx") != "" {
			f.failWith(failf(-1, "RegexMatch does not support the modifiers %s: want i, m, s or x.", clip(flags)))
			return value{}
		}
		if own := strings.ReplaceAll(flags, "x", ""); own != flags {
			if flags = own; len(pattern) <= maxPattern { // a longer one is refused
				pattern = withoutSpace(pattern)
			}
		}
		if flags != "" {
			pattern = "(?" + flags + ")" + pattern
		}
	}
	expression := f.regexp(pattern)
	if expression == nil || !f.spendWork(slowWork*len(args[0].bytes())*expression.steps) {
		return value{}
	}
	return boolValue(expression.Match(args[0].bytes()))
}

// withoutSpace is a pattern without white space, and without comments from # to the end of
// the line. Both stay if they are escaped, quoted, or in a class of characters.
func withoutSpace(pattern string) string {
	var b strings.Builder
	for pattern != "" {
		n, ignored := 1, false
		switch {
		case pattern[0] == '#':
			n, ignored = lengthTo(pattern, "\n"), true
		case strings.IndexByte(" \t\n\v\f\r", pattern[0]) >= 0:
			ignored = true
		case strings.HasPrefix(pattern, `\Q`):
			n = lengthTo(pattern, `\E`)
		case pattern[0] == '\\':
			n = min(2, len(pattern))
		case pattern[0] == '[':
			n = classLength(pattern)
		}
		if !ignored {
			b.WriteString(pattern[:n])
		}
		pattern = pattern[n:]
	}
	return b.String()
}

// lengthTo is the length of a text up to an end and with it, or of all if there is no end.
func lengthTo(text, end string) int {
	before, _, _ := strings.Cut(text, end)
	return min(len(before)+len(end), len(text))
}

// classLength is the length of the class of characters that a pattern begins with. A ] at
// the beginning of a class is one of its characters.
func classLength(pattern string) int {
	n := len("[")
	if strings.HasPrefix(pattern[n:], "^") {
		n++
	}
	for first := n; n < len(pattern); {
		switch rest := pattern[n:]; {
		case rest[0] == ']' && n > first:
			return n + 1
		case rest[0] == '\\':
			n += 2
		case strings.HasPrefix(rest, "[:") && strings.Contains(rest, ":]"): // such as [:space:]
			n += lengthTo(rest, ":]")
		default:
			n++
		}
	}
	return len(pattern)
}

// expression is a compiled regular expression. A character of a text may cost as many steps
// as it has.
type expression struct {
	*regexp.Regexp
	steps int
}

// regexp compiles a pattern, or returns the pattern compiled before. When enough patterns are kept, all are dropped:
// a query with so many patterns computes them, and is unlikely to use a pattern again.
func (f *frame) regexp(pattern string) *expression {
	if expression := f.patterns[pattern]; expression != nil {
		return expression
	}
	if len(pattern) > maxPattern {
		f.failWith(failf(-1, "The regular expression is %d bytes long: want at most %d.", len(pattern), maxPattern))
		return nil
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	steps := 0
	if err == nil {
		steps = stepsOf(parsed)
	}
	if steps > maxProgram {
		f.failWith(failf(-1, "The regular expression %s has %d steps, with those that it repeats: want at most %d.",
			clip(pattern), steps, maxProgram))
	}
	// The work is spent in advance, because a compilation cannot be stopped.
	if !f.spendWork(compileWork * steps) {
		return nil
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		f.failWith(failf(-1, "RegexMatch does not support the regular expression %s: %v.", clip(pattern), err))
		return nil
	}
	if f.patterns == nil || len(f.patterns) >= maxPatterns {
		f.patterns = map[string]*expression{}
	}
	f.patterns[pattern] = &expression{re, steps}
	return f.patterns[pattern]
}

// stepsOf returns about the length of a regular expression's program. x{1000} is short to write but long to run, so
// repetitions are multiplied out before the pattern is compiled.
func stepsOf(expression *syntax.Regexp) int {
	n := 1
	if expression.Op == syntax.OpLiteral {
		n = len(expression.Rune)
	}
	for _, sub := range expression.Sub {
		n += stepsOf(sub)
	}
	if expression.Op == syntax.OpRepeat {
		n *= max(expression.Min+1, expression.Max)
	}
	return n
}
