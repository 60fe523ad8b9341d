package engine

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// scheduler grants compactions as the library's own does, but only when a flush or a
// compaction has ended, for nothing else makes one possible. The library's also tries ten
// times a second, which wakes an idle process, and takes 864,000 steps for a day of virtual
// time.
//
// None is granted after the guard has broken. The tables that are written then are pretended, so
// the next compaction that needs such a table fails, and the library would try it again without a
// pause until the store is closed: a processor core for a store that does nothing any more.
type scheduler struct {
	*pebble.ConcurrencyLimitScheduler
	guard  *guard
	mu     sync.Mutex
	ended  bool
	grants sync.WaitGroup
}

func newScheduler(g *guard) *scheduler {
	// Without the timer nobody listens to the news of a flush either: see below.
	return &scheduler{ConcurrencyLimitScheduler: pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest(), guard: g}
}

// Register tells the library's scheduler whose compactions it grants.
func (s *scheduler) Register(goroutines int, db pebble.DBForCompaction) {
	s.ConcurrencyLimitScheduler.Register(goroutines, compactions{db, s.guard})
}

// compactions are those of a store, as long as its guard is whole.
type compactions struct {
	pebble.DBForCompaction
	guard *guard
}

// GetAllowedWithoutPermission returns how many may run at a time.
func (c compactions) GetAllowedWithoutPermission() int {
	if c.guard.isBroken() {
		return 0
	}
	return c.DBForCompaction.GetAllowedWithoutPermission()
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
