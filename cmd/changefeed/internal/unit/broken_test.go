package unit

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// A lease of a partition that nobody knows has no range. Nobody can work on such a lease: it is broken, and not free.
func TestALeaseWithoutARangeIsBroken(t *testing.T) {
	o := newOffice(t)
	o.lease(t, "-FF", nil)
	if _, err := o.store.Create(t.Context(), feed.Record{Kind: feed.KindLease, Token: "99"}); err != nil {
		t.Fatal(err)
	}
	units := o.survey(t)
	var f Faults
	if err := f.Set("broken"); err != nil {
		t.Fatal(err)
	}
	got := f.Find(units)
	if !strings.Contains(got, "mailer 99: ") || !strings.Contains(got, `no partition "99" is known`) {
		t.Errorf("--fail-on broken finds %q, want the lease 99", got)
	}
	for _, r := range units[0].Rows {
		text := strings.Join(r.Notes, "; ")
		if r.Lease == "99" && (r.State != "broken" || strings.Contains(text, "nobody works")) {
			t.Errorf("got %s, %s, want a broken lease", r.State, text)
		}
	}
}

// What a document says that cannot be read is unknown, and not zero. What is not zero was read.
func TestWhatABrokenLeaseDoesNotSayIsUnknown(t *testing.T) {
	o := newOffice(t)
	o.put(t, o.leases, `{"id":"`+o.store.Prefix()+`..-80","FeedRange":5}`)
	o.put(t, o.leases, `{"id":"`+o.store.Prefix()+`..80-FF","LeaseToken":"80-FF","ContinuationToken":5,"Mode":"Full-Fidelity Feed"}`)
	o.lease(t, "C0-FF", nil)
	rows := o.survey(t)[0].Rows
	modes := map[string]any{"-80": nil, "80-FF": "all", "C0-FF": "latest"}
	for _, r := range rows {
		isBroken := r.Lease != "C0-FF"
		if r.Kind != KindLease {
			continue
		}
		text, err := json.Marshal(r.line())
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"attempts", "held", "set_aside"} {
			if value, is := got[name]; !is || (value == nil) != isBroken {
				t.Errorf("%s: %s is %v", r.ID, name, value)
			}
		}
		if got["mode"] != modes[r.Lease] {
			t.Errorf("%s: mode is %v, want %v", r.ID, got["mode"], modes[r.Lease])
		}
		if attempts := cells(r)[7]; (attempts == "?") != isBroken {
			t.Errorf("%s: the table says %s attempts", r.ID, attempts)
		}
	}
}

// An owner that goes on after a pause is marked, and so is a presence that cannot be read. The owner of a lease that is
// about to be replaced is not marked: a split is finished also in a pause.
func TestWhoDefiesAPauseAndWhatIsDamagedIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.lease(t, "-80", nil)
		o.lease(t, "80-C0", nil)
		o.lease(t, "C0-FF", func(l *feed.Record) { l.State = feed.StateSplitting })
		c := notes.Control{Action: notes.Pause, Min: "80", Max: "FF", By: "eve"}
		if _, err := o.store.Create(t.Context(), feed.Record{
			Kind: feed.KindRequest, Token: c.Token(), Properties: c.Properties(nil),
		}); err != nil {
			t.Fatal(err)
		}
		host, err := o.store.Create(t.Context(), feed.Record{
			Kind: feed.KindHost, Token: "one", Owner: "one", Epoch: "e1",
		})
		if err != nil {
			t.Fatal(err)
		}
		o.put(t, o.leases, `{"id":"`+host.ID+`","Owner":5,"timestamp":{}}`)
		defiant, damaged := "", ""
		for _, f := range o.survey(t)[0].Listing().Findings() {
			switch f.Word {
			case admin.WordDefied:
				defiant += " " + f.Token
			case admin.WordBroken:
				damaged += " " + f.ID
			}
		}
		if defiant != " 80-C0" || damaged != " "+host.ID {
			t.Errorf("defiant are%s, damaged are%s, want 80-C0 and %s", defiant, damaged, host.ID)
		}
	})
}
