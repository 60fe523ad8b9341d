package docstore

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// scheduler grants compactions as the library's own does, but only when a flush or a
// compaction has ended, for nothing else makes one possible. The library's also tries ten
// times a second, which wakes an idle process, and takes 864,000 steps for a day of virtual
// time.
type scheduler struct {
	*pebble.ConcurrencyLimitScheduler
	mu     sync.Mutex
	ended  bool
	grants sync.WaitGroup
}

func newScheduler() *scheduler {
	// Without the timer nobody listens to the news of a flush either: see below.
	return &scheduler{ConcurrencyLimitScheduler: pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()}
}

// UpdateGetAllowedWithoutPermission is called when a flush has ended, under the locks of
// the library. More compactions may run then: a slot that is taken and given back goes to
// one that waits.
func (s *scheduler) UpdateGetAllowedWithoutPermission() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.grants.Go(func() {
		if granted, slot := s.TrySchedule(); granted {
			slot.Done()
		}
	})
}

// Unregister returns when nothing is granted any more.
func (s *scheduler) Unregister() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.ConcurrencyLimitScheduler.Unregister()
	s.grants.Wait()
}
