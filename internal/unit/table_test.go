package unit

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/internal/terminal"
)

func TestAHeadingMarksWhatIsNoCount(t *testing.T) {
	for _, c := range []struct {
		exact, shared bool
		want          string
	}{
		{true, false, "mailer on orders: 2 leases, 0 instances, 7 changes behind, the oldest for 3s"},
		{false, false, "mailer on orders: 2 leases, 0 instances, ~7 changes behind, the oldest for 3s"},
		{false, true, "mailer on orders: 2 leases, 0 instances, ≤7 changes behind, the oldest for 3s"},
	} {
		u := &Unit{Processor: "mailer", Container: "orders", Rows: []Row{
			{Kind: KindLease, Lag: new(int64(4)), Exact: true, Waited: new(3.0)}, {Kind: KindLease, Lag: new(int64(3)), Waited: new(0.0), Exact: c.exact, Shared: c.shared},
		}}
		if got := heading(u); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// Who reads the states alone must see whether anybody works on a lease.
func TestTheStateOfALeaseSaysWhetherAnybodyWorksOnIt(t *testing.T) {
	now := time.Now()
	held := changefeed.Record{Kind: changefeed.KindLease, Token: "-FF", Owner: "one", Epoch: "e1", Expiration: time.Minute, Updated: now}
	for _, tt := range []struct {
		name  string
		quiet time.Duration
		edit  func(*changefeed.Record)
		want  string
		note  string
	}{
		{"at work", 0, func(*changefeed.Record) {}, "live", ""},
		{"late, as after a checkpoint", 26 * time.Second, func(*changefeed.Record) {}, "live", ""},
		{"frozen", 28 * time.Second, func(*changefeed.Record) {}, "silent", "its owner has been silent for 28s: others take over in 32s"},
		{"dead", 61 * time.Second, func(*changefeed.Record) {}, "expired", "expired: its owner has been silent for 1m1s"},
		{"of a .NET processor that is dead", 61 * time.Second, func(l *changefeed.Record) { l.Epoch, l.Expiration = "", 0 }, "expired", ""},
		{"free", 0, func(l *changefeed.Record) { l.Owner, l.Epoch = "", "" }, "free", ""},
		{"spoilt", 0, func(l *changefeed.Record) { l.Err = changefeed.ErrBadLease }, "broken", "not a lease document"},
		{"splitting, and its owner is dead", time.Hour, func(l *changefeed.Record) { l.State = changefeed.StateSplitting }, "splitting", "expired"},
		{"retired", time.Hour, func(l *changefeed.Record) { l.State = changefeed.StateRetired }, "retired", ""},
	} {
		record := held
		tt.edit(&record)
		if r := describe(record, now.Add(tt.quiet)); r.State != tt.want || !strings.Contains(strings.Join(r.Notes, "; "), tt.note) {
			t.Errorf("%s: %s, %q, want %s, %q", tt.name, r.State, r.Notes, tt.want, tt.note)
		}
	}
}

// A lag that is not known is null, and never 0.
func TestALagThatIsNotKnownIsNull(t *testing.T) {
	for _, tt := range []struct {
		row  Row
		want string
	}{
		{Row{Kind: KindLease}, `{"kind":"lease","written_seconds_ago":0,"lag":null,"lag_seconds":null}`},
		{Row{Kind: KindLease, Lag: new(int64(0)), Waited: new(0.0)}, `{"kind":"lease","written_seconds_ago":0,"lag":0,"lag_seconds":0}`},
		{Row{Kind: KindInstance}, `{"kind":"instance","written_seconds_ago":0}`},
	} {
		if got, err := json.Marshal(tt.row); err != nil || string(got) != tt.want {
			t.Errorf("%s, %v, want %s", got, err, tt.want)
		}
	}
}

func TestTheTableOfAUnit(t *testing.T) {
	units := []Unit{
		{Processor: "mailer", Container: "orders", Rows: []Row{
			{Kind: KindLease, Lease: "-FF", Range: "-FF", Owner: "one", Position: "5", State: "live", Lag: new(int64(4)), Waited: new(0.0), Exact: true},
			{Kind: KindInstance, Owner: "one"},
		}},
		{Rows: []Row{{Kind: KindDocument, ID: "note", Notes: []string{"no lease"}}}},
	}
	var table strings.Builder
	if err := WriteTables(&table, "leases", units, terminal.Terminal{}); err != nil {
		t.Fatal(err)
	}
	want := "mailer on orders: 1 lease, 1 instance, 4 changes behind, the oldest for 0s\n" +
		"  LEASE  OWNER  WRITTEN  POSITION  LAG  WAITED  STATE  ATTEMPTS  NOTE\n" +
		"  -FF    one    0s ago   5         4    0s      live   0         \n" +
		"\ndocuments of no unit in this store\n" +
		"  DOCUMENT  OWNER  NOTE\n" +
		"  note      -      no lease\n"
	if table.String() != want {
		t.Errorf("got\n%s\nwant\n%s", table.String(), want)
	}
}
