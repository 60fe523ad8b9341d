package tidy

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Names are resolved by their form, because a document is prose: a word with a dot may be a Go name, a file, a host
// or a field of JSON. Each pattern below recognizes a form. Backticks mark a name on purpose, so an unknown name in
// backticks is wrong. In a picture a doubtful word passes, because false alarms would make people waive the rule.

// The parts of a document that can be wrong: links, names in backticks, and names in blocks without a language. Such
// blocks are pictures and walks through the code. Blocks with a language are programs or sessions, and tests run
// them.
var (
	fence   = regexp.MustCompile("(?ms)^[ ]*```([^\n`]*)\n(.*?)^[ ]*```[ ]*$")
	quoted  = regexp.MustCompile("`([^`\n]+)`")
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)

	dataFile = regexp.MustCompile(`^[\w-]+\.(json|ndjson|csv|md|txt|pem|svg)$`)
	goFile   = regexp.MustCompile(`^[\w./-]+\.go$`)
	// a path of another module begins with a host, and may end in .go
	module    = regexp.MustCompile(`^[\w-]+(\.[\w-]+)+/`)
	function  = regexp.MustCompile(`^(\w+)\([^()]*\)$`)
	qualified = regexp.MustCompile(`^\*?(\w+)\.(\w+)(\.\w+)?(?:\(.*\))?$`)
	cutTable  = regexp.MustCompile(`(?m)^\n(\|.*)\n(.*)$`)
	ruler     = regexp.MustCompile(`^\|[-:| ]+\|$`)
	notInSlug = regexp.MustCompile(`[^\w -]`)
	// a test, a fuzz target or an example
	proof = regexp.MustCompile(`^(Test|Fuzz|Example)[A-Z]\w*$`)
)

// checkDocs resolves the names in the README, in CONTRIBUTING.md and in the documents under docs, because the name of
// a removed file misleads the reader.
func checkDocs(r *repo) (found []finding) {
	known := index(r)
	for _, p := range r.paths {
		if p != "README.md" && p != "CONTRIBUTING.md" && (!strings.HasPrefix(p, "docs/") || path.Ext(p) != ".md") {
			continue
		}
		for _, text := range missing(r, known, p) {
			found = append(found, finding{p + ":" + text, "does not exist"})
		}
		for _, row := range cutTable.FindAllStringSubmatch(fence.ReplaceAllString(r.text[p], ""), -1) {
			if !ruler.MatchString(row[2]) {
				found = append(found, finding{p + ":" + row[1], "is a row of no table: an empty line ends a table"})
			}
		}
	}
	return found
}

// madeFromCode is a page that a test compares with the code: it has types, such as those of functions, in backticks.
const madeFromCode = "docs/reference/options.md"

// missing returns the unresolved names and links of a document.
func missing(r *repo, known names, doc string) (bad []string) {
	text := r.text[doc]
	prose := fence.ReplaceAllString(text, "")
	for _, m := range quoted.FindAllStringSubmatch(prose, -1) {
		if doc != madeFromCode && !known.resolves(m[1], true) {
			bad = append(bad, m[1])
		}
	}
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		for word := range strings.FieldsSeq(m[2]) {
			if m[1] == "" && !known.resolves(strings.Trim(word, ",;:()"), false) {
				bad = append(bad, word)
			}
		}
	}
	// Code in backticks is removed first, because an index and a call, as in f[i](x), would look like a link.
	for _, m := range link.FindAllStringSubmatch(quoted.ReplaceAllString(prose, ""), -1) {
		if !strings.Contains(m[1], ":") && !r.resolvesLink(doc, m[1]) {
			bad = append(bad, m[1])
		}
	}
	return bad
}

// resolvesLink reports whether a relative link leads to an existing file or directory and, with a fragment, to an
// existing heading.
func (r *repo) resolvesLink(doc, target string) bool {
	file, fragment, _ := strings.Cut(target, "#")
	to := doc
	if file != "" {
		to = path.Join(path.Dir(doc), file)
	}
	exists := func(p string) bool { return p == to || strings.HasPrefix(p, to+"/") }
	if !slices.ContainsFunc(r.paths, exists) {
		return false
	}
	if fragment == "" {
		return true
	}
	for _, m := range heading.FindAllStringSubmatch(r.text[to], -1) {
		// In GitHub's form: lower case, without punctuation, dashes for spaces.
		slug := notInSlug.ReplaceAllString(strings.ToLower(m[1]), "")
		if strings.ReplaceAll(slug, " ", "-") == fragment {
			return true
		}
	}
	return false
}

// names are all names that documents may use: paths, packages, declarations, members.
type names struct {
	paths    []string
	packages map[string]bool // names of our packages
	imported map[string]bool // names of imported packages
	declared map[string]bool // Name, Type.Member, package.Name, package.Type.Member
}

// index collects the names of the repository, including tests, because documents name tests.
func index(r *repo) names {
	n := names{r.paths, map[string]bool{}, map[string]bool{}, map[string]bool{}}
	for _, f := range r.files {
		n.packages[f.packageName()] = true
		for name := range f.imports {
			n.imported[name] = true
		}
		for _, d := range f.ast.Decls {
			for _, name := range declares(d) {
				n.declared[name] = true
				n.declared[f.packageName()+"."+name] = true
			}
		}
	}
	return n
}

// declares returns the names introduced by a declaration, with Type.Member for fields and methods.
func declares(d ast.Decl) (all []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		return []string{d.Name.Name, declName(d)}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			for _, name := range specNames(spec) {
				all = append(all, name.Name)
			}
			all = append(all, members(spec)...)
		}
	}
	return all
}

// members returns the fields of a struct or the methods of an interface, as Type.Member.
func members(spec ast.Spec) (all []string) {
	t, ok := spec.(*ast.TypeSpec)
	if !ok {
		return nil
	}
	var list *ast.FieldList
	switch body := t.Type.(type) {
	case *ast.StructType:
		list = body.Fields
	case *ast.InterfaceType:
		list = body.Methods
	default:
		return nil
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			all = append(all, t.Name.Name+"."+name.Name)
		}
	}
	return all
}

// resolves reports whether a word of a document exists, if the word looks like a Go file or a Go name. If strict is
// set, a qualified name with an unknown head is wrong too; otherwise, as in pictures, such a word counts as something
// other than a name.
func (n names) resolves(word string, strict bool) bool {
	if module.MatchString(word) {
		return true
	}
	if goFile.MatchString(word) {
		return slices.ContainsFunc(n.paths, func(p string) bool { return strings.HasSuffix("/"+p, "/"+word) })
	}
	if proof.MatchString(word) {
		return n.declared[word] || !strict
	}
	if m := function.FindStringSubmatch(word); m != nil {
		return n.declared[m[1]] || !strict
	}
	m := qualified.FindStringSubmatch(word)
	// files that a pattern names
	if m == nil || n.isPath(word) || strings.HasSuffix(word, ".go") || dataFile.MatchString(word) {
		return true
	}
	// Our names take precedence over those of imports: if the head is a package of ours, the name must be declared
	// there, whatever other packages declare.
	head, full := m[1], m[1]+"."+m[2]+m[3]
	switch {
	case n.packages[head]:
		return n.declared[full] || !strict && !ast.IsExported(m[2])
	case n.declared[full]:
		return true
	case foreign[head] != "" || n.imported[head]:
		return !n.declared[head] || !ast.IsExported(head)
	case !strict:
		return !n.declared[head]
	}
	return false
}

func (n names) isPath(word string) bool {
	return slices.ContainsFunc(n.paths, func(p string) bool { return path.Base(p) == word || p == word })
}
