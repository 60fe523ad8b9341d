package unit

import (
	"errors"
	"fmt"
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
		"2a": "2A-2C", "2c-e": "7", "2c-e0": "7", // in small letters, as a whole range may be
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

// A lease whose range is unknown, or whose token is no range, is named by a beginning of its token. Up to ten are all
// named, and more are said to be more.
func TestALeaseWithoutARangeIsNamedByItsToken(t *testing.T) {
	leases := []feed.Record{
		{Token: "901", Err: feed.ErrBadLease}, {Token: "83", Range: feed.Range{Min: "15", Max: "FF"}},
	}
	for text, want := range map[string]string{"90": "901", "8": "83", "1": "83"} {
		if got, err := ChooseLease(text, leases); err != nil || got.Token != want {
			t.Errorf("%s means lease %q, %v; want %s", text, got.Token, err, want)
		}
	}
	for n := range 8 {
		leases = append(leases, feed.Record{Token: string(rune('A' + n))})
	}
	_, ten := ChooseLease("3", leases)
	_, eleven := ChooseLease("3", append(leases, feed.Record{Token: "I"}))
	if ten == nil || !strings.HasSuffix(ten.Error(), "G, H") || eleven == nil ||
		!strings.HasSuffix(eleven.Error(), "H, and others") {
		t.Errorf("of ten leases: %v; of eleven: %v", ten, eleven)
	}
}

// A text with a dash is a range if a lease lies in it, and else the beginning of a lease. A lease that has been
// replaced is not selected.
func TestALeaseIsSelectedByARangeOrABeginning(t *testing.T) {
	var all []feed.Record
	lease := func(text string, state feed.State) {
		r, err := feed.ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, feed.Record{Kind: feed.KindLease, Token: text, Range: r, State: state})
	}
	for _, text := range []string{"-0AA", "0AA-1555", "1555-1FFF", "20-2A", "2A-FF"} {
		lease(text, feed.StateLive)
	}
	lease("1FFF-21", feed.StateSplitting) // and its parts are being made
	lease("1FFF-20", feed.StateLive)
	lease("20-29", feed.StateRetired)
	all = append(all, feed.Record{Kind: feed.KindLease, Token: "B1D", Err: feed.ErrBadLease}) // of an unknown range
	for text, want := range map[string]string{
		"-": "-0AA", "-0": "-0AA", "-0aa": "-0AA", "0AA-1FFF": "0AA-1FFF", "0AA-1": "0AA-1555", "1555-1F": "1555-1FFF",
		"155": "1555-1FFF", "20": "20-2A", "2": "", "20-3": "20-3", "-FF": "-FF", "30-40": "", "30": "",
		"1FFF-2": "",
	} {
		got, err := selectAmong(all, text)
		if want == "" {
			if err == nil {
				t.Errorf("%s selects %+v, want an error", text, got)
			}
			continue
		}
		if r, bad := feed.ParseRange(want); bad != nil || err != nil || got != admin.Of(r) {
			t.Errorf("%s selects %+v, %v, want %s", text, got, err, want)
		}
	}
	if got, err := selectAmong(all, "B1"); !errors.Is(err, feed.ErrBadLease) {
		t.Errorf("a lease whose range is unknown: %+v, %v", got, err)
	}
	_, err := selectAmong(all, "1FFF-2")
	if _, isMissing := errors.AsType[usage.Missing](err); isMissing || err == nil ||
		!strings.Contains(err.Error(), "1FFF-20, 1FFF-21") {
		t.Errorf("1FFF-2, which two leases begin with: %v", err)
	}
}

// A lease of an older processor has the name of its partition, and no range: it is selected by the name, and by the
// range of the partition.
func TestALeaseWithoutItsRangeIsSelected(t *testing.T) {
	o := newOffice(t)
	o.put(t, o.leases, fmt.Sprintf(`{"id":"%s..0","LeaseToken":"0","Owner":null,"ContinuationToken":"\"1\""}`,
		o.store.Prefix()))
	for _, text := range []string{"0", "-", "-f", "-FF"} {
		got, err := SelectLeases(t.Context(), o.monitored, o.store, text)
		if err != nil || got != admin.All() {
			t.Errorf("%s selects %+v, %v, want the only lease", text, got, err)
		}
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
		if err := checkCut(r, leases); (err != nil) != (want != "") || err != nil && err.Error() != want {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
