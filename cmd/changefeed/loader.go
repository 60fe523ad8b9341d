package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
)

// How documents get into a container
//
// Many writers share each flush of the store, so many documents are on their way at
// once. Those of one partition key go through one lane, in which each waits for the one
// before it. All are finished in the order of the input: so there is always one place
// before which everything is done, and an interrupted import can go on there.

// A job is a record on its way.
type job struct {
	record
	refusal error // why it is no document of this container
	failure error // why the import cannot go on
	done    chan struct{}
}

// A loader writes records to a container.
type loader struct {
	container *docstore.Container
	paths     [][]string
	lanes     []chan *job
	order     chan *job // all jobs as they came
	seed      maphash.Seed
}

// The lengths of queues.
const (
	laneLength = 16
	maxAhead   = 4096 // jobs that are done or on their way, behind one that is not done
)

func newLoader(c *docstore.Container, writers int) *loader {
	l := &loader{
		container: c, paths: keyPaths(c.Spec().Paths),
		lanes: make([]chan *job, writers), order: make(chan *job, maxAhead), seed: maphash.MakeSeed(),
	}
	for i := range l.lanes {
		l.lanes[i] = make(chan *job, laneLength)
	}
	return l
}

// load writes all records and calls each for them, in their order, when they are written
// or refused. It stops at the first failure.
func (l *loader) load(ctx context.Context, s *splitter, each func(*job) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var work sync.WaitGroup
	for _, lane := range l.lanes {
		work.Go(func() {
			for j := range lane {
				j.refusal, j.failure = l.write(ctx, j.text)
				close(j.done)
			}
		})
	}
	var failed error
	work.Go(func() { failed = l.finish(cancel, each) })
	err := l.dispatch(ctx, s)
	for _, lane := range l.lanes {
		close(lane)
	}
	close(l.order)
	work.Wait()
	if failed != nil {
		return failed
	}
	return err
}

// dispatch gives each record to the lane of its partition key.
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
		select {
		case l.order <- j:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if r.err != nil {
			close(j.done)
			continue
		}
		select {
		case l.lanes[l.lane(r.text)] <- j:
		case <-ctx.Done():
			j.failure = context.Cause(ctx)
			close(j.done)
		}
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

// lane is where the records with the partition key of this one go. The store is the
// judge of documents; one without a key that can be read goes anywhere.
func (l *loader) lane(text []byte) int {
	var h maphash.Hash
	h.SetSeed(l.seed)
	for _, path := range l.paths {
		var value any
		if raw := member(text, path); raw != nil && json.Unmarshal(raw, &value) == nil {
			fmt.Fprint(&h, value)
		}
		h.WriteByte(0)
	}
	return int(h.Sum64() % uint64(len(l.lanes)))
}

// member is the value behind a path of names; nil when there is none.
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

// write writes a document, however often the store asks to wait.
func (l *loader) write(ctx context.Context, text []byte) (refusal, failure error) {
	for {
		_, err := l.container.Upsert(ctx, text)
		if throttled, ok := errors.AsType[*changefeed.ThrottledError](err); ok {
			select {
			case <-time.After(throttled.After):
				continue
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		if errors.Is(err, changefeed.ErrBadRequest) || errors.Is(err, changefeed.ErrConflict) {
			return reason(err), nil
		}
		return nil, err
	}
}

// reason is why a document was refused, without what is the same for all of them.
func reason(err error) error {
	if _, why, ok := strings.Cut(err.Error(), changefeed.ErrBadRequest.Error()+": "); ok {
		return errors.New(why)
	}
	return err
}
