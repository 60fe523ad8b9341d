package load

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// How documents are written to a container
//
// Many writers share each flush of the store, so many documents are written at the same time. Each document waits for
// the previous document with its partition key. If several documents of a key wait, for example because the input is
// sorted by key, they are written together in a single transaction. See queue.go. Documents are finished in the order
// of the input. So there is always a place before which everything is done, and an interrupted import can continue
// there.

// A job is a record that is being imported.
type job struct {
	record
	key     feed.PartitionKey // empty if the key cannot be read
	refusal error             // why the document is invalid for this container
	failure error             // why the import cannot continue
	done    chan struct{}
}

// A loader writes records to a container.
type loader struct {
	to      *place.Container
	paths   [][]string
	writers int
	order   chan *job // all jobs in the order of the input
	queue   *queue    // jobs that are not written yet
}

const (
	maxAhead      = 8192 // jobs that may follow a job that is not done
	maxBatch      = service.MaxBatch
	maxBatchBytes = 1 << 20 // stores accept 2 MB, including the properties that they add
)

// newLoader returns a loader with so many writers.
func newLoader(c *place.Container, writers int) *loader {
	return &loader{
		to: c, paths: keyPaths(c.Paths), writers: writers, order: make(chan *job, maxAhead),
		queue: newQueue(),
	}
}

// writeAll writes all records and calls each for each record, in order, when the record was written or refused. load
// stops at the first failure.
func (l *loader) writeAll(ctx context.Context, s *splitter, each func(*job) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var work sync.WaitGroup
	for range l.writers {
		work.Go(func() { l.writeWaiting(ctx) })
	}
	var failed error
	work.Go(func() { failed = l.finishInOrder(cancel, each) })
	err := l.queueRecords(ctx, s)
	l.queue.endInput()
	close(l.order)
	work.Wait()
	if failed != nil {
		return failed
	}
	return err
}

// queueRecords queues each record.
func (l *loader) queueRecords(ctx context.Context, s *splitter) error {
	for ctx.Err() == nil {
		r, err := s.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		j := &job{record: r, refusal: r.err, done: make(chan struct{})}
		// The job is added to order before queue, so every written job is waited for.
		select {
		case l.order <- j:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if r.err != nil {
			close(j.done)
			continue
		}
		j.key = l.keyOf(r.text)
		l.queue.add(j)
	}
	return context.Cause(ctx)
}

// finishInOrder processes the jobs in order. After a failure finish only waits for the remaining jobs.
func (l *loader) finishInOrder(cancel context.CancelCauseFunc, each func(*job) error) (failed error) {
	for j := range l.order {
		<-j.done
		if failed != nil {
			continue
		}
		if failed = j.failure; failed == nil {
			failed = each(j)
		}
		if failed != nil {
			cancel(failed)
		}
	}
	return failed
}

// keyOf returns the partition key of a document. The store decides whether a key is valid, so all invalid keys, which
// are numbers out of range, share the empty key.
func (l *loader) keyOf(text []byte) feed.PartitionKey {
	components := make([]any, len(l.paths))
	for i, path := range l.paths {
		components[i] = feed.Undefined
		if raw := member(text, path); raw != nil && json.Unmarshal(raw, &components[i]) != nil {
			return ""
		}
		switch components[i].(type) {
		case map[string]any, []any: // no value of a key
			components[i] = feed.Undefined
		}
	}
	return feed.Key(components...)
}

// member returns the value at a path of names, or nil.
func member(text []byte, path []string) json.RawMessage {
	for _, name := range path {
		var object map[string]json.RawMessage
		if json.Unmarshal(text, &object) != nil {
			return nil
		}
		text = object[name]
	}
	return text
}

// writeWaiting writes batches of waiting jobs until none are left.
func (l *loader) writeWaiting(ctx context.Context) {
	for jobs := l.queue.takeBatch(); jobs != nil; jobs = l.queue.takeBatch() {
		key := jobs[0].key
		l.writeJobs(ctx, jobs)
		l.queue.putBack(key)
	}
}

// writeJobs writes jobs of one key, and finishes them. If a job is refused, the others are still written.
func (l *loader) writeJobs(ctx context.Context, jobs []*job) {
	// A refused document is removed from the transaction, and the rest is retried, at most once for each document.
	// After any other failure the documents are written individually, so the result of each is known.
	for len(jobs) > 1 {
		refused, err := l.commitJobs(ctx, jobs)
		if err == nil {
			for _, j := range jobs {
				close(j.done)
			}
			return
		}
		if refused < 0 { // the failure is not about a single job: write each individually
			break
		}
		jobs[refused].refusal = reason(err)
		close(jobs[refused].done)
		jobs = append(jobs[:refused:refused], jobs[refused+1:]...)
	}
	for _, j := range jobs {
		j.failure = unthrottled(ctx, func() error {
			return l.to.Upsert(ctx, j.key, j.text)
		})
		if errors.Is(j.failure, feed.ErrBadRequest) || errors.Is(j.failure, feed.ErrConflict) {
			j.refusal, j.failure = reason(j.failure), nil
		}
		close(j.done)
	}
}

// commitJobs writes jobs in a single transaction. If a job was refused, commit returns its index, otherwise a negative
// number. All writes are upserts, so repeating them after an error does no harm.
func (l *loader) commitJobs(ctx context.Context, jobs []*job) (refused int, err error) {
	writes := make([]feed.Write, len(jobs))
	for i, j := range jobs {
		writes[i] = feed.Write{Op: feed.WriteUpsert, Body: j.text}
	}
	err = unthrottled(ctx, func() error {
		return l.to.Commit(ctx, jobs[0].key, writes)
	})
	if w, ok := errors.AsType[*feed.WriteError](err); ok {
		return w.Index, w.Err
	}
	return -1, err
}

// unthrottled writes, and retries as often as the container throttles the write.
func unthrottled(ctx context.Context, write func() error) error {
	for {
		err := write()
		throttled, ok := errors.AsType[*feed.ThrottledError](err)
		if !ok {
			return err
		}
		select {
		case <-time.After(throttled.After):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// reason returns why a document was refused, without the words that all such errors share.
func reason(err error) error {
	if _, why, ok := strings.Cut(err.Error(), feed.ErrBadRequest.Error()+": "); ok {
		return errors.New(why)
	}
	return err
}
