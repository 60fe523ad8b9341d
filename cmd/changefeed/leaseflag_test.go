package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
)

// A text with a dash is a range if a lease lies in it, and else the beginning of a lease. A lease that has been
// replaced, or a record that is no lease, has no beginning.
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
	all = append(all, feed.Record{Kind: feed.KindHost, Token: "155"},
		feed.Record{Kind: feed.KindLease, Token: "B1D", Err: feed.ErrBadLease}) // nobody knows its range
	for text, want := range map[string]string{
		"-": "-0AA", "-0": "-0AA", "-0aa": "-0AA", "0AA-1FFF": "0AA-1FFF", "0AA-1": "0AA-1555", "1555-1F": "1555-1FFF",
		"155": "1555-1FFF", "20": "20-2A", "2": "", "20-3": "20-3", "-FF": "-FF", "30-40": "30-40", "30": "", "1FFF-2": "",
	} {
		got, err := selectionOf(text, all)
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
	if got, err := selectionOf("B1", all); !errors.Is(err, feed.ErrBadLease) {
		t.Errorf("a lease whose range is unknown: %+v, %v", got, err)
	}
	_, err := selectionOf("1FFF-2", all)
	if _, isMissing := errors.AsType[usage.Missing](err); isMissing || err == nil ||
		!strings.Contains(err.Error(), "1FFF-20, 1FFF-21") {
		t.Errorf("1FFF-2, which two leases begin with: %v", err)
	}
}
