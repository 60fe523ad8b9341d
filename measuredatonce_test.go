package changefeed_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// slowCounter is a source whose counts take a second, and that knows how many were under way at once.
type slowCounter struct {
	feed.Source
	mu            sync.Mutex
	running, most int
	listings      int
}

func (s *slowCounter) Pending(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Backlog,
	error,
) {
	s.mu.Lock()
	s.running++
	s.most = max(s.most, s.running)
	s.mu.Unlock()
	time.Sleep(time.Second)
	s.mu.Lock()
	s.running--
	s.mu.Unlock()
	return s.Source.(feed.Counter).Pending(ctx, r, from, o)
}

// slowReader is a source without counts, whose reads and listings take a second.
type slowReader struct{ *slowCounter }

func (s slowReader) Pending(context.Context, feed.Range, feed.Position, feed.ReadOptions) (feed.Backlog, error) {
	return feed.Backlog{}, errors.ErrUnsupported
}

func (s slowReader) Partitions(ctx context.Context) ([]feed.Partition, error) {
	s.mu.Lock()
	s.listings++
	s.mu.Unlock()
	time.Sleep(time.Second)
	return s.Source.Partitions(ctx)
}

// cutLeases makes leases of equal parts of the keys, without an owner.
func (w *world) cutLeases(n int) {
	w.t.Helper()
	for _, r := range feed.FullRange().Cut(n) {
		if _, err := w.leases.Create(w.t.Context(), feed.Record{
			Kind: feed.KindLease, Version: 1, Token: r.String(), Range: r,
			Position: feed.Position{Start: feed.FromBeginning()},
		}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// The lags of many leases are asked for 8 at once, and the estimate has them in the order of the ranges.
func TestALargeUnitIsMeasuredSeveralLeasesAtOnce(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(100)
		w.cutLeases(80)
		source, begun := &slowCounter{Source: w.orders}, time.Now()
		est, err := new(changefeed.Estimator).Measure(t.Context(), source, w.leases)
		if took := time.Since(begun); err != nil || took < 10*time.Second || took > 11*time.Second || source.most != 8 {
			t.Errorf("80 counts of a second took %v, %d at once, %v, want 10 s and 8", took, source.most, err)
		}
		if est.Total.Pending != 100 || !est.Total.Exact {
			t.Errorf("the unit has %+v, want 100 pending changes", est.Total)
		}
		for i, r := range feed.FullRange().Cut(80) {
			if est.Leases[i].Lease.Range != r {
				t.Errorf("lag %d is that of %s, want %s", i, est.Leases[i].Lease.Range, r)
			}
		}
	})
}

// All leases share one listing of the partitions, also those that are measured at once, and those whose notes name
// partitions.
func TestThePartitionsAreListedOnceForAllLeases(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(100)
		w.cutLeases(20)
		for _, lease := range w.records(feed.KindLease)[:10] {
			lease.Properties = map[string]string{notes.HeldProperty: `{"at":"of an earlier position","keys":["[1]"]}`}
			if _, err := w.leases.Update(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
		}
		source := slowReader{&slowCounter{Source: w.orders}}
		est, err := new(changefeed.Estimator).Measure(t.Context(), source, w.leases)
		if err != nil || est.Total.Pending != 100 || source.listings != 1 {
			t.Errorf("%d listings, %+v, %v, want 1 and 100 pending changes", source.listings, est.Total, err)
		}
	})
}

// When the time is over, the leases that nobody has measured say so, and none is taken for one without changes.
func TestALeaseThatIsNotMeasuredInTimeIsUnknown(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(100)
		w.cutLeases(40)
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		est, err := new(changefeed.Estimator).Measure(ctx, &slowCounter{Source: w.orders}, w.leases)
		if !errors.Is(err, context.DeadlineExceeded) || len(est.Leases) != 40 || est.Total.Known() {
			t.Errorf("%d lags, %+v, %v, want 40 of which some are unknown", len(est.Leases), est.Total, err)
		}
		known := 0
		for i, l := range est.Leases {
			if l.Known() {
				known++
			}
			if l.Lease.Token == "" {
				t.Errorf("lag %d is that of no lease: %+v", i, l)
			}
		}
		if known < 8 || known > 24 {
			t.Errorf("%d lags are known after 2.5 s, want those of two or three rounds", known)
		}
	})
}

// An estimator may be shared: estimates at the same time do not disturb each other, and later ones have a pace.
func TestEstimatesAtTheSameTimeShareAnEstimator(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(100)
		w.cutLeases(20)
		var e changefeed.Estimator
		var measuring sync.WaitGroup
		for range 4 {
			measuring.Go(func() {
				for range 3 {
					est, err := e.Measure(t.Context(), w.orders, w.leases)
					if err != nil || est.Total.Pending != 100 {
						t.Errorf("%d pending, %v, want 100", est.Total.Pending, err)
					}
					time.Sleep(time.Second)
				}
			})
		}
		measuring.Wait()
		if est := w.measure(&e, w.orders); est.Total.Pace == nil || est.Total.Pace.PerSecond != 0 {
			t.Errorf("the pace is %+v, want that nothing is handled", est.Total.Pace)
		}
	})
}
