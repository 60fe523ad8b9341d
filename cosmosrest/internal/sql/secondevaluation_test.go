package sql_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/millrace/changefeed/cosmosrest/internal/sql"
)

// elsewhere are the functions of many rows, which random queries fold in container.aggregate, and those of ORDER BY
// RANK, which rank_test.go ranks by hand.
var elsewhere = []string{
	"AVG", "COUNT", "COUNTIF", "FULLTEXTSCORE", "MAKELIST", "MAKESET", "MAX", "MIN", "RRF", "SUM",
}

// Each built-in function is listed in docs/server.md and evaluated a second time: in the obvious way, for the queries
// that are drawn to compare the two, or by hand, in an example.
func TestEachFunctionHasASecondEvaluationAndALineInTheDocs(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/server.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sql.Functions() {
		_, isObvious := builtins[name]
		call := regexp.MustCompile(`(?i)\b` + name + `\(`)
		hasExample := slices.ContainsFunc(sql.WrittenDown(), call.MatchString)
		if !isObvious && !hasExample && !slices.Contains(elsewhere, name) {
			t.Errorf("%s has no second evaluation: add it to builtins in obviousfunctions_test.go, or an example to "+
				"expressions in eval_test.go", name)
		}
		if !regexp.MustCompile("`" + name + "`").Match(doc) {
			t.Errorf("%s is not in the list of functions in docs/server.md", name)
		}
	}
}
