package unit

import (
	"strings"
	"testing"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
)

// The leases of others have texts that a terminal might obey, and names with a line break.
func TestNoTableOfAUnitControlsATerminal(t *testing.T) {
	const bad = "a\n\x1b[2J\u009b5mb"
	lease := Row{Kind: KindLease, ID: bad, Lease: bad, Range: bad, Owner: bad, Position: bad, Notes: []string{bad}}
	for name, write := range map[string]func(w *strings.Builder) error{
		"a unit": func(w *strings.Builder) error {
			units := []Unit{{Processor: bad, Container: bad, Rows: []Row{lease, {Kind: KindDocument, ID: bad}}}}
			return WriteTables(w, "leases", units, terminal.Terminal{})
		},
		"documents of no unit": func(w *strings.Builder) error {
			return WriteTables(w, "leases", []Unit{{Rows: []Row{{Kind: KindDocument, ID: bad, Owner: bad}}}},
				terminal.Terminal{})
		},
		"no leases": func(w *strings.Builder) error { return WriteTables(w, bad, nil, terminal.Terminal{}) },
		"the instances": func(w *strings.Builder) error {
			l := &admin.Listing{Instances: []admin.Instance{{
				Record: feed.Record{Owner: bad}, Presence: admin.Running, Weight: 2,
			}}}
			return writeSharing(w, l, terminal.Terminal{})
		},
		"the history": func(w *strings.Builder) error {
			return WriteHistory(w, "mailer", []admin.Entry{{
				By: bad, Reason: bad, Action: bad,
				Moves: []admin.Move{{Lease: bad, From: feed.At(bad), To: feed.At(bad)}},
			}})
		},
	} {
		var out strings.Builder
		if err := write(&out); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); strings.ContainsAny(got, "\x1b\u009b") || strings.Contains(got, "a\n") ||
			!strings.Contains(got, "a [2J") {
			t.Errorf("%s: got %q, want no control characters", name, got)
		}
	}
}
