package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
)

// page is how many rows decide about the columns of a table. A longer table has its heading again after each page, and
// a longer CSV file has only these columns.
const page = 1000

// kindMember is the member with the kind of a result.
const kindMember = "kind"

// Rows writes results one by one, in a form for programs or, with --fields, as a table.
type Rows struct {
	r       *Report
	waiting [][]member // rows whose columns are not known yet
	columns []string   // of a CSV file; nil before its heading is written
	written int
	missing []string // fields that no row has had so far; of documents of the user
}

// Rows returns a writer of rows. Flush ends the output.
func (r *Report) Rows() *Rows { return &Rows{r: r, missing: slices.Clone(r.Fields)} }

// Add writes a result.
func (r *Rows) Add(v Value) error {
	body, err := marshal(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", v.ReportedAs(), err)
	}
	return r.add(v.ReportedAs(), body)
}

// AddDocument writes a JSON value of the user, such as a row of a query. The value gets no kind.
func (r *Rows) AddDocument(value json.RawMessage) error { return r.add("", value) }

// AddObject writes a JSON object of a kind, byte for byte.
func (r *Rows) AddObject(kind string, object []byte) error { return r.add(kind, object) }

// add writes a JSON value of a kind; the kind of a user's value is empty.
func (r *Rows) add(kind string, value []byte) error {
	r.written++
	if len(r.r.Fields) == 0 && (r.r.Form == JSON || r.r.Form == YAML) {
		return r.writeWhole(kind, value)
	}
	all, err := membersOf(value)
	if err != nil { // a number, for one, as of SELECT VALUE
		all = []member{{"value", value}}
	}
	r.missing = slices.DeleteFunc(r.missing, func(field string) bool { return kind != "" || find(all, field) != nil })
	if r.r.Form == JSON || r.r.Form == YAML {
		object := []byte{'{'}
		for _, field := range r.r.Fields {
			if field == kindMember && kind != "" {
				continue // every line begins with its kind
			}
			if len(object) > 1 {
				object = append(object, ',')
			}
			name, err := marshal(field)
			if err != nil {
				return err
			}
			object = append(append(object, name...), ':')
			if found := find(all, field); found != nil {
				object = append(object, found...)
			} else {
				object = append(object, "null"...)
			}
		}
		return r.writeWhole(kind, append(object, '}'))
	}
	if kind != "" {
		all = append([]member{{kindMember, json.RawMessage(strconv.Quote(kind))}}, all...)
	}
	if r.columns != nil {
		return r.writeRecord(all)
	}
	if r.waiting = append(r.waiting, all); len(r.waiting) < page {
		return nil
	}
	return r.writePage()
}

// writeWhole writes a value as a line of JSON, or as a document of YAML.
func (r *Rows) writeWhole(kind string, value []byte) error {
	if bytes.ContainsAny(value, "\r\n") { // stores keep the space that a document came with
		var flat bytes.Buffer
		if err := json.Compact(&flat, value); err != nil {
			return fmt.Errorf("write row: %w", err)
		}
		value = flat.Bytes()
	}
	line := append(slices.Clone(value), '\n')
	if kind != "" {
		line = stamp(kind, value)
	}
	if r.r.Form == YAML {
		text, err := document(line)
		if err != nil {
			return err
		}
		line = text
	}
	_, err := r.r.Out.Write(line)
	return err
}

// document returns a line of JSON as a document of YAML.
func document(line []byte) ([]byte, error) {
	text, err := toYAML(line)
	return append([]byte("---\n"), text...), err
}

// Flush writes the rows whose columns were not known yet.
func (r *Rows) Flush() error {
	if len(r.waiting) > 0 || r.written == 0 && (r.r.Form == CSV || r.r.Form == Table) {
		if err := r.writePage(); err != nil {
			return err
		}
	}
	if r.written > 0 && len(r.missing) > 0 {
		r.r.Notice("--fields has %s, and no row has such a member; upper and lower case differ",
			strings.Join(r.missing, ","))
	}
	return nil
}

// writePage writes the waiting rows under a heading.
func (r *Rows) writePage() error {
	columns := r.r.Fields
	if len(columns) == 0 {
		columns = []string{}
		for _, row := range r.waiting {
			for _, m := range row {
				if !slices.Contains(columns, m.name) {
					columns = append(columns, m.name)
				}
			}
		}
	}
	rows := r.waiting
	if r.waiting = nil; len(columns) == 0 {
		return nil
	}
	if r.r.Form == CSV {
		r.columns = columns
		if err := writeCSV(r.r.Out, columns); err != nil {
			return err
		}
		for _, row := range rows {
			if err := r.writeRecord(row); err != nil {
				return err
			}
		}
		return nil
	}
	heading := make([]string, len(columns)) // as the columns are, so that --fields accepts them
	for i, column := range columns {
		heading[i] = terminal.OneLine(column)
	}
	cells := [][]string{heading}
	for _, row := range rows {
		line := make([]string, len(columns))
		for i, column := range columns {
			line[i] = terminal.OrDash(terminal.OneLine(plain(find(row, column))))
		}
		cells = append(cells, line)
	}
	_, err := io.WriteString(r.r.Out, terminal.Columns(cells, terminal.Of(r.r.Out).Room()))
	return err
}

// writeRecord writes a row of a CSV file.
func (r *Rows) writeRecord(row []member) error {
	if len(r.r.Fields) == 0 {
		for _, m := range row {
			if !slices.Contains(r.columns, m.name) {
				return fmt.Errorf("row %d has the member %q, and the first %d rows do not, so the heading lacks it: "+
					"name the columns with --fields", r.written, m.name, page)
			}
		}
	}
	record := make([]string, len(r.columns))
	for i, column := range r.columns {
		record[i] = plain(find(row, column))
	}
	return writeCSV(r.r.Out, record)
}

// writeCSV writes a record of a CSV file (RFC 4180). A record of one empty field has quotes, because readers skip empty
// lines.
func writeCSV(w io.Writer, record []string) error {
	if len(record) == 1 && record[0] == "" {
		_, err := io.WriteString(w, `""`+"\n")
		return err
	}
	c := csv.NewWriter(w)
	if err := c.Write(record); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	c.Flush()
	return c.Error()
}

// plain returns a JSON value as the text of a cell: a string without quotes, and null as no text.
func plain(value json.RawMessage) string {
	var text string
	switch {
	case value == nil, string(value) == "null":
		return ""
	case value[0] == '"' && json.Unmarshal(value, &text) == nil:
		return text
	}
	return string(value)
}
