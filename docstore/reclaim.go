package docstore

import (
	"sync"
	"time"

	"github.com/millrace/changefeed/docstore/internal/engine"
)

// The engine frees the space of deleted documents when it rewrites their tables. In a store with writes, this happens
// soon; in an idle store, this never happens. So the reclaimer starts a rewrite some time after the last write, or
// after a container was deleted.

const (
	reclaimAfter = 30 * time.Second
	worthwhile   = 1 << 20 // bytes on the disk of a container without documents
)

// leftovers are the key ranges of deleted containers, until their space is freed.
type leftovers struct {
	mu     sync.Mutex
	ranges [][2][]byte
}

func (l *leftovers) add(ranges [][2][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ranges = append(l.ranges, ranges...)
}

func (l *leftovers) take() (ranges [][2][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ranges, l.ranges = l.ranges, nil
	return ranges
}

// wroteSome wakes the reclaimer, which then waits before acting.
func (db *DB) wroteSome() {
	select {
	case db.wrote <- struct{}{}:
	default:
	}
}

// reclaimAll is the goroutine of the reclaimer.
func (db *DB) reclaimAll() {
	heads := map[*Container]int64{} // head of each container when it was found empty
	for {
		select {
		case <-db.wrote:
		case <-db.stop:
			return
		}
		seen := db.applied.Load()
		select {
		case <-time.After(reclaimAfter):
		case <-db.stop:
			return
		}
		quiet := db.applied.Load() == seen
		if !quiet {
			db.wroteSome()
		}
		if db.eng.LacksRoom(engine.GivesBack) != nil {
			db.wroteSome() // to look again
			continue
		}
		ranges := db.dropped.take()
		if quiet {
			ranges = append(ranges, db.emptiedRanges(heads)...)
		}
		if err := db.eng.Reclaim(life{db.stop}, ranges, quiet); err != nil {
			db.dropped.add(ranges) // to try again after the next write
		}
	}
}

// emptiedRanges returns the key ranges of containers that have had documents but have none now. If the head has not
// moved since the last time, the space was freed already.
func (db *DB) emptiedRanges(heads map[*Container]int64) (ranges [][2][]byte) {
	for _, c := range db.Containers() {
		head := c.Head()
		if c.Count() > 0 || head == heads[c] {
			continue
		}
		heads[c] = head
		for _, table := range []byte(dataTables) {
			from := tableKey(table, c.num, 0)
			if to := engine.After(from); db.eng.RoomOf(from, to) >= worthwhile {
				ranges = append(ranges, [2][]byte{from, to})
			}
		}
	}
	return ranges
}
