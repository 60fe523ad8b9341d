package admin

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
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
