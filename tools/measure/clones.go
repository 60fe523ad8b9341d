package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"slices"
	"strings"
)

// Clones are found by their tokens, including names and literals. Two functions that do the same with other names are
// not found, because only a person can judge whether they are the same, and most entries of the list would be wrong.
// Sixty tokens are about seven lines; a copy of this length is worth a function.

// cloneTokens is the shortest length of a clone.
const cloneTokens = 60

// lexeme is a token with its place.
type lexeme struct {
	text string
	file *file
	line int
}

// clones returns the groups of places that share 60 tokens or more, including names and literals. A place is in only
// a single group.
func clones(code []*file) (groups [][]string) {
	var all []lexeme
	for _, f := range code {
		all = append(all, lexemes(f)...)
	}
	// Every window of 60 tokens is a key, so the memory is 60 times the source. Here this is some hundred megabytes
	// for a second, and simpler than a rolling hash.
	seen := map[string][]int{}
	for i := 0; i+cloneTokens <= len(all); i++ {
		if all[i].file == all[i+cloneTokens-1].file {
			w := window(all[i:])
			seen[w] = append(seen[w], i)
		}
	}
	covered := make([]bool, len(all))
	for i := 0; i+cloneTokens <= len(all); i++ {
		if covered[i] || all[i].file != all[i+cloneTokens-1].file {
			continue
		}
		at := apart(seen[window(all[i:])])
		if len(at) < 2 || at[0] != i {
			continue
		}
		groups = append(groups, extend(all, covered, at))
	}
	return groups
}

// lexemes reads a file as the compiler does, without comments: a copy with other comments is still a copy.
func lexemes(f *file) (all []lexeme) {
	var s scanner.Scanner
	set := token.NewFileSet()
	at := set.AddFile(f.path, -1, len(f.src))
	s.Init(at, []byte(f.src), nil, 0)
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return all
		}
		// The scanner returns a semicolon at the end of a line as a line break. Both mean the same to a reader, so
		// they are made equal.
		if text == "" || tok == token.SEMICOLON {
			text = tok.String()
		}
		all = append(all, lexeme{text, f, at.Line(pos)})
	}
}

// window returns the text of the first 60 tokens. They are separated by a byte that no token contains, because "ab c"
// must differ from "a bc".
func window(all []lexeme) string {
	var b strings.Builder
	for _, l := range all[:cloneTokens] {
		b.WriteString(l.text)
		b.WriteByte(0)
	}
	return b.String()
}

// apart leaves out places that overlap the previous place.
func apart(at []int) (kept []int) {
	for _, i := range at {
		if len(kept) == 0 || i-kept[len(kept)-1] >= cloneTokens {
			kept = append(kept, i)
		}
	}
	return kept
}

// extend finds how far the places of a group agree, marks them as covered, and returns their names.
func extend(all []lexeme, covered []bool, at []int) (names []string) {
	// All places grow together as long as every place agrees with the first. So the group is as long as its least
	// similar members agree.
	n := cloneTokens
	for at[len(at)-1]+n < len(all) && !slices.ContainsFunc(at, func(i int) bool {
		return all[i+n].text != all[at[0]+n].text || all[i+n].file != all[i].file
	}) {
		n++
	}
	for _, i := range at {
		for k := i; k < i+n; k++ {
			covered[k] = true
		}
		names = append(names, fmt.Sprintf("%s:%d-%d", all[i].file.path, all[i].line, all[i+n-1].line))
	}
	return names
}
