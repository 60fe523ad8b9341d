package alarms_test

import (
	"io/fs"
	"maps"
	"slices"
	"strings"
)

// globbed is the text of all files with a name.
func globbed(root fs.FS, pattern string) (string, error) {
	paths, err := fs.Glob(root, pattern)
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, p := range paths {
		text, err := fs.ReadFile(root, p)
		if err != nil {
			return "", err
		}
		all.Write(text)
	}
	return all.String(), nil
}

// sortedKeys are the keys of a map, sorted.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
