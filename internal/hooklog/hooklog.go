// Package hooklog writes the events of a processor to a log, a function for each hook.
package hooklog

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/fold"
)

// Differing writes when instances begin to differ, and when they no longer do.
func Differing(log *slog.Logger) func(context.Context, feed.Difference) {
	return func(ctx context.Context, d feed.Difference) {
		text := "instances of the unit differ, so what happens to a change depends on its owner"
		if !d.Ended.IsZero() {
			text = "instances of the unit no longer differ"
		}
		log.WarnContext(ctx, text, "instances", d.Variants.String(), "since", d.Since)
	}
}

// Paused writes when keys are paused, and when the pause is over.
func Paused(log *slog.Logger) func(context.Context, feed.Pause) {
	return func(ctx context.Context, p feed.Pause) {
		text := "keys are paused: their changes wait until changefeed leases resume"
		if !p.Ended.IsZero() {
			text = "the pause of keys is over"
		}
		log.WarnContext(ctx, text, "range", p.Range.String(), "by", p.By, "reason", p.Reason, "since", p.Since)
	}
}

// Slow writes which batches stay in the handler.
func Slow(log *slog.Logger) func(context.Context, feed.SlowBatch) {
	return func(ctx context.Context, b feed.SlowBatch) {
		text, until := "a batch has been in the handler for longer than usual", time.Now()
		if !b.Ended.IsZero() {
			text, until = "the slow batch has left the handler", b.Ended
		}
		log.WarnContext(ctx, text, "lease", b.Lease, "for", until.Sub(b.Since).Round(time.Second/10).String(), "usual",
			b.Usual.Round(time.Millisecond).String(), "changes", b.Changes)
	}
}

// Begun writes where a new unit begins: as a warning if the unit skips changes or may skip some.
func Begun(log *slog.Logger) func(context.Context, feed.NewUnit) {
	return func(ctx context.Context, u feed.NewUnit) {
		switch {
		case u.Mode == feed.AllVersionsAndDeletes:
			log.InfoContext(ctx, "the unit is new and begins now: all versions and deletes cannot begin earlier",
				"start", u.Start.String(), "leases", u.Leases)
		case u.Passed == nil:
			log.WarnContext(ctx,
				"the unit is new and passes over the changes before its start, whose number is not known; to handle "+
					"them, delete its leases and start it from the beginning",
				"start", u.Start.String(), "leases", u.Leases, "passed", nil)
		case *u.Passed > 0:
			log.WarnContext(ctx,
				"the unit is new and passes over the changes before its start; to handle them, delete its leases and "+
					"start it from the beginning",
				"start", u.Start.String(), "leases", u.Leases, "passed", *u.Passed)
		default:
			log.InfoContext(ctx, "the unit is new", "start", u.Start.String(), "leases", u.Leases, "passed", 0)
		}
	}
}

// Parked writes which changes are parked.
func Parked(log *slog.Logger) func(context.Context, feed.DeadLetter) {
	var folded fold.Fold
	return func(ctx context.Context, l feed.DeadLetter) {
		kind := string(l.Change.PartitionKey)
		if l.Disposition != feed.DispositionHeld { // an operator looks at each of these
			kind += " " + l.ID
		}
		if left, ok := folded.Admit(kind, l.ID, time.Now()); ok {
			log.WarnContext(ctx, "change parked", append([]any{
				"letter", l.ID, "key", string(l.Change.PartitionKey), "item", l.Change.ID, "lsn", l.Change.LSN,
				"lease", l.Lease, "disposition", string(l.Disposition), "attempts", l.Attempts, "cause", l.Cause,
			}, left.Attrs("letters")...)...)
		}
	}
}

// Keys writes which keys are set aside, held, or free again.
func Keys(log *slog.Logger) func(context.Context, feed.KeyEvent) {
	var folded fold.Fold
	return func(ctx context.Context, k feed.KeyEvent) {
		if left, ok := folded.Admit(string(k.Became), string(k.Key), time.Now()); ok {
			log.InfoContext(ctx, "partition key "+string(k.Became),
				append([]any{"key", string(k.Key), "lease", k.Lease}, left.Attrs("keys")...)...)
		}
	}
}

// Redriven writes the results of redriven letters.
func Redriven(log *slog.Logger) func(context.Context, feed.Redriven) {
	var folded fold.Fold
	return func(ctx context.Context, r feed.Redriven) {
		text := "letter handled again"
		if r.Err != nil {
			text = "letter failed again"
		}
		if left, ok := folded.Admit(text, r.Letter.ID, time.Now()); ok {
			log.InfoContext(ctx, text, append([]any{
				"letter", r.Letter.ID, "key", string(r.Letter.Change.PartitionKey), "lease", r.Letter.Lease, "recall",
				r.Recall, "err", r.Err,
			}, left.Attrs("letters")...)...)
		}
	}
}

// Skipped writes which changes an operator has had skipped, in a line. If they are many, the line names the first.
func Skipped(log *slog.Logger) func(context.Context, feed.Skip) {
	return func(ctx context.Context, s feed.Skip) {
		names := make([]string, len(s.Changes))
		for i, c := range s.Changes {
			names[i] = fmt.Sprintf("%s of key %s at LSN %d", c.ID, c.Key, c.LSN)
		}
		log.WarnContext(ctx, "an operator has changes skipped: the handler does not get them", "lease", s.Lease, "changes",
			len(s.Changes), "names", fold.Names(names), "by", s.By, "reason", s.Reason)
	}
}
