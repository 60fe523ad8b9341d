package main

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// A mutant names a declaration and quotes the lines that it changes. Line numbers are not used, because any edit
// above would shift them. After a refactoring an entry either still fits or is not found; an entry never plants
// another defect.

// place is a declaration in a file, as a range of lines: from from, up to but not including upto. Edits change lines
// and not the syntax tree, so a table shows a defect in the form in which an engineer would write the defect.
type place struct {
	file, pkg  string
	lines      []string
	from, upto int
	fn         *ast.FuncDecl // original, without edits; nil for a const, var or type
}

// plantDefect finds the place of a mutant and applies its edits.
func (m mutant) plantDefect(root string) (*place, error) {
	p, err := find(filepath.Join(root, m.pkg), m.decl)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m, err)
	}
	for _, e := range m.edits {
		if err := p.applyEdit(e); err != nil {
			return nil, fmt.Errorf("%s: in %s of %s: %w", m, m.decl, p.file, err)
		}
	}
	return p, nil
}

// fileText returns the whole file.
func (p *place) fileText() string { return strings.Join(p.lines, "\n") }

// applyEdit applies an edit. It compares tokens and not lines, so an entry still fits when a long line is broken.
// It refuses code that occurs twice, because the tried defect would be unclear.
func (p *place) applyEdit(e edit) error {
	want := withoutLastCommas(tokens(strings.Join(e.old, "\n")))
	at, end := -1, -1
	for i := p.from; i < p.upto; i++ {
		if indentOf(p.lines[i]) != indentOf(e.old[0]) {
			continue
		}
		to, fits := p.matchLines(i, want)
		if !fits {
			continue
		}
		if at >= 0 {
			return fmt.Errorf("twice, on lines %d and %d: %s", at+1, i+1, strings.TrimSpace(e.old[0]))
		}
		at, end = i, to
	}
	if at < 0 {
		return fmt.Errorf("not found: %s", strings.Join(e.old, "\n"))
	}
	p.lines = slices.Replace(p.lines, at, end, e.new...)
	p.upto += len(e.new) - (end - at)
	return nil
}

// matchLines reports whether whole lines of the declaration, from one on, have these tokens and no others, and returns
// the line after them.
func (p *place) matchLines(from int, want []string) (end int, fits bool) {
	var got []string
	for end = from; end < p.upto; {
		line := tokens(p.lines[end])
		if len(line) == 0 && end == from {
			return 0, false
		}
		got = append(got, line...)
		end++
		switch have := withoutLastCommas(got); {
		case slices.Equal(have, want):
			return end, true
		case !isBeginningOf(want, have) && !(have[len(have)-1] == "," && isBeginningOf(want, have[:len(have)-1])):
			return 0, false
		}
	}
	return 0, false
}

func isBeginningOf(all, some []string) bool {
	return len(some) < len(all) && slices.Equal(all[:len(some)], some)
}

// tokens returns the tokens of some code, comments included, without the semicolons that ends of lines stand for.
func tokens(code string) (all []string) {
	fset := token.NewFileSet()
	var s scanner.Scanner
	s.Init(fset.AddFile("", -1, len(code)), []byte(code), func(token.Position, string) {}, scanner.ScanComments)
	for {
		switch _, tok, text := s.Scan(); {
		case tok == token.EOF:
			return all
		case tok == token.SEMICOLON && text == "\n":
		case text == "":
			all = append(all, tok.String())
		default:
			all = append(all, text)
		}
	}
}

// withoutLastCommas removes the commas that gofmt wants before a closing bracket on its own line.
func withoutLastCommas(all []string) (kept []string) {
	for i, text := range all {
		if text == "," && i+1 < len(all) && strings.Contains(")}]", all[i+1]) {
			continue
		}
		kept = append(kept, text)
	}
	return kept
}

func indentOf(line string) int { return len(line) - len(strings.TrimLeft(line, "\t")) }

// find looks for a declaration in the files of a directory. find ignores tests, and files that are not built on this
// system.
func find(dir, decl string) (found *place, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		if built, err := build.Default.MatchFile(dir, name); err != nil || !built {
			continue
		}
		p, err := findIn(filepath.Join(dir, name), decl)
		switch {
		case err != nil:
			return nil, err
		// A name may be declared once for each system. Files that are not built here are ignored above, so two
		// remaining declarations are a fault.
		case p != nil && found != nil:
			return nil, fmt.Errorf("%s is declared in %s and in %s", decl, found.file, p.file)
		case p != nil:
			found = p
		}
	}
	if found == nil {
		return nil, fmt.Errorf("no %s in %s", decl, dir)
	}
	return found, nil
}

// source is a parsed file.
type source struct {
	text string
	fset *token.FileSet
	tree *ast.File
}

var sources sync.Map // func() (source, error) by file: each file is parsed once

// parseFile parses each file only once, because a table has many entries for a file.
func parseFile(file string) (source, error) {
	once, _ := sources.LoadOrStore(file, sync.OnceValues(func() (s source, err error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return s, err
		}
		s = source{text: string(text), fset: token.NewFileSet()}
		s.tree, err = parser.ParseFile(s.fset, file, text, parser.SkipObjectResolution)
		return s, err
	}))
	return once.(func() (source, error))()
}

// findIn looks for a declaration in a file.
func findIn(file, decl string) (*place, error) {
	s, err := parseFile(file)
	if err != nil {
		return nil, err
	}
	for _, d := range s.tree.Decls {
		if n := named(d, decl); n != nil {
			fn, _ := n.(*ast.FuncDecl)
			return &place{
				file: file, pkg: s.tree.Name.Name, lines: strings.Split(s.text, "\n"),
				from: s.fset.Position(n.Pos()).Line - 1, upto: s.fset.Position(n.End()).Line, fn: fn,
			}, nil
		}
	}
	return nil, nil
}

// named returns the part of a declaration that declares a name: a function, or one of
// several consts, vars or types.
func named(d ast.Decl, name string) ast.Node {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if receiver(d)+d.Name.Name == name {
			return d
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			for _, id := range declared(spec) {
				// In a group, the place is only the line of the name. Otherwise the place includes the keyword.
				if id.Name == name && d.Lparen.IsValid() {
					return spec
				} else if id.Name == name {
					return d
				}
			}
		}
	}
	return nil
}

// declared returns the names of a spec, or nil for an import.
func declared(spec ast.Spec) []*ast.Ident {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		return []*ast.Ident{spec.Name}
	case *ast.ValueSpec:
		return spec.Names
	}
	return nil
}

// receiver returns the type of a method and a dot, without pointer and type parameters; for a function, "".
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	for n := range ast.Preorder(d.Recv.List[0].Type) {
		if id, ok := n.(*ast.Ident); ok {
			return id.Name + "."
		}
	}
	return ""
}
