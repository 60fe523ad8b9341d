package sim

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
)

// The history of leases: every request about them as its sender saw it, before the network,
// so that an answer which was lost is not known here either. leasemodel.go decides whether
// a store with one owner at a time can have given these answers.

// history is the requests of a run.
type history struct {
	mu       sync.Mutex
	clock    int64 // counts requests and answers
	requests []*request
	owners   map[*instance]owner
	sights   []sight
}

// owner is a process by the name and epoch that it writes into leases.
type owner struct{ name, epoch string }

// request is a request to the lease store, with all that its sender learned of the outcome.
type request struct {
	verb  verb
	by    *instance
	me    owner
	sent  feed.Record
	begun time.Time
	ended time.Time
	asked int64 // by the history's clock
	told  int64

	ending ending
	etag   string                 // of the stored record, if it is known
	listed map[string]feed.Record // as a listing has shown them, by lease token
}

// sight is a record shown to somebody, by a listing or in following the leases.
type sight struct {
	lease feed.Record
	at    int64
}

// verb is the kind of a request.
type verb uint8

const (
	list verb = iota
	create
	update
	remove
)

// ending is a sender's knowledge of a request's outcome.
type ending uint8

const (
	unknown ending = iota // it may have been carried out, or be yet
	done
	conflict // another version is there
	missing
)

// never is when an answer comes that does not come.
const never = math.MaxInt64

// recordRequests is a lease store whose requests are recorded.
func (h *history) recordRequests(by *instance, s feed.LeaseStore) feed.LeaseStore {
	if f, pushed := s.(followed); pushed {
		return seenFollowed{seen{h, by, f}}
	}
	return seen{h, by, s}
}

// seen is a lease store whose requests are recorded for one process.
type seen struct {
	h     *history
	by    *instance
	store feed.LeaseStore
}

// seenFollowed is seen of a store that can be followed.
type seenFollowed struct{ seen }

// List records a listing as a read of every lease at once: of those that it does not show, too,
// which must have been absent.
func (s seen) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	if s.by.steers { // an operator lists very often, and its writes tell what it has seen
		records, now, err := s.store.List(ctx)
		s.h.noteSight(records)
		return records, now, err
	}
	q := s.h.noteRequest(s.by, list, feed.Record{})
	records, now, err := s.store.List(ctx)
	q.listed = map[string]feed.Record{}
	for _, record := range records {
		if record.Kind == feed.KindLease {
			q.listed[record.Token] = record
		}
	}
	s.h.noteSight(records)
	s.h.noteAnswer(q, "", err)
	return records, now, err
}

// Follow may show old records: it is no listing, but it does prove that they were written.
func (s seenFollowed) Follow(ctx context.Context, cursor string) ([]feed.Record, string, time.Time, error) {
	records, next, now, err := s.store.(feed.Follower).Follow(ctx, cursor)
	s.h.noteSight(records)
	return records, next, now, err
}

// noteSight records that somebody was shown some leases.
func (h *history) noteSight(records []feed.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	for _, record := range records {
		if record.Kind == feed.KindLease {
			h.sights = append(h.sights, sight{record, h.clock})
		}
	}
}

func (s seen) Create(ctx context.Context, record feed.Record) (feed.Record, error) {
	q := s.h.noteRequest(s.by, create, record)
	got, err := s.store.Create(ctx, record)
	s.h.noteAnswer(q, got.ETag, err)
	return got, err
}

func (s seen) Update(ctx context.Context, record feed.Record) (feed.Record, error) {
	q := s.h.noteRequest(s.by, update, record)
	got, err := s.store.Update(ctx, record)
	s.h.noteAnswer(q, got.ETag, err)
	return got, err
}

func (s seen) Delete(ctx context.Context, record feed.Record) error {
	q := s.h.noteRequest(s.by, remove, record)
	err := s.store.Delete(ctx, record)
	s.h.noteAnswer(q, "", err)
	return err
}

// noteRequest records that a request is sent.
func (h *history) noteRequest(by *instance, v verb, record feed.Record) *request {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	q := &request{verb: v, by: by, sent: record, begun: time.Now(), asked: h.clock, told: never}
	switch {
	case v == list || record.Kind == feed.KindLease:
		h.requests = append(h.requests, q)
	case record.Kind == feed.KindHost && v != remove: // a process shows itself
		if h.owners == nil {
			h.owners = map[*instance]owner{}
		}
		h.owners[by] = owner{record.Owner, record.Epoch}
	}
	return q
}

// noteAnswer records the answer that a sender gets. An error of the network says nothing about
// the outcome.
func (h *history) noteAnswer(q *request, etag string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	switch {
	case err == nil:
		q.ending, q.etag = done, etag
	case errors.Is(err, feed.ErrConflict):
		q.ending = conflict
	case errors.Is(err, feed.ErrNotFound):
		q.ending = missing
	default:
		return
	}
	q.told, q.ended = h.clock, time.Now()
}
