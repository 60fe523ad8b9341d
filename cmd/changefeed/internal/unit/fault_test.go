package unit

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
)

// stoppedUnit returns a unit that has stopped, with leases that nobody has.
func stoppedUnit(leases int) *Unit {
	l := &admin.Listing{}
	for range leases {
		l.Leases = append(l.Leases, admin.Lease{
			Record: feed.Record{ID: "mailer..a", Token: "a"}, State: admin.StateStopped,
			Lag: &changefeed.Lag{Pending: 8, Oldest: l.At.Add(-95 * time.Second), Exact: true},
		})
	}
	return Of("mailer", "orders", l)
}

// A fault is found, with the name of the unit and of the lease. Package admin finds what is wrong.
func TestAFaultIsFoundWhereItIs(t *testing.T) {
	for word, says := range map[string]string{
		"stopped": "mailer a: no instance runs", "lag>7": "mailer a: 8 changes behind", "lag>8": "",
		"wait>94s": "mailer a: the oldest change has waited for 1m35s", "wait>95s": "", "paused": "",
		"lag>7,stopped": "mailer a: 8 changes behind; mailer a: no instance runs",
	} {
		var f Faults
		if err := f.Set(word); err != nil {
			t.Fatal(err)
		}
		u := stoppedUnit(1)
		u.listing.At = time.Unix(1000, 0)
		u.listing.Leases[0].Lag.Oldest = u.listing.At.Add(-95 * time.Second)
		if got := f.Find([]Unit{*u}); got != says {
			t.Errorf("%s: found %q, want %q", word, got, says)
		}
	}
	holes := Of("mailer", "orders", &admin.Listing{Holes: []admin.Hole{{Range: feed.Range{Max: "80"}}}})
	var f Faults
	if err := f.Set("hole"); err != nil || f.Find([]Unit{*holes}) != "mailer -80: no lease holds these keys" {
		t.Errorf("found %q, %v, want a hole", f.Find([]Unit{*holes}), err)
	}
}

// The leases with faults are named in the order in which they are shown, and each lease has its faults together.
func TestFaultsAreFoundInTheOrderOfTheLeases(t *testing.T) {
	u := stoppedUnit(2)
	for i, r := range feed.FullRange().Cut(2) {
		lease := &u.listing.Leases[1-i]
		lease.Range, lease.Token, lease.Attempts = r, string(rune('a'+i)), 1
	}
	var f Faults
	if err := f.Set("failing,stopped"); err != nil {
		t.Fatal(err)
	}
	const want = "mailer a: the batch in hand has failed 1 time; mailer a: no instance runs; " +
		"mailer b: the batch in hand has failed 1 time; mailer b: no instance runs"
	if got := f.Find([]Unit{*u}); got != want {
		t.Errorf("found %q, want %q", got, want)
	}
}

// An error names a few faults. Without a unit there is nothing to call good, and without faults nothing to look for.
func TestFaultsOfUnits(t *testing.T) {
	var f Faults
	stray := []Unit{{Rows: []Row{{Kind: KindDocument, ID: "x", record: feed.Record{Err: errors.New("no")}}}}}
	if got := f.Find(stray) + f.Find(nil); got != "" {
		t.Errorf("found %q, and nothing is looked for", got)
	}
	if err := f.Set("stopped"); err != nil {
		t.Fatal(err)
	}
	if a, b := f.Find(stray), f.Find(nil); a != "there is no unit" || b != a {
		t.Errorf("found %q and %q without a unit", a, b)
	}
	got := f.Find([]Unit{*stoppedUnit(7)})
	if strings.Count(got, "no instance runs") != 5 || !strings.HasSuffix(got, "; and 2 more") {
		t.Errorf("found %q, want five of seven", got)
	}
}

// What is no fault is refused with the words that are, and its value.
func TestAWordThatIsNoFaultIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":         `"" is no fault: want some of wait>DURATION, lag>NUMBER, hole`,
		"old":      `"old" is no fault`,
		"wait":     `"wait" is no fault`,
		"wait>2":   "wait>2: want a duration after wait>",
		"wait>-2s": "wait>-2s: want a duration",
		"lag>x":    "lag>x: want a number of changes",
		"lag>-1":   "lag>-1: want a number of changes",
		"hole,":    `"" is no fault`,
		"hole>3":   `"hole>3" is no fault`,
	} {
		if err := new(Faults).Set(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
