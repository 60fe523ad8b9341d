package lanes

import (
	"slices"
	"time"
)

// Batches are made late and cut early. A change joins a batch when the batch is taken,
// not when it is read, so that what comes meanwhile still goes along; a batch that
// fails keeps its changes together for as long as its attempts last, because whatever
// it fails for may well pass.
//
// A transaction is what has the same key and LSN. Handlers are promised all of it at
// once, so limits give way to it, and only repeated failure cuts it. Its changes are
// marked then: who gets them must be able to know that there were more.

// Page is a page of the feed whose changes are in the lanes.
type Page[C, P any] struct {
	Of P

	unhandled, unconfirmed int
	changes                []*Change[C, P] // of which some are handled
	bytes                  int             // that it keeps in memory
	left                   int             // of which so many belong to changes that are not handled
}

// Handled reports whether every change of the page is handled.
func (p *Page[C, P]) Handled() bool { return p.unhandled == 0 }

// Confirmed reports whether every change of the page is confirmed.
func (p *Page[C, P]) Confirmed() bool { return p.unconfirmed == 0 }

// shed gives up memory that handled changes do not need any more: all of it after the last change, and before that most of
// it now and then, because a few changes must not keep the rest of their page.
func (p *Page[C, P]) shed(detach func(*C)) (bytes int) {
	// Only when three quarters are handled. What is copied then is at most a third of
	// what is given up, so the copying is paid for, however large the page is.
	if p.left*4 > p.bytes || p.bytes == 0 {
		return 0
	}
	p.changes = slices.DeleteFunc(slices.Clone(p.changes), func(c *Change[C, P]) bool { return c.handled })
	for _, c := range p.changes {
		detach(&c.Value)
	}
	bytes = p.bytes - p.left
	p.bytes = p.left
	return bytes
}

// Change is one change in the lanes.
type Change[C, P any] struct {
	Page  *Page[C, P]
	Value C   // zero when it is handled
	Place int // among the changes of its LSN
	LSN   int64
	Key   string

	lane      *lane[C, P]
	bytes     int
	failures  int  // before it came here
	cut       bool // from others of its transaction
	handled   bool
	confirmed bool
}

// Batch is a batch of changes of one lane, in their order.
type Batch[C, P any] struct {
	Changes  []*Change[C, P]
	Failures int       // so far
	Failing  time.Time // since when; zero if it has not failed here
	Err      error     // the last failure
	Cut      bool      // it is a part of a transaction
	Park     bool      // it is one change to be parked, not handled
	Held     bool      // and only because its key is held
	Redriven bool      // it was parked before and has one try

	lane      *lane[C, P]
	called    bool // and has failed since it was made
	hopeless  bool
	excused   bool       // its last failure was not its own
	tries     int        // for the pauses: failures, and calls that failed and count for none
	suspected bool       // and so one change in a lane of its key
	since     *time.Time // what succeeds from then on shows that it fails by itself; shared with the other parts of a batch
	refused   bool       // it is to be parked, and its letter could not be kept
	probe     bool
	inHand    bool
	notBefore time.Time
	asked     time.Time // when the handler wants to be called again, at the earliest
	taken     time.Time // when it was last taken in hand
	probed    time.Time
}

// IsCut reports whether it has a part of a transaction.
func (b *Batch[C, P]) IsCut() bool {
	return slices.ContainsFunc(b.Changes, func(c *Change[C, P]) bool { return c.cut })
}

// transaction is where the transaction ends that begins at i, and its size.
func transaction[C, P any](changes []*Change[C, P], i int) (end, size int) {
	first := changes[i]
	for end = i; end < len(changes) && changes[end].LSN == first.LSN && changes[end].Key == first.Key; end++ {
		size += changes[end].bytes
	}
	return end, size
}

// isExhausted reports whether a batch has been tried often enough, or for long enough.
func (b *Batch[C, P]) isExhausted(r *Rules[C], now time.Time) bool {
	return b.hopeless || r.MaxAttempts > 0 && b.Failures >= r.MaxAttempts && !b.excused ||
		r.MaxAge > 0 && !b.Failing.IsZero() && now.Sub(b.Failing) >= r.MaxAge
}

// parts are what is left of a batch after a failure, and what is done. Without a list, all of it is left.
func (b *Batch[C, P]) parts(left []*Part) (parts []*Batch[C, P], done []*Change[C, P]) {
	if left == nil {
		return []*Batch[C, P]{b}, nil
	}
	of := make([]*Batch[C, P], len(b.Changes)) // nil for what is done
	for _, p := range left {
		part := &Batch[C, P]{lane: b.lane}
		if !p.Untried {
			*part = *b
			part.Changes, part.Err, part.hopeless = nil, p.Err, p.Hopeless
		}
		for _, i := range p.Changes {
			part.Changes, of[i] = append(part.Changes, b.Changes[i]), part
		}
		parts = append(parts, part)
	}
	for i, c := range b.Changes {
		if of[i] == nil {
			done = append(done, c)
		}
		if i > 0 && of[i] != of[i-1] {
			markCut(b.Changes, i)
		}
	}
	return parts, done
}

// markCut marks the changes of a transaction that is cut before i.
func markCut[C, P any](changes []*Change[C, P], i int) {
	if i == 0 || i == len(changes) || changes[i-1].LSN != changes[i].LSN || changes[i-1].Key != changes[i].Key {
		return
	}
	for _, c := range changes {
		c.cut = c.cut || c.LSN == changes[i].LSN && c.Key == changes[i].Key
	}
}

// cut makes halves of a batch: between two transactions, or of a single one in the middle. Each has one try, at once unless
// the handler wants a pause.
func (b *Batch[C, P]) cut() []*Batch[C, P] {
	at, _ := middle(b.Changes)
	markCut(b.Changes, at)
	// Both halves keep the failures of the whole, and have one try each: a half that
	// succeeds is done, and in the one that fails the search goes on.
	first, second := *b, *b
	first.Changes, second.Changes = b.Changes[:at:at], b.Changes[at:]
	halves := []*Batch[C, P]{&first, &second}
	for _, half := range halves {
		half.called, half.notBefore = false, b.asked
	}
	return halves
}

// middle is where the transaction begins that is nearest to the middle, and whether there is only one.
func middle[C, P any](changes []*Change[C, P]) (at int, alone bool) {
	half := len(changes) / 2
	for i := 0; i < len(changes); {
		if i > 0 && (at == 0 || max(i-half, half-i) < max(at-half, half-at)) {
			at = i
		}
		i, _ = transaction(changes, i)
	}
	if at == 0 {
		return half, true
	}
	return at, false
}
