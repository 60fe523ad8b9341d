// Command api records what the public packages show to programs that import them, in api/*.txt: one file a package,
// one line an exported name. Every change of the public face therefore shows in the diff of a commit.
//
// A line that would go is an incompatible change. The command refuses to remove such a line unless api/next-major.txt
// lists it, with the reason: see docs/releasing.md. New lines are added without questions.
//
//	go run ./tools/api        # what make api does
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

func main() {
	dir := flag.String("dir", ".", "top `directory` of the repository")
	flag.Parse()
	if err := record(*dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// record writes the faces of the public packages into the folder api.
func record(dir string) error {
	faces, err := loadFaces(dir)
	if err != nil {
		return err
	}
	kept, err := readRecords(dir)
	if err != nil {
		return err
	}
	if mistakes := incompatible(kept, faces); len(mistakes) > 0 {
		return errors.Join(mistakes...)
	}
	return kept.write(faces)
}
