package main

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/demo"
)

func TestTheDemoEndsWell(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as the shortest demo")
	}
	t.Parallel()
	out := command(t, "demo", "--for", shortestDemo.String(), "-o", "json", "--db", t.TempDir()+"/store")
	var got demo.Findings
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("output %q: %v", out, err)
	}
	if got.Written == 0 || got.Handled == 0 || got.Lost+got.OutOfOrder+got.DuplicatesPlannedMoves != 0 ||
		got.Takeover == nil || got.RebalanceRounds == nil {
		t.Errorf("got %s", out)
	}
}

// Changes that come twice are what at least once means.
func TestTheVerdictOfADemo(t *testing.T) {
	for _, tt := range []struct {
		found demo.Findings
		want  string
	}{
		{demo.Findings{Written: 5, Handled: 5, Duplicates: 2}, "<nil>"},
		{demo.Findings{Written: 5, Handled: 4, Lost: 1}, "1 lost, 0 out of order"},
		{demo.Findings{Written: 5, Handled: 5, OutOfOrder: 2}, "0 lost, 2 out of order"},
	} {
		if got := fmt.Sprint(verdict(tt.found)); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.found, got, tt.want)
		}
	}
}
