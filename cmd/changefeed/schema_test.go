package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
)

// The documents about the output for programs, which are made from the types of the results.
const (
	schemaFile = "../../docs/json.schema.json"
	kindsFile  = "../../docs/json.md"
)

var updateSchema = flag.Bool("update-schema", false, "write docs/json.schema.json and docs/json.md")

// TestTheDocumentsDescribeTheOutput: a member that is added, renamed or left out changes the documents, so a reviewer
// sees what scripts will see.
func TestTheDocumentsDescribeTheOutput(t *testing.T) {
	schema, err := report.SchemaOf(allKinds())
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string][]byte{schemaFile: schema, kindsFile: []byte(kindsPage())} {
		if *updateSchema {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the types say (%v): go test ./cmd/changefeed -run Documents -update-schema", file, err)
		}
	}
}

// kindsPage returns the page about the kinds.
func kindsPage() string {
	var b strings.Builder
	b.WriteString(`# The output for programs

With ` + "`-o json`" + `, each command writes one JSON object a line. Each object begins with ` + "`kind`" + ` and ` + "`schema`" + `, the
version of the schema. [json.schema.json](json.schema.json) is the schema (JSON Schema 2020-12); the tests validate the
output of all commands with it. ` + "`-o yaml`" + ` has the same members, a document for each object. ` + "`-o csv`" + ` and
` + "`--fields`" + ` are for rows: the columns are members, and a name with a dot is a member of a member, such as
city of address in address.city.

Times are RFC 3339, durations are seconds, and a value that is not known is ` + "`null`" + `, never 0. A later version may add
members and kinds. If a member is removed or changes its meaning, the number of the schema grows.

Your documents are written as they are, without a kind: those of ` + "`export`, `get`, `query`" + ` and, without ` + "`-o json`" + `, of
` + "`tail`" + `.

`)
	kinds := allKinds()
	slices.SortFunc(kinds, func(a, b report.Kind) int { return strings.Compare(a.Name, b.Name) })
	for _, k := range kinds {
		fmt.Fprintf(&b, "## %s\n\n%s\n\n| member | |\n|---|---|\n", k.Name, k.About)
		for _, f := range k.Fields() {
			about := f.About
			if f.Nullable && !strings.Contains(about, "null") {
				about += "; null if unknown, or if there is none"
			}
			if f.Optional {
				about += "; left out if there is none"
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", f.Name, about)
		}
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// TestEachMemberIsExplained: a name alone says neither the unit nor the meaning.
func TestEachMemberIsExplained(t *testing.T) {
	for _, k := range allKinds() {
		for _, f := range k.Fields() {
			if f.About == "" {
				t.Errorf("%s.%s has no tag about", k.Name, f.Name)
			}
		}
	}
}

// TestEachKindIsListed finds the kinds in the sources, because a kind that is not listed is in no document.
func TestEachKindIsListed(t *testing.T) {
	reported := regexp.MustCompile(`ReportedAs\(\) string +\{ return "([a-z_]+)" \}`)
	listed := map[string]bool{}
	for _, k := range allKinds() {
		if listed[k.Name] {
			t.Errorf("kind %s is listed twice", k.Name)
		}
		listed[k.Name] = true
	}
	found := 0
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range reported.FindAllSubmatch(text, -1) {
			found++
			if !listed[string(m[1])] {
				t.Errorf("%s: kind %s is not in allKinds", path, m[1])
			}
		}
		return err
	})
	if err != nil || found < 20 {
		t.Errorf("found %d kinds: %v", found, err)
	}
}

// validator checks lines of output with the schema, and remembers their kinds.
type validator struct {
	schema *jsonschema.Schema
	mu     sync.Mutex
	seen   map[string]bool
}

// newValidator compiles the schema in docs.
func newValidator(t *testing.T) *validator {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	return &validator{schema: schema, seen: map[string]bool{}}
}

// check checks the lines of an output that are objects with a kind.
func (v *validator) check(t *testing.T, output string) {
	t.Helper()
	for line := range strings.Lines(output) {
		if !strings.HasPrefix(line, `{"kind":`) {
			continue
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
		if err == nil {
			err = v.schema.Validate(value)
		}
		if err != nil {
			t.Errorf("%s%v", line, err)
		}
		var object struct{ Kind string }
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		v.mu.Lock()
		v.seen[object.Kind] = true
		v.mu.Unlock()
	}
}

// unseen are kinds of commands that take too long for a session or differ with each build, or that need damage.
var unseen = []string{"build", "demo", "figure", "hole", "progress", "salvage"}

// checkKinds checks that the sessions have lines of each kind.
func (v *validator) checkKinds(t *testing.T) {
	t.Helper()
	for _, k := range allKinds() {
		if !v.seen[k.Name] && !slices.Contains(unseen, k.Name) {
			t.Errorf("no session has a line of kind %s", k.Name)
		}
	}
}
