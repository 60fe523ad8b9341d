package unit

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// The ID of a request fills a line, so a table has its action, its key and its age.
func TestARequestIsShownByActionKeyAndAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.lease(t, "-FF", nil)
		ask := func(q notes.Request, edit func(*feed.Record)) {
			q.EPK = strings.Repeat("0123456789ABCDEF", 2)
			r := feed.Record{
				Kind: feed.KindRequest, Token: q.Token(), Timestamp: time.Now().UTC(),
				Properties: q.Properties(nil),
			}
			edit(&r)
			if _, err := o.store.Create(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		ask(notes.Request{Action: notes.Retry, Key: `["Paris"]`, Letter: "4711.df8cf80227ec3237922df0ecd88385c5"},
			func(*feed.Record) {})
		ask(notes.Request{Action: notes.Release, Key: string(feed.Key(strings.Repeat("x", 100)))},
			func(r *feed.Record) {
				r.Properties = notes.SetWaits(r.Properties, "instance a has no letter box")
			})
		ask(notes.Request{Action: notes.Release, Key: `["Rome"]`, Tries: 1}, func(*feed.Record) {})
		ask(notes.Request{Action: notes.Release, Key: `["Oslo"]`}, func(r *feed.Record) {
			r.State, r.Properties = feed.StateRetired, notes.Outcome{Result: notes.Failed}.Properties(r.Properties)
		})
		ask(notes.Request{Action: notes.Release, Key: `["Bern"]`}, func(r *feed.Record) { r.State = feed.StateRetired })
		ask(notes.Request{Action: notes.Release, Key: `["Kiev"]`}, func(r *feed.Record) { r.TTL = time.Minute })
		time.Sleep(90 * time.Second)
		units := o.survey(t)
		var b strings.Builder
		if err := WriteTables(&b, "leases", units, terminal.Terminal{}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			`retry ["Paris"] - 1m30s ago - - - asked - the owner of its range has not answered yet`,
			`release ["` + strings.Repeat("x", 30) +
				`… - 1m30s ago - - - asked - not served yet: instance a has no letter box`,
			`release ["Rome"] - 1m30s ago - - - asked - an instance has begun with it`,
		} {
			if !slices.ContainsFunc(strings.Split(b.String(), "\n"), func(line string) bool {
				return strings.Join(strings.Fields(line), " ") == want
			}) {
				t.Errorf("no line %q in\n%s", want, b.String())
			}
		}
		for _, over := range []string{"Oslo", "Kiev", "Bern"} { // served, expired, and withdrawn
			if strings.Contains(b.String(), over) {
				t.Errorf("the request for %s is over, and is in the table\n%s", over, b.String())
			}
		}
		i := slices.IndexFunc(units[0].Rows, func(r Row) bool {
			return r.Request != nil && r.Request.Action == notes.Retry
		})
		text, err := report.Line(units[0].Rows[i].line())
		if err != nil || !strings.Contains(string(text), `"kind":"request"`) ||
			!strings.Contains(string(text), `"state":"asked"`) ||
			!strings.Contains(string(text),
				`"action":"retry","key":["Paris"],"range":null,"letter":"4711.df8cf80227ec3237922df0ecd88385c5","asked":"2000-01-01T`) {
			t.Errorf("for programs: %s, %v", text, err)
		}
	})
}

// A record may come from a machine with another clock, from another version or from anybody: it says what it can, and
// spoils no output.
func TestARequestSaysWhatItCan(t *testing.T) {
	now := time.Now()
	asking := func(edit func(r *feed.Record)) Row {
		r := feed.Record{
			Kind: feed.KindRequest, Token: "retry.1F", Timestamp: now.Add(-90 * time.Second),
			Updated:    now.Add(-90 * time.Second),
			Properties: notes.Request{Action: notes.Retry, Key: `["Paris"]`}.Properties(nil),
		}
		edit(&r)
		l, err := admin.Open(nil, listing{records: []feed.Record{r}, now: now}, admin.Options{}).List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return rowsOf(l)[0]
	}
	for _, tt := range []struct {
		name             string
		edit             func(r *feed.Record)
		state, what, age string
	}{
		{"as usual", func(*feed.Record) {}, "asked", `retry ["Paris"]`, "1m30s ago"},
		{"without the time at which it was asked", func(r *feed.Record) {
			r.Timestamp = time.Time{}
		}, "asked", `retry ["Paris"]`, "1m30s ago"},
		{"by a clock that is fast", func(r *feed.Record) {
			r.Timestamp = now.Add(time.Hour)
		}, "asked", `retry ["Paris"]`, "0s ago"},
		{"by a clock that is slow", func(r *feed.Record) {
			r.Timestamp, r.TTL = now.Add(-time.Hour), 2*time.Minute
		}, "asked", `retry ["Paris"]`, "1h ago"},
		{"for a key that is none", func(r *feed.Record) {
			r.Properties = notes.Request{Action: notes.Retry, Key: "Paris"}.Properties(nil)
		}, "asked", "retry", "1m30s ago"},
		{"by an action that would clear the screen", func(r *feed.Record) {
			r.Properties = notes.Request{Action: "\x1b[2Jodd\n", Key: `["Paris"]`}.Properties(nil)
		}, "asked", `[2Jodd ["Paris"]`, "1m30s ago"},
		{"without an action", func(r *feed.Record) { r.Properties = nil }, "asked", "", "1m30s ago"},
		{"anew, beside an outcome from before", func(r *feed.Record) {
			r.Properties = notes.Outcome{Result: notes.Failed}.Properties(r.Properties)
		}, "asked", `retry ["Paris"]`, "1m30s ago"},
	} {
		row := asking(tt.edit)
		text, err := json.Marshal(row)
		if err != nil || row.State != tt.state || row.Lease != "" {
			t.Errorf("%s: %s, %s, %v", tt.name, row.State, text, err)
		}
		line, err := report.Line(row.line())
		if hasAction := !strings.Contains(string(line), `"action":null`); err != nil || hasAction != (tt.what != "") ||
			strings.Contains(string(line), `"action":""`) {
			t.Errorf("%s: for programs %s, %v; want null for an action that cannot be read", tt.name, line, err)
		}
		if got := row.Request.cells(row); strings.Trim(got[0], "� ") != tt.what || got[2] != tt.age {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}
