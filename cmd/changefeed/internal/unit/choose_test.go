package unit

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
)

// A lease is named by its token, its range, or a beginning that no other lease has. An error names the leases that can
// be meant, and a lease that is missing is another error than a text that says too little.
func TestALeaseIsNamedByABeginning(t *testing.T) {
	leases := []feed.Record{
		{Token: "-15", Range: feed.Range{Min: "", Max: "15"}},
		{Token: "15-2A", Range: feed.Range{Min: "15", Max: "2A"}},
		{Token: "2A-2C", Range: feed.Range{Min: "2A", Max: "2C"}},
		{Token: "7", Range: feed.Range{Min: "2C", Max: "E0"}},
		{Token: "71", Range: feed.Range{Min: "E0", Max: "FF"}},
	}
	for text, want := range map[string]string{
		"-": "-15", "1": "15-2A", "15-2A": "15-2A", "2A": "2A-2C", "7": "7", "2C": "7", "2C-E0": "7", "71": "71",
	} {
		if got, err := ChooseLease(text, leases); err != nil || got.Token != want {
			t.Errorf("%s means lease %q, %v; want %s", text, got.Token, err, want)
		}
	}
	_, err := ChooseLease("2", leases)
	if err == nil || !strings.HasSuffix(err.Error(), "because it can mean each of 2A-2C, 2C-E0") {
		t.Errorf("of 2: %v", err)
	}
	_, isMissing := errors.AsType[usage.Missing](err)
	_, err = ChooseLease("3", leases)
	_, is := errors.AsType[usage.Missing](err)
	if isMissing || !is || !strings.Contains(err.Error(), "-15, 15-2A, 2A") {
		t.Errorf("of 3: %v; missing %v, of 2 %v", err, is, isMissing)
	}
	if _, err = ChooseLease("3", nil); err == nil || !strings.HasSuffix(err.Error(), "it has none") {
		t.Errorf("without leases: %v", err)
	}
}

// On a narrow terminal each position of the history is shown, and no range is cut.
func TestTheHistoryOfANarrowTerminalHasAllPositions(t *testing.T) {
	lease := strings.Repeat("15", 16) + "-" + strings.Repeat("2A", 16)
	entries := []admin.Entry{{
		At: time.Date(2026, 11, 29, 9, 55, 28, 0, time.UTC), By: "ada", Action: admin.ActionReset,
		Range: feed.FullRange(), Count: 2, Reason: "a wrong template", Moves: []admin.Move{
			{Lease: "-" + lease[:32], From: feed.At(`"4"`), To: feed.At(`"0"`)},
			{Lease: lease, From: feed.At(`"40000"`), To: feed.At(`"1"`)},
		},
	}, {
		At: time.Date(2026, 11, 29, 9, 56, 0, 0, time.UTC), Action: admin.ActionSkip, Range: feed.FullRange(), Count: 1,
		Changes: []admin.FailedChange{{ID: "bad", Key: feed.Key("oslo"), LSN: 7}},
	}}
	const want = `  2026-11-29T09:55:28Z  ada  reset  -FF (2 leases)
    a wrong template
    -15151515151515151515151515151515  "4" to "0"
    15151515151515151515151515151515-2A2A2A2A2A2A2A2A2A2A2A2A2A2A2A2A
      "40000" to "1"
  2026-11-29T09:56:00Z  -  skip  -FF
    change "bad" of key ["oslo"], LSN 7
`
	if got := entriesText(entries, 80); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A range that has a part of a lease names the flag, and the lease.
func TestARangeThatCutsALeaseIsRefused(t *testing.T) {
	leases := []feed.Record{
		{Token: "-15", Range: feed.Range{Min: "", Max: "15"}},
		{Token: "15-FF", Range: feed.Range{Min: "15", Max: "FF"}},
	}
	for text, want := range map[string]string{
		"-15": "", "-FF": "", "15-2A": "--lease is 15-2A: the range cuts lease 15-FF: want a range that ends where leases do, " +
			"such as 15-FF",
	} {
		r, err := feed.ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckCut(r, leases); (err != nil) != (want != "") || err != nil && err.Error() != want {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
