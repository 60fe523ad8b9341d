package unit

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
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
			{Kind: KindLease, Lag: new(int64(4)), Exact: true, Waited: new(3.0)},
			{Kind: KindLease, Lag: new(int64(3)), Waited: new(0.0), Exact: c.exact, Shared: c.shared},
		}}
		if got := heading(u); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
		slices.Reverse(u.Rows)
		if got := heading(u); got != c.want {
			t.Errorf("in another order: got %s, want %s", got, c.want)
		}
	}
}

// If the commit time of a pending change is unknown, nobody knows for how long changes have waited.
func TestATableDoesNotInventATime(t *testing.T) {
	timed := Row{Kind: KindLease, Lag: new(int64(4)), Exact: true, Waited: new(3.0)}
	untimed := Row{Kind: KindLease, Lag: new(int64(3)), Exact: true}
	for _, tt := range []struct {
		rows []Row
		want string
	}{
		{[]Row{timed, untimed}, "7 changes behind, the oldest for 3s or more"},
		{[]Row{untimed, timed}, "7 changes behind, the oldest for 3s or more"},
		{[]Row{untimed}, "3 changes behind, the oldest for an unknown time"},
	} {
		if got := (&Unit{Rows: tt.rows}).Sums().Behind(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
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

// Zero may mean that nobody knows, which must not read like good news; and what is known is said all the same.
func TestAHeadingSaysWhatIsKnown(t *testing.T) {
	known, unknown := Row{Kind: KindLease, Lag: new(int64(0)), Waited: new(0.0), Exact: true}, Row{Kind: KindLease}
	behind, replaced := known, unknown
	behind.Lag, behind.Waited, replaced.record.State = new(int64(7)), new(3.0), feed.StateRetired
	held := known
	held.Held = 1
	shared, distance := behind, behind
	shared.Shared, distance.Exact = true, false
	runningRow := Row{Kind: KindInstance, Presence: admin.Running}
	for _, c := range []struct {
		rows []Row
		want string
	}{
		{[]Row{known, known}, "2 leases, 0 instances, nothing behind"},
		{[]Row{known, unknown}, "2 leases, 0 instances, how far behind is not known"},
		{[]Row{known, {Kind: KindHole}}, "1 lease, 0 instances, how far behind is not known"},
		{
			[]Row{behind, unknown},
			"2 leases, 0 instances, at least 7 changes behind, the oldest for 3s",
		},
		{[]Row{known, replaced}, "2 leases, 0 instances, nothing behind"},
		{
			[]Row{known, held},
			"2 leases, 0 instances, nothing behind but the changes of 1 held key, in dead letters",
		},
		{[]Row{behind, behind}, "2 leases, 0 instances, 14 changes behind, the oldest for 3s"},
		// the shared one is a count
		{[]Row{shared, distance}, "2 leases, 0 instances, ~14 changes behind, the oldest for 3s"},
		{[]Row{known, runningRow, {Kind: KindInstance, Presence: admin.Gone}}, "1 lease, 1 instance, nothing behind"},
	} {
		if got := heading(&Unit{
			Processor: "mailer", Container: "orders",
			Rows: c.rows,
		}); got != "mailer on orders: "+c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// The first line of a unit says how it gets on, as far as that is known.
func TestAHeadingSaysHowAUnitGetsOn(t *testing.T) {
	at := time.Date(2026, 3, 4, 12, 0, 30, 0, time.UTC)
	pace := func(left time.Duration) *changefeed.Pace {
		return &changefeed.Pace{PerSecond: 12.3456, Exact: true, CatchUp: left}
	}
	for _, c := range []struct {
		total changefeed.Lag
		want  string
	}{
		{changefeed.Lag{}, ""},
		{changefeed.Lag{Watermark: at.Add(-time.Minute)}, "; all before 11:59:30 is handled"},
		{changefeed.Lag{Watermark: at.Add(-25 * time.Hour)}, "; all before 2026-03-03 11:00:30 is handled"},
		{changefeed.Lag{Pace: pace(0)}, ""}, // nothing is pending
		{changefeed.Lag{Pending: 7, Pace: pace(90 * time.Second)}, ", 12.3 handled a second, caught up in 1m30s"},
		{changefeed.Lag{Pending: 7, Pace: pace(changefeed.Never)}, ", 12.3 handled a second"},
	} {
		u := &Unit{Estimate: changefeed.Estimation{At: at, Total: c.total}}
		if got := u.headway(); got != c.want {
			t.Errorf("%+v: got %q, want %q", c.total, got, c.want)
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
	units := []Unit{
		{Processor: "mailer", Container: "orders", Rows: []Row{
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
	want := "mailer on orders: 2 leases, 1 instance, ~7 changes behind, the oldest for 0s\n" +
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
