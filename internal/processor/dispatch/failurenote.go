package dispatch

import (
	"context"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/delivery"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
)

// failureNote says in a lease without other notes which changes have failed. Only operators need to know: the next
// owner goes on with the number of calls alone.
type failureNote struct {
	partition string // in which the LSNs count; empty before the first failure
}

// fill puts the note into a record. A lease with other notes says in these which changes have failed.
func (f failureNote) fill(l *feed.Record, hasNotes bool, e *delivery.Engine) {
	failing := notes.Done{At: l.Position.Token, Partition: f.partition}
	switch old := l.Properties[notes.FailingProperty]; {
	case hasNotes:
	case f.partition != "":
		failing.Tried = e.Notes().Tried
	case old != "" && l.Attempts > 0: // the note of the last owner holds
		return
	}
	if text := failing.String(); l.Properties[notes.FailingProperty] != text {
		records.SetProperty(l, notes.FailingProperty, text)
	}
}

// learnPartition finds out which partition has the range of a lease, after a failure. Without trouble nobody asks for
// that. If the partitions cannot be listed, the next failure tries again.
func (f *failureNote) learnPartition(d *Dispatcher) {
	d.mu.Lock()
	known := d.here != "" || f.partition != ""
	d.mu.Unlock()
	if known {
		return
	}
	ctx, cancel := context.WithTimeout(d.held.UntilDrained, instance.ReadTimeout)
	defer cancel()
	partitions, err := records.Noted(ctx, d.in.Source)
	name := notes.Name(d.held.Lease.Range.Min, d.held.Lease.Range.Max, partitions)
	if err != nil || name == notes.Unknown {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	f.partition = name
}
