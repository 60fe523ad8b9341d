package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// recommended matches a command in a text, with its words and flags.
var recommended = regexp.MustCompile(`changefeed ((?:[a-z][a-z-]*|--?[a-z][a-z-]*(?:=\S+)?|[A-Z]{2,}|%[a-z])(?: |$|[.,:;)\n]))+`)

// Each command that a message, a help text or an example names exists, with each of its flags: who copies the advice is
// not told that there is no such flag.
func TestEachRecommendedCommandExists(t *testing.T) {
	root, checked := rootCommand(new(bool)), 0
	for place, text := range literals(t, filepath.Join("..", "..")) {
		for _, advice := range recommended.FindAllString(text, -1) {
			words := strings.Fields(strings.Trim(advice, " .,:;)\n"))[1:]
			if known, _, err := root.Find(words[:1]); err != nil || known == root || words[0] == "help" {
				continue // a sentence about the program, or a topic
			}
			if wrong := checkAdvice(root, words); wrong != "" {
				t.Errorf("%s: %q: %s", place, advice, wrong)
			}
			checked++
		}
	}
	if checked < 100 {
		t.Errorf("%d recommendations were found: the test shows little", checked)
	}
}

// checkAdvice says what is wrong with the words of a command; empty if nothing is.
func checkAdvice(root *cobra.Command, words []string) string {
	cmd := root
	for _, word := range words {
		word = strings.Trim(word, ".,:;)")
		switch {
		case strings.HasPrefix(word, "--"):
			name, _, _ := strings.Cut(strings.TrimPrefix(word, "--"), "=")
			if name != "" && name != "help" && cmd.Flag(name) == nil && cmd.InheritedFlags().Lookup(name) == nil {
				return "no flag --" + name + " of " + cmd.CommandPath()
			}
		case strings.HasPrefix(word, "-"):
			if cmd.Flags().ShorthandLookup(strings.TrimPrefix(word, "-")) == nil && word != "-h" {
				return "no flag " + word + " of " + cmd.CommandPath()
			}
		case cmd.HasAvailableSubCommands():
			for _, sub := range cmd.Commands() {
				if sub.Name() == word {
					cmd = sub
					break
				}
			}
		}
	}
	return ""
}

// literals returns the texts of the program's sources, by their places: literals that are joined are one text.
func literals(t *testing.T, top string) map[string]string {
	t.Helper()
	return literalsWithout(t, top, func(ast.Node) bool { return false })
}

// literalsWithout returns the texts of the program's sources, except those in nodes that without selects.
func literalsWithout(t *testing.T, top string, without func(ast.Node) bool) map[string]string {
	t.Helper()
	all := map[string]string{}
	files := token.NewFileSet()
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "tools" || d.Name() == ".git"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if n != nil && without(n) {
				return false
			}
			switch e := n.(type) {
			case *ast.ImportSpec:
				return false
			case *ast.BinaryExpr:
				if text, ok := joined(e); ok {
					all[files.Position(e.Pos()).String()] = text
					return false
				}
			case *ast.BasicLit:
				if text, ok := joined(e); ok {
					all[files.Position(e.Pos()).String()] = text
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// joined returns the text of a literal, or of literals that are added.
func joined(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		a, left := joined(e.X)
		b, right := joined(e.Y)
		return a + b, left && right && e.Op == token.ADD
	}
	return "", false
}
