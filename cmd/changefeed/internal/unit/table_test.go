package unit

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
)

// If the commit time of a pending change is unknown, nobody knows for how long changes have waited.
func TestATableDoesNotInventATime(t *testing.T) {
	untimed := Row{Kind: KindLease, Lag: new(int64(3)), Exact: true}
	if got := cells(untimed); got[4] != "3" || got[5] != "?" {
		t.Errorf("cells %q, want a lag of 3 and an unknown time", got)
	}
	text, err := report.Line(untimed.line())
	for _, want := range []string{`"lag":3,`, `"lag_seconds":null`} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("for programs: %s, %v, want %s", text, err, want)
		}
	}
}

// The first line of a unit names the unit and its container before the sentence of its listing.
func TestAHeadingNamesTheUnit(t *testing.T) {
	l := &admin.Listing{Instances: []admin.Instance{{Presence: admin.Running}}}
	for name, want := range map[string]string{
		"mailer": "mailer on orders: " + l.Sentence(),
		Unnamed:  "unit without a name (--name /) on orders: " + l.Sentence(),
		"":       "documents of no unit in this store",
	} {
		if got := heading(Of(name, "orders", l)); got != want {
			t.Errorf("%q: got %s, want %s", name, got, want)
		}
	}
}

// For programs a unit has a line of its own. What is not known is null, and never 0.
func TestTheLineOfAUnitHasItsSums(t *testing.T) {
	at := time.Date(2026, 3, 4, 12, 0, 30, 0, time.UTC)
	for _, c := range []struct {
		est  changefeed.Estimation
		want string
	}{
		{
			changefeed.Estimation{At: at, Total: changefeed.Lag{
				Pending: 7, Exact: true, Oldest: at.Add(-3 * time.Second), Watermark: at.Add(-4 * time.Second),
				Stuck: []feed.Stuck{feed.StuckPaused}, Pace: &changefeed.Pace{PerSecond: 2, CatchUp: 5 * time.Second},
			}, Cost: feed.Cost{Requests: 3, Charge: 4.5}},
			`"pending":7,"pending_exact":true,"pending_shared":false,"oldest_seconds":3,"stuck":["paused"],` +
				`"per_second":2,"seconds_left":5,"watermark":"2026-03-04T12:00:26Z","unknown":null,"requests":3,` +
				`"request_units":4.5}`,
		},
		{
			changefeed.Estimation{Total: changefeed.Lag{
				Pending: 7, Err: feed.ErrHole, Pace: &changefeed.Pace{PerSecond: 2, CatchUp: changefeed.Never},
			}},
			`"pending":null,"pending_exact":false,"pending_shared":false,"oldest_seconds":null,"stuck":[],` +
				`"per_second":2,"seconds_left":null,"watermark":null,"unknown":"key range without a lease",` +
				`"requests":0,"request_units":0}`,
		},
	} {
		var lines strings.Builder
		units := []Unit{{Processor: "mailer", Estimate: c.est}}
		if err := WriteRows(report.New(report.JSON, &lines).Rows(), units); err != nil ||
			!strings.HasSuffix(lines.String(), c.want+"\n") {
			t.Errorf("%v, got\n%s\nwant\n%s", err, lines.String(), c.want)
		}
	}
}

// A lag that is not known is null, and never 0.
func TestALagThatIsNotKnownIsNull(t *testing.T) {
	for _, tt := range []struct {
		row  Row
		want string
	}{
		{Row{Kind: KindLease}, `"lag":null,"lag_exact":false,"lag_shared":false,"lag_seconds":null`},
		{
			Row{Kind: KindLease, Lag: new(int64(0)), Waited: new(0.0)},
			`"lag":0,"lag_exact":false,"lag_shared":false,"lag_seconds":0`,
		},
		{Row{Kind: KindLease}, `"range":null,"owner":null,"epoch":null,"position":null,"mode":"latest"`},
		{
			Row{Kind: KindInstance, Lease: "one/e1", Owner: "one", Presence: admin.Running},
			`"instance":"one","running":true,"written":`,
		},
	} {
		if got, err := report.Line(tt.row.line()); err != nil || !strings.Contains(string(got), tt.want) {
			t.Errorf("%s, %v, want %s", got, err, tt.want)
		}
	}
}

// An upper bound and a distance have marks of their own.
func TestALagIsShownAsItWasMeasured(t *testing.T) {
	for _, c := range []struct {
		lag  changefeed.Lag
		want string
	}{
		{changefeed.Lag{Pending: 7, Exact: true}, "7"},
		{changefeed.Lag{Pending: 7}, "~7"},
		{changefeed.Lag{Pending: 7, Shared: true}, "≤7"},
	} {
		const lag = 4
		if got := cells(leaseRow(admin.Lease{Lag: &c.lag}, time.Now()))[lag]; got != c.want {
			t.Errorf("%+v is shown as %s, want %s", c.lag, got, c.want)
		}
	}
}

func TestTheTableOfAUnit(t *testing.T) {
	listing := &admin.Listing{
		Leases: []admin.Lease{
			{Lag: &changefeed.Lag{Pending: 4, Exact: true}}, {Lag: &changefeed.Lag{Pending: 3, Oldest: time.Now()}},
		},
		Instances: []admin.Instance{{Presence: admin.Running, Weight: 1}, {Presence: admin.Gone, Weight: 1}},
	}
	units := []Unit{
		{Processor: "mailer", Container: "orders", listing: listing, Rows: []Row{
			{
				Kind: KindLease, Lease: "-FF", Range: "-FF", Owner: "one", Position: "5", State: "live",
				Lag: new(int64(4)), Waited: new(0.0), Exact: true,
			},
			{Kind: KindInstance, Owner: "one", Presence: admin.Running},
			{
				Kind: KindLease, Lease: "0", Range: "-1F", State: "free", Position: "5", Lag: new(int64(3)),
				Waited: new(0.0),
			},
			{Kind: KindInstance, Owner: "two", Presence: admin.Gone},
		}},
		{Rows: []Row{{Kind: KindDocument, ID: "note", Notes: []string{"no lease"}}}},
	}
	var table strings.Builder
	if err := WriteTables(&table, "leases", units, terminal.Terminal{}); err != nil {
		t.Fatal(err)
	}
	want := "mailer on orders: 2 leases, 1 instance, ~7 changes behind, the oldest for an unknown time\n" +
		"  LEASE    OWNER  WRITTEN  POSITION  LAG  WAITED  STATE  ATTEMPTS  NOTE\n" +
		"  -FF      one    0s ago   5         4    0s      live   0\n" +
		"  0 (-1F)  -      0s ago   5         ~3   0s      free   0\n" +
		"\ndocuments of no unit in this store\n  DOCUMENT  OWNER  NOTE\n" +
		"  note      -      no lease\n"
	if table.String() != want {
		t.Errorf("got\n%s\nwant\n%s", table.String(), want)
	}
	var lines strings.Builder
	if err := WriteRows(report.New(report.JSON, &lines).Rows(), units); err != nil ||
		strings.Count(lines.String(), "\n") != 6 {
		t.Errorf("for programs: %v, want a line for a unit and each of 5 rows, in\n%s", err, lines.String())
	}
}

// A document of which little is known is told apart from a lease by what stands where.
func TestADocumentThatIsNoLeaseKeepsItsOwnerAndToken(t *testing.T) {
	row := Row{Kind: KindDocument, ID: "x", Owner: "one", Lease: "7"}
	want := `"processor":null,"container":null,"id":"x","owner":"one","lease":"7","notes":[]`
	if got, err := report.Line(row.line()); err != nil || !strings.Contains(string(got), want) {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}
