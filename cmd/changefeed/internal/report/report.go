// Package report writes the output of a command: results to standard output, in the form of the flag -o, and notices,
// progress and errors to standard error. With -o json both have an object a line. Each object names its kind and the
// version of the schema in docs/json.schema.json.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// A Form is the form of the results of a command.
type Form string

// The forms. Text is for people; for rows it is called table.
const (
	Text  Form = "text"
	Table Form = "table"
	JSON  Form = "json"
	YAML  Form = "yaml"
	CSV   Form = "csv"
)

// Schema is the version of the schema of all objects. The number grows when a member is removed, or changes meaning.
const Schema = 1

// A Value is a result that has a form for programs: a struct whose JSON is an object.
type Value interface {
	// ReportedAs returns the kind of the object, such as lease.
	ReportedAs() string
}

// A Report is the output of a command. The exported fields are values of flags.
type Report struct {
	Form    Form
	Fields  []string // of rows; all if empty
	Default bool     // the user has not chosen the form
	Quiet   bool     // no notices and no progress
	Command string   // in front of notices, such as changefeed import
	Kinds   []Kind   // of the rows; without kinds any field is possible

	Out, Err io.Writer

	mu    sync.Mutex // of Err
	drawn bool       // a line of progress is on the terminal, and must be removed before another line
}

// New returns a report that writes results to out, and nothing else.
func New(form Form, out io.Writer) *Report { return &Report{Form: form, Out: out, Err: io.Discard} }

// Check refuses fields that no row has.
func (r *Report) Check() error {
	names := append(NamesOf(r.Kinds), "kind")
	for _, field := range r.Fields {
		first, _, _ := strings.Cut(field, ".")
		switch {
		case field == "":
			return usage.Error{Err: errors.New("--fields has an empty name: want names separated by commas, such as id,city")}
		case len(r.Kinds) > 0 && !slices.Contains(names, first):
			return usage.Flag("fields", field, "some of "+strings.Join(names, ", "))
		}
	}
	return nil
}

// ForPeople reports whether the results are for people, in a form that only the command knows.
func (r *Report) ForPeople() bool {
	return len(r.Fields) == 0 && (r.Form == Text || r.Form == Table || r.Form == "")
}

// Object writes the only result of a command: text writes the form for people.
func (r *Report) Object(v Value, text func(w io.Writer) error) error {
	if r.ForPeople() {
		return text(r.Out)
	}
	rows := r.Rows()
	if err := rows.Add(v); err != nil {
		return err
	}
	return rows.Flush()
}

// speaksJSON reports whether standard error is for programs. A command whose results are JSON in any case speaks to
// people there, unless the user asks for JSON.
func (r *Report) speaksJSON() bool { return r.Form == JSON && !r.Default }

// Notice writes a line to standard error that is neither a result nor an error, unless --quiet is set.
func (r *Report) Notice(format string, args ...any) {
	if r.Quiet {
		return
	}
	r.Warn(format, args...)
}

// Warn writes a line to standard error that is neither a result nor an error, also if --quiet is set.
func (r *Report) Warn(format string, args ...any) {
	n := notice{fmt.Sprintf(format, args...)}
	_ = r.Aside(n, func(w io.Writer) error { // if this fails, there is no reader
		text := terminal.Wrap(r.Command+": "+terminal.Harmless(n.Text), 0, terminal.Of(w).Room(), 2)
		_, err := fmt.Fprintln(w, text)
		return err
	})
}

// Aside writes a value to standard error, because standard output has the user's documents: text writes the form for
// people.
func (r *Report) Aside(v Value, text func(w io.Writer) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clear()
	_, isNotice := v.(notice)
	isYAML := r.Form == YAML && !r.Default && !isNotice // notices are for people, unless all of standard error is JSON
	if !r.speaksJSON() && !isYAML {
		return text(r.Err)
	}
	line, err := Line(v)
	if err == nil && isYAML {
		line, err = document(line)
	}
	if err != nil {
		return err
	}
	_, err = r.Err.Write(line)
	return err
}

// notice is a notice for programs.
type notice struct {
	Text string `json:"text" about:"the notice"`
}

// ReportedAs implements [Value].
func (notice) ReportedAs() string { return "notice" }

// A Failure is the error of a command.
type Failure struct {
	Error string  `json:"error" about:"the message"`
	Code  string  `json:"code" about:"failed, usage, missing, refused, found or interrupted: see help exit-codes"`
	Hint  *string `json:"hint" about:"the next step"`

	Reason *string `json:"reason" about:"word for the cause, such as no-start, start-ignored, leases-gone, forbidden or throttled; null if there is none"`
}

// ReportedAs implements [Value].
func (Failure) ReportedAs() string { return "error" }

// Kinds returns the kinds that every command can write to standard error.
func Kinds() []Kind {
	return []Kind{
		{"error", "The error of a command, on standard error.", Failure{}},
		{"notice", "A notice on standard error.", notice{}},
		{"progress", "How far long work has come, on standard error, every 5 seconds.", progress{}},
	}
}

// Line returns a value as a line of JSON: an object that begins with its kind and the version of the schema.
func Line(v Value) ([]byte, error) {
	body, err := marshal(v)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", v.ReportedAs(), err)
	}
	return stamp(v.ReportedAs(), body), nil
}

// Prefix returns the beginning of an object of a kind: its first members, without a comma after them.
func Prefix(kind string) []byte { return fmt.Appendf(nil, `{"kind":%q,"schema":%d`, kind, Schema) }

// stamp puts the kind and the version of the schema at the beginning of an object, and ends the line.
func stamp(kind string, object []byte) []byte {
	line := Prefix(kind)
	if len(object) > len("{}") {
		line = append(line, ',')
	}
	return append(append(line, object[1:]...), '\n')
}

// marshal returns the JSON of a value, with unescaped characters: with the escapes for HTML, which are another text,
// quotations of documents are hard to find.
func marshal(v any) ([]byte, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return []byte(strings.TrimSuffix(b.String(), "\n")), nil
}

// member is a member of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// membersOf returns the members of an object in their order.
func membersOf(object []byte) (all []member, err error) {
	d := json.NewDecoder(strings.NewReader(string(object)))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.Join(errors.New("the value is no object"), err)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: name.(string)} // the decoder returns the names of members as strings
		if err := d.Decode(&m.value); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// find returns the value at a path of member names that dots separate; nil if there is none.
func find(all []member, path string) json.RawMessage {
	// A member whose own name contains the dots comes first.
	if i := slices.IndexFunc(all, func(m member) bool { return m.name == path }); i >= 0 {
		return all[i].value
	}
	for i := range path {
		if path[i] != '.' {
			continue
		}
		at := slices.IndexFunc(all, func(m member) bool { return m.name == path[:i] })
		if at < 0 {
			continue
		}
		below, err := membersOf(all[at].value)
		if err != nil {
			continue // the member is no object
		}
		if found := find(below, path[i+1:]); found != nil {
			return found
		}
	}
	return nil
}
