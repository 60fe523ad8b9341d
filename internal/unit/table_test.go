package unit

import (
	"strings"
	"testing"

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
			{Kind: KindLease, Lag: new(int64(4)), Exact: true, Waited: 3}, {Kind: KindLease, Lag: new(int64(3)), Exact: c.exact, Shared: c.shared},
		}}
		if got := heading(u); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

func TestTheTableOfAUnit(t *testing.T) {
	units := []Unit{
		{Processor: "mailer", Container: "orders", Rows: []Row{
			{Kind: KindLease, Lease: "-FF", Range: "-FF", Owner: "one", Position: "5", State: "live", Lag: new(int64(4)), Exact: true},
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
