package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/millrace/changefeed"
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

// writeTables writes a table for each unit, with edges of ranges as they are to be shown.
func writeTables(w io.Writer, container string, units []unit, edges func(string) string) error {
	if len(units) == 0 {
		_, err := fmt.Fprintf(w, "container %s has no leases\n", container)
		return err
	}
	for i, u := range units {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := u.write(w, edges); err != nil {
			return fmt.Errorf("write leases: %w", err)
		}
	}
	return nil
}

func (u *unit) write(w io.Writer, edges func(string) string) error {
	fmt.Fprintln(w, u.heading())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if u.processor == "" {
		fmt.Fprintln(t, "  DOCUMENT\tOWNER\tNOTE")
		for _, r := range u.rows {
			fmt.Fprintf(t, "  %s\t%s\t%s\n", r.ID, orDash(r.Owner), strings.Join(r.Notes, "; "))
		}
		return t.Flush()
	}
	fmt.Fprintln(t, "  LEASE\tOWNER\tWRITTEN\tPOSITION\tLAG\tWAITED\tSTATE\tATTEMPTS\tNOTE")
	for _, r := range u.rows {
		if r.Kind != rowInstance {
			fmt.Fprintf(t, "  %s\n", r.cells(edges))
		}
	}
	return t.Flush()
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
		behind = fmt.Sprintf("%s%s behind, the oldest for %s", about, several(lag, "change"), seconds(waited))
	}
	return fmt.Sprintf("%s on %s: %s, %s, %s", u.processor, u.container,
		several(leases, "lease"), several(instances, "instance"), behind)
}

// several is a number of things.
func several[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
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

func (r *row) cells(edges func(string) string) string {
	note := strings.Join(r.Notes, "; ")
	switch r.Kind {
	case rowHole:
		return strings.Join([]string{edges(r.Range), "-", "-", "-", "-", "-", "hole", "-", note}, "\t")
	case rowDocument:
		return strings.Join([]string{r.ID, "-", "-", "-", "-", "-", "-", "-", note}, "\t")
	}
	name := edges(r.Lease)
	if r.Range != "" && r.Range != r.Lease { // the id of a partition
		name += " (" + edges(r.Range) + ")"
	}
	lag, waited := "?", "?"
	if r.Lag != nil {
		lag, waited = strconv.FormatInt(*r.Lag, 10), seconds(r.Waited)
		lag = r.mark() + lag
	}
	return strings.Join([]string{
		name, orDash(r.Owner), seconds(r.Silent) + " ago", r.Position, lag, waited,
		r.State, strconv.Itoa(r.Attempts), note,
	}, "\t")
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// seconds is a time that people can take in.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// ellipsis ends an edge that was cut.
const ellipsis = "…"

// maxEdge is how many digits of the edge of a range a table has room for.
const maxEdge = 8

// short is a range with its edges cut, for a terminal; a pipe and -o json have all of
// them. The flag --range takes either.
func short(token string) string {
	lo, hi, ok := strings.Cut(token, "-")
	if !ok {
		return token
	}
	return cut(lo) + "-" + cut(hi)
}

// edgesFor is how ranges are shown: short to people, whole to programs.
func edgesFor(w io.Writer) func(token string) string {
	if terminalOf(w).width != nil {
		return short
	}
	return func(token string) string { return token }
}

func cut(edge string) string {
	if len(edge) > maxEdge {
		return edge[:maxEdge] + ellipsis
	}
	return edge
}
