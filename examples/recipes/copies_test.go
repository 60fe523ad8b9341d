// Package recipes checks what all recipes have in common.
package recipes

import (
	"bufio"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var link = flag.Bool("link", false, "also link the copies of the recipes, which takes long on a busy machine")

const (
	module   = "github.com/millrace/changefeed"
	maxLines = 120
)

// programs returns the folders of the recipes.
func programs(t *testing.T) (folders []string) {
	t.Helper()
	mains, err := filepath.Glob("*/main.go")
	if err != nil || len(mains) < 4 {
		t.Fatalf("%d recipes found, %v", len(mains), err)
	}
	for _, file := range mains {
		folders = append(folders, filepath.Dir(file))
	}
	return folders
}

// sources returns the Go files of a recipe without its tests.
func sources(t *testing.T, folder string) (files []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		if !strings.HasSuffix(file, "_test.go") {
			files = append(files, file)
		}
	}
	return files
}

// A user copies the folder of a recipe into an empty folder, without its test, and goes on from there.
func TestACopyOfEachRecipeBuilds(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(mod), "module "+module+"/examples/recipes", "module example.com/mine", 1)
	text = strings.Replace(text, module+" => ../..", module+" => "+root, 1)
	for _, folder := range programs(t) {
		t.Run(folder, func(t *testing.T) {
			mine := t.TempDir()
			write := func(name string, content []byte) {
				if err := os.WriteFile(filepath.Join(mine, name), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write("go.mod", []byte(text))
			write("go.sum", sum)
			for _, file := range sources(t, folder) {
				content, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				write(filepath.Base(file), content)
			}
			args := []string{"vet", "."} // compiles without linking
			if *link {
				args = []string{"build", "-o", "mine", "."}
			}
			build := exec.CommandContext(t.Context(), "go", args...)
			build.Dir = mine
			if out, err := build.CombinedOutput(); err != nil {
				t.Errorf("go %s: %v\n%s", strings.Join(args, " "), err, out)
			}
		})
	}
}

func TestRecipesImportPublicPackagesOnly(t *testing.T) {
	for _, folder := range programs(t) {
		for _, file := range sources(t, folder) {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range parsed.Imports {
				path, err := strconv.Unquote(spec.Path.Value)
				if err != nil || strings.Contains(path, "internal/") || strings.HasPrefix(path, module+"/examples/") {
					t.Errorf("%s imports %s", file, spec.Path.Value)
				}
			}
		}
	}
}

// Each recipe has less than 120 lines of its own in all its files, without its tests, blank lines, comments and
// imports.
func TestRecipesAreShort(t *testing.T) {
	for _, folder := range programs(t) {
		lines := 0
		for _, file := range sources(t, folder) {
			lines += count(t, file)
		}
		t.Logf("%s has %d lines", folder, lines)
		if lines >= maxLines {
			t.Errorf("%s has %d lines of code, and should have less than %d", folder, lines, maxLines)
		}
	}
}

func count(t *testing.T, file string) (lines int) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	imports := false
	for text := bufio.NewScanner(f); text.Scan(); {
		line := strings.TrimSpace(text.Text())
		switch {
		case line == "import (":
			imports = true
		case imports:
			imports = line != ")"
		case line != "" && !strings.HasPrefix(line, "//"):
			lines++
		}
	}
	return lines
}

// Each recipe has a page that names its program, and each page about a program names one that exists.
func TestEachRecipeHasAPage(t *testing.T) {
	pages, err := filepath.Glob("../../docs/recipes/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	for _, folder := range programs(t) {
		if !strings.Contains(all.String(), "examples/recipes/"+folder) {
			t.Errorf("no page in docs/recipes names examples/recipes/%s", folder)
		}
	}
}

// Each recipe is a folder with a main.go.
func Example() {
	found, err := filepath.Glob("arch*/main.go")
	fmt.Println(found, err)
	// Output: [archive/main.go] <nil>
}
