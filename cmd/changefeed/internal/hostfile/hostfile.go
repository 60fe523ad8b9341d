// Package hostfile reads the file of changefeed host, in YAML: which units run, each with its handler and its options.
//
//	defaults:
//	  source: https://shop.documents.azure.com/shop/orders
//	  create-leases: true
//	units:
//	  - name: mailer
//	    program: [node, mail.mjs]
//	    long-lived: true
//	  - name: hook
//	    webhook: https://hooks.example.com/orders
//
// An option has the name of a flag of the command that runs its handler. The package does not know these flags: the
// caller describes the handlers. A secret stands in an environment variable or in a file of its own, and never in the
// file: ${NAME} in a text is the variable, and KEY-file is a file with the value of KEY.
package hostfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/internal/spelling"
)

// The keys of a file beside the units' options.
const (
	defaultsKey = "defaults"
	unitsKey    = "units"
	versionKey  = "version"
	fileEnding  = "-file" // of the key of a file with a secret
)

// version is the version of the file that this package reads. A file without the key has version 1.
const version = "1"

// A Kind is a kind of handler.
type Kind struct {
	Key     string   // of the handler, such as program
	Flag    string   // of the command, in whose place the key stands; may be empty
	About   string   // for editors: what the value is
	IsList  bool     // the value may be a list, a program and its arguments
	Options []Option // by which a unit with this handler can be described
}

// An Option describes a key of a unit.
type Option struct {
	Name     string
	About    string
	Type     string   // boolean, integer, number or string
	Words    []string // the possible values; nil if there are others
	IsSecret bool
	IsList   bool // the value may be a list: each text is a [Value] of its own
}

// A Unit is an entry of the file. Its options have no order.
type Unit struct {
	Kind    string
	Command []string // the value of the handler, a program and its arguments
	Values  []Value  // of the options of the kind, each at most once if it is no list
	Line    int      // of the entry
}

// A Value is an option of a unit.
type Value struct {
	Name, Text string
	Line       int // 0 if the value is not from the file
}

// Value returns the text of an option; empty if the unit has none.
func (u *Unit) Value(name string) string {
	for _, v := range u.Values {
		if v.Name == name {
			return v.Text
		}
	}
	return ""
}

// LineOf returns the line of an option or, if the unit has none, of the unit.
func (u *Unit) LineOf(name string) int {
	for _, v := range u.Values {
		if v.Name == name && v.Line > 0 {
			return v.Line
		}
	}
	return u.Line
}

// A Mistake is an error of the file, at a line.
type Mistake struct {
	File string
	Line int // 0 is the whole file
	Text string
	Err  error // the cause; may be nil
}

// Unwrap returns the cause.
func (m *Mistake) Unwrap() error { return m.Err }

// Error returns the place and the text, as compilers write it.
func (m *Mistake) Error() string {
	if m.Line == 0 {
		return m.File + ": " + m.Text
	}
	return fmt.Sprintf("%s:%d: %s", m.File, m.Line, m.Text)
}

// maxFile is the largest size of a file.
const maxFile = 1 << 20

// Read reads a file. The error joins all mistakes, each a [Mistake].
func Read(path string, kinds []Kind) ([]Unit, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, usage.Path("FILE", path, err)
	}
	if info.Size() > maxFile {
		return nil, usage.Error{Err: fmt.Errorf("FILE is %s: it has %d bytes: want at most %d", path, info.Size(),
			maxFile)}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, usage.Path("FILE", path, err)
	}
	return Parse(path, text, kinds)
}

// Parse reads the text of a file. path is its name in the mistakes.
func Parse(path string, text []byte, kinds []Kind) ([]Unit, error) {
	r := &reader{path: path, kinds: kinds}
	units := r.readDocument(text)
	if len(r.mistakes) > 0 {
		return nil, usage.Error{Err: errors.Join(r.mistakes...)}
	}
	return units, nil
}

// reader reads a file and collects its mistakes.
type reader struct {
	path     string
	kinds    []Kind
	mistakes []error
}

// blame adds a mistake.
func (r *reader) blame(line int, format string, args ...any) {
	r.mistakes = append(r.mistakes, &Mistake{File: r.path, Line: line, Text: fmt.Sprintf(format, args...)})
}

// readDocument reads the whole file.
func (r *reader) readDocument(text []byte) (units []Unit) {
	document, ok := r.readNodes(text)
	if !ok {
		return nil
	}
	var defaults []Value
	var list *yaml.Node
	if !r.checkVersion(document.Content[0]) { // a later version may have other keys
		return nil
	}
	for key, value := range r.pairs(document.Content[0], "the file") {
		switch key.Value {
		case defaultsKey:
			defaults = r.readValues(value, defaultsKey, r.allOptions())
		case unitsKey:
			list = value
		case versionKey:
		default:
			r.blame(key.Line, "%s is unknown: want %s, %s or %s", key.Value, defaultsKey, unitsKey, versionKey)
		}
	}
	switch {
	case list == nil:
		if len(r.mistakes) == 0 {
			r.blame(0, "units is missing: want a list of units")
		}
		return nil
	case list.Kind != yaml.SequenceNode || len(list.Content) == 0:
		r.blame(list.Line, "units is %s: want a list of units", describe(list))
		return nil
	}
	used := map[string]bool{}
	for i, node := range list.Content {
		if unit, ok := r.readUnit(resolve(node), fmt.Sprintf("units[%d]", i), defaults, used); ok {
			units = append(units, unit)
		}
	}
	for _, d := range defaults {
		if len(r.mistakes) == 0 && !used[d.Name] {
			r.blame(d.Line, "defaults.%s is for no unit: want it in the units that it is for", d.Name)
		}
	}
	return units
}

// checkVersion reports whether the version of the file is the one that this package reads.
func (r *reader) checkVersion(file *yaml.Node) bool {
	if file.Kind != yaml.MappingNode {
		return true // another mistake, which is reported later
	}
	for i := 0; i+1 < len(file.Content); i += 2 {
		if value := resolve(file.Content[i+1]); file.Content[i].Value == versionKey && value.Value != version {
			r.blame(value.Line, "version is %s: want %s, or the newer changefeed for which the file was written",
				describe(value), version)
			return false
		}
	}
	return true
}

// readNodes reads the one document of a file.
func (r *reader) readNodes(text []byte) (document yaml.Node, ok bool) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	err := d.Decode(&document)
	var second yaml.Node
	if err == nil {
		err = d.Decode(&second)
	}
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		r.blameSyntax(text, err)
	case len(document.Content) == 0:
		r.blame(0, "the file is empty: want units, a list")
	case len(second.Content) > 0:
		r.blame(second.Content[0].Line, "the file has a second document after ---: want all units in one")
	default:
		return document, true
	}
	return document, false
}

// blameSyntax adds the mistake of a file that is no YAML.
func (r *reader) blameSyntax(file []byte, err error) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	var line int
	if n, _ := fmt.Sscanf(text, "line %d:", &line); n == 1 {
		_, text, _ = strings.Cut(text, ": ")
	}
	if strings.Contains(text, "tab character") { // the error has the line of the text before
		text += ": want spaces before a key"
		for i, t := range strings.Split(string(file), "\n") {
			if blank := t[:len(t)-len(strings.TrimLeft(t, " \t"))]; i >= line && strings.Contains(blank, "\t") {
				line = i + 1
				break
			}
		}
	}
	if strings.Contains(text, "cannot start any token") { // mostly a tab, and else an @ or a `
		text += ": want spaces before a key, and quotes around a text that begins with @ or `"
	}
	r.blame(line, "the file is not valid YAML: %s", text)
}

// readUnit reads a unit. used notes the defaults that the unit takes.
func (r *reader) readUnit(node *yaml.Node, at string, defaults []Value, used map[string]bool) (u Unit, ok bool) {
	before := len(r.mistakes)
	u.Line = node.Line
	handlers := map[string]*yaml.Node{}
	for key, value := range r.pairs(node, at) {
		if r.kind(key.Value) != nil {
			handlers[key.Value] = value
		}
	}
	if len(r.mistakes) > before {
		return u, false
	}
	if len(handlers) != 1 {
		r.blame(node.Line, "%s has %s: %s", at, oneOrMore(handlers), r.handlerWanted(node))
		return u, false
	}
	for key, value := range handlers {
		u.Kind, u.Command = key, r.readCommand(value, at+"."+key, r.kind(key).IsList)
	}
	kind := r.kind(u.Kind)
	rest := *node
	rest.Content = slices.Clone(node.Content)
	for i := 0; i < len(rest.Content); i += 2 {
		if rest.Content[i].Value == u.Kind {
			rest.Content = slices.Delete(rest.Content, i, i+2)
			break
		}
	}
	own := r.readValues(&rest, at, kind.Options)
	u.Values = own
	for _, d := range defaults {
		isOption := slices.ContainsFunc(kind.Options, func(o Option) bool { return o.Name == d.Name })
		used[d.Name] = used[d.Name] || isOption
		isSet := slices.ContainsFunc(own, func(v Value) bool { return v.Name == d.Name })
		if isOption && !isSet {
			u.Values = append(u.Values, d)
		}
	}
	return u, len(r.mistakes) == before
}

// oneOrMore says how many handlers a unit has.
func oneOrMore(handlers map[string]*yaml.Node) string {
	if len(handlers) == 0 {
		return "no handler"
	}
	var keys []string
	for key := range handlers {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return "several handlers, " + strings.Join(keys, " and ")
}

// handlerWanted says which key a unit needs: a similar one if the unit has a key that is unknown.
func (r *reader) handlerWanted(node *yaml.Node) string {
	for i := 0; i < len(node.Content); i += 2 {
		key := node.Content[i]
		if option, _ := findOption(r.allOptions(), key.Value); option != nil {
			continue
		}
		if near := spelling.Nearest(key.Value, r.handlerKeys()); len(near) > 0 && r.kind(key.Value) == nil {
			return fmt.Sprintf("%s in line %d is unknown: do you mean %s?", key.Value, key.Line,
				strings.Join(near, " or "))
		}
	}
	return "want one of " + strings.Join(r.handlerKeys(), ", ")
}

// kind returns the kind of a key; nil if the key is no handler.
func (r *reader) kind(key string) *Kind {
	for i := range r.kinds {
		if r.kinds[i].Key == key {
			return &r.kinds[i]
		}
	}
	return nil
}

// handlerKeys returns the keys of all handlers.
func (r *reader) handlerKeys() (keys []string) {
	for _, k := range r.kinds {
		keys = append(keys, k.Key)
	}
	return keys
}

// allOptions returns the options of all kinds.
func (r *reader) allOptions() (all []Option) {
	for _, k := range r.kinds {
		for _, o := range k.Options {
			if !slices.ContainsFunc(all, func(had Option) bool { return had.Name == o.Name }) {
				all = append(all, o)
			}
		}
	}
	return all
}
