package sim

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
)

// Which positions are right for what an operator has asked.

// grain is how exact a time is at which a lease may begin.
const grain = time.Second

// isAfter reports whether a version comes after a position, and whether that is known: a start time is as exact as the
// times of the store.
func (g *ledger) isAfter(v version, at feed.Position) (after, known bool) {
	if at.Token != "" || at.Start.IsBeginning() {
		return v.lsn > lsnOf(at.Token), true
	}
	committed := g.steering.times[v]
	return committed.After(at.Start.Time()), committed.Sub(at.Start.Time()).Abs() > 2*grain
}

// wantsPosition wants a position itself.
func wantsPosition(want feed.Position) func(feed.Range, feed.Position) string {
	return func(_ feed.Range, at feed.Position) string {
		if at.Token != want.Token {
			return "want " + want.String()
		}
		return ""
	}
}

// wantsStart wants a position that is right for a start asked at a time. Its function is called with the lock.
func (g *ledger) wantsStart(to feed.Start, asked time.Time) func(feed.Range, feed.Position) string {
	from := to.Time()
	if to.IsNow() {
		from = asked
	}
	return func(of feed.Range, at feed.Position) string {
		for v, committed := range g.listVersions(of) {
			after, known := g.isAfter(v, at)
			if !known {
				continue
			}
			should := to.IsBeginning() || committed.After(from.Add(2*grain))
			mustNot := !to.IsBeginning() && committed.Before(from.Add(-2*grain))
			switch {
			case to.IsNow(): // it may be any moment since
				if committed.Before(asked) && after {
					return fmt.Sprintf("LSN %d was there before %v, when the operator said now", v.lsn, asked)
				}
			case should && !after || mustNot && after:
				return fmt.Sprintf("LSN %d of %v is on the wrong side of %v", v.lsn, committed, to)
			}
		}
		return ""
	}
}

// listVersions lists the versions that the feed of a range has, and when they were acknowledged.
func (g *ledger) listVersions(of feed.Range) iter.Seq2[version, time.Time] {
	return func(yield func(version, time.Time) bool) {
		for key, items := range g.items {
			if !of.Holds(g.placeOf(key)) {
				continue
			}
			for _, v := range slices.Concat(slices.Collect(maps.Values(items))...) {
				if !yield(v, g.steering.times[v]) {
					return
				}
			}
		}
	}
}

// wantsPlace wants the earliest position of a snapshot in a range.
func wantsPlace(s *admin.Snapshot) func(feed.Range, feed.Position) string {
	return func(of feed.Range, at feed.Position) string {
		least, found := int64(0), false
		for _, p := range s.Leases {
			r, err := feed.ParseRange(p.Range)
			if err != nil {
				return err.Error()
			}
			if r.Overlaps(of) && (!found || lsnOf(p.Token) < least) {
				least, found = lsnOf(p.Token), true
			}
		}
		if least > 0 && lsnOf(at.Token) != least {
			return fmt.Sprintf("want LSN %d of the snapshot", least)
		}
		return ""
	}
}
