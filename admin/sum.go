package admin

import (
	"fmt"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/sentence"
)

// A Sum is the sum of a [Listing].
type Sum struct {
	Leases    int
	Instances int // that run
	Held      int // partition keys whose changes wait in dead letters

	Pending int64 // changes that are not handled
	Known   bool  // Pending includes all leases and all keys
	Exact   bool  // Pending is a count
	// Pending is an upper bound, because leases share a partition or overlap. If Pending is neither exact nor shared,
	// Pending is a distance of LSNs.
	Shared bool

	Oldest time.Duration // how long the oldest of these changes has waited at least
	Timed  bool          // none has waited for longer than that
}

// Sum adds up the listing.
func (l *Listing) Sum() Sum {
	s := Sum{Known: len(l.Holes) == 0, Exact: true, Timed: true}
	for i := range l.Instances {
		if l.Instances[i].Presence == Running {
			s.Instances++
		}
	}
	for i := range l.Leases {
		s.add(&l.Leases[i], l.At)
	}
	return s
}

// add adds a lease.
func (s *Sum) add(l *Lease, now time.Time) {
	s.Leases++
	s.Held += len(l.Held)
	s.Known = s.Known && (l.Lag != nil || l.Record.State == feed.StateRetired)
	if l.Lag != nil {
		age, isTimed := l.Lag.Age(now)
		s.Pending += l.Lag.Pending
		s.Exact = s.Exact && l.Lag.Exact
		s.Shared = s.Shared || !l.Lag.Exact && l.Lag.Shared
		s.Oldest, s.Timed = max(s.Oldest, age), s.Timed && isTimed
	}
	if len(l.Overlaps) > 0 { // changes of these keys count twice
		s.Exact, s.Shared = false, true
	}
}

// Behind says in words how far the unit is behind, such as "7 changes behind, the oldest for 3s".
func (s Sum) Behind() string {
	switch {
	// Zero may mean that no lease could be counted. That must not look like good news.
	case s.Pending == 0 && !s.Known:
		return "how far behind is not known"
	case s.Pending > 0:
		least := ""
		if !s.Known {
			least = "at least "
		}
		return fmt.Sprintf("%s%s%s behind, the oldest %s", least, s.mark(), sentence.Count(s.Pending, "change"),
			sentence.Waited(s.Oldest, s.Timed))
	case s.Held > 0:
		return "nothing behind but the changes of " + sentence.Count(s.Held, "held key") + ", in dead letters"
	}
	return "nothing behind"
}

// mark is the mark before a number of changes that is no exact count.
func (s Sum) mark() string {
	switch {
	case s.Exact:
		return ""
	case s.Shared:
		return "≤"
	}
	return "~"
}

// Sentence describes the unit in a sentence: the numbers of leases and instances, the lag, the pace and the watermark,
// as far as known.
func (l *Listing) Sentence() string {
	sum, total := l.Sum(), l.Estimate.Total
	text := fmt.Sprintf("%s, %s, %s", sentence.Count(sum.Leases, "lease"), sentence.Count(sum.Instances, "instance"),
		sum.Behind())
	if total.Pace != nil && total.Pending > 0 {
		text += fmt.Sprintf(", %.3g handled a second", total.Pace.PerSecond)
		if left := total.Pace.CatchUp; left != changefeed.Never {
			text += ", caught up in " + sentence.Duration(left)
		}
	}
	if !total.Watermark.IsZero() {
		text += "; all before " + sentence.Clock(total.Watermark, l.Estimate.At) + " is handled"
	}
	return text
}
