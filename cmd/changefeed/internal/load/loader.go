package load

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
	"github.com/millrace/changefeed/internal/host/place"
)

// How documents get into a container
//
// Many writers share each flush of the store, so many documents are on their way at
// once. Each waits for the one before it of its partition key; where several of one key
// wait, as in input that is sorted by it, they are written together, in one transaction.
// See queue.go. All are finished in the order of the input: so there is always one place
// before which everything is done, and an interrupted import can go on there.

// A job is a record on its way.
type job struct {
	record
	key     feed.PartitionKey // empty where it cannot be read
	refusal error             // why it is no document of this container
	failure error             // why the import cannot go on
	done    chan struct{}
}

// A loader writes records to a container.
type loader struct {
	to      *place.Container
	paths   [][]string
	writers int
	order   chan *job // all jobs as they came
	queue   *queue    // those that are not written yet
}

const (
	maxAhead      = 8192 // jobs that are done or on their way, after one that is not done
	maxBatch      = service.MaxBatch
	maxBatchBytes = 1 << 20 // stores take 2 MB with all that they add
)

// newLoader makes a loader with so many writers.
func newLoader(c *place.Container, writers int) *loader {
	return &loader{to: c, paths: keyPaths(c.Paths), writers: writers, order: make(chan *job, maxAhead), queue: newQueue()}
}

// load writes all records and calls each for them, in their order, when they are written
// or refused. It stops at the first failure.
func (l *loader) load(ctx context.Context, s *splitter, each func(*job) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var work sync.WaitGroup
	for range l.writers {
		work.Go(func() { l.serve(ctx) })
	}
	var failed error
	work.Go(func() { failed = l.finish(cancel, each) })
	err := l.dispatch(ctx, s)
	l.queue.end()
	close(l.order)
	work.Wait()
	if failed != nil {
		return failed
	}
	return err
}

// dispatch queues each record.
func (l *loader) dispatch(ctx context.Context, s *splitter) error {
	for ctx.Err() == nil {
		r, err := s.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		j := &job{record: r, refusal: r.err, done: make(chan struct{})}
		// The order comes before the queue: a job that is written must be one that is waited for.
		select {
		case l.order <- j:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if r.err != nil {
			close(j.done)
			continue
		}
		j.key = l.key(r.text)
		l.queue.add(j)
	}
	return context.Cause(ctx)
}

// finish takes the jobs in their order. After a failure it only waits for the rest.
func (l *loader) finish(cancel context.CancelCauseFunc, each func(*job) error) (failed error) {
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

// key is the partition key of a document. Only the store decides whether it is a good one, so all bad keys are as one.
func (l *loader) key(text []byte) feed.PartitionKey {
	components := make([]any, len(l.paths))
	for i, path := range l.paths {
		components[i] = feed.Undefined
		if raw := member(text, path); raw != nil && json.Unmarshal(raw, &components[i]) != nil {
			return ""
		}
		switch components[i].(type) {
		case map[string]any, []any:
			return ""
		}
	}
	return feed.Key(components...)
}

// member is the value at a path of names; nil when there is none.
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

// serve writes what waits of a key, and again, until there is nothing left.
func (l *loader) serve(ctx context.Context) {
	for jobs := l.queue.take(); jobs != nil; jobs = l.queue.take() {
		key := jobs[0].key
		l.write(ctx, jobs)
		l.queue.done(key)
	}
}

// write writes jobs of one key, and finishes them. One that is refused takes none of the
// others with it.
func (l *loader) write(ctx context.Context, jobs []*job) {
	// A document that is refused is taken out of the transaction and the rest is tried
	// again, at most once for each document. Any other failure is met document by
	// document, so that it is known of each whether it was written.
	for len(jobs) > 1 {
		refused, err := l.commit(ctx, jobs)
		if err == nil {
			for _, j := range jobs {
				close(j.done)
			}
			return
		}
		if refused < 0 { // not because of one of them: see what happens to each
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

// commit writes jobs in one transaction. When it is refused because of one of them, it returns the index of that one;
// else a number below zero. All are upserts, so to write them again after an error does no harm.
func (l *loader) commit(ctx context.Context, jobs []*job) (refused int, err error) {
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

// unthrottled writes, and again as often as the container asks for a pause.
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

// reason is why a document was refused, without the words that are the same for all of them.
func reason(err error) error {
	if _, why, ok := strings.Cut(err.Error(), feed.ErrBadRequest.Error()+": "); ok {
		return errors.New(why)
	}
	return err
}
