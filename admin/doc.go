// Package admin shows and steers the processors of a deployment unit through its lease store: the leases with owners,
// states and explanations; pause and resume; reset of positions, of leases or of a single partition key; skips of
// changes that fail; snapshots and their restore; and the history of all that.
// Nothing has to be started, and no instance has to be stopped: the instances obey, and while none runs, the calls
// change the leases themselves.
//
//	unit := admin.Open(orders, leases, admin.Options{By: "ada", Reason: "INC-4711: the mail server is down"})
//	if _, err := unit.Pause(ctx, admin.All()); err != nil {
//		return err
//	}
//	…
//	_, err := unit.Resume(ctx, admin.All())
//
// # List and explain
//
// [Unit.List] returns the state of the unit, as facts for programs: each [Lease] with the owner, the [State], the
// position, the lag, the batch in the handler, the held keys, and the reason if nobody serves the lease; each
// [Instance], each [Request], and the keys that no lease covers. Beside the facts there are notes for people.
// [Listing.Findings] returns the problems, each with a [Word] for alarms, a [Grade] and the next step; a lag is judged
// by a limit of yours:
//
//	l, err := unit.List(ctx)
//	if err != nil {
//		return err
//	}
//	for _, f := range append(l.Findings(), l.Waiting(2*time.Minute)...) {
//		log.Printf("%s %s: %s: %s", f.Word, f.Token, f.Text, f.Next)
//	}
//
// [Unit.Explain] says the same of a single lease in sentences, with the history and the next steps. The commands
// changefeed leases and changefeed doctor show what these calls return. List counts the changes after each lease, which
// costs a request a lease or more; with a nil source, List reads the lease store only.
//
// # Pause
//
// While a range is paused, no instance delivers its changes. When [Unit.Pause] returns, each lease of the range has no
// owner, and no handler has a batch of the lease. The instances give such leases up in good order: a batch in the
// handler may go on for Options.Drain, and the position is stored. A paused lease costs no requests. Leases that are
// made while a range is paused, by a split for instance, are paused too. A pause ends with [Unit.Resume]. If the caller
// of Resume dies before the end, the instances do the rest within a few rounds.
//
// # Reset
//
// [Unit.Reset] gives leases another position. The owner of a lease finishes the batch in hand, and gives the lease up
// with the new position; the next owner begins there. An earlier owner cannot overwrite the position, because every
// write of a lease is conditional on the ETag of the write before. A lease cannot be reset during a split. The notes of
// a lease about single changes and keys are removed: held keys are not held any more, keys that are set aside are not
// read again, and failed attempts do not count. Dead letters stay.
//
// # Replay of a key
//
// [Unit.ResetKey] delivers the changes of a single partition key again, beside the live feed: the position of the lease
// does not move. The owner reads the key separately from your start, in order, until the key has caught up with the
// lease.
//
// # Skip
//
// [Unit.Failing] lists the changes that fail now, and [Unit.Skip] gives up exactly those that you name: the handler
// does not receive them again, and they become no dead letters. The lease names them until the position has passed
// them, and the history of the unit names the first 16 of a skip. A lease can name 1,000 at a time.
//
// # Snapshot and restore
//
// [Unit.Snapshot] returns the positions of a unit as a document in readable JSON, also from the leases of a .NET or
// Java processor. [Unit.Restore] gives the leases of a unit these positions, or makes the leases; changes since the
// snapshot are handled again. A snapshot of another container or mode is refused before anything changes.
//
// # History
//
// Each action leaves a line in the history of the unit, with the author, the time, the action and the reason: see
// [Unit.History]. If the line cannot be written, the action is done in any case, and the error is an [ErrNotRecorded].
//
// # Cleaning up
//
// [Unit.Surplus] finds records of the unit that nobody needs, and [Unit.CleanUp] removes them.
//
// # Other kinds of processors
//
// Processors for .NET and Java do not know these requests. If such a processor owns a lease, the calls return an error
// before they change anything. A paused lease looks free to them: do not start one while a unit is paused.
package admin
