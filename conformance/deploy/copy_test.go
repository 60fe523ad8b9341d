package main

import (
	"io/fs"
	"os"
	"path/filepath"
)

// onlyNew is a tree without the files that are there already: COPY writes them again, and os.CopyFS refuses that.
type onlyNew struct {
	fs.FS
	at string
}

// ReadDir implements [fs.ReadDirFS].
func (o onlyNew) ReadDir(name string) (all []fs.DirEntry, err error) {
	entries, err := fs.ReadDir(o.FS, name)
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(o.at, name, e.Name())); err != nil || e.IsDir() {
			all = append(all, e)
		}
	}
	return all, err
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}
