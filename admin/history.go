package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/processor/records"
)

// ErrNotRecorded means that an action has changed the unit, and that the history has no line about the action. The text
// says whether the action was carried out. To call again repeats the action.
var ErrNotRecorded = errors.New("its line in the history of the unit is missing")

// Entry is a line in the history of a unit: an action that has changed something, or has tried to.
type Entry struct {
	At     time.Time // when the action had ended, by the clock of the lease store
	By     string    // as in [Options]; at most 200 bytes
	Reason string    // as in [Options]; at most 1 KB
	Action Action    // later versions may have others
	Range  feed.Range
	Count  int    // how many leases were meant; of a clean-up: records; of a skip: changes; of letters: those or keys
	Done   int    // how many of them were done
	Moves  []Move // of a reset or restore: the positions of the first 16 leases
	Failed string // why the action was not carried out as a whole; empty after success

	Key     feed.PartitionKey // of a reset of a key, or of letters of a key
	Changes []FailedChange    // of a skip, or of letters: the first 16 changes
}

// Move is the change of a lease's position. A position with a token above 1 KB is left out of the history, and is zero.
type Move struct {
	Lease    string // token
	From, To feed.Position
}

// History returns the actions on the unit through this package, oldest first: the last 100 actions, or fewer if they
// are more than 64 KB. Older versions of this package have left no lines. A dry run leaves none.
//
// The history is a record in the lease store, which instances ignore. If the caller dies during an action, the line is
// missing.
//
// Errors: [feed.ErrNotFound] for a unit without leases and history, [feed.ErrBadLease] for a history that somebody has
// made unreadable, and those of the lease store.
func (u *Unit) History(ctx context.Context) ([]Entry, error) {
	v, err := u.list(ctx)
	if err != nil {
		return nil, err
	}
	history := v.Kind(feed.KindHistory)
	if _, found := historyIn(history); !found && len(v.Kind(feed.KindLease)) == 0 {
		return nil, fmt.Errorf("%w: the unit has no leases", feed.ErrNotFound)
	}
	return entriesIn(history)
}

// entriesIn returns the lines of the history among records.
func entriesIn(all []feed.Record) ([]Entry, error) {
	record, _ := historyIn(all)
	if err := unreadable(record, nil); err != nil {
		return nil, err
	}
	lines, err := notes.ReadHistory(record.Properties)
	if err != nil {
		return nil, unreadable(record, err)
	}
	entries := make([]Entry, len(lines))
	for i, line := range lines {
		entries[i] = entryOf(line)
	}
	return entries, nil
}

// entryOf returns a stored line, without a range or position that this version cannot read.
func entryOf(l notes.Line) Entry {
	e := Entry{
		At: l.At.UTC(), By: l.By, Reason: l.Why, Action: Action(l.Action), Count: l.Count, Done: l.Done,
		Failed: l.Failed,
	}
	e.Range, _ = feed.ParseRange(l.Range)
	e.Key = feed.PartitionKey(l.Key)
	for _, c := range l.Changes {
		e.Changes = append(e.Changes, changeOf(c))
	}
	for _, m := range l.Moves {
		move := Move{Lease: m.Lease}
		move.From, _ = records.PositionOf(m.From)
		move.To, _ = records.PositionOf(m.To)
		e.Moves = append(e.Moves, move)
	}
	return e
}

// historyIn finds the history among the records.
func historyIn(all []feed.Record) (feed.Record, bool) {
	for _, r := range all {
		if r.Kind == feed.KindHistory && r.Token == "" {
			return r, true
		}
	}
	return feed.Record{Kind: feed.KindHistory}, false
}

// unreadable returns the error of an unreadable history, because of the document or of the lines.
func unreadable(record feed.Record, lines error) error {
	if record.Err != nil {
		lines = record.Err
	}
	if lines == nil {
		return nil
	}
	return fmt.Errorf("%w: history %s: %w: delete the document, and a new history begins", feed.ErrBadLease, record.ID,
		lines)
}

// Record adds a line to the history for an action on dead letters through package deadletters. By, Reason and At of the
// entry are those of [Options] and of the lease store's clock, whatever the entry says. Range is that of the lease that
// has Key, or of all leases without a key. Moves are left out. A dry run records nothing.
//
// Errors: [ErrNotRecorded] and the cause.
func (u *Unit) Record(ctx context.Context, e Entry) error {
	if u.options.DryRun {
		return nil
	}
	line := notes.Line{
		Action: string(e.Action), Range: rangeOf(ctx, u, e.Key).String(), Key: string(e.Key), Count: e.Count,
		Done: e.Done, Failed: e.Failed,
	}
	for _, c := range e.Changes {
		line.Changes = append(line.Changes, c.name())
	}
	return recordLine(ctx, u, line, nil)
}

// rangeOf returns the range of the lease that has a key; of all leases if there is no key, or if nobody knows.
func rangeOf(ctx context.Context, u *Unit, key feed.PartitionKey) feed.Range {
	locator, ok := u.source.(feed.Locator)
	if key == "" || !ok {
		return feed.FullRange()
	}
	epk, err := locator.Locate(ctx, key)
	if err != nil {
		return feed.FullRange()
	}
	all, _, err := u.leases.List(ctx)
	if err != nil {
		return feed.FullRange()
	}
	for _, r := range all {
		if r.Kind == feed.KindLease && r.State == feed.StateLive && r.Range.Holds(epk) {
			return r.Range
		}
	}
	return feed.FullRange()
}

// record writes the line of an action that has ended with or without an error, and returns the error for the caller.
func (u *Unit) record(ctx context.Context, action Action, of feed.Range, steps []Step, failed error) error {
	line := notes.Line{Action: string(action), Range: of.String(), Count: len(steps)}
	for _, s := range steps {
		if s.Done {
			line.Done++
		}
		if s.Action == ActionReset {
			line.Moves = append(line.Moves, notes.Move{
				Lease: s.Lease.Token, From: records.TargetOf(s.Lease.Position), To: records.TargetOf(s.To),
			})
			line.Key = string(s.Key)
		}
	}
	return recordLine(ctx, u, line, failed)
}

// recordLine writes a line, and returns the error for the caller of the action.
func recordLine(ctx context.Context, u *Unit, line notes.Line, failed error) error {
	line.ID, line.By, line.Why = rand.Text(), u.options.By, u.options.Reason
	if failed != nil {
		line.Failed = failed.Error()
	}
	err := journal{u.leases}.write(ctx, line)
	switch {
	case err == nil:
		return failed
	case failed == nil:
		return fmt.Errorf("%s was carried out, and %w: %w", line.Action, ErrNotRecorded, err)
	}
	return fmt.Errorf("%w; %w: %w", failed, ErrNotRecorded, err)
}

// recordTime bounds how long a line is tried to be written, also after the end of the action's context.
const recordTime = 10 * time.Second

// journal writes the history of a unit.
type journal struct{ leases feed.LeaseStore }

// write writes a line. A failure of the store may pass, and a conflict says that another operator has written.
func (j journal) write(ctx context.Context, line notes.Line) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		err := j.add(ctx, line)
		switch {
		case err == nil, errors.Is(err, feed.ErrBadLease), errors.Is(err, feed.ErrForbidden):
			return err
		case errors.Is(err, feed.ErrConflict):
			wait = mathrand.N(firstWait) // operators who write at once should not meet again
		}
		if pause.For(ctx, wait) != nil {
			return err
		}
	}
}

// add adds a line to the stored history, unless the line is there.
func (j journal) add(ctx context.Context, line notes.Line) error {
	all, now, err := j.leases.List(ctx)
	if err != nil {
		return fmt.Errorf("read leases: %w", err)
	}
	record, found := historyIn(all)
	if err := unreadable(record, nil); err != nil {
		return err
	}
	line.At = now.UTC().Truncate(time.Millisecond)
	properties, added, err := notes.AddLine(record.Properties, line)
	if err != nil {
		return unreadable(record, err)
	}
	if !added {
		return nil
	}
	record.Properties = properties
	stamp(&record)
	if found {
		_, err = j.leases.Update(ctx, record)
	} else {
		_, err = j.leases.Create(ctx, record)
	}
	if err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	return nil
}
