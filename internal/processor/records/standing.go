package records

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// How a lease stands, and what an operator may do with single changes and keys of it
//
// A lease says which of its changes have failed, so an operator can have one skipped or a key replayed without its
// owner. The owner does the same when it gives the lease up: it judges by the lease it would write.

// Standing is what a lease says of its changes beside its position.
type Standing struct {
	source feed.Source
	lease  feed.Record
	in     notes.Place
	here   string // name of the partition
	done   notes.Done
	aside  notes.Aside
	skips  notes.Skips
}

// StandingOf reads the notes of a lease. The partitions are those of [Noted].
func StandingOf(source feed.Source, l feed.Record, partitions []notes.Partition) Standing {
	lsn, _ := TokenLSN(source, l.Position.Token)
	s := Standing{source: source, lease: l, here: notes.Name(l.Range.Min, l.Range.Max, partitions)}
	s.in = notes.Place{
		Position: l.Position.Token, LSN: lsn, Min: l.Range.Min, Max: l.Range.Max, Partitions: partitions,
	}
	// Notes which no longer count are empty: the owner reports them.
	s.done, _ = notes.ReadDone(l.Properties[notes.DoneProperty], s.in)
	if l.Properties[notes.DoneProperty] == "" {
		s.done, _ = notes.ReadDone(l.Properties[notes.FailingProperty], s.in)
	}
	s.aside, _ = notes.ReadAside(l.Properties[notes.AsideProperty], s.in)
	s.skips, _ = notes.ReadSkips(l.Properties[notes.SkipsProperty], s.in)
	return s
}

// IsSplit reports whether no single partition holds the range of the lease any more.
func (s Standing) IsSplit() bool { return s.here == notes.Unknown }

// Fault is a run of failed changes which are not done, and a position before them.
type Fault struct {
	notes.Run
	From feed.Position
	Read feed.PartitionKey // the key to read; empty is all keys
}

// Faults returns the runs of failed changes, the one failing for the longest time first, and of several since the same
// second the one with the oldest change.
func (s Standing) Faults() (all []Fault) {
	add := func(runs []notes.Run, from feed.Position, key string) {
		for _, run := range runs {
			if run.Failing > 0 {
				all = append(all, Fault{run, from, feed.PartitionKey(key)})
			}
		}
	}
	add(s.tried(), s.lease.Position, "")
	for _, k := range s.aside.Keys {
		add(k.Tried, AsideFrom(s.lease.Position, k), k.Key)
	}
	slices.SortStableFunc(all, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Failing, b.Failing), cmp.Compare(a.Run.From, b.Run.From))
	})
	return all
}

// tried returns the runs of the changes after the position, with those that were in the handler at the end of an owner.
func (s Standing) tried() []notes.Run {
	if s.done.Suspect == nil {
		return s.done.Tried
	}
	return slices.Concat(s.done.Tried, s.done.Suspect.Tried)
}

// WhyNot says why a change cannot be skipped: it is done, skipped, or has not failed. The result is empty if it can be.
func (s Standing) WhyNot(c notes.Skip) string {
	runs, isDone := s.tried(), s.isPassed(c.LSN)
	for _, k := range s.aside.Keys {
		if k.Key == c.Key {
			runs, isDone = k.Tried, c.LSN < k.LSN
		}
	}
	switch {
	case isDone:
		return "the lease has passed it"
	case slices.Contains(s.skips.Changes, c):
		return "it is skipped already"
	case !slices.ContainsFunc(runs, func(r notes.Run) bool {
		return r.Failing > 0 && r.Has(c.Key, c.LSN, func() string { return c.Letter })
	}):
		return "the lease does not fail at it"
	}
	return ""
}

// isPassed reports whether all changes of an LSN are done whose keys are not set aside.
func (s Standing) isPassed(lsn int64) bool {
	if lsn <= s.in.LSN {
		return true
	}
	_, open := slices.BinarySearch(s.done.Open, lsn)
	return lsn <= s.done.Through && !open
}

// MaxSkipped is how many skipped changes a lease names.
const MaxSkipped = 1000

// Skip returns the properties of a lease of which some changes are skipped, and none other. The error says which of
// them cannot be skipped; then none is.
func (s Standing) Skip(changes []notes.Skip, caller string) (map[string]string, error) {
	if s.IsSplit() { // its notes do not count, so nothing seems to fail
		return nil, fmt.Errorf("the partition of the lease has been split: nothing was skipped: try again when its " +
			"leases exist")
	}
	for _, c := range changes {
		if why := s.WhyNot(c); why != "" {
			return nil, fmt.Errorf("item %q of key %s, LSN %d: %s: nothing was skipped", c.ID, c.Key, c.LSN, why)
		}
	}
	all := notes.Skips{Partition: s.here, Changes: slices.Concat(s.skips.Changes, changes)}
	if len(all.Changes) > MaxSkipped {
		return nil, fmt.Errorf("the lease would name %d skipped changes: want %d at most: nothing was skipped: skip "+
			"single changes", len(all.Changes), MaxSkipped)
	}
	return s.served(notes.SkipsProperty, all.String(), caller), nil
}

// served returns the properties of the lease with another one, and with the caller of a request carried out.
func (s Standing) served(name, text, caller string) map[string]string {
	properties := notes.Set(s.lease.Properties, name, text)
	if properties[notes.DoneProperty] == "" { // from now on the lease has notes
		properties = notes.Set(properties, notes.DoneProperty, s.done.String())
	}
	properties = notes.Set(properties, notes.FailingProperty, "")
	return notes.Set(properties, notes.ServedProperty, notes.AddServed(properties[notes.ServedProperty], caller))
}

// Replay returns the properties with which a lease delivers the changes of a key again after a position, which must not
// be after that of the lease. The key is no longer held, and its skipped changes come again.
func (s Standing) Replay(key string, from feed.Position, caller string) (map[string]string, error) {
	if why, _ := s.WhyNoReplay(key, from); why != "" {
		return nil, fmt.Errorf("key %s cannot be replayed from %s: %s: nothing was changed", key, from, why)
	}
	lsn, _ := TokenLSN(s.source, from.Token)
	l := s.lease
	aside := notes.Aside{At: l.Position.Token, Partition: s.here, Keys: slices.Clone(s.aside.Keys)}
	aside.Keys = slices.DeleteFunc(aside.Keys, func(k notes.AsideKey) bool { return k.Key == key })
	replayed := notes.AsideKey{
		Key: key, LSN: lsn + 1, Covered: s.in.LSN, Passed: true,
		Last: max(s.in.LSN, s.done.Through), // what is done of the key after the position comes again, too
	}
	SetAsideFrom(l.Position, &replayed, feed.At(from.Token)) // the token says all, also to a host whose clock differs
	aside.Keys = append(aside.Keys, replayed)
	aside.Recalls = slices.DeleteFunc(slices.Clone(s.aside.Recalls), func(r notes.Recall) bool { return r.Key == key })
	properties := s.served(notes.AsideProperty, aside.String(), caller)
	held, err := notes.ReadHeld(l.Properties[notes.HeldProperty], s.in)
	if i := slices.Index(held.Keys, key); err == nil && i >= 0 {
		held.Keys, held.Since = slices.Delete(held.Keys, i, i+1), slices.Delete(held.Since, i, i+1)
		held.Partition = s.here
		properties = notes.Set(properties, notes.HeldProperty, held.String())
	}
	left := notes.Skips{Partition: s.skips.Partition, Changes: slices.Clone(s.skips.Changes)}
	left.Changes = slices.DeleteFunc(left.Changes, func(c notes.Skip) bool { return c.Key == key })
	return notes.Set(properties, notes.SkipsProperty, left.String()), nil
}

// WhyNoReplay says why a key cannot be replayed from a position, and whether the refusal is [feed.ErrBadRequest] or, if
// it can be later, [feed.ErrConflict]. The result is empty if the key can be replayed.
func (s Standing) WhyNoReplay(key string, from feed.Position) (why string, kind error) {
	lsn, known := TokenLSN(s.source, from.Token)
	switch {
	case !known || s.lease.Position.Token == "":
		return "the source cannot tell which of two positions is the earlier one", feed.ErrBadRequest
	case s.IsSplit():
		return "the partition of the lease has been split: try again when its leases exist", feed.ErrConflict
	case lsn > s.in.LSN, lsn == s.in.LSN && !s.hasPassed(key):
		return fmt.Sprintf("the lease is at %s: want an earlier position, because there is nothing to deliver again",
			s.lease.Position), feed.ErrBadRequest
	}
	for _, k := range s.aside.Keys {
		open := k.LSN
		at, known := TokenLSN(s.source, k.From)
		if open == 0 && known {
			open = at + 1
		}
		// From a damaged token, or from one after its change, the key is not read again.
		isDamaged := k.From != "" && (!known || at >= open)
		if k.Key == key && !isDamaged && open <= lsn+1 {
			return fmt.Sprintf("it is being read again already, from %s", k.From), feed.ErrConflict
		}
	}
	isNew := !slices.ContainsFunc(s.aside.Keys, func(k notes.AsideKey) bool { return k.Key == key })
	if isNew && len(s.aside.Keys) >= notes.MaxAside {
		return fmt.Sprintf("the lease has %d keys that are set aside, and room for no more", len(s.aside.Keys)),
			feed.ErrConflict
	}
	return "", nil
}

// hasPassed reports whether the lease may not deliver a change of a key after its position: it is skipped, or done.
func (s Standing) hasPassed(key string) bool {
	return s.done.Through > s.in.LSN ||
		slices.ContainsFunc(s.skips.Changes, func(c notes.Skip) bool { return c.Key == key })
}

// Obey returns the properties of a lease after a request for a skip or a replay. The error is for the caller.
func Obey(source feed.Source, l feed.Record, partitions []notes.Partition, c notes.Control, caller string) (
	map[string]string, error,
) {
	s := StandingOf(source, l, partitions)
	if c.Action == notes.SkipChanges {
		return s.Skip(c.Changes, caller)
	}
	at, err := PositionOf(c.To)
	if err != nil {
		return nil, err
	}
	return s.Replay(c.Key, at, caller)
}

// IsServed reports whether the request of a caller for a reset, a skip or a replay was carried out on a lease.
func IsServed(l feed.Record, caller string) bool {
	return notes.IsServed(l.Properties[notes.ServedProperty], caller) || caller != "" && LastReset(l).Caller == caller
}

// Changes returns the changes of a fault not noted as done in the lease, at most so many. more reports whether there
// are others.
func (s Standing) Changes(ctx context.Context, f Fault, most int) (found []notes.Skip, more bool, err error) {
	from, place, last := f.From, 0, int64(-1)
	for {
		page, err := s.source.Read(ctx, s.lease.Range, from, feed.ReadOptions{Mode: s.lease.Mode, Key: f.Read})
		if err != nil {
			return nil, false, err
		}
		for _, c := range page.Changes {
			if place++; c.LSN != last {
				place, last = 0, c.LSN
			}
			name := notes.Skip{
				Key: string(c.PartitionKey), LSN: c.LSN, ID: c.ID, Letter: LetterID(s.lease.Mode, c.LSN, place, c.ID),
			}
			switch {
			case c.LSN > f.To:
				return found, false, nil
			case s.WhyNot(name) != "" || !f.Has(name.Key, name.LSN, func() string { return name.Letter }):
				continue
			case len(found) == most:
				return found, true, nil
			}
			found = append(found, name)
		}
		if from = page.Next; len(page.Changes) == 0 {
			return found, false, nil
		}
	}
}
