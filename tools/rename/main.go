// Rename renames a function or a method everywhere: in the code and tests of all packages, in its doc comment, in the
// planted defects in tools/mutants/tables, and in the documents.
//
//	go run ./tools/rename internal/processor/delivery Engine.putDown handBack
//	go run ./tools/rename outbox digest hashOf
//
// The package is a directory of the module, "." for the root. Run gofmt, go vet and go test ./tools/... afterwards: a
// comment in the middle of a function, and a file behind a build tag, may still contain the old name.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: go run ./tools/rename PACKAGE FUNCTION|TYPE.METHOD NEWNAME")
		os.Exit(2)
	}
	changed, err := rename(".", renaming{dir: os.Args[1], old: os.Args[2], name: os.Args[3]})
	for _, file := range changed {
		fmt.Println(file)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rename:", err)
		os.Exit(1)
	}
}
