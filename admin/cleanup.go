package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
	"github.com/millrace/changefeed/internal/sentence"
)

// Surplus is a record of a unit that nothing needs, or a lease with the mark of a pause that is over.
type Surplus struct {
	Kind  feed.Kind
	ID    string // name of the record in the lease store
	Token string
	Mark  bool   // only the mark of the lease is removed, and the lease stays
	Why   string // why nothing needs the record
	Done  bool   // false after a dry run, and for records that stay
	Left  string // why the record stays after a clean-up; empty if Done, and after a dry run

	record feed.Record
}

// longGone is the time without a write after which a record counts as left for good: ten times the default expiration
// of an instance.
const longGone = 10 * time.Minute

// Surplus returns the records that [Unit.CleanUp] would remove. Running instances remove the same records, if they have
// the right to delete:
//
//   - the presence of instances that have shown no life for 10 minutes or more
//   - requests whose time to live is over
//   - leases that others have replaced, 10 minutes ago or more, if other leases hold all of their keys
//   - if no instance runs: marks of a pause that is over, which make a lease look paused
//
// Records of a kind or in a state of a later version, and those of other kinds of processors, are never surplus.
//
// Errors: [feed.ErrNotFound] for a unit without records, and those of the lease store.
func (u *Unit) Surplus(ctx context.Context) ([]Surplus, error) {
	v, err := u.list(ctx)
	if err != nil {
		return nil, err
	}
	return surplusIn(v)
}

// surplusIn returns the surplus of a listing.
func surplusIn(v *records.View) (found []Surplus, err error) {
	all := v.Where(func(string, feed.Record) bool { return true })
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: the unit has no records", feed.ErrNotFound)
	}
	leases, _ := v.Leases()
	isOld, runs := records.HasOldMark(v.Pauses()), hasInstance(all, v.Now())
	for _, r := range all {
		s := Surplus{Kind: r.Kind, ID: r.ID, Token: r.Token, record: r}
		switch {
		case r.Err != nil || !records.IsKnownState(r.State):
			continue
		case r.Kind == feed.KindHost:
			s.Why = whyHost(r, v.Now())
		case r.Kind == feed.KindRequest:
			s.Why = whyRequest(r, v.Now())
		case r.Kind != feed.KindLease:
			continue
		case r.State == feed.StateRetired:
			s.Why = whyRetired(r, leases, v.Now())
		case r.State == feed.StateLive && !runs && isOld(r) && workOn(r, v.Now()) == "":
			s.Mark, s.Why = true, "the lease has the mark of a pause that is over, and no instance runs that would remove the mark"
		}
		if s.Why != "" {
			found = append(found, s)
		}
	}
	return found, nil
}

// hasInstance reports whether an instance of the unit may run, of this processor or of another kind.
func hasInstance(all []feed.Record, now time.Time) bool {
	return slices.ContainsFunc(all, func(r feed.Record) bool {
		return (r.Kind == feed.KindHost || r.Kind == feed.KindLease) && r.State != feed.StateRetired && isAtWork(r, now)
	})
}

// whyHost says why the presence of an instance is surplus; empty if the presence is needed.
func whyHost(r feed.Record, now time.Time) string {
	if quiet := now.Sub(r.Updated); quiet > max(longGone, 3*r.TTL) {
		return fmt.Sprintf("its instance has shown no life for %v", sentence.Exact(quiet.Round(time.Second)))
	}
	return ""
}

// whyRequest says why a request is surplus; empty if the request is needed. A request without a time to live, such as a
// pause, stays until somebody ends the request.
func whyRequest(r feed.Record, now time.Time) string {
	ttl := r.TTL
	if r.State == feed.StateRetired {
		ttl = cmp.Or(ttl, notes.OutcomeTTL)
	}
	if ttl == 0 || !now.After(r.Updated.Add(ttl+records.ClockGrain)) {
		return ""
	}
	if r.State == feed.StateRetired {
		return "it was served or withdrawn, and nobody reads its outcome any more"
	}
	return fmt.Sprintf("its caller has died, and its time of %v is over", ttl)
}

// whyRetired says why a replaced lease is surplus; empty if the lease is needed. A lease whose create was late is
// listed as replaced too: an instance removes or adopts such a lease.
func whyRetired(r feed.Record, leases []feed.Record, now time.Time) string {
	quiet := now.Sub(r.Updated)
	if !records.IsOurs(r) || records.IsLate(r) || quiet <= longGone || len(records.Holes(r.Range, leases)) > 0 {
		return ""
	}
	return fmt.Sprintf("other leases have replaced it, %v ago, and hold all of its keys",
		sentence.Exact(quiet.Round(time.Second)))
}

// CleanUp removes records that [Unit.Surplus] has found, if they are still surplus and nobody has written them since.
// CleanUp returns the same records, with Done and Left. After a dry run nothing is done.
//
// An error of the lease store ends the clean-up; the result has the removals before the error. A missing right to
// delete is no error: see Left. The removal of something has a line in [Unit.History].
func (u *Unit) CleanUp(ctx context.Context, found []Surplus) ([]Surplus, error) {
	found = slices.Clone(found)
	if u.options.DryRun || len(found) == 0 {
		return found, nil
	}
	// A listing need not show a single moment: the listing may show a mark, and not the request written before. A
	// second listing with the same version of the lease shows the request.
	v, err := u.list(ctx)
	if err != nil {
		return found, err
	}
	still, err := surplusIn(v)
	if err != nil {
		return found, err
	}
	for i := range found {
		s := &found[i]
		if !slices.ContainsFunc(still, s.isSame) {
			s.Left = "it was written or removed meanwhile, or something needs it again"
			continue
		}
		if err = s.remove(ctx, u); err != nil {
			break
		}
	}
	return found, u.recordCleanUp(ctx, found, err)
}

// isSame reports whether two listings have found the same version.
func (s *Surplus) isSame(o Surplus) bool {
	return s.ID == o.ID && s.Kind == o.Kind && s.Mark == o.Mark && s.record.ETag == o.record.ETag
}

// remove removes a record, or the mark of a lease.
func (s *Surplus) remove(ctx context.Context, u *Unit) (err error) {
	if s.Mark {
		s.Done, err = u.changeLease(ctx, s.record, func(l *feed.Record) { unmark(l, time.Time{}) })
	} else {
		err = u.leases.Delete(ctx, s.record)
		s.Done = err == nil
	}
	switch {
	case errors.Is(err, feed.ErrForbidden):
		s.Left = "the right to delete is missing"
	case errors.Is(err, feed.ErrConflict), errors.Is(err, feed.ErrNotFound), err == nil && !s.Done:
		s.Left = "it was written or removed meanwhile"
	case err != nil:
		s.Left = err.Error()
		return fmt.Errorf("remove %s: %w", s.ID, err)
	}
	return nil
}

// recordCleanUp writes the line of a clean-up that has removed something, or has failed.
func (u *Unit) recordCleanUp(ctx context.Context, found []Surplus, failed error) error {
	line := notes.Line{Action: string(ActionCleanUp), Range: feed.FullRange().String(), Count: len(found)}
	for _, s := range found {
		if s.Done {
			line.Done++
		}
	}
	if line.Done == 0 && failed == nil {
		return nil
	}
	return recordLine(ctx, u, line, failed)
}
