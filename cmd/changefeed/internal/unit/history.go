package unit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
)

// The history of a unit as output: who has steered it, when, how and why.

// PositionText returns a position, or "" if there is none.
func PositionText(p feed.Position) string {
	if p == (feed.Position{}) {
		return ""
	}
	return p.String()
}

// action is a line of the history, for programs.
type action struct {
	At     time.Time `json:"at" about:"when the action had ended, by the clock of the store"`
	By     *string   `json:"by" about:"who; null if the program did not say"`
	Reason *string   `json:"reason" about:"why; null if nobody said"`
	Action string    `json:"action" about:"pause, resume, reset, restore, skip, cleanup; of letters retry, release, drop; or an action of a later version"`
	Range  *string   `json:"range" about:"of effective partition keys, min-max in hex"`
	Count  int       `json:"count" about:"how many leases were meant, or records (cleanup), changes (skip), letters, keys (release)"`
	Done   int       `json:"done" about:"how many of them were done"`
	Moves  []move    `json:"moves" about:"positions of the first 16 leases of a reset or restore"`
	Failed *string   `json:"failed" about:"why the action was not carried out as a whole; null after success"`

	Key     json.RawMessage `json:"key" about:"the partition key of a reset with --key, or of the letters, an array; null for all others"`
	Changes []change        `json:"changes" about:"the first 16 changes of a skip, or of letters"`
}

// change is a change that was skipped, for programs.
type change struct {
	ID  string          `json:"id" about:"of the document"`
	Key json.RawMessage `json:"key" about:"the partition key, an array"`
	LSN int64           `json:"lsn" about:"of the change"`
}

// move is another position of a lease, for programs.
type move struct {
	Lease string  `json:"lease" about:"token of the lease"`
	From  *string `json:"from" about:"position before; null if the lease had none, or if the text is too long"`
	To    *string `json:"to" about:"position after; null if the text is too long"`
}

// ReportedAs implements [report.Value].
func (action) ReportedAs() string { return "action" }

// ActionKind describes the lines of changefeed leases history.
var ActionKind = report.Kind{
	Name: "action", About: "An action on a unit, with author and reason: leases history.", Of: action{},
}

// actionOf returns a line of the history for programs.
func actionOf(e admin.Entry) action {
	a := action{
		At: e.At, By: known(e.By), Reason: known(e.Reason), Action: string(e.Action), Count: e.Count, Done: e.Done,
		Moves: []move{}, Failed: known(e.Failed), Key: keyText(e.Key), Changes: []change{},
	}
	for _, c := range e.Changes {
		a.Changes = append(a.Changes, change{c.ID, keyText(c.Key), c.LSN})
	}
	if e.Range != (feed.Range{}) {
		a.Range = known(e.Range.String())
	}
	for _, m := range e.Moves {
		a.Moves = append(a.Moves, move{m.Lease, known(PositionText(m.From)), known(PositionText(m.To))})
	}
	return a
}

// keyText returns a key as JSON; nil for no key or an invalid key.
func keyText(key feed.PartitionKey) json.RawMessage {
	if !json.Valid([]byte(key)) {
		return nil
	}
	return json.RawMessage(key)
}

// WriteActions writes the history for programs.
func WriteActions(rows *report.Rows, entries []admin.Entry) error {
	for _, e := range entries {
		if err := rows.Add(actionOf(e)); err != nil {
			return err
		}
	}
	return rows.Flush()
}

// WriteHistory writes the history for people: as a table if the rows fit, and otherwise as an entry after the other. A
// table has a row for each position of an entry.
func WriteHistory(w io.Writer, of string, entries []admin.Entry) error {
	if len(entries) == 0 {
		_, err := fmt.Fprintf(w, "%s: nobody has steered the unit so far\n", terminal.OneLine(of))
		return err
	}
	room := terminal.Of(w).Room()
	rows := [][]string{{"WHEN", "BY", "ACTION", "LEASE", "FROM", "TO", "NOTE"}}
	for _, e := range entries {
		row := append(headOf(e), rangeOf(e), "-", "-",
			terminal.OrDash(terminal.OneLine(noteOf(e))))
		for i, d := range detailsOf(e) {
			if i > 0 {
				rows, row = append(rows, row), make([]string, len(row))
			}
			row[3], row[4], row[5] = cmp.Or(d.what, row[3]), d.from, d.to
		}
		rows = append(rows, row)
	}
	text := terminal.Table(rows, room)
	if !terminal.Fits(rows, room) {
		text = entriesText(entries, room)
	}
	_, err := io.WriteString(w, text)
	return err
}

// headOf returns the time, the author and the name of an action.
func headOf(e admin.Entry) []string {
	return []string{
		e.At.UTC().Format(time.RFC3339), terminal.OrDash(terminal.OneLine(e.By)), terminal.OneLine(string(e.Action)),
	}
}

// rangeOf returns the range of an entry or, for letters, their key. For several objects, rangeOf also returns their
// number and kind.
func rangeOf(e admin.Entry) string {
	things := map[admin.Action]string{
		admin.ActionSkip: "change", admin.ActionCleanUp: "record", admin.ActionRetry: "letter",
		admin.ActionDrop: "letter", admin.ActionRelease: "key",
	}
	of := e.Range.String()
	if isOfLetters := things[e.Action] == "letter" || things[e.Action] == "key"; isOfLetters && e.Key != "" {
		of = terminal.OneLine(string(e.Key))
	}
	if e.Count == 1 {
		return of
	}
	return fmt.Sprintf("%s (%s)", of, terminal.Count(e.Count, cmp.Or(things[e.Action], "lease")))
}

// detail is a position of an entry, or a change.
type detail struct {
	what     string // the lease; empty for a change
	from, to string
}

// detailsOf returns the positions or the changes of an entry.
func detailsOf(e admin.Entry) (all []detail) {
	for _, m := range e.Moves {
		d := detail{
			terminal.OneLine(m.Lease), terminal.OrDash(PositionText(m.From)), terminal.OrDash(PositionText(m.To)),
		}
		if e.Key != "" {
			d.what += " " + terminal.OneLine(string(e.Key))
		}
		all = append(all, d)
	}
	for _, c := range e.Changes {
		all = append(all, detail{"", NameOfFailed(c), "-"})
	}
	return all
}

// entriesText returns the entries for a narrow terminal: the action in a line, and each position in the next. A range
// is never cut, because people copy ranges.
func entriesText(entries []admin.Entry, room int) string {
	var text strings.Builder
	line := func(indent int, words string) {
		text.WriteString(terminal.Wrap(strings.Repeat(" ", indent)+words, 0, room, indent+2) + "\n")
	}
	for _, e := range entries {
		line(2, strings.Join(append(headOf(e), rangeOf(e)), "  "))
		if note := terminal.OneLine(noteOf(e)); note != "" {
			line(4, note)
		}
		for _, d := range detailsOf(e) {
			way := d.from + " to " + d.to
			switch both := d.what + "  " + way; {
			case d.what == "":
				line(4, d.from)
			case room > 0 && 4+terminal.Width(both) > room:
				line(4, d.what)
				line(6, way)
			default:
				line(4, both)
			}
		}
	}
	return text.String()
}

// noteOf returns the text of a line beside the columns.
func noteOf(e admin.Entry) string {
	switch {
	case e.Failed == "":
		return e.Reason
	case e.Reason == "":
		return fmt.Sprintf("%d of %d done: %s", e.Done, e.Count, e.Failed)
	}
	return fmt.Sprintf("%s; %d of %d done: %s", e.Reason, e.Done, e.Count, e.Failed)
}
