package tenure

import (
	"testing"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// A request has one outcome: one that was carried out does not fail because the lease is replaced now.
func TestWhatWasCarriedOutDoesNotFailDuringASplit(t *testing.T) {
	served := map[string]string{notes.ServedProperty: notes.AddServed("", "ada")}
	for _, c := range []struct {
		state  feed.State
		caller string
		want   string // empty is none
	}{
		{feed.StateLive, "ada", notes.Handled},
		{feed.StateSplitting, "ada", notes.Handled},
		{feed.StateSplitting, "bob", notes.Failed},
		{feed.StateLive, "bob", ""},
	} {
		got := outcomeBefore(feed.Record{State: c.state, Properties: served}, c.caller)
		if (got == nil) != (c.want == "") || got != nil && string(got.Result) != c.want {
			t.Errorf("state %q, caller %s: got %+v, want %q", c.state, c.caller, got, c.want)
		}
	}
}
