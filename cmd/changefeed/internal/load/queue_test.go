package load

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/millrace/changefeed/feed"
)

func queued(keys ...string) (*queue, []*job) {
	q := newQueue()
	var jobs []*job
	for _, key := range keys {
		j := &job{key: feed.PartitionKey(key)}
		q.add(j)
		jobs = append(jobs, j)
	}
	return q, jobs
}

func TestOneBatchOfAKeyIsInHand(t *testing.T) {
	q, jobs := queued("a", "b", "a")
	first, second := q.takeBatch(), q.takeBatch()
	if !slices.Equal(first, []*job{jobs[0], jobs[2]}) || !slices.Equal(second, []*job{jobs[1]}) {
		t.Fatalf("batches %v and %v", first, second)
	}
	later := &job{key: "a"}
	q.add(later)
	q.endInput()
	if batch := q.takeBatch(); batch != nil {
		t.Errorf("%v is taken though a batch of its key is in hand", batch)
	}
	if q.putBack("a"); !slices.Equal(q.takeBatch(), []*job{later}) {
		t.Error("what came meanwhile is not taken afterwards")
	}
	q.putBack("a")
	if q.putBack("b"); len(q.lines) != 0 || q.takeBatch() != nil {
		t.Errorf("%d keys are left", len(q.lines))
	}
}

// A key with much input must not keep the others waiting.
func TestKeysTakeTurns(t *testing.T) {
	q, jobs := queued(slices.Concat(slices.Repeat([]string{"a"}, maxBatch+1), []string{"b"})...)
	for _, want := range [][]*job{jobs[:maxBatch], jobs[maxBatch+1:], jobs[maxBatch : maxBatch+1]} {
		if batch := q.takeBatch(); !slices.Equal(batch, want) {
			t.Fatalf("a batch of %d, want %d", len(batch), len(want))
		} else {
			q.putBack(batch[0].key)
		}
	}
}

func TestABatchHasItsLimits(t *testing.T) {
	for _, c := range []struct {
		name  string
		sizes []int
		want  int
	}{
		{"one", []int{10}, 1},
		{"all", []int{10, 10, 10}, 3},
		{"as many as a transaction may have", make([]int, maxBatch+7), maxBatch},
		{"up to the limit", []int{maxBatchBytes - 10, 10, 1}, 2},
		{"not beyond the limit", []int{maxBatchBytes - 10, 11, 1}, 1},
		{"one that is too large alone", []int{maxBatchBytes + 1, 1}, 1},
		{"one that is too large after another", []int{1, maxBatchBytes + 1}, 1},
	} {
		var jobs []*job
		for _, size := range c.sizes {
			jobs = append(jobs, &job{record: record{text: []byte(strings.Repeat("x", size))}})
		}
		if n := fits(jobs); n != c.want {
			t.Errorf("%s: a batch of %d, want %d", c.name, n, c.want)
		}
	}
}

func TestWritersWaitForInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		got := make(chan []*job, 2)
		for range 2 {
			go func() { got <- q.takeBatch() }()
		}
		synctest.Wait()
		j := &job{key: "a"}
		q.add(j)
		if batch := <-got; !slices.Equal(batch, []*job{j}) {
			t.Errorf("a batch of %v", batch)
		}
		synctest.Wait()
		if len(got) != 0 {
			t.Error("the other writer does not wait")
		}
		q.endInput()
		if batch := <-got; batch != nil {
			t.Errorf("a batch of %v after the end", batch)
		}
	})
}

func TestManyWritersKeepTheOrderOfAKey(t *testing.T) {
	const keys, jobs, writers = 17, 20_000, 8
	q := newQueue()
	var mu sync.Mutex
	written, inHand := map[feed.PartitionKey][]int64{}, map[feed.PartitionKey]bool{}
	var work sync.WaitGroup
	for range writers {
		work.Go(func() {
			for batch := q.takeBatch(); batch != nil; batch = q.takeBatch() {
				key := batch[0].key
				mu.Lock()
				if inHand[key] {
					t.Errorf("two batches of %s are in hand", key)
				}
				inHand[key] = true
				for _, j := range batch {
					written[key] = append(written[key], j.next.Offset)
				}
				mu.Unlock()
				runtime.Gosched()
				mu.Lock()
				inHand[key] = false
				mu.Unlock()
				q.putBack(key)
			}
		})
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range int64(jobs) {
		j := &job{key: feed.PartitionKey(fmt.Sprint(rng.IntN(keys)))}
		j.next.Offset = i
		q.add(j)
	}
	q.endInput()
	work.Wait()
	total := 0
	for key, offsets := range written {
		if total += len(offsets); !slices.IsSorted(offsets) {
			t.Errorf("the jobs of %s are not in their order", key)
		}
	}
	if total != jobs || len(q.lines) != 0 || len(q.ready) != 0 {
		t.Errorf("%d of %d jobs are written, %d keys are left", total, jobs, len(q.lines))
	}
}
