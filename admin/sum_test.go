package admin

import (
	"slices"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// behind is a lease with some changes after its position, the oldest of which has waited for some seconds, or for an
// unknown time if these are negative.
func behind(now time.Time, pending int64, seconds int, edit func(*changefeed.Lag)) Lease {
	lag := changefeed.Lag{Pending: pending, Exact: true}
	if seconds >= 0 {
		lag.Oldest = now.Add(-time.Duration(seconds) * time.Second)
	}
	if edit != nil {
		edit(&lag)
	}
	return Lease{Lag: &lag}
}

// listingWith is a listing with some leases, some holes and one instance that runs.
func listingWith(now time.Time, leases []Lease, holes int, total changefeed.Lag) *Listing {
	return &Listing{
		At: now, Leases: leases, Holes: make([]Hole, holes), Estimate: changefeed.Estimation{At: now, Total: total},
		Instances: []Instance{{Presence: Running}, {Presence: Gone}, {Presence: Ended}},
	}
}

func TestASentenceSaysHowAUnitIs(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	distance := func(l *changefeed.Lag) { l.Exact = false }
	shared := func(l *changefeed.Lag) { l.Exact, l.Shared = false, true }
	unknown, held, overlapping := Lease{}, behind(now, 0, -1, nil), behind(now, 3, 0, nil)
	held.Held, overlapping.Overlaps = []string{`["a"]`, `["b"]`}, []string{"other"}
	for _, tt := range []struct {
		name   string
		leases []Lease
		holes  int
		total  changefeed.Lag
		want   string
	}{
		{"an empty unit", nil, 0, changefeed.Lag{}, "0 leases, 1 instance, nothing behind"},
		{
			"a count",
			[]Lease{behind(now, 4, 3, nil), behind(now, 3, 0, nil)},
			0,
			changefeed.Lag{},
			"2 leases, 1 instance, 7 changes behind, the oldest for 3s",
		},
		{
			"a distance",
			[]Lease{behind(now, 4, 3, nil), behind(now, 3, 0, distance)},
			0,
			changefeed.Lag{},
			"2 leases, 1 instance, ~7 changes behind, the oldest for 3s",
		},
		{
			"a bound",
			[]Lease{behind(now, 4, 3, nil), behind(now, 3, 0, shared)},
			0,
			changefeed.Lag{},
			"2 leases, 1 instance, ≤7 changes behind, the oldest for 3s",
		},
		{
			"an overlap",
			[]Lease{behind(now, 4, 3, nil), overlapping},
			0,
			changefeed.Lag{},
			"2 leases, 1 instance, ≤7 changes behind, the oldest for 3s",
		},
		{
			"a time that is unknown for one",
			[]Lease{behind(now, 4, 3, nil), behind(now, 3, -1, nil)},
			0,
			changefeed.Lag{},
			"2 leases, 1 instance, 7 changes behind, the oldest for 3s or more",
		},
		{
			"a time that is unknown",
			[]Lease{behind(now, 3, -1, nil)},
			0,
			changefeed.Lag{},
			"1 lease, 1 instance, 3 changes behind, the oldest for an unknown time",
		},
		{
			"a lease that cannot be counted",
			[]Lease{unknown, behind(now, 3, 0, nil)},
			0,
			changefeed.Lag{},
			"2 leases, 1 instance, at least 3 changes behind, the oldest for 0s",
		},
		{
			"a hole",
			[]Lease{behind(now, 0, -1, nil)},
			1,
			changefeed.Lag{},
			"1 lease, 1 instance, how far behind is not known",
		},
		{
			"a lease that others have replaced",
			[]Lease{{Record: feed.Record{State: feed.StateRetired}}},
			0,
			changefeed.Lag{},
			"1 lease, 1 instance, nothing behind",
		},
		{
			"held keys",
			[]Lease{held},
			0,
			changefeed.Lag{},
			"1 lease, 1 instance, nothing behind but the changes of 2 held keys, in dead letters",
		},
		{
			"a pace and a watermark",
			[]Lease{behind(now, 40, 3, nil)},
			0,
			changefeed.Lag{
				Pending: 40, Pace: &changefeed.Pace{PerSecond: 12.3456, CatchUp: 2 * time.Second},
				Watermark: now.Add(-5 * time.Second),
			},
			"1 lease, 1 instance, 40 changes behind, the oldest for 3s, 12.3 handled a second, caught up in 2s; " +
				"all before 11:59:55 is handled",
		},
		{
			"a watermark of another day, and a pace beside nothing",
			[]Lease{behind(now, 0, -1, nil)},
			0,
			changefeed.Lag{Pace: &changefeed.Pace{}, Watermark: now.Add(-25 * time.Hour)},
			"1 lease, 1 instance, nothing behind; all before 2026-03-03 11:00:00 is handled",
		},
		{
			"a pace that is too slow",
			[]Lease{behind(now, 40, 3, nil)},
			0,
			changefeed.Lag{Pending: 40, Pace: &changefeed.Pace{PerSecond: 20, CatchUp: changefeed.Never}},
			"1 lease, 1 instance, 40 changes behind, the oldest for 3s, 20 handled a second",
		},
	} {
		l := listingWith(now, tt.leases, tt.holes, tt.total)
		for range 2 { // in both orders
			if got := l.Sentence(); got != tt.want {
				t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
			}
			slices.Reverse(l.Leases)
		}
	}
}

func TestASumIsThatOfAllLeases(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	held := behind(now, 0, -1, nil)
	held.Held = []string{`["a"]`}
	for _, tt := range []struct {
		name   string
		leases []Lease
		want   string
	}{
		{"one held key", []Lease{held}, "nothing behind but the changes of 1 held key, in dead letters"},
		{
			"two that have waited",
			[]Lease{behind(now, 4, 3, nil), behind(now, 3, 2, nil)},
			"7 changes behind, the oldest for 3s",
		},
		{
			"a count of a shared partition, and a distance",
			[]Lease{
				behind(now, 4, 3, func(l *changefeed.Lag) { l.Shared = true }),
				behind(now, 3, 0, func(l *changefeed.Lag) { l.Exact = false }),
			},
			"~7 changes behind, the oldest for 3s",
		},
	} {
		l := listingWith(now, tt.leases, 0, changefeed.Lag{})
		for range 2 { // in both orders
			if got := l.Sum().Behind(); got != tt.want {
				t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
			}
			slices.Reverse(l.Leases)
		}
	}
}
