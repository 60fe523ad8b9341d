package unit

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/changefeed/feed"
)

// Each fault is found in a row that has it, and in no other.
func TestEachFaultIsFoundWhereItIs(t *testing.T) {
	sound := func() Row {
		return Row{Processor: "mailer", Kind: KindLease, Lease: "-FF", Lag: new(int64(7)), Waited: new(30.0)}
	}
	of := func(edit func(r *Row)) Row {
		r := sound()
		edit(&r)
		return r
	}
	for word, c := range map[string]struct {
		row  Row
		says string
	}{
		"expired": {
			of(func(r *Row) { r.State, r.Owner, r.Silent = StateExpired, "one", 61 }),
			"owner one is silent for 1m1s",
		},
		"free":    {of(func(r *Row) { r.State = StateFree }), "nobody has the lease"},
		"stopped": {of(func(r *Row) { r.State = StateStopped }), "no instance runs"},
		"paused":  {of(func(r *Row) { r.State = StatePaused }), "paused"},
		"hole":    {Row{Processor: "mailer", Kind: KindHole, Range: "-80"}, "mailer -80: no lease holds these keys"},
		"overlap": {of(func(r *Row) { r.Overlaps = []string{"b"} }), "another lease"},
		"broken":  {of(func(r *Row) { r.record.Err = errors.New("no range") }), "no range"},
		"failing": {of(func(r *Row) { r.Attempts = 3 }), "failed 3 times"},
		"slow":    {of(func(r *Row) { r.InHand = new(72.0) }), "in the handler for 1m12s"},
		"held":    {of(func(r *Row) { r.Held = 2 }), "2 keys held"},
		"aside":   {of(func(r *Row) { r.SetAside = 1 }), "1 key set aside"},
		"outage":  {of(func(r *Row) { r.Outage = "TIME" }), "outage since TIME"},
		"unknown": {of(func(r *Row) { r.Lag, r.Waited = nil, nil }), "not known"},
		"wait>1m": {of(func(r *Row) { r.Waited = new(95.0) }), "has waited for 1m35s"},
		"lag>7":   {of(func(r *Row) { r.Lag = new(int64(8)) }), "8 changes behind"},
	} {
		var f Faults
		if err := f.Set(word); err != nil {
			t.Fatal(err)
		}
		got := f.Find([]Unit{{Processor: "mailer", Rows: []Row{sound(), c.row}}})
		if !strings.Contains(got, c.says) || !strings.HasPrefix(got, "mailer ") || strings.Contains(got, ";") {
			t.Errorf("%s: found %q, want %q", word, got, c.says)
		}
	}
}

// A limit is allowed, and what is above it is a fault.
func TestALimitIsNoFault(t *testing.T) {
	var f Faults
	if err := f.Set("wait>90s, lag>7"); err != nil {
		t.Fatal(err)
	}
	u := []Unit{{Processor: "mailer", Rows: []Row{{Kind: KindLease, Lag: new(int64(7)), Waited: new(90.0)}}}}
	if got := f.Find(u); got != "" {
		t.Errorf("found %q at the limits", got)
	}
	u[0].Rows[0].Waited, u[0].Rows[0].Lag = new(90.1), new(int64(8))
	if got := f.Find(u); strings.Count(got, ";") != 1 {
		t.Errorf("found %q above the limits, want both", got)
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
	u := Unit{Processor: "mailer"}
	for range 7 {
		u.Rows = append(u.Rows, Row{Kind: KindLease, Lease: "a", State: StateStopped, Lag: new(int64(0))})
	}
	killed := Unit{Processor: "mailer", Rows: []Row{{Kind: KindLease, Lease: "a", Owner: "one", State: StateExpired}}}
	if got := f.Find([]Unit{killed}); got != "" {
		t.Errorf("found %q before anybody has looked whether an instance runs", got)
	}
	if killed.noteEnded(); f.Find([]Unit{killed}) != "a: no instance runs" {
		t.Errorf("found %q in a unit whose instances were killed", f.Find([]Unit{killed}))
	}
	got := f.Find([]Unit{u})
	if strings.Count(got, "no instance runs") != 5 || !strings.HasSuffix(got, "; and 2 more") {
		t.Errorf("found %q, want five of seven", got)
	}
}

// What is no fault is refused with the words that are, and its value.
func TestAWordThatIsNoFaultIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":         `"" is no fault: want some of wait>DURATION, lag>NUMBER, expired`,
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
