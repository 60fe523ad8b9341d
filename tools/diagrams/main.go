// Command diagrams writes the pictures of docs/concepts.md: SVG files that follow the light or dark mode of the reader.
// Run it in the root of the repository, and look at each picture in both modes before you commit.
//
//	go run ./tools/diagrams docs/pictures
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: diagrams DIR")
		os.Exit(2)
	}
	if err := writeAll(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "diagrams:", err)
		os.Exit(1)
	}
}

// writeAll writes each diagram into a directory, and nothing if a text of one does not fit.
func writeAll(dir string) error {
	all := diagrams()
	var misfits []error
	for _, d := range all {
		if len(d.misfits) > 0 {
			misfits = append(misfits, fmt.Errorf("%s: a text is wider than its place: %q", d.name, d.misfits))
		}
	}
	if err := errors.Join(misfits...); err != nil {
		return err
	}
	for _, d := range all {
		if err := os.WriteFile(filepath.Join(dir, d.fileName()), []byte(d.svg()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
