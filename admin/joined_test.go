package admin

import (
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
)

// The lines of the history about the leases that a lease has replaced are lines about its keys.
func TestAJoinedLeaseHasTheHistoryOfItsParts(t *testing.T) {
	orders, leases := stores(t)
	u := Open(orders, leases, Options{By: "ada"})
	for i := range 2 {
		if _, err := leases.Create(t.Context(), half(t, i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := u.Pause(t.Context(), Of(half(t, 0).Range)); err != nil {
		t.Fatal(err)
	}
	all, _, err := leases.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	joint := half(t, 0)
	joint.Token, joint.Range = feed.FullRange().String(), feed.FullRange()
	for _, l := range all {
		if l.Kind != feed.KindLease {
			continue
		}
		if err := leases.Delete(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := leases.Create(t.Context(), joint); err != nil {
		t.Fatal(err)
	}
	explained, err := u.Explain(t.Context(), joint.Token)
	if err != nil || len(explained) != 1 {
		t.Fatalf("%d explanations, %v", len(explained), err)
	}
	past := explained[0].History
	if len(past) != 1 || past[0].Action != ActionPause || past[0].Range != half(t, 0).Range {
		t.Errorf("the history of the joined lease is %+v, want the pause of a part", past)
	}
}

// An instance that may be silent for longer has gone for good only after three times as long.
func TestAPresenceStaysForThreeTimesItsTime(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		ttl, quiet time.Duration
		want       bool
	}{
		{10 * time.Minute, 11 * time.Minute, false},
		{10 * time.Minute, 30 * time.Minute, false},
		{10 * time.Minute, 31 * time.Minute, true},
		{time.Minute, 9 * time.Minute, false},
		{time.Minute, 11 * time.Minute, true},
	} {
		r := host(now.Add(-c.quiet), "one")
		r.TTL = c.ttl
		if why := whyHost(r, now); (why != "") != c.want {
			t.Errorf("a presence that lives for %v, and was not written for %v, is surplus: %q, want %v", c.ttl, c.quiet,
				why, c.want)
		}
	}
}
