package changefeed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// What a lease says beside its position
//
// The position is where all is done before, so a reader that knows no more than that goes on
// there and skips nothing. Two properties say more, in JSON. The first is what is done after
// the position, so that little is repeated after a crash, and what was in the handler then. The
// second is which keys are held.
//
// Both say the position that they were written with. Where another processor, which does not
// know them, has moved the position since, they are wrong: they are dropped, and that is reported.
// What is done is known by its LSN, and LSNs count only within a partition and its
// children. So it is dropped too when the range is in another partition since.

// The properties.
const (
	doneProperty = "changefeed.done"
	heldProperty = "changefeed.held"
)

// doneNote is the property about what is done.
type doneNote struct {
	At        string     `json:"at"`                // the position's token
	Partition string     `json:"partition"`         // the id of the partition
	Through   int64      `json:"through,omitempty"` // every change up to this LSN is done,
	Open      []int64    `json:"open,omitempty"`    // but for these
	Suspect   *suspicion `json:"suspect,omitempty"`
}

// suspicion is what is in the handler, if it has failed before. When the owner ends without a
// word, this may be why.
type suspicion struct {
	LSN      int64 `json:"lsn"`
	Place    int   `json:"place"` // of the first change
	Changes  int   `json:"changes"`
	Attempts int   `json:"attempts"`
	Alone    bool  `json:"alone"` // nothing else was in the handler

	of *laneBatch
}

// heldNote is the property about the held keys.
type heldNote struct {
	At   string         `json:"at"`
	Keys []PartitionKey `json:"keys"`
}

const (
	maxOpen = 500  // LSNs in a lease
	maxHeld = 1000 // keys of a lease
)

// errCrashed is why a change is parked that was alone in the handler each time the process ended.
var errCrashed = errors.New("the process ended while the handler was at it")

// note has a record say what is done and held, beside the position that it says.
func (d *dispatcher) note(l *Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.here == "" { // nothing is known yet but what the last owner has noted
		return
	}
	done := doneNote{At: l.Position.Token, Partition: d.here}
	if done.Through, done.Open = d.lanes.Done(maxOpen); len(done.Open) == 0 { // the position says it all
		done.Through = 0
	}
	if d.suspect.of != nil {
		done.Suspect = &d.suspect
	}
	setNote(l, doneProperty, done, done.Through > 0 || done.Suspect != nil)
	setNote(l, heldProperty, heldNote{l.Position.Token, slices.Sorted(maps.Keys(d.held))}, len(d.held) > 0)
}

// setNote writes a property, or removes it when there is nothing to say.
func setNote(l *Record, name string, note any, says bool) {
	text := ""
	if says {
		raw, _ := json.Marshal(note) // of texts and numbers
		text = string(raw)
	}
	if l.Properties[name] != text {
		l.setProperty(name, text)
	}
}

// restore goes on from what the last owner has noted.
func (d *dispatcher) restore(ctx context.Context) error {
	partitions, err := d.partitions(ctx)
	if err != nil {
		return err
	}
	at := d.lease.Position.Token
	d.mu.Lock()
	defer d.mu.Unlock()
	var done doneNote
	if err := d.noted(doneProperty, &done, func() bool { return done.At == at && isSamePartition(done.Partition, d.lease.Range, partitions) }); err != nil {
		done = doneNote{}
		defer d.raise(OriginLeaseStore, err)
	}
	var held heldNote
	if err := d.noted(heldProperty, &held, func() bool { return held.At == at }); err != nil {
		held = heldNote{}
		defer d.raise(OriginLeaseStore, err)
	}
	d.here = partitionName(d.lease.Range, partitions)
	d.lanes.Restore(done.Through, done.Open)
	for _, key := range held.Keys {
		d.held[key] = true
		d.lanes.Hold(string(key))
	}
	d.beware(done)
	return nil
}

// partitions lists the partitions if there is anything that depends on them.
func (d *dispatcher) partitions(ctx context.Context) ([]Partition, error) {
	if d.r.opts.Concurrency == 1 && !d.r.opts.hasPolicy() && d.lease.Properties[doneProperty] == "" {
		return nil, nil
	}
	return d.r.source.Partitions(ctx)
}

// noted reads a property that the last owner has written, if it is there and still holds.
func (d *dispatcher) noted(name string, into any, holds func() bool) error {
	text := d.lease.Properties[name]
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return fmt.Errorf("%w: its property %s is dropped: %w", ErrBadLease, name, err)
	}
	if !holds() {
		return fmt.Errorf("%w: property %s is dropped", ErrMoved, name)
	}
	return nil
}

// partitionName names the partition of a range: its id and its keys.
func partitionName(r Range, partitions []Partition) string {
	for _, p := range partitions {
		if p.Range.Contains(r) {
			return p.ID + " " + p.Range.String()
		}
	}
	return "unknown"
}

// isSamePartition reports whether LSNs of a partition count in the one that has a range now: if it
// is the same, or a child that a split has made of it.
func isSamePartition(name string, r Range, partitions []Partition) bool {
	if name == partitionName(r, partitions) {
		return name != "unknown"
	}
	id, text, _ := strings.Cut(name, " ")
	of, err := ParseRange(text)
	return err == nil && slices.ContainsFunc(partitions, func(p Partition) bool {
		return p.Range.Contains(r) && of.Contains(p.Range) && len(p.Parents) > 0 && p.Parents[len(p.Parents)-1] == id
	})
}

// beware has the lanes treat with care what may have ended the last owner: one batch at a time, and
// half as many changes as were in the handler then. A change that was alone there is parked.
func (d *dispatcher) beware(done doneNote) {
	o := d.r.opts
	if !o.hasPolicy() || d.lease.Attempts == 0 {
		return
	}
	d.lanes.Careful(math.MaxInt)
	switch s := done.Suspect; {
	case s == nil || !s.Alone || o.MaxAttempts == 0 || s.Attempts < o.MaxAttempts:
	case s.Changes > 1:
		d.lanes.Careful(s.Changes / 2)
	case o.DeadLetters != nil:
		d.pending.Suspect = s
	}
}

// termProperty of a lease counts its owners.
const termProperty = "changefeed.term"

// term is the number of the lease's owner.
func (l Record) term() int64 {
	n, _ := strconv.ParseInt(l.Properties[termProperty], 10, 64) // no number is the first
	return n
}

// begin makes the lease a new owner's.
func (l *Record) beginTerm() { l.setProperty(termProperty, strconv.FormatInt(l.term()+1, 10)) }
