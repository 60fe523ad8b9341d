package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// Sources and leases for which a watermark is easily too late: a wrong claim that everything before it is handled.

// ordered is a source that cannot count and knows the order of its positions, as an account.
type ordered struct {
	feed.Source
	feed.Sequencer
}

// The first change of a key that is set aside was overwritten, and the change of another key is older than its later
// version: every key is asked.
func TestTheOldestOfSeveralKeysThatAreSetAsideCounts(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		oslo := w.put("oslo", "1", 1)
		time.Sleep(10 * time.Second)
		written := time.Now()
		bergen := w.put("bergen", "2", 1)
		time.Sleep(time.Minute)
		w.put("oslo", "1", 2)
		time.Sleep(time.Minute)
		p, at := w.partitions()[0], w.orders.TokenAfter(w.orders.Head())
		aside := notes.Aside{At: at, Partition: notes.Name(p.Range.Min, p.Range.Max, noted(p))}
		for i, lsn := range []int64{oslo, bergen} {
			aside.Keys = append(aside.Keys, notes.AsideKey{
				Key: string(feed.Key([]string{"oslo", "bergen"}[i])), From: w.orders.TokenAfter(lsn - 1), LSN: lsn,
				Passed: true,
			})
		}
		w.make(feed.Position{Token: at, Start: feed.FromBeginning()}, map[string]string{
			notes.AsideProperty: aside.String(),
		})
		for name, source := range map[string]feed.Source{"counts": w.orders, "reads": ordered{w.orders, w.orders}} {
			lag := w.measure(new(changefeed.Estimator), source).Leases[0]
			if lag.Watermark.IsZero() || lag.Watermark.After(written) || !lag.Oldest.Equal(written) {
				t.Errorf("a source that %s: watermark %v, oldest %v, want %v", name, lag.Watermark, lag.Oldest, written)
			}
		}
	})
}

// skewedServer is a source whose changes from an LSN on have earlier commit times, as of another server.
type skewedServer struct {
	ordered
	from int64
	by   time.Duration
}

// Read reads a page.
func (s skewedServer) Read(ctx context.Context, r feed.Range, at feed.Position, o feed.ReadOptions) (feed.Page, error) {
	page, err := s.Source.Read(ctx, r, at, o)
	for i := range page.Changes {
		if page.Changes[i].LSN >= s.from {
			page.Changes[i].Time = page.Changes[i].Time.Add(-s.by)
		}
	}
	return page, err
}

// A later change may have an earlier commit time than the oldest pending one.
func TestAWatermarkLeavesTimeForServersWhoseClocksDiffer(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.put("oslo", "1", 1)
		second := w.put("bergen", "2", 1)
		written := time.Now()
		time.Sleep(time.Minute)
		w.make(feed.Position{Token: w.orders.TokenAfter(0), Start: feed.FromBeginning()}, nil)
		const apart = 4 * time.Second
		lag := w.measure(new(changefeed.Estimator), skewedServer{ordered{w.orders, w.orders}, second, apart}).Leases[0]
		if lag.Watermark.IsZero() || lag.Watermark.After(written.Add(-apart)) {
			t.Errorf("watermark %v, and a change of %v is pending", lag.Watermark, written.Add(-apart))
		}
	})
}

// filtering is a source that filters a shared partition after it has read a page.
type filtering struct{ ordered }

// Read reads a page, and keeps the changes of bergen.
func (s filtering) Read(ctx context.Context, r feed.Range, at feed.Position, o feed.ReadOptions) (feed.Page, error) {
	o.MaxItems = 5
	page, err := s.Source.Read(ctx, r, at, o)
	var kept []feed.Change
	for _, c := range page.Changes {
		if c.PartitionKey == feed.Key("bergen") {
			kept = append(kept, c)
		}
	}
	page.Changes = kept
	return page, err
}

// Behind many empty pages there may be a change: an estimate that stops there claims nothing.
func TestManyEmptyPagesAreNotTheEnd(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		for i := range 60 {
			w.put("oslo", fmt.Sprint(i), 1)
		}
		w.put("bergen", "x", 1)
		time.Sleep(time.Minute)
		w.make(feed.Position{Token: w.orders.TokenAfter(0), Start: feed.FromBeginning()}, nil)
		for _, tt := range []struct {
			source  feed.Source
			pending int64 // of the 11 changes that were not read
		}{
			{filtering{ordered{w.orders, w.orders}}, 11},
			{struct{ feed.Source }{filtering{ordered{w.orders, w.orders}}}, 1}, // its tokens have no numbers
		} {
			lag := w.measure(new(changefeed.Estimator), tt.source).Leases[0]
			_, timed := lag.Age(time.Now())
			if !lag.Watermark.IsZero() || lag.Exact || lag.Pending != tt.pending || timed {
				t.Errorf("watermark %v, exact %v, pending %d, its age known %v: want %d pending", lag.Watermark, lag.Exact,
					lag.Pending, timed, tt.pending)
			}
		}
	})
}

// Nobody knows which keys a damaged note has, so nobody knows what is pending.
func TestALeaseWithADamagedNoteHasNoLag(t *testing.T) {
	for _, name := range []string{notes.AsideProperty, notes.HeldProperty} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			lsn := w.put("oslo", "1", 1)
			time.Sleep(time.Minute)
			w.make(feed.Position{Token: w.orders.TokenAfter(lsn), Start: feed.FromBeginning()}, map[string]string{
				name: `{"at":"\"1\"","keys":[{"key":"[\"oslo`,
			})
			lag := w.measure(new(changefeed.Estimator), w.orders).Leases[0]
			if lag.Known() || !errors.Is(lag.Err, feed.ErrBadLease) || !lag.Watermark.IsZero() {
				t.Errorf("%s: known %v, watermark %v, %v", name, lag.Known(), lag.Watermark, lag.Err)
			}
		})
	}
}

// undated is a source that does not know when the changes of a key were committed.
type undated struct {
	ordered
	key feed.PartitionKey
}

// Read reads a page.
func (s undated) Read(ctx context.Context, r feed.Range, at feed.Position, o feed.ReadOptions) (feed.Page, error) {
	page, err := s.Source.Read(ctx, r, at, o)
	for i := range page.Changes {
		if page.Changes[i].PartitionKey == s.key {
			page.Changes[i].Time = time.Time{}
		}
	}
	return page, err
}

// A change that has waited for too long is found, although another one, whose commit time is unknown, may have waited
// for longer.
func TestAWaitThatMayBeLongerIsFound(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		parts := w.partitions()
		dated, unknown := w.townIn(parts[0].Range.String()), w.townIn(parts[1].Range.String())
		w.put(dated, "1", 1)
		w.put(unknown, "2", 1)
		time.Sleep(time.Hour)
		w.make(feed.Position{Token: w.orders.TokenAfter(0), Start: feed.FromBeginning()}, nil)
		source := undated{ordered{w.orders, w.orders}, feed.Key(unknown)}
		l, err := admin.Open(source, w.leases, admin.Options{}).List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for most, want := range map[time.Duration]int{time.Minute: 1, 2 * time.Hour: 0} {
			found := l.Waiting(most)
			if len(found) != want || want > 0 && found[0].Text != "the oldest change has waited for 1h or more" {
				t.Errorf("longer than %v: found %+v, want %d", most, found, want)
			}
		}
	})
}
