package unit

import (
	"fmt"
	"io"
	"strconv"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
)

// Weights and loads of instances, which are shown if an instance has another weight than 1, or shares by load.

// sharingOf returns how large the part of an instance is.
func sharingOf(i admin.Instance) shared {
	s := shared{Weight: i.Weight, ByLoad: i.SharesByLoad}
	if i.SharesByLoad && i.LoadKnown {
		s.Load = &i.Load
	}
	if i.Presence == admin.Running {
		s.Share, s.Due = &i.Share, &i.Due
	}
	return s
}

// isWeighted reports whether the running instances do not simply share the leases equally.
func isWeighted(l *admin.Listing) bool {
	for _, i := range l.Instances {
		if i.Presence == admin.Running && (i.Weight != 1 || i.SharesByLoad) {
			return true
		}
	}
	return false
}

// writeSharing writes a table of the running instances, if they do not simply share the leases equally.
func writeSharing(w io.Writer, l *admin.Listing, at terminal.Terminal) error {
	if !isWeighted(l) {
		return nil
	}
	byLoad, of := l.SharesByLoad(), "LEASES%"
	if byLoad {
		of = "LOAD%"
	}
	rows := [][]string{{"INSTANCE", "WEIGHT", "LEASES", "LOAD", of, "DUE%", "NOTE"}}
	for _, i := range l.Instances {
		if i.Presence != admin.Running {
			continue
		}
		load, note := "-", ""
		if i.SharesByLoad {
			if load = terminal.Number(i.Load); !i.LoadKnown {
				load = "?"
			}
			if !byLoad {
				note = "shares by load, and others do not: the number counts"
			}
		}
		rows = append(rows, []string{
			i.Owner, strconv.Itoa(i.Weight), strconv.Itoa(i.Leases), load, percent(i.Share), percent(i.Due), note,
		})
	}
	_, err := io.WriteString(w, terminal.Table(rows, at.Room()))
	return err
}

// percent returns a part as text.
func percent(part float64) string { return fmt.Sprintf("%.0f%%", 100*part) }
