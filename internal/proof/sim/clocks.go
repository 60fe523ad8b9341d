package sim

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	processor "github.com/millrace/changefeed/internal/processor/instance"
)

// Clocks that step, though all processes share the bubble's: times are shifted where they
// leave a host or the store, and shifted back where they come home.

// wall is the clock by which a host writes timestamps. It steps; a timestamp that was
// written under an earlier setting is read back as the time at which it was written.
type wall struct {
	mu    sync.Mutex
	off   time.Duration
	wrote map[int64]time.Time // by the time in the store
}

// step moves the clock from now on. The clock steps by whole grains of a timestamp, because a lease says when it was
// sent in two places, and a store shortens one of these times.
func (k *wall) step(by time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.off += by.Truncate(processor.TimestampGrain)
}

// toWall is the stepped clock's time for a time of the bubble.
func (k *wall) toWall(at time.Time) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.off == 0 {
		return at
	}
	if k.wrote == nil {
		k.wrote = map[int64]time.Time{}
	}
	stepped := at.Add(k.off)
	k.wrote[stepped.UnixNano()] = at
	return stepped
}

// fromWall is the bubble's time for a timestamp that this host has written; others stay.
func (k *wall) fromWall(at time.Time) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	if own, known := k.wrote[at.UnixNano()]; known {
		return own
	}
	return at
}

// stepping is a lease store whose clock steps: its times are those of the bubble, off by as
// much as the clock was then.
type stepping struct {
	feed.LeaseStore
	*steps
}

// steps are the settings of a clock, each from a time of the bubble on.
type steps struct {
	mu   sync.Mutex
	at   []time.Time
	offs []time.Duration
}

// step moves the clock from now on.
func (s *steps) step(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.offs); n > 0 {
		by += s.offs[n-1]
	}
	s.at, s.offs = append(s.at, time.Now()), append(s.offs, by)
}

// timeAt is the clock's time at a time of the bubble.
func (s *steps) timeAt(at time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A record keeps the time of the setting under which it was written, however the
	// clock has stepped since.
	for n := len(s.at) - 1; n >= 0; n-- {
		if !at.Before(s.at[n]) {
			return at.Add(s.offs[n])
		}
	}
	return at
}

// stampRecord is a record with the time that the clock showed.
func (s stepping) stampRecord(record feed.Record, err error) (feed.Record, error) {
	if !record.Updated.IsZero() {
		record.Updated = s.timeAt(record.Updated)
	}
	return record, err
}

// stampAll is stampRecord for several records.
func (s stepping) stampAll(records []feed.Record) []feed.Record {
	for i := range records {
		records[i], _ = s.stampRecord(records[i], nil)
	}
	return records
}

func (s stepping) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	records, now, err := s.LeaseStore.List(ctx)
	return s.stampAll(records), s.timeAt(now), err
}

func (s stepping) Create(ctx context.Context, record feed.Record) (feed.Record, error) {
	return s.stampRecord(s.LeaseStore.Create(ctx, record))
}

func (s stepping) Update(ctx context.Context, record feed.Record) (feed.Record, error) {
	return s.stampRecord(s.LeaseStore.Update(ctx, record))
}

func (s stepping) Follow(ctx context.Context, cursor string) ([]feed.Record, string, time.Time, error) {
	records, next, now, err := s.LeaseStore.(feed.Follower).Follow(ctx, cursor)
	return s.stampAll(records), next, s.timeAt(now), err
}
