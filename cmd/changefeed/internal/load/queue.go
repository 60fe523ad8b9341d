package load

import (
	"sync"

	"github.com/millrace/changefeed/feed"
)

// queue has the jobs that wait to be written. Those of a partition key are written in their order: one batch of a key is
// in hand at a time, and what comes meanwhile waits for the next one. It may be used by several goroutines.
type queue struct {
	mu    sync.Mutex
	lines map[feed.PartitionKey]*line // of the keys that have jobs, in hand or not
	ready []*line                     // that have jobs and no batch in hand, in the order in which they are taken
	more  *sync.Cond                  // a line may be ready, or none will ever be
	ended bool                        // the input has
}

// line is what waits of a partition key.
type line struct {
	waiting []*job
	inHand  bool // a batch of it
}

func newQueue() *queue {
	q := &queue{lines: map[feed.PartitionKey]*line{}}
	q.more = sync.NewCond(&q.mu)
	return q
}

// add appends a job to those of its key.
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

// end notes that there is no more input.
func (q *queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.more.Broadcast()
}

// take waits for a batch of one key. It returns none when the input has ended and nothing is ready: what is in hand may be
// followed by more of its key, which its writer takes.
func (q *queue) take() []*job {
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

// fits is how many of the jobs go into one batch: as many as the limits allow, and the first one always.
func fits(jobs []*job) (n int) {
	for bytes := 0; n < min(len(jobs), maxBatch); n++ {
		if bytes += len(jobs[n].text); n > 0 && bytes > maxBatchBytes {
			break
		}
	}
	return n
}

// done notes that the batch of a key is not in hand any more. Its writer takes again after that, so no other one is woken.
func (q *queue) done(key feed.PartitionKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[key]
	if l.inHand = false; len(l.waiting) == 0 {
		delete(q.lines, key)
		return
	}
	q.ready = append(q.ready, l)
}
