package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/internal/place"
	"github.com/millrace/changefeed/internal/terminal"
	"github.com/millrace/changefeed/internal/unit"
)

// The table of leases. What a lease means, and what is odd about it, is found out by
// internal/unit; here it is laid out for people, or written as JSON.

// leasesCommand is the command leases.
func leasesCommand() *cobra.Command {
	o := placeFlags{container: unit.DefaultContainer}
	var form *choice
	var doomed string
	cmd := &cobra.Command{
		Use:   "leases [ADDRESS]",
		Short: "Show who reads which range, up to where, and what is still to come",
		Long: `Show the leases of all deployment units in a lease container: who owns each, when it
was last written, the position stored in it, how many changes come after that and how
long the oldest of them has waited, how often the batch in hand has failed, how many
partition keys are held (see changefeed dlq), and anything that is wrong: a lease that is free, expired, being split or there twice, a document
that is no lease, a range of keys that no lease covers.

The containers that the units read are looked for in the same store or, in an account,
in the same database. A store and changefeed serve count the changes exactly. An account
in Azure cannot: there a number after ~ is a distance of LSNs, which counts transactions
and not changes, and a number after ≤ is that of a whole partition, which several leases
share, so that each shows all of it.

With --delete NAME the leases of that unit are deleted, with all positions, so its next
processor begins anew at its own start. This is refused while a processor of the unit is
at work.

With -o json, one object a line: of kind lease, instance, hole or document.` + addressHelp,
		Example: `  changefeed leases --db data
  changefeed leases http://127.0.0.1:8081/shop/leases
  changefeed leases --db data --container my-leases -o json | jq 'select(.lag > 1000)'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := o.address(cmd, args)
			if err != nil {
				return err
			}
			units, err := o.survey(cmd, a, doomed)
			if err != nil || doomed != "" {
				return err
			}
			if form.value == "json" {
				return writeRows(cmd.OutOrStdout(), units)
			}
			return writeTables(cmd.OutOrStdout(), a.Name(), units, terminal.Of(cmd.OutOrStdout()))
		},
	}
	o.register(cmd)
	form = output(cmd)
	cmd.Flags().StringVar(&doomed, "delete", "", "delete all records of the unit of this `name`")
	return cmd
}

// survey opens the lease container and reads its units; it deletes the unit that is doomed,
// if any. No flag names the monitored containers: they are looked for beside the leases.
func (p *placeFlags) survey(cmd *cobra.Command, a place.Address, doomed string) (units []unit.Unit, err error) {
	o := place.NewOpener(p.account)
	defer func() { err = cmp.Or(err, o.Close()) }()
	leases, err := o.Open(cmd.Context(), a)
	// The name leases is our guess here, so the error says why there may be none.
	if errors.Is(err, place.ErrNoContainer) && p.db != "" && !cmd.Flags().Changed("container") {
		return nil, fmt.Errorf("%w; processors make no lease container by themselves", err)
	}
	if err != nil {
		return nil, err
	}
	monitored, err := o.Neighbours(cmd.Context(), leases)
	if err != nil {
		return nil, err
	}
	if units, err = unit.List(cmd.Context(), leases, monitored); err != nil || doomed == "" {
		return units, err
	}
	gone, n, err := unit.Delete(cmd.Context(), doomed, units)
	if err != nil {
		return units, err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "deleted %s on %s, leases: %d\n", gone.Processor, gone.Container, n)
	return units, err
}

// writeRows writes all rows as JSON, one a line.
func writeRows(w io.Writer, units []unit.Unit) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, u := range units {
		for _, r := range u.Rows {
			if err := enc.Encode(r); err != nil {
				return fmt.Errorf("write lease: %w", err)
			}
		}
	}
	return nil
}

// writeTables writes a table for each unit, as wide as the terminal.
func writeTables(w io.Writer, container string, units []unit.Unit, at terminal.Terminal) error {
	if len(units) == 0 {
		_, err := fmt.Fprintf(w, "container %s has no leases\n", container)
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

// writeTable writes the table of a unit. Instances are counted in its heading and have no
// row.
func writeTable(w io.Writer, u *unit.Unit, at terminal.Terminal) error {
	fmt.Fprintln(w, heading(u))
	rows := [][]string{{"LEASE", "OWNER", "WRITTEN", "POSITION", "LAG", "WAITED", "STATE", "ATTEMPTS", "NOTE"}}
	if u.Processor == "" {
		rows = [][]string{{"DOCUMENT", "OWNER", "NOTE"}}
	}
	for _, r := range u.Rows {
		switch {
		case u.Processor == "":
			rows = append(rows, []string{r.ID, orDash(r.Owner), strings.Join(r.Notes, "; ")})
		case r.Kind != unit.KindInstance:
			rows = append(rows, cells(r, at.Edges))
		}
	}
	_, err := io.WriteString(w, leaseTable(rows, at.Room()))
	return err
}

// leaseTable is a table whose last column is notes. If the terminal has no room for them,
// each note is written below its row.
func leaseTable(rows [][]string, room int) string {
	table := aligned(rows)
	if room == 0 || widestOf(table) <= room {
		return strings.Join(table, "")
	}
	var short [][]string
	for _, row := range rows {
		short = append(short, row[:len(row)-1])
	}
	// Notes are sentences: at the end of a wide row a terminal would break them
	// anywhere, and the columns with them.
	table = aligned(short)
	for i, row := range rows[1:] {
		if note := row[len(row)-1]; note != "" {
			table[i+1] += terminal.Wrap("    "+note, 0, room, 4) + "\n"
		}
	}
	return strings.Join(table, "")
}

// aligned lays rows out as lines with aligned columns.
func aligned(rows [][]string) []string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, "  "+strings.Join(row, "\t"))
	}
	_ = t.Flush() // writes to memory
	return slices.Collect(strings.Lines(b.String()))
}

// widestOf is the width of the widest line, with its indentation of two.
func widestOf(lines []string) (most int) {
	for _, line := range lines {
		most = max(most, utf8.RuneCountInString(strings.TrimSpace(line))+2)
	}
	return most
}

// heading is the first line of a table: the unit and its sums.
func heading(u *unit.Unit) string {
	if u.Processor == "" {
		return "documents of no unit in this store"
	}
	sum := u.Sums()
	behind := "nothing behind"
	switch {
	// Zero may mean that no lease could be counted. That must not read like good news.
	case sum.Lag == 0 && !sum.Known:
		behind = "nobody knows how far behind"
	case sum.Lag > 0:
		behind = fmt.Sprintf("%s%s behind, the oldest for %s", mark(sum.Exact, sum.Shared), terminal.Count(sum.Lag, "change"), terminal.Seconds(sum.Waited))
	}
	return fmt.Sprintf("%s on %s: %s, %s, %s", u.Processor, u.Container,
		terminal.Count(sum.Leases, "lease"), terminal.Count(sum.Instances, "instance"), behind)
}

// mark stands before a lag that is not an exact count.
func mark(exact, shared bool) string {
	switch {
	case exact:
		return ""
	case shared:
		return "≤"
	}
	return "~"
}

// cells are the columns of a row.
func cells(r unit.Row, edges func(string) string) []string {
	note := strings.Join(r.Notes, "; ")
	switch r.Kind {
	case unit.KindHole:
		return []string{edges(r.Range), "-", "-", "-", "-", "-", "hole", "-", note}
	case unit.KindDocument:
		return []string{r.ID, "-", "-", "-", "-", "-", "-", "-", note}
	}
	name := edges(r.Lease)
	if r.Range != "" && r.Range != r.Lease { // the id of a partition
		name += " (" + edges(r.Range) + ")"
	}
	// A dash would say that there is nothing to count, as for a hole. Here there is,
	// and it is not known.
	lag, waited := "?", "?"
	if r.Lag != nil {
		lag, waited = strconv.FormatInt(*r.Lag, 10), terminal.Seconds(r.Waited)
		lag = mark(r.Exact, r.Shared) + lag
	}
	return []string{
		name, orDash(r.Owner), terminal.Seconds(r.Silent) + " ago", r.Position, lag, waited,
		r.State, strconv.Itoa(r.Attempts), note,
	}
}

// orDash is text, or a dash for none, so that columns can be told apart.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
