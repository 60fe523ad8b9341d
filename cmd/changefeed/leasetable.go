package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/internal/terminal"
)

// writeRows writes all rows as JSON, one a line.
func writeRows(w io.Writer, units []unit) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, u := range units {
		for _, r := range u.rows {
			if err := enc.Encode(r); err != nil {
				return fmt.Errorf("write lease: %w", err)
			}
		}
	}
	return nil
}

// writeTables writes a table for each unit, as wide as there is room.
func writeTables(w io.Writer, container string, units []unit, at terminal.Terminal) error {
	if len(units) == 0 {
		_, err := fmt.Fprintf(w, "container %s has no leases\n", container)
		return err
	}
	for i, u := range units {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := u.write(w, at); err != nil {
			return fmt.Errorf("write leases: %w", err)
		}
	}
	return nil
}

func (u *unit) write(w io.Writer, at terminal.Terminal) error {
	fmt.Fprintln(w, u.heading())
	rows := [][]string{{"LEASE", "OWNER", "WRITTEN", "POSITION", "LAG", "WAITED", "STATE", "ATTEMPTS", "NOTE"}}
	if u.processor == "" {
		rows = [][]string{{"DOCUMENT", "OWNER", "NOTE"}}
	}
	for _, r := range u.rows {
		switch {
		case u.processor == "":
			rows = append(rows, []string{r.ID, orDash(r.Owner), strings.Join(r.Notes, "; ")})
		case r.Kind != rowInstance:
			rows = append(rows, r.cells(at.Edges))
		}
	}
	_, err := io.WriteString(w, leaseTable(rows, at.Room()))
	return err
}

// leaseTable is a table whose last column is notes. Where there is no room for them, each
// is below its row.
func leaseTable(rows [][]string, room int) string {
	table := aligned(rows)
	if room == 0 || widestOf(table) <= room {
		return strings.Join(table, "")
	}
	var short [][]string
	for _, row := range rows {
		short = append(short, row[:len(row)-1])
	}
	table = aligned(short)
	for i, row := range rows[1:] {
		if note := row[len(row)-1]; note != "" {
			table[i+1] += terminal.Wrap("    "+note, 0, room, 4) + "\n"
		}
	}
	return strings.Join(table, "")
}

// aligned are rows as lines, with their columns below each other.
func aligned(rows [][]string) []string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, "  "+strings.Join(row, "\t"))
	}
	_ = t.Flush() // writes to memory
	return slices.Collect(strings.Lines(b.String()))
}

// widestOf is the width of the widest of some lines.
func widestOf(lines []string) (most int) {
	for _, line := range lines {
		most = max(most, utf8.RuneCountInString(strings.TrimSpace(line))+2)
	}
	return most
}

// heading is the unit and its sums.
func (u *unit) heading() string {
	if u.processor == "" {
		return "documents of no unit in this store"
	}
	leases, instances, lag, waited, known, about := 0, 0, int64(0), 0.0, true, ""
	for _, r := range u.rows {
		switch r.Kind {
		case rowLease:
			leases++
			known = known && (r.Lag != nil || r.lease.State == changefeed.StateRetired)
		case rowHole:
			known = false
		case rowInstance:
			if !r.gone {
				instances++
			}
		}
		if r.Lag != nil {
			lag += *r.Lag
			if mark := r.mark(); mark > about { // ≤ is above ~
				about = mark
			}
		}
		waited = max(waited, r.Waited)
	}
	behind := "nothing behind"
	switch {
	case lag == 0 && !known:
		behind = "nobody knows how far behind"
	case lag > 0:
		behind = fmt.Sprintf("%s%s behind, the oldest for %s", about, terminal.Count(lag, "change"), terminal.Seconds(waited))
	}
	return fmt.Sprintf("%s on %s: %s, %s, %s", u.processor, u.container,
		terminal.Count(leases, "lease"), terminal.Count(instances, "instance"), behind)
}

// mark stands before a lag that is no count.
func (r *row) mark() string {
	switch {
	case r.Exact:
		return ""
	case r.Shared:
		return "≤"
	}
	return "~"
}

func (r *row) cells(edges func(string) string) []string {
	note := strings.Join(r.Notes, "; ")
	switch r.Kind {
	case rowHole:
		return []string{edges(r.Range), "-", "-", "-", "-", "-", "hole", "-", note}
	case rowDocument:
		return []string{r.ID, "-", "-", "-", "-", "-", "-", "-", note}
	}
	name := edges(r.Lease)
	if r.Range != "" && r.Range != r.Lease { // the id of a partition
		name += " (" + edges(r.Range) + ")"
	}
	lag, waited := "?", "?"
	if r.Lag != nil {
		lag, waited = strconv.FormatInt(*r.Lag, 10), terminal.Seconds(r.Waited)
		lag = r.mark() + lag
	}
	return []string{
		name, orDash(r.Owner), terminal.Seconds(r.Silent) + " ago", r.Position, lag, waited,
		r.State, strconv.Itoa(r.Attempts), note,
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
