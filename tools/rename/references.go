package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// rewriteReferences replaces the name in the tables of planted defects and in the documents.
func rewriteReferences(top string, n renaming, lines map[string]string) (changed []string, err error) {
	tables, err := filepath.Glob(filepath.Join(top, "tools/mutants/tables/*.txt"))
	if err != nil {
		return nil, err
	}
	docs, err := filepath.Glob(filepath.Join(top, "docs/*.md"))
	if err != nil {
		return nil, err
	}
	for _, file := range slices.Concat(tables, docs) {
		content, err := os.ReadFile(file)
		if err != nil {
			return changed, err
		}
		made := renameInDocument(string(content), n)
		if filepath.Ext(file) == ".txt" {
			made = renameInTable(string(content), n, lines)
		}
		if made == string(content) {
			continue
		}
		if err := os.WriteFile(file, []byte(made), 0o644); err != nil {
			return changed, err
		}
		changed = append(changed, file)
	}
	return changed, nil
}

// renameInDocument renames a method in places that also name its type. The name of a function may be an ordinary
// word, so the user must rename functions in documents by hand.
func renameInDocument(text string, n renaming) string {
	if n.old == n.ident() {
		return text
	}
	return regexp.MustCompile(`\b`+regexp.QuoteMeta(n.old)+`\b`).ReplaceAllString(text, n.qualified())
}

// renameInTable renames in the entries of planted defects: in the name of the declaration, in quoted lines that have
// changed, and in the lines of the defect beside them.
func renameInTable(text string, n renaming, lines map[string]string) string {
	called := regexp.MustCompile(`\b` + n.ident() + `\b`)
	entry := strings.Split(text, "\n")
	dir, quotes := "", false
	for i, line := range entry {
		switch {
		case strings.HasPrefix(line, "== "):
			dir, quotes = "", false
		case strings.HasPrefix(line, "package: "):
			dir = strings.TrimPrefix(line, "package: ")
		case line == "in: "+n.old && dir == n.dir:
			entry[i] = "in: " + n.qualified()
		case strings.HasPrefix(line, "-") && lines[line[1:]] != "":
			entry[i] = "-" + lines[line[1:]]
			quotes = true
		case strings.HasPrefix(line, "+") && quotes:
			entry[i] = called.ReplaceAllString(line, n.name)
		}
	}
	return strings.Join(entry, "\n")
}
