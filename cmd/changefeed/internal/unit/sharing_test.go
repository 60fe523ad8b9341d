package unit

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// The weights and parts of the instances are shown if these do not share the leases equally, and for programs always.
func TestWeightsAndLoadsAreShown(t *testing.T) {
	host := func(name, weight, byLoad string) feed.Record {
		r := instanceOf(name, "")
		r.Properties = notes.Set(notes.Set(nil, notes.WeightProperty, weight), notes.ByLoadProperty, byLoad)
		return r
	}
	lease := leaseOf("a")
	lease.Properties = map[string]string{notes.LoadProperty: "#1200"}
	ended := host("z", "#9", "")
	ended.State = feed.StateRetired
	for name, c := range map[string]struct {
		records []feed.Record
		table   []string // the lines before those of the leases
		json    string   // of the first instance
	}{
		"equal": {
			[]feed.Record{lease, host("a", "", ""), ended},
			nil,
			`"weight":1,"shares_by_load":false,"load":null,"share":1,"share_due":1,`,
		},
		"by weight": {[]feed.Record{lease, host("a", "#3", ""), host("b", "", ""), ended}, []string{
			"INSTANCE WEIGHT LEASES LOAD LEASES% DUE% NOTE", "a 3 1 - 100% 75%", "b 1 0 - 0% 25%",
		}, `"weight":3,"shares_by_load":false,"load":null,"share":1,"share_due":0.75,`},
		"by load": {[]feed.Record{lease, host("a", "", "yes"), host("b", "", "yes")}, []string{
			"INSTANCE WEIGHT LEASES LOAD LOAD% DUE% NOTE", "a 1 1 1,200 100% 50%", "b 1 0 0 0% 50%",
		}, `"weight":1,"shares_by_load":true,"load":1200,"share":1,"share_due":0.5,`},
		"by load, and one lease is not measured": {[]feed.Record{lease, leaseOf("a"), host("a", "", "yes")}, []string{
			"INSTANCE WEIGHT LEASES LOAD LOAD% DUE% NOTE", "a 1 2 ? 100% 100%",
		}, `"weight":1,"shares_by_load":true,"load":null,"share":1,"share_due":1,`},
		"some by load": {[]feed.Record{lease, host("a", "", "yes"), host("b", "", "")}, []string{
			"INSTANCE WEIGHT LEASES LOAD LEASES% DUE% NOTE",
			"a 1 1 1,200 100% 50% shares by load, and others do not: the number counts", "b 1 0 - 0% 50%",
		}, `"weight":1,"shares_by_load":true,"load":1200,"share":1,"share_due":0.5,`},
		"ended": {
			[]feed.Record{ended}, nil, `"weight":9,"shares_by_load":false,"load":null,"share":null,"share_due":null,`,
		},
	} {
		u := unitWith(t, "mailer", c.records...)
		var out strings.Builder
		if err := WriteTables(&out, "leases", []Unit{*u}, terminal.Terminal{}); err != nil {
			t.Fatal(err)
		}
		var table []string
		for _, line := range strings.Split(out.String(), "\n")[1:] {
			if strings.HasPrefix(line, "  LEASE") {
				break
			}
			if !strings.HasPrefix(line, "warning") {
				table = append(table, strings.Join(strings.Fields(line), " "))
			}
		}
		if got, want := strings.Join(table, "\n"), strings.Join(c.table, "\n"); got != want {
			t.Errorf("%s: the table is\n%s\nwant\n%s", name, got, want)
		}
		text, err := json.Marshal(u.Rows[0].line())
		if err != nil || !strings.Contains(string(text), c.json) {
			t.Errorf("%s: for programs %s, %v, want %s", name, text, err, c.json)
		}
	}
	for load, want := range map[string]string{"": `"load":null`, "#7": `"load":7`} {
		lease.Properties = notes.Set(nil, notes.LoadProperty, load)
		text, err := json.Marshal(unitWith(t, "mailer", lease).Rows[0].line())
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("a lease for programs is %s, %v, want %s", text, err, want)
		}
	}
}
