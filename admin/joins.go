package admin

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/balance"
	"github.com/millrace/changefeed/internal/processor/records"
	"github.com/millrace/changefeed/internal/sentence"
)

// Why surplus leases are not joined: internal/processor/unit/join.go decides, and these sentences repeat its rules as
// far as records show them.

// countNeeded notes how many leases the unit needs: as many as a new unit with the same instances would have. If the
// source does not list partitions, the number stays unknown.
func (l *Listing) countNeeded(ctx context.Context, source feed.Source) {
	if source == nil {
		return
	}
	partitions, err := source.Partitions(ctx)
	if err != nil {
		return
	}
	least := 0
	for _, i := range l.Instances {
		if i.Presence == Running {
			least = max(least, int(notes.Number(i.Properties, notes.LeastProperty)))
		}
	}
	l.needed = balance.Grid(len(partitions), least)
}

// countLive returns the number of leases that somebody works on, or could.
func (l *Listing) countLive() (n int) {
	for i := range l.Leases {
		if s := l.Leases[i].State; s != StateBroken && s != StateRetired && s != StateSplitting {
			n++
		}
	}
	return n
}

// whyNotJoined says that the unit has surplus leases, and why this lease is not joined with a neighbour.
func (e explainer) whyNotJoined() string {
	live := e.unit.countLive()
	if e.unit.needed == 0 || live <= e.unit.needed || e.State == StateBroken || e.State == StateRetired ||
		e.State == StateSplitting || !e.unit.IsAtWork() {
		return ""
	}
	return fmt.Sprintf("The unit has %s and needs %d. %s", sentence.Count(int64(live), "lease"), e.unit.needed,
		e.hindrance())
}

// hindrance says why the lease is not joined.
func (e explainer) hindrance() string {
	has := func(properties ...string) bool {
		return slices.ContainsFunc(properties, func(name string) bool { return e.Record.Properties[name] != "" })
	}
	owner := func(i Instance) bool { return i.owns(e.Lease) && i.Properties[notes.NeverJoinProperty] != "" }
	switch {
	case e.isForeign() || !records.IsOurs(e.Record):
		return "This one is not joined, because another kind of processor has it or has made it."
	case has(notes.PausedProperty):
		return "This one is not joined while it is paused."
	case has(notes.HeldProperty):
		return "This one is not joined while keys of it are held."
	case has(notes.AsideProperty, notes.DoneProperty):
		return "This one is not joined while keys of it are set aside."
	case has(notes.FailingProperty, notes.OutageProperty) || e.Attempts > 0:
		return "This one is not joined until a change of it succeeds."
	case has(notes.SkipsProperty):
		return "This one is not joined until its position is after the changes that were skipped."
	case !records.IsJoinable(e.Record):
		return "This one is not joined until it has come to the changes of its reset."
	case slices.ContainsFunc(e.unit.Instances, owner):
		return fmt.Sprintf("This one is not joined, because %s keeps something for its range: it holds keys, publishes "+
			"exactly once, or reads a source that cannot compare positions.", sentence.OneLine(e.Owner))
	}
	return "This one is joined with a neighbour five expirations after there were too many. A batch that stays in the " +
		"handler for longer than the drain time, or a lease without an owner, delays that."
}
