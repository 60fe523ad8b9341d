// Reference writes the pages of the documentation that are made from other files: docs/reference/options.md from the
// doc comments of the options, and docs/README.md from the navigation of the site. Call it by make reference.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// pages are the generated files, and what makes each of them from the top directory of the repository.
var pages = map[string]func(top string) (string, error){
	"docs/reference/options.md": optionsPage,
	"docs/README.md":            indexPage,
}

func main() {
	if err := writeAll("."); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

// writeAll writes every page.
func writeAll(top string) error {
	for name, page := range pages {
		text, err := page(top)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		path := filepath.Join(top, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
