package engine

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// scheduler grants compactions like the library's own scheduler, but only when a flush or a compaction has ended,
// because nothing else makes a compaction possible. The library's scheduler also tries ten times a second. This wakes
// an idle process, and takes 864,000 steps for a day of virtual time.
//
// After the guard has broken, scheduler grants no compaction. Tables written after that are pretended, so the next
// compaction that needs such a table fails. The library would retry this compaction without a pause until the store
// is closed, and use a whole processor core for a store that has failed.
type scheduler struct {
	*pebble.ConcurrencyLimitScheduler
	guard  *guard
	mu     sync.Mutex
	ended  bool
	grants sync.WaitGroup
}

func newScheduler(g *guard) *scheduler {
	// Without the timer, the library's scheduler also ignores the end of a flush: see below.
	return &scheduler{
		ConcurrencyLimitScheduler: pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest(),
		guard:                     g,
	}
}

// Register gives the library's scheduler the store whose compactions it grants.
func (s *scheduler) Register(goroutines int, db pebble.DBForCompaction) {
	s.ConcurrencyLimitScheduler.Register(goroutines, compactions{db, s.guard})
}

// compactions allows the compactions of a store until its guard breaks.
type compactions struct {
	pebble.DBForCompaction
	guard *guard
}

// GetAllowedWithoutPermission returns how many compactions may run at a time.
func (c compactions) GetAllowedWithoutPermission() int {
	if c.guard.isBroken() {
		return 0
	}
	return c.DBForCompaction.GetAllowedWithoutPermission()
}

// UpdateGetAllowedWithoutPermission is called when a flush has ended, under the locks of the library. More
// compactions may run then. When the code here takes a slot and gives it back, the slot goes to a waiting compaction.
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

// Unregister returns when no more compactions are granted.
func (s *scheduler) Unregister() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.ConcurrencyLimitScheduler.Unregister()
	s.grants.Wait()
}
