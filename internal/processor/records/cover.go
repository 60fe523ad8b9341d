package records

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/keyspace"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/rank"
)

// IsOurs reports whether this processor has made the lease and no other kind of processor holds it.
func IsOurs(l feed.Record) bool {
	_, made := l.Properties[notes.GenerationProperty]
	return made && l.Kind == feed.KindLease && l.Version == 1 && l.Err == nil && IsKnownState(l.State) &&
		(l.Free() || l.Epoch != "")
}

// IsUntouched reports whether a lease is ours and never had an owner.
func IsUntouched(l feed.Record) bool { return IsOurs(l) && l.Free() && l.Expiration == 0 }

// IsLate reports whether the lease was created when its maker had no right to do so any more: another instance may have
// covered the range since, with other edges. The right to make leases for holes ends with the lock, and the right to
// make leases of parts ends with the ownership of the whole. No instance works on such a lease, unless the next holder
// of the lock adopts the lease.
func IsLate(l feed.Record) bool {
	due, ok := notes.ReadDue(l.Properties[notes.DueProperty])
	asMade := IsUntouched(l) || IsOurs(l) && !l.Free()
	return ok && asMade && due.Sent.Equal(l.Timestamp) && l.Updated.After(due.By)
}

// SetDue notes until when the create of a lease has to arrive, by the store's clock.
func SetDue(l *feed.Record, by time.Time) {
	SetProperty(l, notes.DueProperty, notes.Due{By: by, Sent: l.Timestamp}.String())
}

// GenerationOf returns how many splits led to a lease of ours; 0 if unknown.
func GenerationOf(l feed.Record) int {
	return int(notes.Number(l.Properties, notes.GenerationProperty))
}

// SetGeneration notes how many splits led to a lease.
func SetGeneration(l *feed.Record, n int) {
	SetProperty(l, notes.GenerationProperty, notes.PlainNumber(int64(n)))
}

// IsRedundant reports whether a live lease is redundant: leases with a higher rank cover the range.
func (v *View) IsRedundant(lease feed.Record) bool {
	if lease.State != feed.StateLive || !IsOurs(lease) {
		return false
	}
	others := v.overlappingLeases(lease)
	if len(others) == 0 || slices.ContainsFunc(others, func(other feed.Record) bool { return !IsOurs(other) }) {
		return false
	}
	above := v.Ranking()
	others = slices.DeleteFunc(others, func(other feed.Record) bool { return !above(other, lease) })
	return len(others) > 0 && len(Holes(lease.Range, others)) == 0
}

// overlappingLeases returns the other leases with keys in common with a lease.
func (v *View) overlappingLeases(lease feed.Record) (others []feed.Record) {
	return v.Where(func(id string, other feed.Record) bool {
		return id != lease.ID && other.Kind == feed.KindLease && other.State != feed.StateRetired &&
			other.Range.Overlaps(lease.Range)
	})
}

// IsWorkedOnBeside reports whether an instance may work on another lease that has keys in common with a lease. The
// worker of a lease that is split or joined works no more.
func (v *View) IsWorkedOnBeside(lease feed.Record, expiration time.Duration) bool {
	return slices.ContainsFunc(v.overlappingLeases(lease), func(other feed.Record) bool {
		return other.State == feed.StateLive && !other.Free() && !IsLate(other) &&
			!IsExpired(other, v.Now(), expiration)
	})
}

// Since returns the time before which changes after a position are skipped; zero is none. A lease for a hole begins at
// the time at which the unit began. The unit skips older changes, so with a token this start means none.
func (v *View) Since(p feed.Position) time.Time {
	since := p.Start.Time()
	if origin, known := v.Origin(); known && p.Token != "" && since.Equal(origin.Time()) {
		return time.Time{}
	}
	return since
}

// Ranking compares leases of this unit: see [rank.Above].
func (v *View) Ranking() (above func(lease, other feed.Record) bool) {
	ranked := func(l feed.Record) rank.Lease {
		lsn, counted := TokenLSN(v.source, l.Position.Token)
		at := rank.Position{
			Token: l.Position.Token, LSN: lsn, Counted: counted, Since: v.Since(l.Position),
			Unknown: l.Position.Token == "" && l.Position.Start.IsNow(),
		}
		return rank.Lease{
			Min: l.Range.Min, Max: l.Range.Max, Reset: LastReset(l).On, Position: at, Generation: GenerationOf(l),
			Taken: l.Expiration > 0,
		}
	}
	return func(lease, other feed.Record) bool { return rank.Above(ranked(lease), ranked(other)) }
}

// Holes returns the parts of r that no lease covers.
func Holes(r feed.Range, leases []feed.Record) []feed.Range {
	covered := make([]feed.Range, len(leases))
	for i, lease := range leases {
		covered[i] = lease.Range
	}
	return keyspace.Uncovered(r, covered)
}

// CreateAnew creates a lease. If the right to delete is missing, a retired lease of that range may exist. This lease
// has no owner, and every write of its owners had an older ETag. So making the lease live again is the same as a delete
// and a create.
func (v *View) CreateAnew(ctx context.Context, lease feed.Record) (feed.Record, error) {
	got, err := v.store.Create(ctx, lease)
	if !errors.Is(err, feed.ErrConflict) {
		return got, err
	}
	for _, old := range v.Kind(feed.KindLease) {
		if old.Token == lease.Token && old.State == feed.StateRetired && IsOurs(old) && !IsLate(old) {
			lease.ID, lease.ETag, lease.Raw = old.ID, old.ETag, old.Raw
			KeepTerm(&lease, old)
			return v.store.Update(ctx, lease)
		}
	}
	return got, err
}
