package feed_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/millrace/changefeed/feed"
)

func TestAnErrorHasTheWordOfItsSentinel(t *testing.T) {
	for word, err := range map[string]error{
		"no-start":     &feed.StartError{Leases: []string{"-FF"}},
		"throttled":    fmt.Errorf("read: %w", &feed.ThrottledError{}),
		"bad-lease":    feed.ErrBadLease,
		"precondition": feed.ErrPrecondition,
		"":             errors.New("other"),
	} {
		if got := feed.CodeOf(err); got != word {
			t.Errorf("%v has the word %q, want %q", err, got, word)
		}
	}
	if got := feed.CodeOf(feed.ErrForeignLease); got != "foreign-lease" {
		t.Errorf("a lease of another kind, which is no bad one, has the word %q", got)
	}
}

// A sentinel without a word would reach programs in other languages as a text alone.
func TestEverySentinelHasAWord(t *testing.T) {
	found, named := map[string]bool{}, map[string]bool{}
	for _, name := range []string{"sentinels.go", "reports.go", "code.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				if strings.HasPrefix(n.Names[0].Name, "Err") {
					found[n.Names[0].Name] = true
				}
			case *ast.CompositeLit:
				if len(n.Elts) == 2 && name == "code.go" {
					if id, ok := n.Elts[0].(*ast.Ident); ok {
						named[id.Name] = true
					}
				}
			}
			return true
		})
	}
	for name := range found {
		if !named[name] {
			t.Errorf("%s has no word", name)
		}
	}
	if len(found) < 30 {
		t.Errorf("only %d sentinels were found", len(found))
	}
}
