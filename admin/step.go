package admin

import (
	"context"
	"fmt"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/sentence"
)

// Steps in words, and their moves.

// pasts are the words for finished actions on a lease.
var pasts = map[Action]string{ActionPause: "paused", ActionResume: "resumed", ActionReset: "reset"}

// String describes the finished step or, if the step is not done, the planned step.
func (s Step) String() string {
	verb, made := "would "+string(s.Action), "would make"
	if s.Done {
		verb, made = pasts[s.Action], "made"
	}
	switch isMade := s.Lease.Updated.IsZero(); { // nobody has stored the lease before
	case s.Action == ActionReset && isMade:
		return fmt.Sprintf("%s lease %s at %s", made, s.Lease.Token, s.To)
	case s.Key != "":
		return fmt.Sprintf("%s key %s of lease %s from %s to %s", verb, s.Key, s.Lease.Token, s.Lease.Position, s.To)
	case s.Action == ActionReset:
		return fmt.Sprintf("%s lease %s from %s to %s", verb, s.Lease.Token, s.Lease.Position, s.To)
	}
	return fmt.Sprintf("%s lease %s", verb, s.Lease.Token)
}

// Effect says how many changes a reset delivers again or skips: those that [Unit.Moved] has counted.
func (s Step) Effect(moved int64) string {
	switch {
	case moved < 0:
		return sentence.Count(-moved, "change") + " skipped"
	case moved == 0 && s.Key != "":
		return "no change of the key is between the two positions, so nothing comes again: is the key right?"
	case moved == 0:
		return "no change between them"
	}
	return sentence.Count(moved, "change") + " again"
}

// Moved counts the changes between the two positions of a reset: how many come again or, if the number is negative, how
// many are skipped. If the source is no [feed.Counter], or the count fails, known is false.
func (u *Unit) Moved(ctx context.Context, s Step) (moved int64, known bool) {
	counter, counts := u.source.(feed.Counter)
	if !counts || s.Action != ActionReset || s.Lease.Position == (feed.Position{}) {
		return 0, false
	}
	options := feed.ReadOptions{Mode: s.Lease.Mode, Key: s.Key}
	before, err := counter.Pending(ctx, s.Lease.Range, s.Lease.Position, options)
	if err != nil {
		return 0, false
	}
	after, err := counter.Pending(ctx, s.Lease.Range, s.To, options)
	if err != nil {
		return 0, false
	}
	return after.Items - before.Items, true
}
