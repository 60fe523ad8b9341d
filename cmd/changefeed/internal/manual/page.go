// Package manual writes the help of a command: as help for a terminal, and as a page for man(1). Both have the same
// parts in the same order: what the command does, how to call the command, examples, a description, and the flags in
// groups.
package manual

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
)

// A Page is the help of a command.
type Page struct {
	Name     string // such as changefeed tail
	Summary  string // one sentence
	Usage    string // empty for a topic
	Examples string
	About    string // paragraphs; lines that are indented stay as they are
	Commands []Section
	Topics   []Row
	Flags    []Section
}

// A Section is a list with a title.
type Section struct {
	Title string
	Rows  []Row
}

// A Row is a line of a list: a command or a flag, and a description.
type Row struct{ Term, About string }

// The titles of the groups of flags, in their order.
const (
	mainFlags   = "Flags"
	placeFlags  = "Container and account"
	outputFlags = "Output"
	globalFlags = "Global"
)

// groupOf returns the group of flags that mean the same in every command. All other flags are the command's own.
var groupOf = map[string]string{
	"db": placeFlags, "container": placeFlags, "endpoint": placeFlags, "account-key": placeFlags,
	"connection-string": placeFlags, "ca": placeFlags,
	"output": outputFlags, "fields": outputFlags, "meta": outputFlags,
	"help": globalFlags, "verbose": globalFlags, "version": globalFlags, "quiet": globalFlags, "context": globalFlags,
}

// Flags returns the flags of a command in groups: its own flags, and those that all commands inherit from the root.
func Flags(own, inherited *pflag.FlagSet) (all []Section) {
	groups := map[string][]Row{}
	// Only a command that can reach an account has flags that say which; elsewhere --db is a flag like any other.
	reachesAccount := own.Lookup("endpoint") != nil
	own.VisitAll(func(f *pflag.Flag) {
		group := groupOf[f.Name]
		if group == "" || group == placeFlags && !reachesAccount {
			group = mainFlags
		}
		if !f.Hidden && inherited.Lookup(f.Name) == nil {
			groups[group] = append(groups[group], rowOf(f))
		}
	})
	inherited.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			groups[globalFlags] = append(groups[globalFlags], rowOf(f))
		}
	})
	for _, title := range []string{mainFlags, placeFlags, outputFlags, globalFlags} {
		if rows := groups[title]; len(rows) > 0 {
			all = append(all, Section{title, rows})
		}
	}
	return all
}

// RequiredNote is the annotation with which the library of the command line marks a flag that must be given.
const RequiredNote = "cobra_annotation_bash_completion_one_required_flag"

// rowOf returns the line about a flag.
func rowOf(f *pflag.Flag) Row {
	placeholder, about := Placeholder(f)
	term := "--" + f.Name
	if f.Shorthand != "" {
		term = "-" + f.Shorthand + ", " + term
	}
	if placeholder != "" {
		term += " " + placeholder
	}
	if f.Annotations[RequiredNote] != nil {
		about += " (required)"
	} else if !strings.Contains(about, "default") && !isZero(f) {
		about += " (default " + shortened(f.DefValue) + ")"
	}
	return Row{term, about}
}

// shortened returns a duration without the parts that are zero, such as 10m for 10m0s. Any other value stays.
func shortened(value string) string {
	d, err := time.ParseDuration(value)
	if err != nil {
		return value
	}
	return terminal.Exact(d)
}

// isZero reports whether a flag has no default that the help must show.
func isZero(f *pflag.Flag) bool {
	return slices.Contains([]string{"", "0", "0s", "false", "[]", "off"}, f.DefValue)
}

// placeholders are the types of flags whose name says little about the value.
var placeholders = map[string]string{
	"int": "N", "int64": "N", "uint": "N", "float64": "N", "string": "TEXT", "directory": "DIR",
}

// Placeholder returns the word for the value of a flag in the help, empty if the flag needs no value, and the
// description of the flag. The word in backticks in the description of the flag or else the type is the placeholder.
func Placeholder(f *pflag.Flag) (placeholder, about string) {
	if stated := f.Annotations[placeholderNote]; len(stated) > 0 {
		return stated[0], f.Usage
	}
	name, about := pflag.UnquoteUsage(f)
	typ := f.Value.Type()
	switch known := placeholders[name]; {
	case f.NoOptDefVal != "":
		return "", about
	case known != "":
		name = known
	case name == typ && strings.Contains(typ, "|"): // a list of words
	case name == "strings" || name == "stringArray":
		name = "TEXT"
	default:
		name = strings.ReplaceAll(strings.ToUpper(name), " OR ", "|")
	}
	return name, about
}

// placeholderNote is the annotation with the placeholder of a flag.
const placeholderNote = "changefeed_placeholder"

// Describe moves the placeholder of a flag out of its description, so that all readers of the description, such as
// shells, show plain text.
func Describe(f *pflag.Flag) {
	placeholder, about := Placeholder(f)
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[placeholderNote] = []string{placeholder}
	f.Usage = about
}
