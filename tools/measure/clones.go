package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"slices"
	"strings"
)

// Clones are found by their tokens, with names and literals as they are. Two functions
// that do the same under other names are not found: whether those are the same is a
// judgement, and the list would be mostly false. Sixty tokens are about seven lines,
// which is where a copy starts to be worth a function.

// cloneTokens is the least length of a clone.
const cloneTokens = 60

// lexeme is a token and where it stands.
type lexeme struct {
	text string
	file *file
	line int
}

// clones are the groups of places that share 60 tokens or more, names and literals included. A place is in one group.
func clones(code []*file) (groups [][]string) {
	var all []lexeme
	for _, f := range code {
		all = append(all, lexemes(f)...)
	}
	// Every window of 60 tokens is a key, so the memory is 60 times the source. That is
	// some hundred megabytes here, for a second, and simpler than a hash that rolls.
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

// lexemes reads a file as the compiler does, without comments: a copy with other
// comments is a copy.
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
		// The scanner gives a semicolon that ends a line as a line break. Both are the
		// same to a reader, so they are made the same.
		if text == "" || tok == token.SEMICOLON {
			text = tok.String()
		}
		all = append(all, lexeme{text, f, at.Line(pos)})
	}
}

// window is the text of the first 60 tokens, parted by a byte that no token has: "ab c"
// must differ from "a bc".
func window(all []lexeme) string {
	var b strings.Builder
	for _, l := range all[:cloneTokens] {
		b.WriteString(l.text)
		b.WriteByte(0)
	}
	return b.String()
}

// apart leaves out places that overlap the one before.
func apart(at []int) (kept []int) {
	for _, i := range at {
		if len(kept) == 0 || i-kept[len(kept)-1] >= cloneTokens {
			kept = append(kept, i)
		}
	}
	return kept
}

// extend finds how far the places of a group agree, marks them as covered, and names them.
func extend(all []lexeme, covered []bool, at []int) (names []string) {
	// All places grow together, for as long as every one agrees with the first: the
	// group is as long as its least alike members are.
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
