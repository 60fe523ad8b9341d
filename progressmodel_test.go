package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace/changefeed"
)

// What a lease may say, told from what handlers did
//
//   - a position that is stored covers only changes that are done: handled without an
//     error or, with checkpoints by hand, covered by one
//   - what a held lease is written with is what its model says: how far the changes are done
//     without a gap, and how often the batch after that has failed
//   - a lease is read on only when as much is stored as the options want
//   - nothing that is stored as done is handed over again
//
// A write may be on its way for long, with what the lease said when it was begun, and a
// request may be without an answer. So the model of a held lease has several states, of
// which one must fit, until its worker goes on.

// progress is the model of all leases.
type progress struct {
	mu     sync.Mutex
	manual bool
	done   map[entry]bool
	held   map[*client]map[changefeed.Range]*tenure
	stored map[changefeed.Range]status
	ends   map[*changefeed.Batch]int64
	broken []string
}

// status is what a lease says.
type status struct {
	lsn      int64
	attempts int
}

// tenure is a lease while one process holds it.
type tenure struct {
	now, old status  // what the lease must say, and what it may still say
	sent     int64   // the highest position that was written, or was to be
	maybe    []int64 // positions of checkpoints by hand that are under way, or whose outcome nobody knows

	last     [2]int64        // ends of the batches handed over: the one before, and the last
	fresh    bool            // the last one is finished
	pages    map[int64]int64 // where pages end, by the LSN that they begin with
	handed   []entry
	failures int   // of the batch in hand
	empty    int64 // where an empty page ended that may have come too late to count
	moves    bool  // it moves the lease too: all before it is stored
	unsaved  []finish
}

// finish is a change that was done and not yet stored.
type finish struct {
	lsn int64
	at  time.Time
}

func newProgress(manual bool) *progress {
	return &progress{
		manual: manual, done: map[entry]bool{}, held: map[*client]map[changefeed.Range]*tenure{},
		stored: map[changefeed.Range]status{}, ends: map[*changefeed.Batch]int64{},
	}
}

func (p *progress) breach(format string, args ...any) {
	if len(p.broken) < 10 {
		p.broken = append(p.broken, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

func statusOf(l changefeed.Lease) status { return status{positionOf(l.Position.Token), l.Attempts} }

// acquired begins a tenure.
func (p *progress) acquired(c *client, l changefeed.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[c] == nil {
		p.held[c] = map[changefeed.Range]*tenure{}
	}
	s := statusOf(l)
	p.held[c][l.Range] = &tenure{now: s, old: s, fresh: true, last: [2]int64{s.lsn, s.lsn}, failures: s.attempts, pages: map[int64]int64{}}
}

func (p *progress) released(c *client, l changefeed.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.held[c], l.Range)
}

// sends judges a write by what its sender has done.
func (p *progress) sends(c *client, l changefeed.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.held[c][l.Range]
	if l.Kind != changefeed.KindLease || t == nil {
		return
	}
	s := statusOf(l.Lease())
	if t.now == (status{}) && len(t.handed) == 0 { // it is given its first token
		t.now, t.old = s, s
	}
	if s.lsn < t.sent {
		p.breach("%s writes %s at %d, after %d", c.name, l.Token, s.lsn, t.sent)
	}
	t.sent = max(t.sent, s.lsn)
	if s == t.now || s == t.old || s.attempts == 0 && (s.lsn == t.empty || slices.Contains(t.maybe, s.lsn)) {
		return
	}
	p.breach("%s writes %s at %+v, its model is at %+v", c.name, l.Token, s, t.now)
}

// stores judges a write that is carried out, by what all have done.
func (p *progress) stores(w *scripted, l changefeed.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.Kind != changefeed.KindLease {
		return
	}
	s, before := statusOf(l.Lease()), p.stored[l.Range]
	if s.lsn < before.lsn {
		p.breach("%s moves back from %+v to %+v", l.Token, before, s)
	}
	for _, e := range w.feed {
		if l.Range.Holds(e.place) && e.lsn <= s.lsn && !p.done[e] {
			p.breach("%s is stored at %d, and %d is not done", l.Token, s.lsn, e.lsn)
		}
	}
	p.stored[l.Range] = s
	for _, of := range p.held {
		if t := of[l.Range]; t != nil {
			t.unsaved = slices.DeleteFunc(t.unsaved, func(f finish) bool { return f.lsn <= s.lsn })
		}
	}
}

// creates judges the lease of a part: it begins where its parent is stored.
func (p *progress) creates(w *scripted, l changefeed.Record) {
	if l.Kind != changefeed.KindLease {
		return
	}
	for _, parent := range w.leases {
		if parent.Kind == changefeed.KindLease && parent.State == changefeed.StateSplitting && parent.Range.Contains(l.Range) && statusOf(parent.Lease()) != statusOf(l.Lease()) {
			p.mu.Lock()
			p.breach("%s is made at %+v, its parent is stored at %+v", l.Token, statusOf(l.Lease()), statusOf(parent.Lease()))
			p.mu.Unlock()
		}
	}
	p.stores(w, l)
}

// reads judges what must be stored before a lease is read on.
func (p *progress) reads(c *client, r changefeed.Range, from int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.held[c][r]
	if t == nil {
		return
	}
	if t.empty == from && from > 0 {
		p.pass(t)
	}
	t.old = t.now
	if p.manual || len(t.unsaved) == 0 {
		return
	}
	items, every := c.o.CheckpointItems, c.o.CheckpointEvery
	late := every > 0 && time.Since(t.unsaved[0].at) > every+2*c.o.Poll
	if items > 0 && len(t.unsaved) >= items || late || items == 0 && every == 0 {
		p.breach("%s reads %v from %d with %d changes not stored, the oldest since %v", c.name, r, from, len(t.unsaved), time.Since(t.unsaved[0].at))
	}
}

// gets notes a page. An empty one moves the lease on, if all before it is done.
func (p *progress) gets(c *client, r changefeed.Range, from int64, page changefeed.Page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.held[c][r]
	if t == nil {
		return
	}
	next := positionOf(page.Next.Token)
	if len(page.Changes) > 0 {
		t.pages[page.Changes[0].LSN] = next
		return
	}
	moves := !p.manual || t.last[1] <= t.now.lsn
	if next == from && (!moves || t.now.lsn >= next) { // else an earlier page was empty while a checkpoint was to come
		return
	}
	t.empty, t.moves = next, moves
}

// pass notes that a lease is read on from the end of an empty page.
func (p *progress) pass(t *tenure) {
	if t.failures = 0; t.moves {
		t.now = status{t.empty, 0}
	}
	t.empty = 0
}

// begins judges a hand-over.
func (p *progress) begins(c *client, b *changefeed.Batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.held[c][b.Range]
	if t == nil {
		p.breach("%s handles %s without having it", c.name, b.LeaseToken)
		return
	}
	t.old = t.now
	first := b.Changes[0].LSN
	end := t.pages[first]
	if !t.fresh && first > t.last[1] { // the one before took too long, but was stored by hand
		t.fresh, t.failures = true, 0
	}
	if b.Attempt != t.failures+1 {
		p.breach("%s handles %s at %d, attempt %d, after %d failures", c.name, b.LeaseToken, end, b.Attempt, t.failures)
	}
	if t.fresh && first <= p.stored[b.Range].lsn {
		p.breach("%s handles %s from %d, stored at %d", c.name, b.LeaseToken, first, p.stored[b.Range].lsn)
	}
	if t.fresh {
		t.last[0], t.fresh = t.last[1], false
	}
	t.last[1], p.ends[b] = end, end
	for _, ch := range b.Changes {
		t.handed = append(t.handed, entry{ch.LSN, ch.ID})
	}
}

// fails notes a failure, which counts in the lease if all before the batch is stored and
// the batch itself is not. A handler that was cut short has not failed.
func (p *progress) fails(ctx context.Context, c *client, b *changefeed.Batch) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.held[c][b.Range]
	if cause := context.Cause(ctx); t == nil || cause != nil && cause != changefeed.ErrHandlerTimeout {
		return errScript
	}
	t.failures++
	if !p.manual || t.last[0] <= t.now.lsn && t.now.lsn < t.last[1] {
		t.now = status{t.now.lsn, t.failures}
	}
	return errScript
}

// succeeds notes a batch that its handler is done with.
func (p *progress) succeeds(c *client, b *changefeed.Batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.held[c][b.Range]
	if !p.manual {
		for _, ch := range b.Changes {
			p.done[entry{ch.LSN, ch.ID}] = true
		}
	}
	if t == nil {
		return
	}
	t.fresh, t.failures = true, 0
	if p.manual {
		return
	}
	for _, ch := range b.Changes {
		t.unsaved = append(t.unsaved, finish{ch.LSN, time.Now()})
	}
	t.now = status{t.last[1], 0}
}

// asks notes that a handler says a batch is done, and all before it.
func (p *progress) asks(c *client, b *changefeed.Batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.held[c][b.Range]
	if t == nil {
		return
	}
	for _, e := range t.handed {
		if e.lsn <= p.ends[b] {
			p.done[e] = true
		}
	}
	if p.ends[b] > t.now.lsn {
		t.maybe = append(t.maybe, p.ends[b])
	}
}

// answered notes the outcome. Without an error the checkpoint is stored; nothing is of a
// batch that comes again in smaller parts.
func (p *progress) answered(c *client, b *changefeed.Batch, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t, end := p.held[c][b.Range], p.ends[b]
	switch {
	case errors.Is(err, changefeed.ErrHandlerTimeout):
		if t != nil && t.last[1] < end && end <= t.sent {
			p.breach("%s writes %s at %d, where a batch ended that comes again in parts", c.name, b.LeaseToken, t.sent)
		}
	case err != nil:
	case p.stored[b.Range].lsn < end:
		p.breach("%s: checkpoint of %s at %d without an error, stored at %d", c.name, b.LeaseToken, end, p.stored[b.Range].lsn)
	case t != nil && end > t.now.lsn:
		t.now = status{end, 0}
	}
}
