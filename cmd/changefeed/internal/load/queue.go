package load

import (
	"sync"

	"github.com/millrace/changefeed/feed"
)

// queue contains the jobs that wait to be written. The jobs of a partition key are written in order: only a single
// batch of a key is being written at a time, and jobs that come meanwhile wait for the next batch. Several goroutines
// may use the queue.
type queue struct {
	mu    sync.Mutex
	lines map[feed.PartitionKey]*line // lines of all keys that have jobs, including jobs being written
	// lines with waiting jobs and no batch being written, in the order in which they are taken
	ready []*line
	more  *sync.Cond // signals that a line may be ready, or that the input has ended
	ended bool       // the input has ended
}

// line contains the waiting jobs of a partition key.
type line struct {
	waiting []*job
	inHand  bool // a batch of this key is being written
}

func newQueue() *queue {
	q := &queue{lines: map[feed.PartitionKey]*line{}}
	q.more = sync.NewCond(&q.mu)
	return q
}

// add appends a job to the line of its key.
func (q *queue) add(j *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[j.key]
	if l == nil {
		l = &line{}
		q.lines[j.key] = l
	}
	l.waiting = append(l.waiting, j)
	if len(l.waiting) == 1 && !l.inHand {
		q.ready = append(q.ready, l)
		q.more.Signal()
	}
}

// endInput records that the input has ended.
func (q *queue) endInput() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.more.Broadcast()
}

// takeBatch waits for a batch of a key. take returns nil if the input has ended and no line is ready. If a batch is
// still being written, its writer takes the remaining jobs of the key.
func (q *queue) takeBatch() []*job {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.ready) == 0 {
		if q.ended {
			return nil
		}
		q.more.Wait()
	}
	l := q.ready[0]
	q.ready = q.ready[1:]
	n := fits(l.waiting)
	batch := l.waiting[:n:n]
	l.waiting, l.inHand = l.waiting[n:], true
	return batch
}

// fits returns how many of the jobs fit into a batch: as many as the limits allow, but at least the first.
func fits(jobs []*job) (n int) {
	for bytes := 0; n < min(len(jobs), maxBatch); n++ {
		if bytes += len(jobs[n].text); n > 0 && bytes > maxBatchBytes {
			break
		}
	}
	return n
}

// putBack records that the batch of a key was written. Its writer takes the next batch afterwards, so no other writer
// is woken.
func (q *queue) putBack(key feed.PartitionKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[key]
	if l.inHand = false; len(l.waiting) == 0 {
		delete(q.lines, key)
		return
	}
	q.ready = append(q.ready, l)
}
