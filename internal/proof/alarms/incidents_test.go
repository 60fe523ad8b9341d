// Package alarms proves the files of deploy: each incident, staged with real processors in virtual time, fires the
// alarms that it should and no others, and no alarm and no panel reads a series that no program exports.
package alarms_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

var (
	update        = flag.Bool("update", false, "record the incidents anew")
	everyIncident = flag.Bool("incidents.all", false, "stage all incidents, in a minute, and not only some")
)

// brief are the incidents that are always staged.
var brief = []string{"0_healthy", "0c_restarts", "2_downstream_down", "12_webhook_refuses"}

// incident is an incident of docs/incidents.md, staged with real processors.
type incident struct {
	name  string
	about string
	stage func(s *stage)
	// fires has the alarms that must fire, with the latest time after the beginning of the incident; no other alarm may
	// fire. The incident begins after quiet.
	fires map[string]time.Duration
	// may has alarms that may fire too: whether they do depends on which goroutine is first.
	may []string
}

// quiet is how long all is well before an incident.
const quiet = 16 * time.Minute

var errBad = errors.New("this change is bad")

// failOn is a handler that fails for some changes while it is told so.
func failOn(bad func(c *feed.Change) bool) handling {
	return func(ctx context.Context, b *feed.Batch) error {
		for i := range b.Changes {
			if bad(&b.Changes[i]) {
				return errBad
			}
		}
		return handleQuickly(ctx, b)
	}
}

// begin starts some instances of the unit mailer, and lets all be well for a while.
func (s *stage) begin(instances int, o changefeed.Options) {
	s.perSecond = 2
	for i := range instances {
		s.start(string(rune('a'+i)), "mailer", o)
	}
	s.pass(quiet)
}

func isPoison(c *feed.Change) bool { return c.ID == "poison" }

// parking are options with dead letters.
func parking() changefeed.Options {
	return changefeed.Options{Concurrency: 4, OnFailure: changefeed.FailurePolicy{MaxAttempts: 5, HoldKeys: true}}
}

// Each incident fires its alarms in time, and no others. The recorded files beside the rules are such runs.
func TestIncidents(t *testing.T) {
	tool := promtool(t)
	for _, c := range incidents {
		if !*everyIncident && !*update && !slices.Contains(brief, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			var recorded *tape
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 4)
				c.stage(s)
				s.scrape()
				recorded = s.tape
				s.end()
			})
			timeline := recorded.timeline(t, tool)
			c.judge(t, timeline)
			if *update {
				comment := fmt.Sprintf("# Incident %s: %s.\n# Recorded by TestIncidents with -update: do not edit.\n",
					c.name, c.about)
				text := recorded.file(c.name, rulesFile, comment, changes(timeline))
				file := deployed + "alerts/incident_" + c.name + "_test.yaml"
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// judge compares a timeline with what must fire.
func (c *incident) judge(t *testing.T, timeline [][]string) {
	t.Helper()
	first := map[string]time.Duration{}
	for i, fires := range timeline {
		at := time.Duration(i)*interval - quiet
		for _, alarm := range fires {
			if at < 0 && strings.HasPrefix(alarm, "ChangefeedUnitBegan/") { // the unit is new at first
				continue
			}
			if _, known := first[alarm]; !known {
				first[alarm] = at
			}
		}
	}
	for alarm, at := range first {
		if _, isMeant := c.fires[alarm]; at < 0 || !isMeant && !slices.Contains(c.may, alarm) {
			t.Errorf("%s fires %v after the incident", alarm, at)
		}
	}
	for alarm, latest := range c.fires {
		if at, fires := first[alarm]; !fires || at > latest {
			t.Errorf("%s fires after %v (%t), want at most %v", alarm, at, fires, latest)
		}
	}
	for _, alarm := range sortedKeys(first) {
		t.Logf("%s %s %v", c.name, alarm, first[alarm])
	}
}
