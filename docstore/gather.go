package docstore

import (
	"runtime"
	"time"
)

// gather collects transactions before a flush, because a flush costs as much for a single transaction as for many.
// Callers whose writes were in the same group send their next writes at about the same time. So a group that is
// smaller than the groups before waits for the rest, for about as long as a flush takes. A longer wait would cost
// more than the saved flush.
//
// Without gather, half of 16 busy callers would wait for the flush of the other half, and each flush would serve only
// 8 callers.
type gather struct {
	queue <-chan *transaction
	sync  bool // flushes wait for the disk

	timer  *time.Timer
	timing bool          // timer runs for the present group
	flush  time.Duration // moving average of the time of a flush
	last   int           // transactions of the last group, and those queued meanwhile
	want   int           // transactions that a group waits for
}

// maxGather limits the wait of a group, however slow the disk is.
const maxGather = time.Millisecond

// gatherAverage is about how many flushes count in the moving average.
const gatherAverage = 8

func newGather(queue <-chan *transaction, sync bool) *gather {
	a := &gather{queue: queue, sync: sync, timer: time.NewTimer(maxGather)}
	a.timer.Stop()
	return a
}

// nextForGroup returns the next transaction for a group that already has some transactions. nextForGroup returns nil
// if the group must be written now.
func (a *gather) nextForGroup(has int) *transaction {
	if tx := a.nextReady(); tx != nil || has >= a.want {
		return tx
	}
	if !a.timing {
		a.timing = true
		a.timer.Reset(min(a.flush, maxGather))
	}
	select {
	case tx := <-a.queue:
		return tx
	case <-a.timer.C:
		a.want = 0
		return nil
	}
}

// nextReady returns the next transaction of the queue, or nil. If the queue is empty, nextReady yields to the
// goroutines that are ready to run and looks once more. Some of them are callers with transactions, which then share
// this group's batch and flush.
func (a *gather) nextReady() *transaction {
	for again := true; ; again = false {
		select {
		case tx := <-a.queue:
			return tx
		default:
		}
		if !again {
			return nil
		}
		runtime.Gosched()
	}
}

// noteWritten records a group of n transactions and the time of its flush; 0 means that there was no flush. The next
// group waits for the smaller size of the last two groups, so two callers who met by chance cause no wait.
func (a *gather) noteWritten(n int, flush time.Duration) {
	a.timer.Stop()
	a.timing = false
	if !a.sync || flush == 0 {
		a.want, a.last = 0, 0
		return
	}
	a.flush += (flush - a.flush) / gatherAverage
	n += len(a.queue)
	a.want, a.last = min(n, a.last), n
}
