package unit

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/variants"
)

// Warnings about a unit as a whole, which no single lease shows: nothing fails, and yet somebody has made a mistake.

// A Warning is what an operator should know of a unit as a whole.
type Warning struct {
	Word string // for --fail-on
	Text string
}

// The words of warnings.
const (
	WarnDiffer = "differ"
	WarnIdle   = "idle"
	WarnAlike  = "alike"
)

// warn adds the warnings about a unit; all are the units of the lease container.
func (u *Unit) warn(all []*Unit) {
	if running := u.Variants(); running.Differ() {
		u.warning(WarnDiffer, "instances differ: %v", running)
		u.noteDifferences(running)
	}
	if idle, running := u.Idle(); len(idle) > 0 {
		u.warning(WarnIdle, "%d of %s idle: %s; stop some, split a partition, or cut leases finer", len(idle),
			terminal.Count(running, "instance"), firstOf(idle))
	}
	for _, other := range all {
		if u.IsAlike(other) {
			u.warning(WarnAlike, "unit %s has a similar name and reads the same container: each of the two handles every "+
				"change; if one name is mistyped, stop its instances and delete that unit", other.Processor)
		}
	}
}

func (u *Unit) warning(word, format string, args ...any) {
	u.Warnings = append(u.Warnings, Warning{word, fmt.Sprintf(format, args...)})
}

// warningOf returns the text of the warning with a word; empty if there is none.
func (u *Unit) warningOf(word string) string {
	for _, w := range u.Warnings {
		if w.Word == word {
			return w.Text
		}
	}
	return ""
}

// Variants returns what the running instances run.
func (u *Unit) Variants() feed.Variants {
	var live []feed.Record
	for _, r := range u.Rows {
		if r.Kind == KindInstance && !r.gone {
			live = append(live, r.record)
		}
	}
	return variants.Among(live)
}

// noteDifferences notes at each running instance what the instance runs, if others run something else.
func (u *Unit) noteDifferences(all feed.Variants) {
	for i := range u.Rows {
		if r := &u.Rows[i]; r.Kind == KindInstance && !r.gone && r.Runs != nil {
			r.note("instances differ: %v", all)
		}
	}
}

// Idle returns the names of the running instances without a lease, and the number of all running instances. If a lease
// is free, nobody is idle: instances are about to take it, or it is paused.
func (u *Unit) Idle() (idle []string, running int) {
	for i := range u.Rows {
		switch r := &u.Rows[i]; {
		case r.Kind == KindLease && r.Owner == "" && r.record.State != feed.StateRetired:
			return nil, 0
		case r.Kind == KindInstance && !r.gone:
			running++
			if r.Leases == 0 {
				idle = append(idle, r.Owner)
			}
		}
	}
	slices.Sort(idle)
	return idle, running
}

// countLeases counts the leases of each instance.
func (u *Unit) countLeases() {
	for i := range u.Rows {
		if instance := &u.Rows[i]; instance.Kind == KindInstance {
			for _, lease := range u.Rows {
				if lease.Kind == KindLease && lease.Owner == instance.Owner && lease.Epoch == instance.Epoch {
					instance.Leases++
				}
			}
		}
	}
}

// noteSlow notes at each lease that a batch of it is in the handler for too long, as its owner shows.
func (u *Unit) noteSlow() {
	for i := range u.Rows {
		host := &u.Rows[i]
		if host.Kind != KindInstance || host.gone {
			continue
		}
		for _, s := range variants.ReadSlow(host.record) {
			for j := range u.Rows {
				if r := &u.Rows[j]; r.Kind == KindLease && r.Lease == s.Lease && r.Owner == host.Owner &&
					r.Epoch == host.Epoch {
					r.addSlow(s, host.Silent)
				}
			}
		}
	}
}

// addSlow adds a slow batch to its lease; silent is how many seconds ago the owner has shown it.
func (r *Row) addSlow(s variants.Slow, silent float64) {
	inHand := float64(s.For)/1000 + silent
	if r.InHand == nil || inHand > *r.InHand {
		r.InHand = &inHand
	}
	usually := ""
	if s.Usual > 0 {
		usually = fmt.Sprintf(" (usually %v)", time.Duration(s.Usual)*time.Millisecond)
	}
	r.note("a batch has been in the handler for %s%s: %s", terminal.Seconds(inHand), usually,
		terminal.Count(s.Changes, "change"))
}

// IsAlike reports whether another unit on the same container has a name that may be meant for this one.
func (u *Unit) IsAlike(other *Unit) bool {
	return u.Processor != "" && u.Processor != other.Processor && u.Container == other.Container &&
		IsAlike(u.Processor, other.Processor)
}

// IsAlike reports whether one of two different names may be the other, mistyped.
func IsAlike(a, b string) bool {
	return a != b && len(usage.Nearest(a, []string{b}))+len(usage.Nearest(b, []string{a})) > 0
}
