package unit

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
)

// Units as output for people: a table each.

// WriteTables writes a table for each unit of a lease container, as wide as the terminal.
func WriteTables(w io.Writer, container string, units []Unit, at terminal.Terminal) error {
	if len(units) == 0 {
		_, err := fmt.Fprintf(w, "container %s has no leases\n", terminal.OneLine(container))
		return err
	}
	for i, u := range units {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := writeTable(w, &u, at); err != nil {
			return fmt.Errorf("write leases: %w", err)
		}
	}
	return nil
}

// writeTable writes the table of a unit. Instances have no row; the heading counts them.
func writeTable(w io.Writer, u *Unit, at terminal.Terminal) error {
	fmt.Fprintln(w, terminal.Wrap(terminal.OneLine(heading(u)), 0, at.Room(), 2))
	for _, warning := range u.Warnings() {
		fmt.Fprintln(w, terminal.Wrap("warning: "+terminal.OneLine(warning.Text), 0, at.Room(), 2))
	}
	if err := writeSharing(w, u.Listing(), at); err != nil {
		return err
	}
	rows := [][]string{{"LEASE", "OWNER", "WRITTEN", "POSITION", "LAG", "WAITED", "STATE", "ATTEMPTS", "NOTE"}}
	if u.Processor == "" {
		rows = [][]string{{"DOCUMENT", "OWNER", "NOTE"}}
	}
	for _, r := range u.Rows {
		switch {
		case u.Processor == "":
			rows = append(rows, []string{r.ID, terminal.OrDash(r.Owner), strings.Join(r.Notes, "; ")})
		case r.Kind != KindInstance && !r.isOver():
			rows = append(rows, cells(r))
		}
	}
	// The note says how long an owner has been silent, and how many attempts have failed, if that matters.
	const written, position, waited, attempts = 2, 3, 5, 7
	spare := []int{written, attempts, position, waited}
	if u.Processor == "" {
		spare = nil
	}
	_, err := io.WriteString(w, terminal.Table(rows, at.Room(), spare...)+u.recommendations())
	return err
}

// isOver reports whether the row is a request that nobody serves any more. The store removes such a request in minutes,
// and operators learn nothing about the unit from it.
func (r Row) isOver() bool {
	return r.Kind == KindRequest && r.State != string(admin.RequestAsked)
}

// recommendations returns the commands that the notes name, a line each: a note may be cut or broken, and a command
// that is pasted may not.
func (u *Unit) recommendations() string {
	var all []string
	for _, r := range u.Rows {
		all = append(all, u.Commands.Recommended(strings.Join(r.Notes, "; "), r.HeldKeys...)...)
	}
	var text strings.Builder
	for i, command := range all {
		if !slices.Contains(all[:i], command) {
			text.WriteString("  " + command + "\n")
		}
	}
	return text.String()
}

// heading returns the first line of a table: the unit and the sums.
func heading(u *Unit) string {
	if u.Processor == "" {
		return "documents of no unit in this store"
	}
	name := u.Processor
	if name == Unnamed {
		name = "unit without a name (--name " + Unnamed + ")"
	}
	return name + " on " + u.Container + ": " + u.Listing().Sentence()
}

// mark returns the mark before a lag that is not an exact count.
func mark(exact, shared bool) string {
	switch {
	case exact:
		return ""
	case shared:
		return "≤"
	}
	return "~"
}

// cells returns the columns of a row.
func cells(r Row) []string {
	note := strings.Join(r.Notes, "; ")
	switch r.Kind {
	case KindHole:
		return []string{r.Range, "-", "-", "-", "-", "-", "hole", "-", note}
	case KindRequest:
		return r.Request.cells(r)
	case KindDocument:
		return []string{r.ID, "-", "-", "-", "-", "-", "-", "-", note}
	}
	name := r.Lease
	if r.Range != "" && r.Range != r.Lease { // the id of a partition
		name += " (" + r.Range + ")"
	}
	// A dash would say that there is nothing to count, as for a hole. Here the number is unknown.
	lag, waited, attempts := "?", "?", "?"
	if n := r.count(r.Attempts); n != nil {
		attempts = strconv.Itoa(*n)
	}
	if r.Lag != nil {
		lag = mark(r.Exact, r.Shared) + strconv.FormatInt(*r.Lag, 10)
	}
	if r.Waited != nil {
		waited = terminal.Seconds(*r.Waited)
	}
	return []string{
		name, terminal.OrDash(r.Owner), terminal.Seconds(r.Silent) + " ago", r.Position, lag, waited,
		r.State, attempts, note,
	}
}
