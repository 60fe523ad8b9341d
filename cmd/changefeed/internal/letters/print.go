package letters

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
)

// Letters as output: for people as a table or in full, for programs as lines of JSON. A letter may quote any text, so
// its control characters must not reach a terminal.

// letterLine is a letter in the list for programs.
type letterLine struct {
	ID          string           `json:"id" about:"of the letter"`
	Key         json.RawMessage  `json:"key" about:"partition key of the change"`
	Item        string           `json:"item" about:"id of the document"`
	Lease       string           `json:"lease" about:"token of the lease"`
	Attempts    int              `json:"attempts" about:"how often the handler had the change"`
	Cause       report.Known     `json:"cause" about:"the last error; null for a held change"`
	Disposition feed.Disposition `json:"disposition" about:"why the change was parked: see dlq list --help"`
	Parked      time.Time        `json:"parked" about:"when"`
}

// ReportedAs implements [report.Value].
func (letterLine) ReportedAs() string { return "letter" }

// ListKind describes the lines of changefeed dlq list.
var ListKind = report.Kind{Name: "letter", About: "A dead letter without its document: dlq list.", Of: letterLine{}}

// WriteList writes letters for programs, without their documents.
func WriteList(rows *report.Rows, letters Seq) error {
	for l, err := range letters {
		if err != nil {
			return cmp.Or(rows.Flush(), err)
		}
		if err := rows.Add(letterLine{
			l.ID, json.RawMessage(l.Change.PartitionKey), l.Change.ID, l.Lease, l.Attempts,
			report.Known(l.Cause), l.Disposition, l.Parked,
		}); err != nil {
			return err
		}
	}
	return rows.Flush()
}

// WriteTable writes the letters of a unit as a table as wide as the terminal, with a heading that names their place.
func WriteTable(w io.Writer, at terminal.Terminal, unit, from string, letters Seq) error {
	rows := [][]string{{"ID", "KEY", "ITEM", "DISPOSITION", "ATTEMPTS", "PARKED", "CAUSE"}}
	keys := map[feed.PartitionKey]bool{}
	var ids []string
	var failed error
	for l, err := range letters {
		// The letters read so far are shown before the error, because the operator may get no others.
		if failed = err; err != nil {
			break
		}
		keys[l.Change.PartitionKey] = true
		ids = append(ids, l.ID)
		rows = append(rows, []string{
			l.ID, string(l.Change.PartitionKey), l.Change.ID, string(l.Disposition),
			strconv.Itoa(l.Attempts),
			when(l.Parked), terminal.OrDash(terminal.Clip(terminal.OneLine(l.Cause), longestCause)),
		})
	}
	if failed == nil { // after an error, the count would be incomplete
		heading := fmt.Sprintf("%s in %s: %s of %s", unit, from, terminal.Count(len(rows)-1, "dead letter"),
			terminal.Count(len(keys), "key"))
		fmt.Fprintln(w, terminal.Wrap(heading, 0, at.Room(), 2))
	}
	for i, short := 0, shortIDs(ids); i < len(ids); i++ {
		rows[i+1][0] = short[ids[i]]
	}
	// Shortened names cannot be copied, so they are shortened only if they make the table too wide.
	if len(rows) > 1 && !terminal.Fits(rows, at.Room()) {
		longest := min(longestName, terminal.LongestCell(at.Room()))
		for _, row := range rows {
			row[1], row[2] = terminal.Shorten(row[1], longest), terminal.Shorten(row[2], longest)
		}
	}
	if len(rows) > 1 {
		if _, err := io.WriteString(w, terminal.Table(rows, at.Room())); err != nil {
			return fmt.Errorf("write letters: %w", err)
		}
	}
	return failed
}

const (
	longestCause = 200 // characters of a cause in a table
	longestName  = 40  // cells of a key or an id in a table that is too wide; dlq show prints them in full
)

// wholeLetter describes a letter in its stored form, which package deadletters writes.
type wholeLetter struct {
	ID          string           `json:"id" about:"of the letter"`
	Version     int              `json:"version" about:"of this form; 1"`
	Key         json.RawMessage  `json:"key" about:"partition key of the change"`
	Disposition feed.Disposition `json:"disposition" about:"why the change was parked: see dlq list --help"`
	Cause       string           `json:"cause,omitempty" about:"the last error"`
	Stack       string           `json:"stack,omitempty" about:"of a panic"`
	Attempts    int              `json:"attempts" about:"how often the handler had the change"`
	Processor   string           `json:"processor" about:"name of the unit"`
	Source      string           `json:"source,omitempty" about:"the monitored container"`
	Instance    string           `json:"instance,omitempty" about:"that parked the change"`
	Lease       string           `json:"lease,omitempty" about:"token of the lease"`
	Range       string           `json:"range" about:"of the lease, min-max in hex"`
	LSN         int64            `json:"lsn" about:"of the change"`
	Index       int              `json:"index" about:"place of the change in the transaction"`
	Op          string           `json:"op" about:"upsert; or create, replace, delete"`
	Item        string           `json:"item" about:"id of the document"`
	Time        time.Time        `json:"time,omitzero" about:"of the commit"`
	Failed      time.Time        `json:"failed,omitzero" about:"when the change failed first"`
	Parked      time.Time        `json:"parked,omitzero" about:"when the change was parked"`
	ETag        string           `json:"etag,omitempty" about:"of the version"`
	Expired     bool             `json:"expired,omitempty" about:"a delete by time to live"`
	PreviousLSN int64            `json:"previous_lsn,omitempty" about:"of the version before"`
	Document    json.RawMessage  `json:"document,omitempty" about:"the document"`
	DocumentRaw string           `json:"document_raw,omitempty" about:"in base64, if the text is not JSON on a line"`
	Previous    json.RawMessage  `json:"previous,omitempty" about:"the version before"`
	PreviousRaw string           `json:"previous_raw,omitempty" about:"in base64, if the text is not JSON on a line"`
}

// ReportedAs implements [report.Value].
func (wholeLetter) ReportedAs() string { return "dead_letter" }

// WholeKind describes the lines of changefeed dlq show.
var WholeKind = report.Kind{
	Name: "dead_letter", About: "A dead letter in the stored form: dlq show.", Of: wholeLetter{},
}

// WriteWhole writes the letters of a unit for programs, in their stored form.
func WriteWhole(rows *report.Rows, unit string, letters Seq) error {
	for l, err := range letters {
		if err != nil {
			return cmp.Or(rows.Flush(), err)
		}
		text, err := deadletters.Marshal(unit, l)
		if err != nil {
			return err
		}
		if err := rows.AddObject("dead_letter", text); err != nil {
			return err
		}
	}
	return rows.Flush()
}

// Show writes letters in full, for people.
func Show(w io.Writer, letters Seq) error {
	for l, err := range letters {
		if err != nil {
			return err
		}
		if err := show(w, l); err != nil {
			return err
		}
	}
	return nil
}

// show writes a letter for people.
func show(w io.Writer, l feed.DeadLetter) error {
	var b bytes.Buffer
	c := &l.Change
	fmt.Fprintf(&b, "%s of %s\n", l.ID, terminal.OneLine(string(c.PartitionKey)))
	for _, row := range []struct{ name, value string }{
		{"disposition", string(l.Disposition)},
		{"cause", l.Cause},
		{"attempts", strconv.Itoa(l.Attempts)},
		{"change", fmt.Sprintf("%s of item %s, LSN %d, committed %s", c.Op, terminal.OneLine(c.ID), c.LSN,
			when(c.Time))},
		{"etag", c.ETag},
		{"lease", fmt.Sprintf("%s, range %s", l.Lease, l.Range)},
		{"instance", l.Instance},
		{"failed", when(l.Failed)},
		{"parked", when(l.Parked)},
		{"stack", l.Stack},
		{"document", indented(c.Body)},
		{"previous", indented(c.Previous)},
	} {
		if row.value == "" {
			continue
		}
		text := terminal.Harmless(strings.TrimRight(row.value, "\n"))
		if strings.Contains(text, "\n") {
			fmt.Fprintf(&b, "  %s\n    %s\n", row.name, strings.ReplaceAll(text, "\n", "\n    "))
		} else {
			fmt.Fprintf(&b, "  %-12s %s\n", row.name, text)
		}
	}
	_, err := b.WriteTo(w)
	return err
}

// when returns a time for people, or "" for the zero time.
func when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// indented returns a document for people: as indented JSON, or quoted if not JSON.
func indented(doc []byte) string {
	var b bytes.Buffer
	switch {
	case doc == nil:
		return ""
	case json.Indent(&b, doc, "", "  ") != nil:
		return strconv.QuoteToGraphic(string(doc))
	}
	return b.String()
}
