package notes

import (
	"errors"
	"strconv"
	"testing"
)

// Requests about one lease that name other changes or keys exclude each other not, and those that name the same do.
func TestRequestsForOtherChangesDoNotExcludeEachOther(t *testing.T) {
	skip := func(lsn int64) Control {
		return Control{Action: SkipChanges, Max: "FF", Changes: []Skip{{Key: `["a"]`, LSN: lsn, ID: "x"}}}
	}
	replay := func(key string) Control { return Control{Action: Replay, Max: "FF", Key: key} }
	for _, c := range []struct{ one, other Control }{
		{skip(1), skip(2)}, {replay(`["a"]`), replay(`["b"]`)}, {skip(1), replay(`["a"]`)},
	} {
		if c.one.Token() == c.other.Token() || c.one.Asks(c.other.Properties(nil)) {
			t.Errorf("%+v and %+v are the same request", c.one, c.other)
		}
		if again := c.one; again.Token() != c.one.Token() || !again.Asks(c.one.Properties(nil)) {
			t.Errorf("%+v is another request the second time", c.one)
		}
	}
}

// A lease names the last callers whose requests were carried out, and not more than it has room for.
func TestTheLastCallersAreServed(t *testing.T) {
	text := ""
	for i := range 3 * maxServed {
		caller := "caller-" + strconv.Itoa(i)
		if text = AddServed(text, caller); !IsServed(text, caller) {
			t.Errorf("%s is not served, in %s", caller, text)
		}
		if old := "caller-" + strconv.Itoa(i-maxServed); IsServed(text, old) {
			t.Errorf("%s is still in %s", old, text)
		}
	}
	if IsServed(text, "") || IsServed(text, "caller") {
		t.Errorf("somebody without a request is served, in %s", text)
	}
}

// After a merge LSNs mean something else, so no change is taken for one that was skipped before.
func TestNamesOfSkippedChangesCountInTheirPartition(t *testing.T) {
	text := Skips{Partition: "1 -80", Changes: []Skip{{Key: `["a"]`, LSN: 7, ID: "x"}}}.String()
	split := Place{Min: "", Max: "40", Partitions: []Partition{
		{ID: "3", Min: "", Max: "40", Parents: []string{"1"}}, {ID: "4", Min: "40", Max: "80", Parents: []string{"1"}},
	}}
	if s, err := ReadSkips(text, split); err != nil || len(s.Changes) != 1 {
		t.Errorf("after a split: %+v, %v", s, err)
	}
	merged := Place{Min: "", Max: "80", Partitions: []Partition{
		{ID: "5", Min: "", Max: "FF", Parents: []string{"1", "2"}},
	}}
	if s, err := ReadSkips(text, merged); !errors.Is(err, ErrMoved) || len(s.Changes) != 0 {
		t.Errorf("after a merge: %+v, %v, want that LSNs do not count", s, err)
	}
}
