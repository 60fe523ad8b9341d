package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// first are the packages that most programs use, in this order; the others follow in the order of their names.
var first = []string{".", "docstore", "cosmos", "dashboard", "outbox", "feed"}

// optionNames are the endings of the names of structs that are settings of a user.
var optionNames = regexp.MustCompile(`(Options|Policy|Spec|Hooks)$`)

// A settings is a struct that a user fills in.
type settings struct {
	dir, pkg, name string
	about          string
	fields         []field
}

// A field is an option.
type field struct {
	name, kind, about string
}

// optionsPage is docs/reference/options.md.
func optionsPage(top string) (string, error) {
	all, err := findSettings(top)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(`# Options

Every option of the public packages, from the doc comments of the code. You leave out what you do not need: the zero
value of each struct works, unless its text says otherwise. Commands have the same options as flags:
[commands.md](commands.md).

| struct | for |
|---|---|
`)
	for _, s := range all {
		about, _, _ := strings.Cut(s.about, "\n\n")
		about, _, _ = strings.Cut(strings.ReplaceAll(about, "\n", " "), ". ")
		fmt.Fprintf(&b, "| [%s](#%s) | %s |\n", s.title(), anchor(s.title()), strings.TrimSuffix(about, "."))
	}
	for _, s := range all {
		s.write(&b)
	}
	return b.String(), nil
}

func (s settings) title() string { return s.pkg + "." + s.name }

// anchor is the anchor of a heading, as code hosts make it.
func anchor(title string) string { return strings.ToLower(strings.ReplaceAll(title, ".", "")) }

// write writes the part of a struct.
func (s settings) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n## %s\n\n", s.title())
	imported := "github.com/millrace/changefeed"
	if s.dir != "." {
		imported += "/" + s.dir
	}
	fmt.Fprintf(b, "Import path: `%s`.\n\n%s\n", imported, s.about)
	for _, f := range s.fields {
		fmt.Fprintf(b, "\n- **`%s`** `%s`%s\n", f.name, f.kind, f.facts())
		for paragraph := range strings.SplitSeq(strings.TrimSpace(f.about), "\n\n") {
			if paragraph != "" {
				b.WriteString("\n  " + strings.ReplaceAll(paragraph, "\n", "\n  ") + "\n")
			}
		}
	}
}

var (
	byDefault  = regexp.MustCompile(`(\d[\d,.]*( (?:ms|s|m|h|hours?|minutes?|days?|KiB|MiB|GiB|MB|bytes))?),? by default`)
	defaultIs  = regexp.MustCompile(`(?i)\bthe default is (.+?)(?:[.;:]( |$)|, |$)`)
	zeroIs     = regexp.MustCompile(`\b(0|nil|empty) (?:is|means) (.+?)(?:[.;:,]( |$)|$)`)
	countBytes = regexp.MustCompile(`Bytes$`)
)

// facts are the default and the unit of an option, as far as its type and its text say them.
func (f field) facts() string {
	text := strings.ReplaceAll(f.about, "\n", " ")
	var value string
	if m := byDefault.FindStringSubmatch(text); m != nil {
		value = m[1]
	} else if m := defaultIs.FindStringSubmatch(text); m != nil {
		value = m[1]
	} else if m := zeroIs.FindStringSubmatch(text); m != nil {
		value = m[1] + ", which is " + m[2]
	} else {
		value = zeroOf(f.kind)
	}
	said := ", default: " + value
	switch {
	case f.kind == "time.Duration":
		said += "; unit: a duration, such as `5 * time.Second`"
	case countBytes.MatchString(f.name):
		said += "; unit: bytes"
	}
	return said
}

// zeroOf is the zero value of a type.
func zeroOf(kind string) string {
	switch {
	case kind == "bool":
		return "false"
	case kind == "string":
		return "empty"
	case kind == "int" || kind == "int64" || kind == "float64" || kind == "time.Duration" || kind == "int32":
		return "0"
	case strings.HasPrefix(kind, "func") || strings.ContainsAny(kind[:1], "*[m"):
		return "nil"
	}
	return "not set"
}

// findSettings returns the structs of all public packages.
func findSettings(top string) (all []settings, err error) {
	err = filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(top, p)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(rel)
		if dir != "." && isClosed(p, dir) {
			return fs.SkipDir
		}
		found, err := settingsOf(p, dir)
		all = append(all, found...)
		return err
	})
	place := func(s settings) int {
		if i := slices.Index(first, s.dir); i >= 0 {
			return i
		}
		return len(first)
	}
	slices.SortStableFunc(all, func(a, b settings) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a.dir, b.dir))
	})
	return all, err
}

// isClosed reports whether users cannot or need not import what is in a directory.
func isClosed(p, dir string) bool {
	name := path.Base(dir)
	if strings.HasPrefix(name, ".") || slices.Contains([]string{"internal", "testdata", "node_modules"}, name) ||
		slices.Contains([]string{"cmd", "conformance", "examples", "tools", "clients", "docs", "deploy"}, dir) {
		return true
	}
	_, err := os.Stat(filepath.Join(p, "go.mod"))
	return err == nil // a module of its own
}

// settingsOf returns the structs of a package.
func settingsOf(p, dir string) (all []settings, err error) {
	names, err := filepath.Glob(filepath.Join(p, "*.go"))
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		return nil, nil
	}
	pkg, err := doc.NewFromFiles(fset, files, dir)
	if err != nil {
		return nil, err
	}
	for _, t := range pkg.Types {
		if !optionNames.MatchString(t.Name) {
			continue
		}
		for _, spec := range t.Decl.Specs {
			if body, ok := spec.(*ast.TypeSpec).Type.(*ast.StructType); ok {
				s := settings{dir: dir, pkg: pkg.Name, name: t.Name, about: markdown(pkg, t.Doc)}
				s.fields = fieldsOf(pkg, fset, body)
				all = append(all, s)
			}
		}
	}
	return all, nil
}

// fieldsOf returns the exported fields of a struct.
func fieldsOf(pkg *doc.Package, fset *token.FileSet, body *ast.StructType) (all []field) {
	documented := ""
	for _, f := range body.Fields.List {
		var kind strings.Builder
		_ = printer.Fprint(&kind, fset, f.Type) // a strings.Builder returns no error
		about := f.Doc.Text()
		if about == "" {
			about = f.Comment.Text()
		}
		for _, name := range f.Names {
			switch {
			case about != "":
				documented = name.Name
			case documented != "":
				about = "See " + documented + "."
			}
			if name.IsExported() {
				all = append(all, field{name: name.Name, kind: oneLine(kind.String()), about: markdown(pkg, about)})
			}
		}
	}
	return all
}

var spaces = regexp.MustCompile(`\s+`)

func oneLine(text string) string { return spaces.ReplaceAllString(text, " ") }

// markdown turns a doc comment into Markdown, with lines of at most 110 characters. A link to a name becomes the name.
func markdown(pkg *doc.Package, text string) string {
	p := pkg.Printer()
	p.DocLinkURL = func(*comment.DocLink) string { return "" }
	p.TextWidth = 110
	parsed := pkg.Parser().Parse(text)
	return strings.TrimSpace(escapeMarkup(nameLink.ReplaceAllString(string(p.Text(parsed)), "$1")))
}

// nameLink is a link to a name of another file, which the parser of comments leaves as it is.
var nameLink = regexp.MustCompile(`\[([A-Za-z]\w*(?:\.\w+)*)\]`)

// escapeMarkup keeps the characters of a text from being markup.
func escapeMarkup(text string) string {
	return strings.NewReplacer("<", `\<`, "*", `\*`, "_", `\_`).Replace(text)
}
