package sim

import (
	"slices"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/internal/service"
)

// The model of the leases: their contents after each write. It follows the reads and
// batches of every process, so it knows the positions that a lease may have, and how often
// the next batch has failed.

// model is the leases in the store, who wrote them, and the work of each process on them.
type model struct {
	begun   bool // the marker was written
	leases  map[string]kept
	parents []changefeed.Record // all that were ever about to be split
	deleted []changefeed.Record // by an operator
	tenures map[place]*tenure
	owned   map[place]time.Time // when a process last wrote itself into a lease as its owner
	pages   map[reading][]page
}

// kept is a lease as it is in the store.
type kept struct {
	changefeed.Record
	by *instance // that wrote it
}

// place is a lease in a process.
type place struct {
	by    *instance
	token string
}

// reading is a range that a process reads.
type reading struct {
	by *instance
	of changefeed.Range
}

// page is an answer to a read.
type page struct {
	from, next  string
	first, last int64 // LSNs
	n           int
}

// tenure is the work of a process on a lease since it acquired it.
type tenure struct {
	manual   bool
	every    int       // Options.CheckpointItems
	began    time.Time // when it became the owner, in the store
	turn     time.Time // when a batch was last handed over
	over     bool
	reached  map[string]bool  // tokens that the lease may be at: all before them is done
	failures map[string]int   // of the batch after a token
	done     []page           // handled with success, in order; their positions are not seen in the store yet
	passed   map[version]bool // the process goes on after them
	asked    map[version]bool // it has asked for a checkpoint after them
	root     string           // where it began
	last     string           // token after the last batch that it has passed
	idle     []page           // empty ones after that, also of what was read ahead of the batch in hand
	from     string           // token before the batch in hand
	base     string           // last as of then
}

// newModel is the model of a unit without leases.
func newModel() model {
	return model{leases: map[string]kept{}, tenures: map[place]*tenure{}, owned: map[place]time.Time{}, pages: map[reading][]page{}}
}

// lsnOf is the number of a token; no token is the beginning.
func lsnOf(token string) int64 {
	lsn, _ := service.LSN(token)
	return lsn
}

// newTenure is a tenure that begins now.
func newTenure(by *instance) *tenure {
	return &tenure{
		manual: by.opts.Manual, every: by.opts.CheckpointItems, began: time.Now(), turn: time.Now(),
		reached: map[string]bool{}, failures: map[string]int{}, passed: map[version]bool{}, asked: map[version]bool{},
	}
}

// acquired begins a tenure.
func (g *ledger) acquired(by *instance, lease changefeed.Lease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tell("%s has %s/%s at %v, attempts %d", by, lease.Token, lease.Epoch, lease.Position, lease.Attempts)
	t := newTenure(by)
	t.began = g.model.owned[place{by, lease.Token}]
	t.root, t.last = lease.Position.Token, lease.Position.Token
	t.from, t.base = t.root, t.root
	t.failures[t.root] = lease.Attempts
	g.model.tenures[place{by, lease.Token}] = t
}

// released ends a tenure.
func (g *ledger) released(by *instance, lease changefeed.Lease, why changefeed.Reason) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tell("%s released %s: %s", by, lease.Token, why)
	if t := g.model.tenures[place{by, lease.Token}]; t != nil {
		t.over = true
	}
}

// read records a page. A process that has found nothing is further by that.
func (g *ledger) read(by *instance, of changefeed.Range, from string, p changefeed.Page) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(p.Changes); n > 0 {
		const most = 4
		at := reading{by, of}
		pages := append(g.model.pages[at], page{from, p.Next.Token, p.Changes[0].LSN, p.Changes[n-1].LSN, n})
		g.model.pages[at] = pages[max(0, len(pages)-most):]
		return
	}
	t := g.model.tenures[place{by, g.model.tokenOf(by, of)}]
	if t == nil {
		return
	}
	t.idle = append(t.idle, page{from: from, next: p.Next.Token})
	t.rest()
}

// rest allows the lease the positions that were found empty, if all before them is done.
func (t *tenure) rest() {
	if t.last != t.root && !t.reached[t.last] {
		return
	}
	at := lsnOf(t.last)
	for _, p := range t.idle {
		if lsnOf(p.from) <= at { // else a batch comes before it
			t.reached[p.next], at = true, max(at, lsnOf(p.next))
		}
	}
}

// tokenOf is the token of the lease on a range that a process works on.
func (m *model) tokenOf(by *instance, of changefeed.Range) string {
	if t := m.tenures[place{by, of.String()}]; t != nil {
		return of.String()
	}
	for at, t := range m.tenures { // a lease of version 0
		if at.by == by && !t.over && m.leases[at.token].Range == of {
			return at.token
		}
	}
	return ""
}

// handed checks a batch against the model, before it is handled: the process has read it,
// its attempt is right, and the checkpoint before it is stored.
func (g *ledger) handed(c *call, by *instance, b *changefeed.Batch) {
	t := g.model.tenures[place{by, b.LeaseToken}]
	if t == nil {
		g.breach("%s got a batch of %s, which it has not acquired", by, b.LeaseToken)
		return
	}
	if g.lanes {
		c.tenure, t.turn = t, time.Now()
		g.blocked(by, b)
		return
	}
	first, last := b.Changes[0].LSN, b.Changes[len(b.Changes)-1].LSN
	for _, p := range g.model.pages[reading{by, b.Range}] {
		if p.first == first && p.last == last && p.n == len(b.Changes) {
			c.page = p
		}
	}
	if c.tenure, t.turn = t, time.Now(); t.from != c.page.from {
		t.from, t.base = c.page.from, t.last
	}
	if c.page.n == 0 {
		g.breach("%s got a batch of %s from LSN %d that it has not read", by, b.LeaseToken, first)
		return
	}
	if want := t.failures[c.page.from] + 1; b.Attempt != want {
		g.breach("attempt: %s got the batch of %s after %s as attempt %d, want %d", by, b.LeaseToken, c.page.from, b.Attempt, want)
	}
	stored := g.model.leases[b.LeaseToken]
	if stored.by != by {
		return // stolen, or deleted: it will hear of it
	}
	want := t.failures[c.page.from]
	counted := stored.Attempts == want || t.manual && stored.Attempts < want
	if stored.Position.Token == c.page.from && !counted {
		g.breach("attempts of %s at %v are %d in the store, want %d", b.LeaseToken, stored.Position, stored.Attempts, want)
	}
	if n := t.unstored(stored.Position.Token); !t.manual && n > max(0, t.every-1) {
		g.breach("checkpoint: %s got the next batch of %s with %d changes done since %v, every %d", by, b.LeaseToken, n, stored.Position, t.every)
	}
}

// unstored is how many changes are done and come after a stored position.
func (t *tenure) unstored(stored string) (n int) {
	for len(t.done) > 0 && lsnOf(t.done[0].next) <= lsnOf(stored) {
		t.done = t.done[1:]
	}
	for _, p := range t.done {
		n += p.n
	}
	return n
}

// returned records how a handler has returned.
func (t *tenure) returned(c *call, ok bool) {
	switch {
	case c.page.n == 0:
	// Failures count for the place before the batch and not for its changes: the next
	// read from there may end elsewhere.
	case !ok:
		t.failures[c.page.from]++
	default:
		t.pass(c)
		if !t.manual {
			t.done, t.reached[c.page.next] = append(t.done, c.page), true
			t.rest()
		}
	}
}

// pass records that the process goes on after a batch.
func (t *tenure) pass(c *call) {
	for _, change := range c.changes {
		t.passed[versionOf(change)] = true
	}
	if lsnOf(c.page.next) > lsnOf(t.last) {
		t.last = c.page.next
		t.idle = slices.DeleteFunc(t.idle, func(p page) bool { return lsnOf(p.from) < lsnOf(t.last) })
	}
}

// counted is how often the batch after a token has failed. If nothing but empty pages lies
// between, that is the batch in hand.
func (t *tenure) counted(token string) int {
	if at := lsnOf(token); lsnOf(t.base) <= at && at <= lsnOf(t.from) {
		return t.failures[t.from]
	}
	return t.failures[token]
}

// asks records that a handler wants a batch, and all before it, checkpointed.
func (g *ledger) asks(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := c.tenure
	t.pass(c)
	if g.lanes { // of each key what comes before it
		for v := range t.passed {
			for _, change := range c.changes {
				if (v.key == change.PartitionKey || c.by.(*instance).opts.Concurrency == 1) && v.lsn <= change.LSN {
					t.asked[v] = true
				}
			}
		}
		return
	}
	t.reached[c.page.next] = true
	t.rest()
	for v := range t.passed {
		if v.lsn <= lsnOf(c.page.next) {
			t.asked[v] = true
		}
	}
}

// saved checks that a checkpoint by hand that has succeeded is stored.
func (g *ledger) saved(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lanes {
		return // others before it may be open, and then its position does not move
	}
	for _, change := range c.changes {
		if v := versionOf(change); g.isOpen(v) {
			g.breach("checkpoint of %s by %s after LSN %d has succeeded, and was not stored", c.token, c.by, v.lsn)
		}
	}
}
