package alarms_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/dashboard"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/proof/detector"
	"github.com/millrace/changefeed/outbox"
)

// recordings are what a browser was sent in each incident: the tests of the page in a browser show them.
const recordings = "../../../conformance/browser/testdata/incidents/"

// hooksOf are the hooks of an instance. The page has the events of the first one of a unit.
func (s *stage) hooksOf(in *staged) changefeed.Hooks {
	isFirst := !slices.ContainsFunc(s.instances, func(other *staged) bool {
		return other != in && other.unit == in.unit && other.p != nil
	})
	if !isFirst {
		return silent
	}
	return changefeed.JoinHooks(silent, s.page.Events(in.unit, "shop/orders"))
}

// show shows the unit of its first instance.
func (s *stage) show(in *staged, relay *outbox.Relay) {
	first := s.instances[slices.IndexFunc(s.instances, func(other *staged) bool { return other.unit == in.unit })]
	u := dashboard.Unit{
		Name: in.unit, Container: "shop/orders", Source: first.source, Leases: first.leases, Processor: first.p,
	}
	if relay != nil {
		u.Says = func() []string {
			if err := relay.Status().Err; err != nil {
				return []string{"The last call has failed: " + err.Error()}
			}
			return nil
		}
	}
	s.page.Show(u)
}

// troubleOfDisk is what the health of a server with a full disk says.
func (s *stage) troubleOfDisk() error {
	if s.isFull.Load() {
		return docstore.ErrDiskFull
	}
	return nil
}

// look keeps what a browser is sent that opens the page now, unless one has before.
func (s *stage) look() {
	s.t.Helper()
	if s.seen != "" {
		return
	}
	for range 2 { // the second listing knows the pace
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/events", nil)
		r.Host = "localhost"
		s.page.ServeHTTP(w, r)
		cancel()
		s.seen = w.Body.String()
		time.Sleep(2 * time.Second) // for the next listing
	}
}

// recording is an incident on the page.
type recording struct {
	About  string   `json:"about"`
	Shows  []string `json:"shows"`  // what a person recognises it by
	Stream string   `json:"stream"` // as a browser gets it
}

// Each incident is recognised from the page alone: it says what is wrong. People look at the end, unless the incident
// has them look before.
func TestIncidentsAreOnThePage(t *testing.T) {
	if detector.On {
		t.Skip("stages what TestIncidents stages: both in one process have crashed the race detector itself")
	}
	for _, c := range slices.Concat(incidents, ofServers) {
		if !*everyIncident && !*update && !slices.Contains(brief, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			var seen string
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 4)
				c.stage(s)
				s.look()
				seen = s.seen
				s.end()
			})
			texts := textsIn(t, seen)
			for _, want := range shows[c.name] {
				if !strings.Contains(texts, want) {
					t.Errorf("the page lacks %q; it has\n%s", want, texts)
				}
			}
			if *update {
				text, err := json.MarshalIndent(recording{c.about, shows[c.name], seen}, "", "\t")
				if err == nil {
					err = os.WriteFile(filepath.Join(recordings, c.name+".json"), append(text, '\n'), 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// textsIn are all texts of what a browser was sent, a line each.
func textsIn(t *testing.T, stream string) string {
	t.Helper()
	var all []string
	for line := range strings.Lines(stream) {
		data, isData := strings.CutPrefix(line, "data: ")
		if !isData {
			continue
		}
		var value any
		if err := json.Unmarshal([]byte(data), &value); err != nil {
			t.Fatal(err)
		}
		all = append(all, leavesOf(value)...)
	}
	return strings.Join(all, "\n")
}

// leavesOf are the texts of a JSON value.
func leavesOf(value any) (all []string) {
	switch v := value.(type) {
	case string:
		return []string{v}
	case []any:
		for _, e := range v {
			all = append(all, leavesOf(e)...)
		}
	case map[string]any:
		for _, name := range sortedKeys(v) {
			all = append(all, leavesOf(v[name])...)
		}
	}
	return all
}
