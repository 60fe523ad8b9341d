package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// The format is easy to read in a diff. An entry begins with == and its name. An entry has its fields as key: value,
// then its edits as lines with - and +, as in patches, and ends at an empty line. A - after a + begins the next edit.
// Lines are quoted as they are in the source, or as they would be without line breaks.

// mutant is a planted defect: an entry of a table.
type mutant struct {
	table, name string
	pkg, decl   string // directory of a package, and a declaration in it
	breaks      string // the damage to a user
	from        string // who thought of the mutant
	by          []test // the tests that find it
	survives    string // why no test has to find the mutant
	edits       []edit
}

// edit replaces lines, which occur exactly once in the declaration.
type edit struct{ old, new []string }

// test is a test with the directory of its package.
type test struct{ pkg, name string }

var (
	mutantName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	testName   = regexp.MustCompile(`^(Test|Fuzz|Example)\w*$`)
)

// load reads the tables of a directory, or a single table. load joins all faults, because after a refactoring many
// entries are corrected at a time.
func load(dir, only string) (all []mutant, err error) {
	if only == "" {
		only = "*"
	}
	files, err := filepath.Glob(filepath.Join(dir, only+".txt"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no table %s in %s", only, dir)
	}
	seen := map[string]string{}
	for _, file := range files {
		text, readErr := os.ReadFile(file)
		table := strings.TrimSuffix(filepath.Base(file), ".txt")
		mutants, parseErr := parse(table, string(text))
		err = errors.Join(err, readErr, parseErr)
		for _, m := range mutants {
			if other, twice := seen[m.name]; twice {
				err = errors.Join(err, fmt.Errorf("%s is in table %s, too", m, other))
			}
			seen[m.name] = table
		}
		all = append(all, mutants...)
	}
	return all, err
}

func (m mutant) String() string { return m.table + "/" + m.name }

// parse reads the entries of a table.
func parse(table, text string) (mutants []mutant, err error) {
	var m *mutant
	for i, line := range strings.Split(text, "\n") {
		name, begins := strings.CutPrefix(line, "== ")
		var bad error
		switch {
		case begins:
			mutants = append(mutants, mutant{table: table, name: name})
			m = &mutants[len(mutants)-1]
		// So a field after an empty line belongs to no entry. Such a field is refused, instead of being added to the
		// entry above.
		case line == "":
			m = nil
		case line[0] == '#':
		case m == nil:
			bad = errors.New("outside of an entry")
		default:
			bad = m.addLine(line)
		}
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("%s.txt:%d: %w", table, i+1, bad))
		}
	}
	for _, m := range mutants {
		if bad := m.checkComplete(); bad != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", m, bad))
		}
	}
	return mutants, err
}

// addLine reads a line of an entry.
func (m *mutant) addLine(line string) error {
	switch n := len(m.edits); {
	// Only the last edit of an entry can be without new lines, because the next - would still belong to it.
	case line[0] == '-' && (n == 0 || m.edits[n-1].new != nil):
		m.edits = append(m.edits, edit{old: []string{line[1:]}})
		return nil
	case line[0] == '-':
		m.edits[n-1].old = append(m.edits[n-1].old, line[1:])
		return nil
	case line[0] == '+' && n == 0:
		return errors.New("new lines that replace none")
	case line[0] == '+':
		m.edits[n-1].new = append(m.edits[n-1].new, line[1:])
		return nil
	}
	key, value, _ := strings.Cut(line, ":")
	value = strings.TrimSpace(value)
	if key == "by" {
		return m.addTests(value)
	}
	field := map[string]*string{
		"package": &m.pkg, "in": &m.decl, "breaks": &m.breaks, "from": &m.from,
		"survives": &m.survives,
	}[key]
	if field == nil || *field != "" || value == "" {
		return fmt.Errorf("%q is unknown, empty or here twice", key)
	}
	*field = value
	return nil
}

// addTests reads names of tests: of the entry's package, or of another package before a colon.
func (m *mutant) addTests(list string) error {
	for word := range strings.SplitSeq(list, ",") {
		pkg, name, other := strings.Cut(strings.TrimSpace(word), ":")
		if !other {
			pkg, name = m.pkg, pkg
		}
		if pkg == "sim" {
			pkg = simulation
		}
		// If the package is empty, the line by is before the line package.
		if pkg == "" || !testName.MatchString(name) {
			return fmt.Errorf("no test: %q", word)
		}
		m.by = append(m.by, test{pkg, name})
	}
	return nil
}

// checkComplete refuses an entry if a part is missing.
func (m *mutant) checkComplete() error {
	switch {
	case !mutantName.MatchString(m.name):
		return errors.New("the name is not words with dashes")
	case m.pkg == "" || m.decl == "" || m.breaks == "" || m.from == "":
		return errors.New("package, in, breaks and from are needed")
	case len(m.edits) == 0:
		return errors.New("it changes nothing")
	// A mutant has either tests that find it or a reason why no test has to. With both, the reason would hide the day
	// on which the tests stop finding it.
	case len(m.by) > 0 && m.survives != "":
		return errors.New("it is killed, and survives")
	}
	return nil
}
