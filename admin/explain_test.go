package admin

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// half returns the lease of a half of the keys, which nobody has.
func half(t *testing.T, i int) feed.Record {
	t.Helper()
	r := feed.FullRange().Cut(2)[i]
	return feed.Record{
		Kind: feed.KindLease, Token: r.String(), Range: r, Version: 1,
		Position: feed.Position{Start: feed.FromBeginning()},
	}
}

// A lease is explained alone, by its token, with the lines of the history about its keys. An unknown token is an error
// that names the leases.
func TestOneLeaseIsExplainedWithItsHistory(t *testing.T) {
	orders, leases := stores(t)
	u := Open(orders, leases, Options{By: "ada", Reason: "INC-4711"})
	if l, err := u.List(t.Context()); err != nil || len(l.Leases) != 0 || len(l.Holes) != 1 {
		t.Errorf("a unit without leases is listed as %+v, %v, want one hole", l, err)
	}
	for i := range 2 {
		if _, err := leases.Create(t.Context(), half(t, i)); err != nil {
			t.Fatal(err)
		}
	}
	first, second := half(t, 0), half(t, 1)
	if _, err := u.Pause(t.Context(), Of(first.Range)); err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]struct {
		state State
		past  int
		next  int
		text  string
	}{
		first.Token:  {StatePaused, 1, 2, "ada has paused " + first.Token + ": INC-4711."},
		second.Token: {StateStopped, 0, 1, "Nobody owns the lease"},
	} {
		all, err := u.Explain(t.Context(), token)
		if err != nil || len(all) != 1 {
			t.Fatalf("%s: %d explanations, %v", token, len(all), err)
		}
		x := all[0]
		said := strings.Join(x.Facts, "\n")
		if x.Lease.Token != token || x.State != want.state || len(x.History) != want.past || len(x.Next) != want.next ||
			!strings.Contains(said, want.text) {
			t.Errorf("%s: explained as %+v, want %+v", token, x, want)
		}
		if (x.Lease.Pause != nil) != (want.past > 0) {
			t.Errorf("%s: paused by %+v", token, x.Lease.Pause)
		}
	}
	if all, err := u.Explain(t.Context(), ""); err != nil || len(all) != 2 {
		t.Errorf("%d explanations, %v, want all", len(all), err)
	}
	all, err := u.Explain(t.Context(), "-01")
	if !errors.Is(err, feed.ErrNotFound) || !strings.Contains(err.Error(), first.Token+", "+second.Token) {
		t.Errorf("an unknown token: %v, %v, want an error that names the leases", all, err)
	}
}

// A second pause of a paused range changes nothing, and names who has paused it, and why.
func TestASecondPauseNamesTheFirst(t *testing.T) {
	orders, leases := stores(t)
	if _, err := leases.Create(t.Context(), half(t, 0)); err != nil {
		t.Fatal(err)
	}
	of := Of(half(t, 0).Range)
	for i, by := range []string{"ada", "eve"} {
		steps, err := Open(orders, leases, Options{By: by, Reason: "INC of " + by}).Pause(t.Context(), of)
		if err != nil || len(steps) != 1 {
			t.Fatal(steps, err)
		}
		if q := steps[0].Earlier; (q != nil) != (i == 1) || q != nil && (q.By != "ada" || q.Reason != "INC of ada") {
			t.Errorf("the pause by %s found the earlier pause %+v", by, q)
		}
	}
	l, err := Open(orders, leases, Options{}).List(t.Context())
	if err != nil || l.Leases[0].Pause.By != "ada" {
		t.Errorf("the lease is paused as %+v, %v, want by the first", l.Leases[0].Pause, err)
	}
	isPaused := func(f Finding) bool { return f.Word == WordPaused }
	found := l.Findings()
	if i := slices.IndexFunc(found, isPaused); i < 0 || found[i].Text != "the lease is paused by ada: INC of ada" {
		t.Errorf("found %+v, want who has paused the lease, and why", found)
	}
}

// A restore is explained as one, with its age, and not as a reset.
func TestARestoreIsExplainedAsOne(t *testing.T) {
	orders, leases := stores(t)
	if _, err := leases.Create(t.Context(), half(t, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := leases.Create(t.Context(), half(t, 1)); err != nil {
		t.Fatal(err)
	}
	u := Open(orders, leases, Options{By: "ada"})
	s, err := u.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.Restore(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	all, err := u.Explain(t.Context(), half(t, 0).Token)
	if err != nil {
		t.Fatal(err)
	}
	if said := strings.Join(all[0].Facts, " "); !strings.Contains(said, "It was restored at ") ||
		!strings.Contains(said, " ago, by ada.") {
		t.Errorf("a restored lease is explained as %s", said)
	}
}

// Several conditions of a lease have several steps, the worst condition first, and no step twice.
func TestEachStepIsSaidOnce(t *testing.T) {
	now := time.Now()
	l := listingOf(now, atWork(now, func(r *feed.Record) { r.Attempts, r.Epoch = 5, "" }))
	l.Leases[0].SetAside = []string{`["a"]`}
	next := l.Explain(nil)[0].Next
	if len(next) != 2 || next[0] != adviceOnFailures.atWork || !strings.HasPrefix(next[1], "Stop the other kind") {
		t.Errorf("next is %q, want the log, and then the other kind of processor", next)
	}
}

// If the only instance was killed, the next step of each lease is to start one, once: also while its leases have not
// expired, and nobody is told to wait for instances.
func TestALeaseOfADeadUnitNeedsAnInstance(t *testing.T) {
	now := time.Now()
	lease := func(i int, quiet time.Duration) feed.Record {
		return atWork(now.Add(-quiet), func(r *feed.Record) { r.Range, r.Token = halves[i], halves[i].String() })
	}
	dead := host(now.Add(-44*time.Second), "one")
	ended := dead
	ended.State = feed.StateRetired
	for name, l := range map[string]*Listing{
		"killed":  listingOf(now, dead, lease(0, 43*time.Second), lease(1, 61*time.Second)),
		"ended":   listingOf(now, ended, lease(0, 44*time.Second), lease(1, 61*time.Second)),
		"failing": listingOf(now, dead, atWork(now.Add(-44*time.Second), func(r *feed.Record) { r.Attempts = 5 })),
	} {
		if l.IsAtWork() {
			t.Errorf("%s: at work, and no instance runs", name)
		}
		for _, x := range l.Explain(nil) {
			steps := strings.Join(x.Next, "\n")
			if strings.Count(steps, "Start an instance") != 1 || strings.Contains(steps, "Wait") ||
				strings.Contains(steps, "at work") {
				t.Errorf("%s: lease %s: the steps are\n%s\nwant one start, and no wait", name, x.Lease.Token, steps)
			}
		}
	}
	// An owner that has written its lease since lives, whatever its presence says.
	if l := listingOf(now, dead, lease(0, 10*time.Second)); !l.IsAtWork() {
		t.Error("an owner that has just written its lease is not at work")
	}
	hole := listingOf(now, dead, lease(0, 61*time.Second))
	for _, x := range hole.Explain(nil) {
		if steps := strings.Join(x.Next, "\n"); strings.Count(steps, "Start an instance") != 1 {
			t.Errorf("a hole: the steps are\n%s", steps)
		}
	}
}

// In an outage nothing is parked, so nobody is told that dead letters help.
func TestNoDeadLettersAreRecommendedInAnOutage(t *testing.T) {
	now := time.Now()
	for attempts, want := range map[int]Grade{1: GradeFailure, 5: GradeFailure} {
		l := listingOf(now, host(now, "one"), atWork(now, func(r *feed.Record) {
			r.Attempts = attempts
			r.Properties = map[string]string{notes.OutageProperty: notes.Outage(now.Add(-time.Minute))}
		}))
		words := foundWords(l)
		if words[WordOutage] != GradeFailure || words[WordFailing] != want {
			t.Errorf("%d attempts in an outage: found %v", attempts, words)
		}
		for _, f := range l.Findings() {
			if strings.Contains(f.Next, "letters") {
				t.Errorf("%d attempts in an outage: %s: the next step is %q", attempts, f.Word, f.Next)
			}
		}
		wantSaid(t, l, "Nothing is parked meanwhile.", "!--dead-letters")
	}
}
