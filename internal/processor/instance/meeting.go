package instance

import (
	"context"
	"time"

	"github.com/millrace/changefeed/feed"
)

// A Meeting is where the workers of two neighbouring leases of this instance talk before the leases are joined. Each
// worker says when it has handled all that it has read; the one that is behind reads up to the position of the other.
// Nothing is written before both are at the same LSN and skip the same changes, so a meeting without success leaves no
// trace.
type Meeting struct {
	Of    feed.Range // of both leases
	Least int        // at least so many leases are left when all leases are joined that are about to be
	words [2]chan Word
	over  context.Context
	end   context.CancelFunc
}

// Word is what a worker says in a meeting.
type Word struct {
	LSN   int64       // of the position of a worker that has handled all that it has read
	Since time.Time   // the worker skips changes before this time; zero is none
	Lease feed.Record // as stored, when the lease is about to be joined
	Made  Made        // the last word of the left worker
}

// Made says whether the lease of both was made.
type Made uint8

// The outcomes.
const (
	Unmade      Made = iota // the lease was not made, and never will be
	MadeInTime              // the lease is there
	MadePerhaps             // nobody knows yet
)

// Seat is the place of a worker in a meeting.
type Seat struct {
	*Meeting
	IsLeft bool // the worker has the lease with the lower keys: this worker makes the lease of both
	Past   bool // the worker has come beyond the start of its lease, which is dropped when the lease is marked
}

// Meet calls the workers of two neighbouring leases to a meeting, unless one of them is in a meeting.
func Meet(left, right *Held, least int) bool {
	m := &Meeting{Of: feed.Range{Min: left.Lease.Range.Min, Max: right.Lease.Range.Max}, Least: least}
	m.over, m.end = context.WithCancel(left.in.Base)
	for i := range m.words {
		m.words[i] = make(chan Word, maxWords)
	}
	if !left.sit(&Seat{Meeting: m, IsLeft: true}) {
		return false
	}
	if !right.sit(&Seat{Meeting: m}) {
		m.end()
		return false
	}
	return true
}

// maxWords is more than a worker says in a meeting.
const maxWords = 4

// Exchange says a word, and waits for a word of the other worker. Exchange reports false if the meeting is over, or if
// ctx has ended.
func (s *Seat) Exchange(ctx context.Context, say Word) (heard Word, ok bool) {
	s.Say(say)
	return s.Hear(ctx)
}

// Say says a word without waiting.
func (s *Seat) Say(word Word) { s.words[s.number()] <- word }

// Hear waits for a word of the other worker.
func (s *Seat) Hear(ctx context.Context) (heard Word, ok bool) {
	words := s.words[1-s.number()]
	select {
	case heard = <-words:
		return heard, true
	case <-s.over.Done():
	case <-ctx.Done():
	}
	select {
	case heard = <-words: // said before the end
		return heard, true
	default:
		return heard, false
	}
}

// End ends the meeting. A worker that has ended a meeting makes no lease of both.
func (s *Seat) End() { s.end() }

// IsOver reports whether a worker has ended the meeting.
func (s *Seat) IsOver() bool { return s.over.Err() != nil }

func (s *Seat) number() int {
	if s.IsLeft {
		return 0
	}
	return 1
}

// sit gives a worker a seat in a meeting, and ends its wait for changes.
func (h *Held) sit(s *Seat) bool {
	if !h.seat.CompareAndSwap(nil, s) {
		return false
	}
	h.called.Load().end()
	return true
}

// Seat returns the worker's seat in a meeting; nil is none.
func (h *Held) Seat() *Seat { return h.seat.Load() }

// Leave leaves the meeting, which is then over, and waits for the next call.
func (h *Held) Leave() {
	if s := h.seat.Load(); s != nil {
		s.End()
	}
	h.awaitCall()
	h.seat.Store(nil)
}

// UntilCalled returns a context that ends with UntilStopped, and when the worker is called to a meeting.
func (h *Held) UntilCalled() context.Context { return h.called.Load().ctx }

// call is a context that ends when a worker is called.
type call struct {
	ctx context.Context
	end context.CancelFunc
}

// awaitCall prepares the context of the next call.
func (h *Held) awaitCall() {
	ctx, end := context.WithCancel(h.UntilStopped)
	if old := h.called.Swap(&call{ctx, end}); old != nil {
		old.end()
	}
}
