// Package scaler runs a unit under a simulated autoscaler, in virtual time: real processors over the real embedded
// store, and a deployment of pods that start, are killed, drained and replaced. See docs/scaling.md.
package scaler_test

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/internal/proof/detector"
)

var (
	seeds = flag.Int("seeds", 0, "how many seeds of each plan to run; 0 is one of a single plan")
	from  = flag.Uint64("from", 1, "the first seed")
)

// TestMain has garbage pile up, because the heap is small, and no log, because the instances are meant to be busy.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// plans are what happens beside the rise and the fall of the load.
var plans = []struct {
	name string
	plan
}{
	{"all at once", plan{
		least: 0, kills: 2 * time.Minute, rollouts: []time.Duration{3 * time.Minute, 6 * time.Minute, 13 * time.Minute},
	}},
	{"the load alone", plan{least: 1}},
	{"rolling updates", plan{least: 1, rollouts: []time.Duration{5 * time.Minute, 9 * time.Minute}}},
	{"killed processes", plan{least: 1, kills: 90 * time.Second}},
}

func TestAUnitUnderAnAutoscalerKeepsItsPromises(t *testing.T) {
	if detector.On {
		t.Skip("takes the detector a minute, and package sim shows it the same processors")
	}
	limits := documentedLimits(t)
	for _, p := range plans {
		if *seeds == 0 && p.name != "all at once" {
			continue // each takes seconds
		}
		sum := &times{}
		for seed := *from; seed < *from+uint64(max(1, *seeds)); seed++ {
			t.Run(fmt.Sprintf("%s/seed=%d", p.name, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { judge(t, play(t, seed, p.plan), p.plan, limits, sum) })
			})
		}
		t.Logf("%s: first lease %s; balance %s; target lag %s; work for an instance after the fall %s", p.name,
			spread(sum.first), spread(sum.balance), spread(sum.target), spread(sum.after))
	}
}

// times are the figures of all seeds of a plan.
type times struct{ first, balance, target, after []time.Duration }

// play runs a plan. If the test fails, what happened is in a file.
func play(t *testing.T, seed uint64, p plan) *unit {
	u := newUnit(t, seed, p)
	t.Cleanup(func() {
		if file := filepath.Join(t.ArtifactDir(), "story.txt"); t.Failed() {
			t.Logf("what happened is told in %s (kept with -artifacts)", file)
			if err := os.WriteFile(file, []byte(strings.Join(u.story, "\n")), 0o600); err != nil {
				t.Error(err)
			}
		}
	})
	if err := u.run(t.Context(), p); err != nil {
		t.Error(err)
	}
	return u
}

// judge compares what was handled with what was written, and the times with those that are documented.
func judge(t *testing.T, u *unit, p plan, limits map[string]time.Duration, sum *times) {
	j := u.ledger.Judge()
	if j.Lost != 0 || j.Handled != u.written || j.OutOfOrder != 0 {
		t.Errorf("of %d changes %d were handled, %d were lost, %d came out of order", u.written, j.Handled, j.Lost,
			j.OutOfOrder)
	}
	if j.Planned != 0 || p.kills == 0 && j.Duplicates != 0 {
		t.Errorf("%d changes were repeated, %d of them without a kill", j.Duplicates, j.Planned)
	}
	if u.deploy.overdue > 0 {
		t.Errorf("%d pods were killed because they did not end within %v", u.deploy.overdue, grace)
	}
	if u.found.most < 15 || u.deploy.want > 1 {
		t.Errorf("there were %d instances at most, and %d are left: the plan is not what it says", u.found.most,
			u.deploy.want)
	}
	first := u.firstLeases()
	kind := "no kill"
	if p.kills > 0 {
		kind = "kills"
	}
	for name, got := range map[string][]time.Duration{
		"first lease": first, "balance": u.found.balance, "target lag": {u.found.target}, "scale-down": {u.found.after},
	} {
		if most := slices.Max(got); most <= 0 && name != "first lease" || most > limits[name+", "+kind] {
			t.Errorf("%s with %s: %v, and docs/scaling.md says at most %v", name, kind, most, limits[name+", "+kind])
		}
	}
	sum.first, sum.balance = append(sum.first, first...), append(sum.balance, u.found.balance...)
	sum.target, sum.after = append(sum.target, u.found.target), append(sum.after, u.found.after)
}

// firstLeases are the times from the start of the processes to their first leases.
func (u *unit) firstLeases() (waits []time.Duration) {
	for _, r := range u.deploy.ended {
		if r.served {
			waits = append(waits, r.first)
		}
	}
	return waits
}

// spread is the median and the largest of some times.
func spread(of []time.Duration) string {
	if len(of) == 0 {
		return "none"
	}
	slices.Sort(of)
	half, most := of[len(of)/2].Round(time.Second), of[len(of)-1].Round(time.Second)
	return fmt.Sprintf("%v, at most %v (%d)", half, most, len(of))
}

// documentedLimits reads the limits from the table of docs/scaling.md.
func documentedLimits(t *testing.T) map[string]time.Duration {
	page, err := os.ReadFile("../../../docs/scaling.md")
	if err != nil {
		t.Fatal(err)
	}
	limits := map[string]time.Duration{}
	row := regexp.MustCompile(`(?m)^\| ([a-z -]+), ([a-z ]+) \| at most (\d+) s \|`)
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		seconds, err := strconv.Atoi(m[3])
		if err != nil {
			t.Fatal(err)
		}
		limits[m[1]+", "+m[2]] = time.Duration(seconds) * time.Second
	}
	if len(limits) != 8 {
		t.Fatalf("docs/scaling.md has the limits %v, want 8", limits)
	}
	return limits
}
