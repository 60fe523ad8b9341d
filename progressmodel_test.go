package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// What a lease may say, told from what handlers did
//
//   - a position that is stored covers only changes that are done: handled without an
//     error or, with checkpoints by hand, covered by one
//   - what a held lease is written with is what its model says at that instant: how far its
//     changes are done, and how often the change after that was tried
//   - a batch holds the changes that the model hands over next, with their attempt
//   - a batch is handed over, and a lease is read on, only when as much is stored as the options want, but for the
//     batch before; and with CheckpointItems the lease is not written before that
//   - nothing that is stored as done is handed over again
//
// How the model of one lease goes on is in progressrules_test.go.

// progress is the model of all leases.
type progress struct {
	mu      sync.Mutex
	o       changefeed.Options
	done    map[entry]bool
	held    map[*client]map[feed.Range]*tenure
	stored  map[feed.Range]status
	batches map[*feed.Batch]handed
	seen    map[string]int // how often something has happened that the script must bring about
	broken  []string
}

// handed is where a batch belongs.
type handed struct {
	t *tenure
	p *portion
}

func newProgress(o changefeed.Options) *progress {
	return &progress{
		o: o, done: map[entry]bool{}, held: map[*client]map[feed.Range]*tenure{},
		stored: map[feed.Range]status{}, batches: map[*feed.Batch]handed{}, seen: map[string]int{},
	}
}

func (p *progress) breach(format string, args ...any) {
	if len(p.broken) < 10 {
		p.broken = append(p.broken, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

func statusOf(l feed.Lease) status { return status{positionOf(l.Position.Token), l.Attempts} }

// acquired begins a tenure.
func (p *progress) acquired(c *client, l feed.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[c] == nil {
		p.held[c] = map[feed.Range]*tenure{}
	}
	p.held[c][l.Range] = begun(statusOf(l), l.Position.Token != "")
	if l.Attempts > 0 {
		p.seen["attempts inherited"]++
	}
}

func (p *progress) released(c *client, l feed.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.held[c], l.Range)
}

// sends judges a write by what its sender has done.
func (p *progress) sends(c *client, l feed.Record) (w sent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.held[c][l.Range]
	if l.Kind != feed.KindLease || t == nil {
		return sent{ignored: true}
	}
	t.judge(p.o)
	now := t.says()
	w = sent{t: t, saying: now, turn: t.turn}
	if s := statusOf(l.Lease()); s != now.status {
		before, known := t.mayHaveSaid(s)
		if !known {
			p.breach("%s writes %s at %+v, its model is at %+v", c.name, l.Token, s, now.status)
		}
		w.saying, w.turn = before, t.turn-1
	}
	if l.State == feed.StateSplitting && t.frozen == nil {
		t.frozen = &now
	}
	if len(t.sheets) > 0 && w.saying.lsn > t.sheets[0].from {
		p.seen["positions within a page"]++
	}
	w.undue = p.o.CheckpointItems > 0 && p.o.CheckpointEvery == 0 && t.isUndue() &&
		l.State == feed.StateLive && l.Owner == c.name
	t.last = w
	return w
}

// answers notes that the sender of a write knows that it is stored.
func (p *progress) answers(w sent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.ignored {
		return
	}
	w.t.known = max(w.t.known, w.turn)
	if w.saying.total > w.t.saved {
		w.t.saved, w.t.stored = w.saying.total, time.Now()
	}
	if !w.t.isDue(p.o) {
		w.t.due = min(w.t.due, w.t.known)
	}
}

// written judges why a lease was written.
func (p *progress) written(c *client, d feed.StoreDone) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for r, t := range p.held[c] {
		if r.String() == d.Lease && t.last.undue && !d.Renewal {
			p.breach("%s writes %s at %+v, which is not due", c.name, d.Lease, t.last.saying)
		}
	}
}

// stores judges a write that is carried out, by what all have done.
func (p *progress) stores(w *scripted, l feed.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.Kind != feed.KindLease {
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
}

// creates judges the lease of a part: it begins where its parent is stored.
func (p *progress) creates(w *scripted, l feed.Record) {
	if l.Kind != feed.KindLease {
		return
	}
	for _, parent := range w.leases {
		if parent.Kind == feed.KindLease && parent.State == feed.StateSplitting && parent.Range.Contains(l.Range) &&
			statusOf(parent.Lease()) != statusOf(l.Lease()) {
			p.mu.Lock()
			p.breach("%s is made at %+v, its parent is stored at %+v", l.Token, statusOf(l.Lease()),
				statusOf(parent.Lease()))
			p.mu.Unlock()
		}
	}
	p.stores(w, l)
}

// reads judges when a lease is read on, and from where.
func (p *progress) reads(c *client, r feed.Range, from int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.held[c][r]
	if t == nil {
		return
	}
	if from != t.read {
		p.breach("%s reads %v from %d, want from %d", c.name, r, from, t.read)
	}
	if n := len(t.line) + len(t.waiting); n > 0 {
		p.breach("%s reads %v from %d before %d parts of the last page are done", c.name, r, from, n)
	}
	p.mustBeStored(c, t, "reads", r.String())
}

// mustBeStored judges whether the lease was written when it was due.
func (p *progress) mustBeStored(c *client, t *tenure, does, lease string) {
	if t.judge(p.o); t.before > t.known {
		p.breach("%s has %s and %s, %+v is due and not stored", c.name, lease, does, t.says())
	}
}

// gets notes a page. An empty one moves the lease on, if all before it is done.
func (p *progress) gets(c *client, r feed.Range, page feed.Page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.held[c][r]
	if t == nil {
		return
	}
	t.moves(func() {
		switch {
		case !t.anchored:
			t.anchor(page)
		case len(page.Changes) > 0:
			t.turns(page)
		default:
			if t.inherits > 0 && positionOf(page.Next.Token) != t.read {
				p.seen["attempts reset by an empty page"]++
			}
			t.pass(positionOf(page.Next.Token))
		}
	})
	if len(page.Changes) == 0 {
		t.returns(p.o, t.isDue(p.o))
	}
}

// begins judges a hand-over.
func (p *progress) begins(c *client, b *feed.Batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.held[c][b.Range]
	if t == nil {
		p.breach("%s handles %s without having it", c.name, b.LeaseToken)
		return
	}
	var got, want []entry
	for _, ch := range b.Changes {
		got = append(got, entry{ch.LSN, ch.ID})
	}
	cuts := t.cuts
	comes, calls := t.next(p.o.MaxItems), 0
	if t.cuts > cuts {
		p.seen["batches cut again"]++
	}
	for _, ch := range comes.changes {
		want, calls = append(want, ch.entry), max(calls, ch.calls)
	}
	if !slices.Equal(got, want) {
		p.breach("%s handles %v of %s, want %v", c.name, got, b.LeaseToken, want)
		comes = &portion{} // of what follows, this says nothing more
		for _, e := range got {
			comes.changes = append(comes.changes, &told{entry: e})
		}
	}
	if b.Attempt != calls+1 {
		p.breach("%s handles %v of %s, attempt %d, after %d calls", c.name, got, b.LeaseToken, b.Attempt, calls)
	}
	if first := got[0].lsn; first <= p.stored[b.Range].lsn {
		p.breach("%s handles %s from %d, stored at %d", c.name, b.LeaseToken, first, p.stored[b.Range].lsn)
	}
	p.mustBeStored(c, t, "handles", b.LeaseToken)
	comes.begun = time.Now()
	p.batches[b] = handed{t, comes}
}

// fails notes a failure. A handler that was cut short has not failed.
func (p *progress) fails(ctx context.Context, b *feed.Batch) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, cause := p.batches[b], context.Cause(ctx)
	if h.t == nil || cause != nil && cause != feed.ErrHandlerTimeout {
		return errScript
	}
	h.t.moves(func() { h.t.fails(h.p, cause != nil) })
	switch {
	case h.p.isDone():
		p.seen["failures after a checkpoint"]++
	case h.p.over:
		p.seen["divisions"]++
	}
	h.t.returns(p.o, !h.p.isDone())
	return errScript
}

// succeeds notes a batch that its handler is done with.
func (p *progress) succeeds(b *feed.Batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.o.Manual {
		for _, ch := range b.Changes {
			p.done[entry{ch.LSN, ch.ID}] = true
		}
	}
	if h := p.batches[b]; h.t != nil {
		h.t.moves(func() { h.t.succeeds(h.p, p.o.Manual, time.Since(h.p.begun) < p.o.HandlerTimeout/2) })
		h.t.returns(p.o, false)
		if h.t.asks == h.t.turn && !p.o.Manual && h.t.says().total-h.t.saved > len(h.p.changes) {
			p.seen["rare checkpoints"]++
		}
	}
}

// asked is a checkpoint by hand on its way.
type asked struct {
	handed
	held    bool // the lease, by the process whose batch it is
	divided bool
	before  saying
	fresh   []entry
	at      time.Time
}

// asks notes that a handler says a batch is done, and all before it.
func (p *progress) asks(c *client, b *feed.Batch) asked {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := asked{handed: p.batches[b], at: time.Now()}
	if a.t == nil || p.held[c][b.Range] != a.t {
		return a
	}
	a.held, a.before, a.divided = true, a.t.says(), a.p.isDivided()
	if a.divided || a.t.frozen != nil {
		return a
	}
	a.t.moves(func() { a.fresh = a.t.confirms(a.p) })
	for _, e := range a.fresh {
		p.done[e] = true
	}
	return a
}

// answered judges the outcome. Without an error the checkpoint is stored. A batch that comes again in smaller parts is
// refused at once, and so is one of a lease that is gone or being split.
func (p *progress) answered(ctx context.Context, c *client, b *feed.Batch, a asked, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	end := b.Changes[len(b.Changes)-1].LSN
	atOnce, isLost := time.Now().Equal(a.at), errors.Is(err, feed.ErrLeaseLost)
	if err == nil && p.stored[b.Range].lsn < end {
		p.breach("%s: checkpoint of %s at %d without an error, stored at %d", c.name, b.LeaseToken, end,
			p.stored[b.Range].lsn)
	}
	switch refused := atOnce && ctx.Err() == nil && errors.Is(err, feed.ErrHandlerTimeout); {
	case !a.held:
	case isLost && atOnce:
		if a.t.frozen == nil {
			a.t.frozen = &a.before
		}
		maps.DeleteFunc(p.done, func(e entry, _ bool) bool { return slices.Contains(a.fresh, e) })
	case refused != (a.divided && ctx.Err() == nil && !isLost):
		p.breach("%s: checkpoint of %s at %d: %v; it comes again in parts: %t", c.name, b.LeaseToken, end, err,
			a.divided)
	case refused:
		p.seen["checkpoints refused"]++
	case err != nil && len(a.fresh) > 0:
		p.seen["checkpoints without an answer"]++
	}
}
