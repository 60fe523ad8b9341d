package sql_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cosmosrest/internal/sql"
)

// Each built-in function is listed in docs/server.md and evaluated a second time: in the obvious way, for the queries that are
// drawn to compare the two, or by hand, in an example.
func TestEachFunctionHasASecondEvaluationAndALineInTheDocs(t *testing.T) {
	var drawn []string
	for _, some := range functions {
		for _, f := range some {
			drawn = append(drawn, strings.ToUpper(f[0]))
		}
	}
	doc, err := os.ReadFile("../../../docs/server.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sql.Functions() {
		_, isObvious := builtins[name]
		call := regexp.MustCompile(`(?i)\b` + name + `\(`)
		hasExample := slices.ContainsFunc(sql.WrittenDown(), call.MatchString)
		switch {
		case !isObvious && !hasExample:
			t.Errorf("%s has no second evaluation: add it to builtins in obviousfunctions_test.go, or an example to expressions in eval_test.go", name)
		case !hasExample && !slices.Contains(drawn, name):
			t.Errorf("%s is in no query that is drawn: add it to functions in obviousquery_test.go", name)
		}
		if !regexp.MustCompile("`" + name + "`").Match(doc) {
			t.Errorf("%s is not in the list of functions in docs/server.md", name)
		}
	}
}
