package tidy

import (
	"fmt"
	"strings"
)

// A badSample is a small repository and the places, in order, where one rule must object.
type badSample struct{ rule, name, files, want string }

var samples = []badSample{
	{
		"file-length", "code and tests have limits", "" +
			"-- docstore/long.go --\npackage docstore\n" + strings.Repeat("//\n", 400) +
			"-- docstore/fits.go --\npackage docstore\n" + strings.Repeat("//\n", 399) +
			"-- docstore/fits_test.go --\npackage docstore\n" + strings.Repeat("//\n", 799) +
			"-- docstore/long_test.go --\npackage docstore\n" + strings.Repeat("//\n", 801),
		"docstore/long.go docstore/long_test.go",
	},

	{"line-length", "a tab counts as 4", "" +
		"-- a.go --\npackage m\n\n// " + strings.Repeat("x", 117) + "\n" +
		"-- b.go --\npackage m\n\n// " + strings.Repeat("é", 118) + "\n" +
		"-- c.go --\npackage m\n\nvar (\n\ta" + strings.Repeat("b", 113) + " = 0\n)\n", "b.go c.go"},
	{"line-length", "a string and an example are not cut", "" +
		"-- a.go --\npackage m\n\n//\t" + strings.Repeat("x", 130) + "\n" +
		"-- b.go --\npackage m\n\nvar b = \"" + strings.Repeat("x", 130) + "\"\n" +
		"-- c.go --\npackage m\n\nvar c = `\n" + strings.Repeat("x", 130) + "\n`\n", ""},

	{"prose-length", "tables, code and what a program writes have long lines", "" +
		"-- docs/a.md --\n" + strings.Repeat("word ", 24) + "x\n" +
		"-- docs/b.md --\n| " + strings.Repeat("word ", 24) + "|\n" +
		"-- docs/c.md --\n```sh\n" + strings.Repeat("word ", 25) + "\n```\n" +
		"-- docs/d.md --\n- `" + strings.Repeat("word ", 25) + "`\n" +
		"-- docs/reference/e.md --\n" + strings.Repeat("word ", 25) + "\n" +
		"-- docs/f.md --\n" + strings.Repeat("word ", 24) + "\n", "docs/a.md"},

	{"func-length", "the braces count", "" +
		"-- a.go --\npackage m\nfunc (t *T[K]) Long() {\n" + strings.Repeat("//\n", 59) + "}\n" +
		"func fits() {\n" + strings.Repeat("//\n", 58) + "}\n", "a.go:T.Long"},

	{"root-size", "one file too many", rootFiles(maxRootFiles + 1), "."},
	{"root-size", "lines of code", "-- a.go --\npackage m\n" + strings.Repeat("//\n", maxRootLines) +
		"-- a_test.go --\npackage m\n" + strings.Repeat("//\n", 9), "."},
	{"root-size", "exported names", "-- a.go --\npackage m\n" + strings.Repeat("func F() {}\nfunc (t T) M() {}\n",
		maxRootNames) + "type T int\n", "."},
	{"root-size", "methods do not count", "-- a.go --\npackage m\n" + strings.Repeat("func (t T) M() {}\nfunc f() {}\n",
		maxRootNames+1), ""},
	{"root-size", "tests do not count", rootFiles(maxRootFiles) + "-- z_test.go --\npackage m\n", ""},

	{"command-size", "lines of code", "-- cmd/changefeed/a.go --\npackage main\n" +
		strings.Repeat("//\n", maxCommandLines) + "-- cmd/changefeed/a_test.go --\npackage main\n", "cmd/changefeed"},
	{"command-size", "tests and other commands do not count", "-- cmd/changefeed/a_test.go --\npackage main\n" +
		strings.Repeat("//\n", maxCommandLines) + "-- cmd/x/main.go --\npackage main\n" +
		strings.Repeat("//\n", maxCommandLines), ""},

	{"package-doc", "a blank line detaches it", "-- a.go --\n// Package m is lost.\n\npackage m\n", "."},
	{
		"package-doc", "two comments",
		"-- a.go --\n// Package m is.\npackage m\n-- b.go --\n// Package m was.\npackage m\n", ".",
	},
	{"package-doc", "another name", "-- a.go --\n// Package n is.\npackage m\n", "."},
	{"package-doc", "a command, and a package of tests", "" +
		"-- cmd/x/main.go --\n// X runs.\npackage main\n-- internal/proof/sim/a_test.go --\n// Package sim " +
		"simulates.\npackage sim_test\n", ""},

	{
		"exported-doc", "functions, methods, types and values", "-- a.go --\npackage m\n" +
			"func F() {}\ntype T int\nfunc (t T) M() {}\nvar V int\n// G is known.\nfunc G() {}\ntype (\n\t// U is " +
			"known.\n\tU int\n)\nconst C = 1 // is known\nfunc f() {}\nfunc (t hidden) M() {}\nfunc (t T) Error() string " +
			"{ return \"\" }\n",
		"a.go:F a.go:T a.go:T.M a.go:V",
	},
	{"exported-doc", "a command promises nothing", "-- cmd/x/main.go --\npackage main\nfunc F() {}\n", ""},

	{"example", "an example without output does not run", "" +
		"-- docstore/a.go --\npackage docstore\n-- docstore/a_test.go --\npackage docstore_test\nfunc Example() " +
		"{ f() }\n", "docstore"},
	{"example", "output, and packages without users", "" +
		"-- docstore/a.go --\npackage docstore\n-- docstore/a_test.go --\npackage docstore_test\nfunc Example() " +
		"{\n\tf()\n\t// Output: 1\n}\n-- internal/cosmosdb/epk/a.go --\npackage epk\n-- cmd/x/main.go --\npackage " +
		"main\n", ""},

	{"package-name", "vague or underscored", "" +
		"-- a/a.go --\npackage util\n-- b/b.go --\npackage types\n-- c/c.go --\npackage leaseutil\n-- d/d.go " +
		"--\npackage a_b\n-- e/e_test.go --\npackage docstore_test\n", "a b c d"},

	{"imports", "the root imports only the standard library", "" +
		"-- a.go --\npackage m\nimport (\n\t\"context\"\n\t\"net/http\"\n)\n" +
		"-- b.go --\npackage m\nimport \"example.org/x\"\n-- c.go --\npackage m\nimport \"example.com/m/docstore\"\n" +
		"-- d_test.go --\npackage m_test\nimport \"example.com/m/docstore\"\n", "b.go c.go"},
	{"imports", "siblings stay apart but for one pair", "" +
		"-- docstore/a.go --\npackage docstore\nimport (\n\t\"example.com/m/feed\"\n\t\"example.org/x\"\n)\n" +
		"-- docstore/b.go --\npackage docstore\nimport _ \"example.com/m/cosmos\"\n" +
		"-- cosmosrest/a.go --\npackage cosmosrest\nimport " +
		"(\n\t\"example.com/m/docstore\"\n\t\"example.com/m/cosmosrest/internal/sql\"\n)\n" +
		"-- cmd/x/main.go --\npackage main\nimport \"example.com/m/cosmos\"\n", "docstore/b.go"},
	{"imports", "a new package needs a line", "-- newthing/a.go --\npackage newthing\n", "newthing/a.go"},

	{
		"cobra", "the command alone", "" +
			"-- cmd/changefeed/a.go --\npackage main\nimport \"github.com/spf13/cobra\"\n" +
			"-- cmd/changefeed/internal/letters/a.go --\npackage letters\nimport \"github.com/spf13/cobra\"\n",
		"cmd/changefeed/internal/letters/a.go",
	},
	{
		"engine", "one package names it", "" +
			"-- docstore/internal/engine/a.go --\npackage engine\nimport \"github.com/cockroachdb/pebble/v2\"\n" +
			"-- docstore/scan.go --\npackage docstore\nimport \"github.com/cockroachdb/pebble/v2/vfs\"\n",
		"docstore/scan.go",
	},

	{
		"released", "in the command, or in code that it imports", "" +
			"-- cmd/changefeed/main.go --\npackage main\nimport (\n\t\"testing\"\n\t\"example.com/m/docstore\"\n)\n" +
			"-- cmd/changefeed/main_test.go --\npackage main\nimport \"testing\"\n" +
			"-- docstore/a.go --\npackage docstore\nimport \"testing/synctest\"\n" +
			"-- changefeedtest/a.go --\npackage changefeedtest\nimport \"testing\"\n",
		"cmd/changefeed/main.go docstore/a.go",
	},

	{
		"own-doc", "of the same receiver",
		"-- a.go --\npackage m\n// drop drops.\nfunc (r R) remove() {}\n// drop drops.\nfunc (r R) drop() {}\n" +
			"// drop is a word.\nfunc drip() {}\n", "a.go:R.remove",
	},

	{"interface", "five methods", "-- a.go --\npackage m\n" +
		"type Big interface { A(); B(); C(); D(); E() }\ntype Fits interface { A(); B(); C(); D() }\n", "a.go:Big"},

	{"methods", "of one type in all files", "-- a/a.go --\npackage a\n" + manyMethods("T", maxMethods) +
		"-- a/b.go --\npackage a\nfunc (t T) N() {}\n" +
		"-- b/a.go --\npackage b\n" + manyMethods("T[K]", maxMethods) + "func (u U) M() {}\n" +
		"-- b/a_test.go --\npackage b\nfunc (t *T[K]) N() {}\n", "a:T"},
	{"methods", "with those of embedded types", "-- go.mod --\nmodule example.com/m\n" +
		"-- a/a.go --\npackage a\nimport \"example.com/m/b\"\ntype T struct {\n\t*b.B\n\ti\n\tn int\n}\ntype i " +
		"interface { N() }\ntype U struct {\n\tb *b.B\n\ti\n}\n" +
		"-- b/b.go --\npackage b\ntype B struct{}\n" + manyMethods("B", maxMethods), "a:T"},

	{
		"testing", "but for packages that are for tests",
		"-- a/a.go --\npackage a\nimport \"testing\"\n-- b/b.go --\npackage b\nimport _ \"testing/synctest\"\n" +
			"-- b/b_test.go --\npackage b\nimport \"testing\"\n-- changefeedtest/a.go --\npackage " +
			"changefeedtest\nimport \"testing\"\n", "a/a.go b/b.go",
	},

	{
		"booleans", "five in one struct",
		"-- a/a.go --\npackage a\ntype T struct {\n\tA, B, C bool\n\tD bool\n\tE bool\n}\n" +
			"type U struct {\n\tA, B, C, D bool\n\tE *bool\n\tF func() bool\n}\n", "a:T",
	},
	{
		"doc-name", "functions, methods and types",
		"-- a.go --\npackage m\n// It works.\nfunc F() {}\n// This too.\nfunc (t T) m() {}\n// Ts are " +
			"many.\ntype T int\ntype (\n\t// Here.\n\tU int\n)\n", "a.go:F a.go:T a.go:T.m a.go:U",
	},
	{
		"doc-name", "an article, and what has none",
		"-- a.go --\npackage m\n// A T is.\ntype T int\n// m works.\nfunc (t T) m() {}\nfunc f() {}\n// Here:\ntype " +
			"(\n\t// V is.\n\tV int\n)\n", "",
	},

	{
		"calls", "each forbidden one, by its import", "-- a.go --\npackage m\n" +
			"import (\n\t\"context\"\n\t\"fmt\"\n\t\"log\"\n\tclock \"time\"\n\t\"os\"\n)\n" +
			"func A() { clock.Sleep(1) }\nfunc B() { context.Background() }\nfunc C() { os.Exit(1) }\nfunc D() { " +
			"fmt.Println() }\nfunc E() { log.Print() }\nfunc F() { panic(1) }\nfunc init() {}\nvar v = log.Default()\n" +
			"func fine(x T) { fmt.Sprint(); fmt.Fprintln(x); x.init(); x.Sleep() }\n",
		"a.go:A a.go:B a.go:C a.go:D a.go:E a.go:F a.go:init a.go:v",
	},
	{"calls", "a logger named log is not package log; mains and tests may", "" +
		"-- a.go --\npackage m\nfunc A(log *L) { log.Print() }\n-- a_test.go --\npackage m\nfunc A() { panic(1) " +
		"}\n-- cmd/x/main.go --\npackage main\nfunc main() { panic(1) }\n", ""},

	{"goroutine", "also inside a function literal", "-- a.go --\npackage m\n" +
		"func A() { f(func() { go g() }) }\nfunc B() { wg.Go(g) }\n", "a.go:A"},

	{"unfinished", "in comments of code and tests", "" +
		"-- a.go --\npackage m // TO" +
		"DO later\n-- b.go --\npackage m // mastodon\n-- c_test.go --\npackage m // XX" + "X\n", "a.go c_test.go"},

	{
		"docs", "files, names and links", docSample,
		"README.md:#nowhere README.md:Container.Write README.md:Containr.Read " +
			"README.md:a.b.c README.md:docs/lost.md README.md:docstore.Close README.md:docstore.crawl " +
			"README.md:docstore/gone.go README.md:docstr.Open README.md:lost() docs/walk.md:Container.look " +
			"docs/walk.md:TestItRuns docs/walk.md:gone.go docs/walk.md:walk.on docs/walk.md:| c |",
	},

	{"dependency", "direct and undecided", "-- go.mod --\nmodule m\n\nrequire example.org/a v1.0.0\n\n" +
		"require (\n\texample.org/b v1.0.0\n\texample.org/c v1.0.0 // indirect\n)\n" +
		"-- docs/decisions/dependencies.md --\n- `example.org/b`: reason\n", "go.mod"},
	{"dependency", "decided", "-- go.mod --\nmodule m\n\nrequire example.org/a v1.0.0\n" +
		"-- docs/decisions/dependencies.md --\n- `example.org/a`: reason\n", ""},

	{
		"modules", "an older version, and a module that is linked and missing", "" +
			"-- go.mod --\nmodule example.com/m\nrequire (\n\texample.org/old v1.2.0\n\texample.org/same " +
			"v1.0.0\n\texample.org/linked/v2 v2.0.0\n\texample.org/tests v1.0.0\n)\n" +
			"-- docstore/a.go --\npackage docstore\nimport \"example.org/linked/v2/sub\"\n" +
			"-- docstore/a_test.go --\npackage docstore\nimport \"example.org/tests\"\n" +
			"-- outer/a_test.go --\npackage outer\nimport \"example.com/m/docstore\"\n" +
			"-- outer/go.mod --\nmodule example.com/m/outer\nrequire (\n\texample.com/m v0.0.0\n\texample.org/old " +
			"v1.1.0\n\texample.org/same v1.0.0\n)\n-- alone/go.mod --\nmodule example.com/m/alone\nrequire " +
			"example.org/old v1.1.0\n",
		"outer/go.mod:example.org/linked/v2 outer/go.mod:example.org/old",
	},

	{
		"unknown-file", "reports, sketches and strange folders", "-- .gitignore --\n/bin/\n*.prof\n" +
			"-- NOTES.md --\n-- docs/report.html --\n-- docstore/x.json --\n-- docstore/testdata/x.json --\n" +
			"-- bin/x --\n-- cpu.prof --\n-- README.md --\n-- tools/pinned/go.mod --\n-- sketch.py --\n",
		"NOTES.md docs/report.html docstore/x.json sketch.py",
	},
}

const docSample = "-- docstore/feed.go --\npackage docstore\nimport \"context\"\nvar _ context.Context\n" +
	"type Container struct { Name string }\nfunc (c *Container) Read() {}\nfunc Open() {}\nfunc walk() {}\n" +
	"-- docstore/feed_test.go --\npackage docstore\nfunc TestItWalks() {}\n" +
	"-- README.md --\n# Head: one\n[ok](docs/walk.md#part-two) [ok](docs) [ok](#head-one) [ok](https://x.y/z) " +
	"[bad](docs/lost.md) [bad](#nowhere)\n`docstore/feed.go` `feed.go` `docstore/gone.go` `docstore.Open` " +
	"`docstore.Open(dir, opts)` `docstore.Close` `docstr.Open` `docstore.walk` `docstore.crawl` `orders.json`\n" +
	"`Container.Read` `Container.Name` `docstore.Container.Read` `Container.Write` `Containr.Read` `walk()` `lost()`\n" +
	"`context.Context` `README.md` `go.mod` `a.b.c` `*_test.go` `go test ./...`\n```go\nx.Gone() // gone.go\n```\n" +
	"-- docs/walk.md --\n## Part two\n```\nwrite ─► Container.Read feed.go Some.Thing f(x) Container.look e.g.\n  └► gone.go\n```\n" +
	"`walk.on` `TestItWalks` `TestItRuns`\n\n| a |\n|---|\n| b |\n\n| c |\n"

func rootFiles(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("-- " + string(rune('a'+i)) + ".go --\npackage m\n")
	}
	return b.String()
}

// manyMethods are so many methods of a type.
func manyMethods(of string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "func (t *%s) M%d() {}\n", of, i)
	}
	return b.String()
}
