package tidy

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Imports are compared as text, without tests: a test may import any package, because no package imports a test.

// checkImports compares the imports of each package with the table of edges.
func checkImports(r *repo) (found []finding) {
	for _, f := range r.codeFiles() {
		from, ok := family(f.dir)
		if !ok {
			found = append(found, finding{f.path, "package " + f.dir + " has no line in edges"})
			continue
		}
		for _, target := range f.imports {
			if !r.mayImport(f.dir, target) {
				found = append(found, finding{f.path, fmt.Sprintf("%s may not import %s", from, target)})
			}
		}
	}
	return found
}

// mayImport reports whether a package may import a path.
func (r *repo) mayImport(by, target string) bool {
	from, _ := family(by)
	dir, ours := r.localDir(target)
	if !ours {
		// A module path begins with a host, which contains a dot; the paths of the standard library do not.
		standard := !strings.Contains(strings.Split(target, "/")[0], ".")
		return standard || slices.Contains(edges[from], thirdParty)
	}
	to, ok := family(dir)
	// The packages of brokers share a line, and do not import each other.
	own := to == from && (from != brokers || strings.HasPrefix(dir, by+"/"))
	return ok && (own || slices.Contains(edges[from], to) || slices.Contains(edges[from], anyPackage))
}

// localDir returns the directory of an import path of this module.
func (r *repo) localDir(target string) (dir string, ok bool) {
	if target == r.module {
		return ".", true
	}
	return strings.CutPrefix(target, r.module+"/")
}

// brokers is the line of the packages of brokers, except for those with a line of their own.
const brokers = "outbox/*pub"

// family returns the nearest line of edges at or above a directory. The line of the root applies only to the root;
// otherwise every package without a line would follow the processor's rules.
func family(dir string) (string, bool) {
	for d := dir; ; d = path.Dir(d) {
		if _, ok := edges[d]; ok && (d != "." || dir == ".") {
			return d, true
		}
		if ok, _ := path.Match(brokers, d); ok {
			return brokers, true
		}
		if d == "." {
			return "", false
		}
	}
}

// checkEngine refuses the packages of the engine's library outside the engine.
func checkEngine(r *repo) (found []finding) {
	for _, f := range r.codeFiles() {
		theirs := strings.HasPrefix(f.dir+"/", engineDir+"/")
		for _, target := range f.imports {
			if strings.HasPrefix(target+"/", engineModule+"/") && !theirs {
				found = append(found, finding{f.path, fmt.Sprintf("only %s may import %s", engineDir, target)})
			}
		}
	}
	return found
}

const (
	released    = "cmd/changefeed"
	cobraModule = "github.com/spf13/cobra"
)

// checkCobra refuses the module of the command line outside the command.
func checkCobra(r *repo) (found []finding) {
	for _, f := range r.files {
		for _, target := range f.imports {
			if target == cobraModule && f.dir != released {
				found = append(found, finding{f.path, "only " + released + " may import " + target})
			}
		}
	}
	return found
}

// checkReleased finds imports of testing in the released binary: in the command and all its imports.
func checkReleased(r *repo) (found []finding) {
	for f, target := range r.linkedImports(released) {
		if target == "testing" || strings.HasPrefix(target, "testing/") {
			found = append(found, finding{f.path, "the released binary would link " + target})
		}
	}
	return found
}

// linkedImports yields the imports of a package, and the imports of all packages of ours that the package links.
func (r *repo) linkedImports(dir string) iter.Seq2[*file, string] {
	return func(yield func(*file, string) bool) {
		// The list grows during the loop: each linked package adds its imports, until there are no new imports.
		dirs := []string{dir}
		for i := 0; i < len(dirs); i++ {
			for _, f := range r.filesIn(dirs[i]) {
				if f.test {
					continue
				}
				for _, target := range f.imports {
					if !yield(f, target) {
						return
					}
					if dir, ours := r.localDir(target); ours && !slices.Contains(dirs, dir) {
						dirs = append(dirs, dir)
					}
				}
			}
		}
	}
}

var requireLine = regexp.MustCompile(`(?m)^(?:require |\t)([^\s(]+) (v\S+).*$`)

// requiredModules returns the modules in a go.mod, with their versions.
func (r *repo) requiredModules(p string) map[string]string {
	all := map[string]string{}
	for _, m := range requireLine.FindAllStringSubmatch(r.text[p], -1) {
		all[m[1]] = m[2]
	}
	return all
}

const decisions = "docs/decisions/dependencies.md"

// checkDependencies compares the direct requirements of go.mod with the page of their reasons.
func checkDependencies(r *repo) (found []finding) {
	for _, m := range requireLine.FindAllStringSubmatch(r.text["go.mod"], -1) {
		direct := !strings.Contains(m[0], "// indirect")
		if direct && !strings.Contains(r.text[decisions], "`"+m[1]+"`") {
			found = append(found, finding{"go.mod", fmt.Sprintf("%s has no line in %s", m[1], decisions)})
		}
	}
	return found
}

// checkModules compares the requirements of the modules that use this module with ours. The go command requires that
// their versions are not older, and that they name the modules of everything linked through our packages.
func checkModules(r *repo) (found []finding) {
	ours := r.requiredModules("go.mod")
	for _, p := range r.paths {
		theirs := r.requiredModules(p)
		if path.Base(p) != "go.mod" || theirs[r.module] == "" {
			continue
		}
		for _, module := range slices.Sorted(maps.Keys(ours)) {
			has := theirs[module]
			if has != ours[module] && (has != "" || r.linksModule(path.Dir(p), module)) {
				found = append(found, finding{p + ":" + module, fmt.Sprintf("%s, and %s in our go.mod: run go mod tidy",
					cmp.Or(has, "missing"), ours[module])})
			}
		}
	}
	return found
}

// linksModule reports whether packages in or below a directory, or their tests, link a package of another module.
func (r *repo) linksModule(dir, module string) bool {
	is := func(target string) bool { return strings.HasPrefix(target+"/", module+"/") }
	for _, f := range r.files {
		if !strings.HasPrefix(f.dir+"/", dir+"/") {
			continue
		}
		for _, target := range f.imports {
			local, _ := r.localDir(target)
			for _, further := range r.linkedImports(local) {
				if is(further) {
					return true
				}
			}
			if is(target) {
				return true
			}
		}
	}
	return false
}

// checkUnknownFiles finds files of unknown kinds: no pattern in the list matches them.
func checkUnknownFiles(r *repo) (found []finding) {
	for _, p := range r.paths {
		isKind := func(known *regexp.Regexp) bool { return known.MatchString(p) }
		if !slices.ContainsFunc(knownFiles, isKind) && !slices.ContainsFunc(releaseFiles, isKind) {
			found = append(found, finding{p, "no known kind of file"})
		}
	}
	return found
}
