package main

import (
	"encoding/json"
	"testing"

	"github.com/millrace/changefeed/internal/demo"
)

func TestTheDemoEndsWell(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as the shortest demo")
	}
	t.Parallel()
	out := command(t, "demo", "--for", shortestDemo.String(), "-o", "json", "-d", t.TempDir()+"/store")
	var got demo.Findings
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("output %q: %v", out, err)
	}
	if got.Written == 0 || got.Handled == 0 || got.Lost+got.OutOfOrder+got.DuplicatesPlannedMoves != 0 ||
		got.TakeoverMS == nil || got.RebalanceRounds == nil {
		t.Errorf("got %s", out)
	}
}
