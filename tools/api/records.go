package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	folder    = "api"
	breakFile = "next-major.txt"
	ending    = ".txt"
	rootName  = "changefeed" // the file of the package at the top
)

// records are the files of the folder api.
type records struct {
	dir   string
	faces map[string][]string // the recorded lines by package
	// incompatible changes since the last release: "PACKAGE: LINE" and the reason, which stands in the comment above
	breaks map[string]string
}

// readRecords reads the folder api.
func readRecords(dir string) (*records, error) {
	k := &records{dir: filepath.Join(dir, folder), faces: map[string][]string{}, breaks: map[string]string{}}
	files, err := filepath.Glob(filepath.Join(k.dir, "*"+ending))
	if err != nil {
		return nil, fmt.Errorf("list records: %w", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read record: %w", err)
		}
		if base := filepath.Base(file); base != breakFile {
			k.faces[packageOf(base)] = lines(string(text))
			continue
		}
		if err := k.readBreaks(string(text)); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// readBreaks reads the list of incompatible changes. Lines that begin with # are the reason of the lines below.
func (k *records) readBreaks(text string) error {
	reason, isFresh := "", false
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		switch comment, isComment := strings.CutPrefix(line, "#"); {
		case line == "":
			reason, isFresh = "", false
		case isComment && isFresh:
			reason += comment
		case isComment:
			reason, isFresh = comment, true
		case strings.TrimSpace(reason) == "":
			return fmt.Errorf("%s/%s:%d: %q has no reason: want a line with # above it, which says why programs must change",
				folder, breakFile, n+1, line)
		default:
			k.breaks[line], isFresh = strings.TrimSpace(reason), false
		}
	}
	return nil
}

// write replaces the recorded lines by faces. The list of incompatible changes is left alone.
func (k *records) write(faces map[string][]string) error {
	if err := os.MkdirAll(k.dir, 0o755); err != nil {
		return fmt.Errorf("write records: %w", err)
	}
	for pkg, face := range faces {
		text := strings.Join(face, "\n") + "\n"
		if err := os.WriteFile(filepath.Join(k.dir, fileOf(pkg)), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write record of %s: %w", pkg, err)
		}
	}
	for pkg := range k.faces {
		if faces[pkg] != nil {
			continue
		}
		if err := os.Remove(filepath.Join(k.dir, fileOf(pkg))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove record of %s: %w", pkg, err)
		}
	}
	return nil
}

// incompatible returns an error for each recorded line that is gone and not listed, and for each listed line that is
// still there.
func incompatible(kept *records, faces map[string][]string) (mistakes []error) {
	for _, pkg := range slices.Sorted(maps.Keys(kept.faces)) {
		for _, line := range kept.faces[pkg] {
			entry := nameOf(pkg) + ": " + line
			if !slices.Contains(faces[pkg], line) && kept.breaks[entry] == "" {
				mistakes = append(mistakes, fmt.Errorf("%s: incompatible: %s is gone or has changed: keep it, or "+
					"add the line %q with a reason to %s/%s and run make api", nameOf(pkg), line, entry, folder, breakFile))
			}
		}
	}
	for _, entry := range slices.Sorted(maps.Keys(kept.breaks)) {
		pkg, line, _ := strings.Cut(entry, ": ")
		if slices.Contains(faces[packageOf(pkg+ending)], line) {
			mistakes = append(mistakes, fmt.Errorf("%s/%s lists %q, which has not changed: remove the line",
				folder, breakFile, entry))
		}
	}
	return mistakes
}

// unrecorded returns an error for each package whose new lines are not recorded.
func unrecorded(kept *records, faces map[string][]string) (mistakes []error) {
	for _, pkg := range slices.Sorted(maps.Keys(faces)) {
		for _, line := range faces[pkg] {
			if !slices.Contains(kept.faces[pkg], line) {
				mistakes = append(mistakes, fmt.Errorf("%s: new: %s: run make api, which records it",
					nameOf(pkg), line))
			}
		}
	}
	return mistakes
}

// nameOf returns the name of a package in messages and in the list of incompatible changes.
func nameOf(pkg string) string {
	if pkg == "" {
		return rootName
	}
	return strings.ReplaceAll(pkg, "/", "-")
}

// fileOf returns the name of the file of a package.
func fileOf(pkg string) string { return nameOf(pkg) + ending }

// packageOf returns the package of a file, the reverse of fileOf. No name of a package has a hyphen.
func packageOf(file string) string {
	name := strings.TrimSuffix(file, ending)
	if name == rootName {
		return ""
	}
	return strings.ReplaceAll(name, "-", "/")
}

// lines returns the lines of a text that are not empty.
func lines(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return line == "" })
}
