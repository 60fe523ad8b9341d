package sim

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/changefeed"
)

// wall is the clock by which a host writes timestamps. It steps; what was written under
// one of its times is read back as that.
type wall struct {
	mu    sync.Mutex
	off   time.Duration
	wrote map[int64]time.Time // by what is in the store
}

func (k *wall) step(by time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.off += by
}

// write is the stepped clock's time for one of the bubble's.
func (k *wall) write(at time.Time) time.Time {
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

// written is the bubble's time for one that this host has written, else what it was.
func (k *wall) written(at time.Time) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	if own, known := k.wrote[at.UnixNano()]; known {
		return own
	}
	return at
}

// stepping is a lease store whose clock steps: its times are those of the bubble, and off
// by as much as the clock was then.
type stepping struct {
	changefeed.LeaseStore
	*steps
}

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

// told is what the clock said at a time of the bubble.
func (s *steps) told(at time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := len(s.at) - 1; n >= 0; n-- {
		if !at.Before(s.at[n]) {
			return at.Add(s.offs[n])
		}
	}
	return at
}

func (s stepping) stamped(l changefeed.Record, err error) (changefeed.Record, error) {
	if !l.Updated.IsZero() {
		l.Updated = s.told(l.Updated)
	}
	return l, err
}

func (s stepping) all(records []changefeed.Record) []changefeed.Record {
	for i := range records {
		records[i], _ = s.stamped(records[i], nil)
	}
	return records
}

func (s stepping) List(ctx context.Context) ([]changefeed.Record, time.Time, error) {
	records, now, err := s.LeaseStore.List(ctx)
	return s.all(records), s.told(now), err
}

func (s stepping) Create(ctx context.Context, l changefeed.Record) (changefeed.Record, error) {
	return s.stamped(s.LeaseStore.Create(ctx, l))
}

func (s stepping) Update(ctx context.Context, l changefeed.Record) (changefeed.Record, error) {
	return s.stamped(s.LeaseStore.Update(ctx, l))
}

func (s stepping) Follow(ctx context.Context, cursor string) ([]changefeed.Record, string, time.Time, error) {
	records, next, now, err := s.LeaseStore.(changefeed.Follower).Follow(ctx, cursor)
	return s.all(records), next, s.told(now), err
}
