package changefeed_test

import (
	"context"
	"sync"
	"testing"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/records"
)

// afterFirst is a lease store that calls then after the first write of a lease.
type afterFirst struct {
	feed.LeaseStore
	once sync.Once
	then func()
}

// Update implements [feed.LeaseStore].
func (s *afterFirst) Update(ctx context.Context, r feed.Record) (feed.Record, error) {
	got, err := s.LeaseStore.Update(ctx, r)
	if err == nil && r.Kind == feed.KindLease {
		s.once.Do(s.then)
	}
	return got, err
}

// A pause that has succeeded is not undone by a resume that began before.
func TestAnEarlierResumeDoesNotUndoAPause(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{})
		unit := w.admin(admin.Options{})
		pause := func() {
			operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Pause(ctx, admin.All()) })
		}
		pause()
		late := admin.Open(w.orders, &afterFirst{LeaseStore: w.leases, then: pause}, admin.Options{})
		_, err := late.Resume(t.Context(), admin.All())
		for _, lease := range w.records(feed.KindLease) {
			if !records.IsMarkedPaused(lease) {
				t.Errorf("lease %s has no mark, though the pause has succeeded; the resume: %v", lease.Token, err)
			}
		}
	})
}

// A position that is ahead of the feed changes nothing.
func TestAResetAheadOfTheFeedIsRefused(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{})
		before := w.records(feed.KindLease)[0]
		steps, err := w.admin(admin.Options{}).ResetTo(t.Context(), admin.All(), feed.At(`"99999999"`))
		if after := w.records(feed.KindLease)[0]; err == nil || after.ETag != before.ETag {
			t.Errorf("a reset ahead of the feed: %v, error %v; the lease is at %v", steps, err, after.Position)
		}
	})
}
