// Package tidy enforces the house rules of this repository in a test, because a rule that only people enforce is
// broken as soon as they are in a hurry.
//
// A rule is a name, a reason and a function from the parsed repository to findings; [rules] lists them all. Tests run
// each rule twice: over the repository, where it must find nothing, and over a small bad sample, where it must find
// the sample's fault, because a rule that cannot fail is useless.
//
// An exception is a line in [waivers]: the rule, the place and the reason. The place is the part of a finding before
// the dash. If a waiver excuses nothing, the test fails too, so the list is only as long as necessary. The other
// tables (who may import whom, which files are known, whose names the documents may use) are in tables.go as well.
//
// The rules only read the source: they build nothing and start no program. So they apply to every build tag, and the
// test cache notices each changed file.
package tidy

import (
	"fmt"
	"go/ast"
	"slices"
)

// The limits of the rules. A test file may be twice as long, because tables and scripts are read entry by entry.
const (
	maxFileLines    = 400
	maxFuncLines    = 60
	maxLineWidth    = 120  // a tab counts as 4
	longLiteral     = 50   // characters of a string that may make its line longer
	maxRootFiles    = 15   // the root is the public API, and connects the parts of internal/processor
	maxRootLines    = 2500 // comments count too
	maxRootNames    = 60   // methods do not count
	maxCommandLines = 8850 // flags, help with its examples, errors and output of cmd/changefeed: some 47 commands
	maxInterface    = 4
	maxMethods      = 40 // those of embedded types count
	maxBooleans     = 4  // of a struct
	testAllowance   = 2
)

// rule is a house rule: its name, its reason, and the check for breaches.
type rule struct {
	name  string
	why   string
	check func(*repo) []finding
}

// finding is a breach. Its place does not change when lines move, so a waiver can name it.
type finding struct {
	where string // path, path:Function or path:word
	text  string
}

// waiver excuses the findings of a rule at a place.
type waiver struct{ rule, where, why string }

var rules = []rule{
	{"file-length", "a file is read in one sitting", checkFileLength},
	{"line-length", "two files fit beside each other, and a reader's eye finds the next line", checkLineLength},
	{"prose-length", "a document is read in an editor, too", checkProseLength},
	{"func-length", "a function fits on a screen", checkFuncLength},
	{"root-size", "the root package stays small enough to know by heart", checkRootSize},
	{
		"command-size", "what is not flags, help or output of a command can be tested without a process",
		checkCommandSize,
	},
	{"package-doc", "go doc shows only a comment attached to the package clause", checkPackageDoc},
	{"methods", "a type with many methods has several owners: each is a type", checkMethods},
	{"booleans", "so many booleans have combinations that are written nowhere: a state is a type", checkBooleans},
	{
		"testing", "a program that imports testing has its flags, and tests decide nothing in what is shipped",
		checkTesting,
	},
	{"doc-name", "a comment that begins with the name is found by it, and is about it", checkDocName},
	{"exported-doc", "an exported name is a promise, so it says which", checkExportedDoc},
	{"own-doc", "a comment that begins with another function's name was left behind by an edit", checkOwnDoc},
	{"example", "what a package is for is shown by a program that runs", checkExamples},
	{"package-name", "a name says what is inside, not that something is", checkPackageName},
	{"imports", "one direction of dependency, so that a part can be read alone", checkImports},
	{"engine", "the storage engine can be replaced in one file", checkEngine},
	{"cobra", "whoever imports it can be tested through a command line only", checkCobra},
	{"released", "package testing registers flags and weighs, and a user runs no tests", checkReleased},
	{"interface", "a small interface is easy to implement and hard to outgrow", checkInterfaces},
	{"calls", "waiting, ending and printing belong to the caller", checkCalls},
	{"goroutine", "each goroutine belongs to a function that waits for it: prefer WaitGroup.Go", checkGoroutines},
	{"unfinished", "what is left to do is an issue, not a comment", checkUnfinished},
	{"docs", "a document names only what exists", checkDocs},
	{"dependency", "each dependency was decided, and the page says why", checkDependencies},
	{"modules", "a module of its own that is not built with ours breaks when our requirements change", checkModules},
	{"unknown-file", "a sketch or a generated report is not committed", checkUnknownFiles},
}

// breaches runs a rule, removes the waived findings, and marks the waivers as used.
func breaches(r *repo, ru rule, waived []waiver, used map[waiver]bool) []finding {
	return slices.DeleteFunc(ru.check(r), func(f finding) bool {
		i := slices.IndexFunc(waived, func(w waiver) bool { return w.rule == ru.name && w.where == f.where })
		if i < 0 {
			return false
		}
		used[waived[i]] = true
		return true
	})
}

// newFinding returns the finding for a breach in a Go file, at a line.
func (r *repo) newFinding(where string, n ast.Node, format string, args ...any) finding {
	at := r.fset.Position(n.Pos())
	return finding{where, fmt.Sprintf("line %d: ", at.Line) + fmt.Sprintf(format, args...)}
}
