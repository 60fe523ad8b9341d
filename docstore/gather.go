package docstore

import (
	"runtime"
	"time"
)

// gather brings transactions together before a flush, because a flush costs as much for
// one as for many. Callers whose writes were in one group come again at about the same
// time. So a group that is smaller than those before it waits for the rest: for about as
// long as a flush takes, after which waiting would cost more than the flush it saves.
//
// Without it, half of 16 busy callers would wait for the flush of the other half, and each
// flush would serve 8 of them.
type gather struct {
	queue <-chan *transaction
	sync  bool // flushes wait for the disk

	timer  *time.Timer
	timing bool          // timer runs, for the group in hand
	flush  time.Duration // that one takes, on average of late
	last   int           // transactions of the last group, and those that came while it was written
	want   int           // transactions for which a group waits
}

// maxGather bounds the wait of a group, on a disk however slow.
const maxGather = time.Millisecond

// gatherAverage is how many flushes count in the average, about.
const gatherAverage = 8

func newGather(queue <-chan *transaction, sync bool) *gather {
	a := &gather{queue: queue, sync: sync, timer: time.NewTimer(maxGather)}
	a.timer.Stop()
	return a
}

// nextForGroup returns the next transaction for a group that has some; nil when the group is to be
// written.
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

// nextReady returns the next transaction of the queue, nil for none. An empty queue is looked at
// again when the goroutines that are ready have run: among them are callers with
// transactions, which then share this group's batch and flush.
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

// noteWritten notes a group of n transactions, whose flush took some time: 0 without a flush. The
// next group waits for as many as the smaller of the last two, so that two callers who met
// by chance are not waited for.
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
