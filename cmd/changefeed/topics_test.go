package main

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEachVariableIsExplained compares the help with the source.
func TestEachVariableIsExplained(t *testing.T) {
	var explained []string
	for _, v := range environment {
		explained = append(explained, v.name)
	}
	slices.Sort(explained)
	if read := variablesRead(t, "../.."); !slices.Equal(explained, read) {
		t.Errorf("help environment explains %v, and the source reads %v", explained, read)
	}
}

var (
	reading  = regexp.MustCompile(`os\.(?:Getenv|LookupEnv)\(([^()]+)\)`)
	literal  = regexp.MustCompile(`^"(\w+)"$`)
	constant = regexp.MustCompile(`\w*[vV]ariable\s*=\s*"([A-Z_]+)"`)
)

// variablesRead returns the names of the environment variables that the command reads: literals, and constants whose
// name ends with Variable.
func variablesRead(t *testing.T, root string) []string {
	t.Helper()
	// Arguments of functions that are called with such constants, and the name that a user gives a context.
	forwarded := []string{"variable", "name", "k.Variable"}
	names := map[string]bool{}
	for path, source := range commandSource(t, root) {
		for _, m := range constant.FindAllStringSubmatch(source, -1) {
			names[m[1]] = true
		}
		for _, m := range reading.FindAllStringSubmatch(source, -1) {
			if name := literal.FindStringSubmatch(m[1]); name != nil {
				names[name[1]] = true
			} else if !strings.HasSuffix(m[1], "Variable") && !slices.Contains(forwarded, m[1]) {
				t.Errorf("%s reads the variable %s: want a literal, or a constant named …Variable", path, m[1])
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// commandSource returns the source files below root that can be in the command, by their paths.
func commandSource(t *testing.T, root string) map[string]string {
	t.Helper()
	others := []string{
		"examples", "conformance", "tools", "internal/proof/lives", "changefeedtest", "outbox/outboxtest",
		"cmd/changefeed/internal/notices/collect",
	}
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(root, path)
		switch {
		case d.IsDir() && (slices.Contains(others, filepath.ToSlash(below)) || below != "." && d.Name()[0] == '.'):
			return fs.SkipDir
		case err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return err
		}
		text, err := os.ReadFile(path)
		all[below] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
