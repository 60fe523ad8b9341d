package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
)

// Failing is changes of a lease that have failed together according to the lease: a batch, or a part of a batch.
type Failing struct {
	Lease    feed.Lease
	Changes  []FailedChange // in their order, those that are done left out; at most 1000
	More     bool           // there are others beyond these 1000; false if you choose some of them to be skipped
	Attempts int            // how often the handler has received them
	Since    time.Time      // when they failed first, in seconds
	Done     bool           // they were skipped: false after a dry run
}

// FailedChange names a change that has failed.
type FailedChange struct {
	ID  string // of the item
	Key feed.PartitionKey
	LSN int64

	letter string
}

// changeOf returns the change of a name.
func changeOf(c notes.Skip) FailedChange {
	return FailedChange{ID: c.ID, Key: feed.PartitionKey(c.Key), LSN: c.LSN, letter: c.Letter}
}

// name returns the name of a change in a request.
func (c FailedChange) name() notes.Skip {
	return notes.Skip{Key: string(c.Key), LSN: c.LSN, ID: c.ID, Letter: c.letter}
}

// Failing returns the changes at which the leases of a selection fail, those of the batch of each lease
// that has failed for the longest first.
// The leases say which changes have failed, so nobody is asked, and no instance has to run. A change that a later
// version has replaced is left out. Changes that Options.Filter omits may be listed, because a lease does not know
// them.
//
// Errors: those of [Unit.Pause] but [feed.ErrConflict], [feed.ErrGone] for a lease whose partition was split and that
// no instance has split yet, and those of the source.
func (u *Unit) Failing(ctx context.Context, s Selection) ([]Failing, error) {
	if err := needSource(u); err != nil {
		return nil, err
	}
	_, chosen, err := listChosen(ctx, u, s)
	if err != nil {
		return nil, err
	}
	partitions, err := records.Noted(ctx, u.source)
	if err != nil {
		return nil, fmt.Errorf("read partitions: %w", err)
	}
	var all []Failing
	for _, lease := range chosen {
		found, err := failingOf(ctx, u, lease, partitions)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// failingOf returns the changes at which a lease fails.
func failingOf(ctx context.Context, u *Unit, lease feed.Record, partitions []notes.Partition) (all []Failing,
	err error,
) {
	standing, seen := records.StandingOf(u.source, lease, partitions), map[FailedChange]bool{}
	if standing.IsSplit() {
		return nil, whyUnread(lease, feed.ErrGone)
	}
	for _, fault := range standing.Faults() {
		f := Failing{Lease: lease.Lease(), Attempts: fault.Calls, Since: fault.FailingSince().UTC()}
		var names []notes.Skip
		if names, f.More, err = standing.Changes(ctx, fault, records.MaxSkipped); err != nil {
			return nil, whyUnread(lease, err)
		}
		for _, name := range names {
			if c := changeOf(name); !seen[c] {
				seen[c] = true
				f.Changes = append(f.Changes, c)
			}
		}
		if len(f.Changes) > 0 {
			all = append(all, f)
		}
	}
	return all, nil
}

// whyUnread returns the error of changes that could not be read.
func whyUnread(lease feed.Record, err error) error {
	if errors.Is(err, feed.ErrGone) {
		return fmt.Errorf("lease %s: %w: its partition has been split: start an instance, which makes the leases of the "+
			"parts, and try again", lease.Token, err)
	}
	return fmt.Errorf("lease %s: read its changes: %w", lease.Token, err)
}

// Skip has changes at which a lease fails counted as done: those of f, which [Unit.Failing] has returned, or some of
// them, and none other. Later changes of their keys then go on. The skip has a line in [Unit.History] that names the
// first 16 changes. A paused lease stays paused.
//
// The owner of the lease finishes the batch in the handler, and gives the lease up without the changes; while no
// instance has the lease, Skip writes the lease. If the lease has passed any of the changes by then, or does not fail
// there, the error is a [feed.ErrConflict] that says so, and nothing is skipped. A request whose answer is lost is
// carried out once.
//
// A skipped change comes again after a [Unit.Reset] to an earlier position. Changes of the same item in the same
// transaction are skipped together. Other errors are those of [Unit.Pause], [feed.ErrBadRequest] for more than 1000
// changes, and [ErrNotServed] if the owner has not obeyed before the end of ctx.
func (u *Unit) Skip(ctx context.Context, f Failing) (Failing, error) {
	f.Done = false
	if err := needSource(u); err != nil {
		return f, err
	}
	if n := len(f.Changes); n == 0 || n > records.MaxSkipped || f.More {
		many := strconv.Itoa(n)
		if f.More {
			many = "more than " + many
		}
		return f, fmt.Errorf("%w: %s changes are to be skipped: want 1 to %d: name single changes", feed.ErrBadRequest, many,
			records.MaxSkipped)
	}
	v, err := u.list(ctx)
	if err != nil {
		return f, err
	}
	lease, err := only(u, v, f.Lease.Range)
	if err != nil {
		return f, err
	}
	partitions, err := records.Noted(ctx, u.source)
	if err != nil {
		return f, fmt.Errorf("read partitions: %w", err)
	}
	c := u.newControl(notes.SkipChanges, lease.Range)
	for _, change := range f.Changes {
		c.Changes = append(c.Changes, change.name())
	}
	caller := rand.Text()
	if _, err := records.Obey(u.source, lease, partitions, c, caller); err != nil {
		return f, fmt.Errorf("lease %s: %w: %w", lease.Token, feed.ErrConflict, err)
	}
	if u.options.DryRun {
		return f, nil
	}
	err = obey(ctx, u, lease.ID, c, caller)
	f.Done = err == nil
	return f, f.record(ctx, u, c, err)
}

// record writes the line of a skip.
func (f Failing) record(ctx context.Context, u *Unit, c notes.Control, failed error) error {
	line := notes.Line{
		Action: string(ActionSkip), Range: f.Lease.Range.String(), Count: len(f.Changes), Changes: c.Changes,
	}
	if f.Done {
		line.Done = line.Count
	}
	return recordLine(ctx, u, line, failed)
}
