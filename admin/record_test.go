package admin

import (
	"testing"

	"github.com/millrace/changefeed/feed"
)

// A line about letters of a key is part of the history of the lease that has the key, and of no other. Letters of
// several keys are of all leases. A dry run leaves no line.
func TestWhatIsDoneWithLettersIsOfTheLeaseOfTheirKey(t *testing.T) {
	orders, leases := stores(t)
	key := feed.Key("oslo")
	epk, err := orders.Locate(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	joined, err := feed.ParseRange("-3F")
	if err != nil || !joined.Holds(epk) {
		t.Fatalf("%s, %v: want a range with the key", joined, err)
	}
	if _, err := leases.Create(t.Context(), feed.Record{ // has become a part of another lease, and is listed before it
		Kind: feed.KindLease, Token: "-3F", Range: joined, Version: 1, State: feed.StateRetired,
	}); err != nil {
		t.Fatal(err)
	}
	of, other := "-7F", "7F-FF"
	for _, token := range []string{of, other} {
		r, err := feed.ParseRange(token)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := leases.Create(t.Context(), feed.Record{
			Kind: feed.KindLease, Token: token, Range: r, Version: 1,
		}); err != nil {
			t.Fatal(err)
		}
		if r.Holds(epk) && token != of {
			of, other = other, of
		}
	}
	options := Options{By: "ada", Reason: "INC-1"}
	for _, e := range []Entry{
		{Action: ActionRetry, Key: key, Count: 2, Done: 1, Failed: "no", By: "eve"},
		{Action: ActionDrop, Count: 3, Done: 3, Changes: []FailedChange{{ID: "1", Key: key, LSN: 7}}},
	} {
		if err := Open(orders, leases, options).Record(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		dry := options
		dry.DryRun = true
		if err := Open(orders, leases, dry).Record(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	unit := Open(orders, leases, Options{})
	entries, err := unit.History(t.Context())
	if err != nil || len(entries) != 2 || entries[0].Range.String() != of || entries[1].Range != feed.FullRange() {
		t.Errorf("the ranges of %+v, %v: want %s and all", entries, err, of)
	}
	for token, want := range map[string][]Action{of: {ActionRetry, ActionDrop}, other: {ActionDrop}} {
		told, err := unit.Explain(t.Context(), token)
		if err != nil {
			t.Fatal(err)
		}
		got := told[0].History
		if len(got) != len(want) {
			t.Errorf("the history of %s is %+v, want %v", token, got, want)
			continue
		}
		for i, action := range want {
			if got[i].Action != action || got[i].By != "ada" || got[i].Reason != "INC-1" {
				t.Errorf("line %d of %s is %+v, want %s by ada for INC-1", i, token, got[i], action)
			}
		}
		if drop := got[len(got)-1]; drop.Count != 3 || drop.Done != 3 || drop.Failed != "" || len(drop.Changes) != 1 ||
			drop.Changes[0].LSN != 7 {
			t.Errorf("the drop is %+v", drop)
		}
	}
}
