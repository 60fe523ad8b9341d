package dispatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/delivery"
)

// postpone notes in the request, once, why the request is not served here.
func (s *requests) postpone(q *request, why error) error {
	before := q.record.Properties[notes.WaitsProperty]
	q.record.Properties = notes.SetWaits(q.record.Properties, why.Error())
	if q.record.Properties[notes.WaitsProperty] != before {
		_ = s.storeRequest(s.d.held.UntilDrained, q) // otherwise the caller hears no reason
	}
	return why
}

// leaveAlone notes in a request, once, that this instance does not know the action. The rest of the record stays: for a
// newer version, the properties may have another meaning.
func (s *requests) leaveAlone(q *request) error {
	why := fmt.Errorf("%w: instance %s does not know the action %q of a newer version", feed.ErrBadLease,
		s.d.in.Me.Instance, q.asked.Action)
	if q.record.Properties[notes.UnknownProperty] != "" { // also that of another owner
		return why
	}
	changed := q.record
	changed.Properties = notes.SetUnknown(changed.Properties, why.Error())
	s.keepExpiry(&changed)
	if stored, err := s.d.in.Store.Update(s.d.held.UntilDrained, changed); err == nil {
		s.d.in.View.Put(stored)
	} // otherwise the caller hears no reason
	return why
}

// keepExpiry makes a request live no longer for a write.
func (s *requests) keepExpiry(r *feed.Record) {
	if r.TTL > 0 {
		r.TTL = max(r.TTL-s.d.in.View.Now().Sub(r.Updated), time.Second)
	}
}

// storeRequest writes the state of a request, where the next owner of the range finds it. The request does not live
// longer for that.
func (s *requests) storeRequest(ctx context.Context, q *request) error {
	return s.writeRecord(ctx, q, func(r *feed.Record) {
		r.Properties = q.asked.Properties(r.Properties)
		s.keepExpiry(r)
	})
}

// writeRecord writes the record of a request with a change. If somebody has repeated the request since, the change goes
// to the new record: that caller wants the same.
func (s *requests) writeRecord(ctx context.Context, q *request, change func(*feed.Record)) error {
	for {
		changed := q.record
		change(&changed)
		stored, err := s.d.in.Store.Update(ctx, changed)
		if err == nil {
			q.record = stored
			s.d.in.View.Put(stored)
			return nil
		}
		if !errors.Is(err, feed.ErrConflict) {
			return err
		}
		repeated, found := s.findRepeated(ctx, q.record)
		if !found {
			return err
		}
		q.record = repeated
	}
}

// findRepeated finds the record of a request in the lease store, if another caller has repeated the request and no
// instance has begun with that.
func (s *requests) findRepeated(ctx context.Context, old feed.Record) (repeated feed.Record, found bool) {
	records, _, err := s.d.in.Store.List(ctx)
	i := slices.IndexFunc(records, func(r feed.Record) bool { return r.ID == old.ID })
	if err != nil || i < 0 {
		return repeated, false
	}
	repeated = records[i]
	isOther := repeated.Properties[notes.CallerProperty] != old.Properties[notes.CallerProperty]
	return repeated, isOther && repeated.State == feed.StateLive && notes.ReadRequest(repeated.Properties).Tries == 0
}

// putBack stores a request that cannot be served now, with how many letters were handled for it.
func (s *requests) putBack(ctx context.Context, q *request) error {
	q.asked.Tries-- // the request has not ended the process
	handled := q.before
	if q.served != nil {
		handled += q.served.Handled
	}
	q.record.Properties = notes.Set(q.record.Properties, notes.CountProperty, notes.PlainNumber(int64(handled)))
	q.record.Properties = notes.Set(q.record.Properties, notes.UnsureProperty, q.unsure)
	return s.storeRequest(ctx, q)
}

// handBack puts back the remaining requests for the next owner of the lease, once, because this owner ends in good
// order.
func (s *requests) handBack() {
	// Of the base, because the contexts of the work have mostly ended by now.
	ctx, cancel := context.WithTimeout(s.d.in.Base, s.d.in.Options.Drain/2)
	defer cancel()
	s.d.mu.Lock()
	left := slices.DeleteFunc(slices.Collect(maps.Values(s.serving)), func(q *request) bool { return q.lost })
	clear(s.serving)
	s.d.mu.Unlock()
	for _, q := range left {
		if q.served != nil && q.served.State == delivery.Removing { // the letter was handled
			q.unsure = letterOf(q.served).ID
		}
		_ = s.putBack(ctx, q) // otherwise the attempt counts
	}
}

// retire writes the outcome into a request.
func (s *requests) retire(q *request, o notes.Outcome) error {
	return s.writeRecord(s.d.held.UntilDrained, q, func(r *feed.Record) {
		r.Properties, r.State, r.TTL = o.Properties(r.Properties), feed.StateRetired, notes.OutcomeTTL
	})
}
