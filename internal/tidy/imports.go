package tidy

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Imports are compared as text, tests aside: a test may reach for any package, because
// nobody imports a test.

// checkImports compares the imports of each package with the table of edges.
func checkImports(r *repo) (found []finding) {
	for _, f := range r.code() {
		from, ok := family(f.dir)
		if !ok {
			found = append(found, finding{f.path, "package " + f.dir + " has no line in edges"})
			continue
		}
		for _, target := range f.imports {
			if !r.mayImport(from, target) {
				found = append(found, finding{f.path, fmt.Sprintf("%s may not import %s", from, target)})
			}
		}
	}
	return found
}

// mayImport reports whether code under a line of edges may import a path.
func (r *repo) mayImport(from, target string) bool {
	dir, ours := r.local(target)
	if !ours {
		// The path of a module begins with a host, which has a dot; the standard
		// library's has none.
		standard := !strings.Contains(strings.Split(target, "/")[0], ".")
		return standard || slices.Contains(edges[from], thirdParty)
	}
	to, ok := family(dir)
	return ok && (to == from || slices.Contains(edges[from], to) || slices.Contains(edges[from], anyPackage))
}

// local returns the directory of an import path of this module.
func (r *repo) local(target string) (dir string, ok bool) {
	if target == r.module {
		return ".", true
	}
	return strings.CutPrefix(target, r.module+"/")
}

// family returns the nearest line of edges at or above a directory. The root is only
// its own: else every package without a line would obey the processor's.
func family(dir string) (string, bool) {
	for d := dir; ; d = path.Dir(d) {
		if _, ok := edges[d]; ok && (d != "." || dir == ".") {
			return d, true
		}
		if d == "." {
			return "", false
		}
	}
}

// checkEngine refuses the engine's packages outside the files named for it.
func checkEngine(r *repo) (found []finding) {
	for _, f := range r.code() {
		theirs, _ := path.Match(engineFiles, f.path)
		for _, target := range f.imports {
			if strings.HasPrefix(target+"/", engineModule+"/") && !theirs {
				found = append(found, finding{f.path, fmt.Sprintf("only %s may import %s", engineFiles, target)})
			}
		}
	}
	return found
}

const released = "cmd/changefeed"

// checkReleased finds the code of the released binary, the command and all that it imports, that links testing.
func checkReleased(r *repo) (found []finding) {
	// The list grows while it is walked: each package that is linked adds what it
	// imports, until nothing is new.
	linked := []string{released}
	for i := 0; i < len(linked); i++ {
		for _, f := range r.in(linked[i]) {
			if f.test {
				continue
			}
			for _, target := range f.imports {
				if target == "testing" || strings.HasPrefix(target, "testing/") {
					found = append(found, finding{f.path, "the released binary would link " + target})
				}
				if dir, ours := r.local(target); ours && !slices.Contains(linked, dir) {
					linked = append(linked, dir)
				}
			}
		}
	}
	return found
}

var requireLine = regexp.MustCompile(`(?m)^(?:require |\t)([^\s(]+) v.*$`)

const decisions = "docs/decisions/dependencies.md"

// checkDependencies compares the direct requirements of go.mod with the page of
// reasons.
func checkDependencies(r *repo) (found []finding) {
	for _, m := range requireLine.FindAllStringSubmatch(r.text["go.mod"], -1) {
		direct := !strings.Contains(m[0], "// indirect")
		if direct && !strings.Contains(r.text[decisions], "`"+m[1]+"`") {
			found = append(found, finding{"go.mod", fmt.Sprintf("%s has no line in %s", m[1], decisions)})
		}
	}
	return found
}

// checkUnknownFiles finds files of a kind that nobody has listed.
func checkUnknownFiles(r *repo) (found []finding) {
	for _, p := range r.paths {
		if !slices.ContainsFunc(knownFiles, func(known *regexp.Regexp) bool { return known.MatchString(p) }) {
			found = append(found, finding{p, "no known kind of file"})
		}
	}
	return found
}
