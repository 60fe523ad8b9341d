package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// The model of the leases: their contents after each write. It follows the reads and batches of every process, so it
// knows the possible positions of a lease, and how often the next batch has failed.

// model is the leases in the store, who wrote them, and the work of each process on them.
type model struct {
	begun   bool // the marker was written
	leases  map[string]kept
	parents []feed.Record // all that were ever about to be split
	deleted []feed.Record // by an operator
	tenures map[place]*tenure
	owned   map[place]time.Time // when a process last wrote itself into a lease as its owner
	pages   map[reading][]*page
}

// kept is a lease as it is in the store.
type kept struct {
	feed.Record
	by *instance // that wrote it
}

// place is a lease in a process.
type place struct {
	by    *instance
	token string
}

// reading is a range read by a process.
type reading struct {
	by *instance
	of feed.Range
}

// tenure is the work of a process on a lease since it acquired it.
type tenure struct {
	manual bool
	every  int       // Options.CheckpointItems
	began  time.Time // when it became the owner, in the store
	turn   time.Time // when a batch was last handed over
	over   bool
	of     feed.Range
	root   string           // where it began
	aside  note             // what its lease said then of keys that are set aside
	first  int              // how often the handler has received the first change after that
	shown  map[version]int  // in how many pages it has read them
	calls  map[version]int  // that have failed, and were not cut short
	passed map[version]bool // the process goes on after them
	asked  map[version]bool // it has asked for a checkpoint after them
	gone   map[version]bool // their program has ended, so they come again unless it has asked for a checkpoint
	tokens map[string]bool  // that it has seen in its reads of the feed
	read   int64            // the LSN of the last of them
	spans  [][2]int64       // the LSNs where its last reads began and ended

	// In strict worlds:
	reached map[string]bool // tokens that the lease may be at: all before them is done
	line    []version       // of the pages that were handed over or are
	hand    *page           // of the last batch
	next    map[*page]*page // that was handed over after a page
	n       int             // how many of its changes the process goes on after
	late    bool            // a handler has failed after its time: batches are smaller
	unheard *call           // has failed in a program, which may have died before its checkpoint
	isOther bool            // the attempts in its lease were those of a change that does not come
	done    []int64         // LSNs of changes that were handled, in order; the store is not seen to be after them yet
	newest  int             // how many of them are of the last batch; 0 if that has failed
	last    string          // token after the last batch that it has passed
	idle    []emptyRead     // after that
}

// emptyRead is a read which has found nothing.
type emptyRead struct {
	next             string
	fromLSN, nextLSN int64
}

// newModel is the model of a unit without leases.
func newModel() model {
	return model{
		leases: map[string]kept{}, tenures: map[place]*tenure{}, owned: map[place]time.Time{},
		pages: map[reading][]*page{},
	}
}

// lsnOf is the number of a token; no token is the beginning.
func lsnOf(token string) int64 {
	lsn, _ := service.LSN(token)
	return lsn
}

// newTenure is a tenure beginning now.
func newTenure(by *instance) *tenure {
	return &tenure{
		manual: by.opts.Manual, every: by.opts.CheckpointItems, began: time.Now(), turn: time.Now(),
		shown: map[version]int{}, calls: map[version]int{}, passed: map[version]bool{}, asked: map[version]bool{},
		gone: map[version]bool{}, tokens: map[string]bool{}, reached: map[string]bool{}, next: map[*page]*page{},
	}
}

// noteAcquired begins a tenure.
func (g *ledger) noteAcquired(by *instance, lease feed.Lease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tell("%s has %s/%s at %v, attempts %d", by, lease.Token, lease.Epoch, lease.Position, lease.Attempts)
	t := newTenure(by)
	t.began = g.model.owned[place{by, lease.Token}]
	t.of = lease.Range
	t.root, t.last, t.first = lease.Position.Token, lease.Position.Token, lease.Attempts
	t.aside = g.noteOf(g.model.leases[lease.Token].Record)
	g.model.tenures[place{by, lease.Token}] = t
}

// noteReleased ends a tenure.
func (g *ledger) noteReleased(by *instance, lease feed.Lease, why feed.Reason) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tell("%s released %s: %s", by, lease.Token, why)
	if t := g.model.tenures[place{by, lease.Token}]; t != nil {
		t.over = true
	}
}

// isOfNeighbour reports whether a token lies within one of the last reads of a tenure, and comes from the reads of the
// same process for a neighbouring lease: before two leases are joined, a worker comes to the LSN of the other.
func (m *model) isOfNeighbour(by *instance, t *tenure, token string) bool {
	if !slices.ContainsFunc(t.spans, func(s [2]int64) bool {
		return s[0] <= lsnOf(token) && lsnOf(token) <= s[1]
	}) {
		return false
	}
	for at, other := range m.tenures {
		known := other.tokens[token] || other.root == token
		if at.by == by && known && (other.of.Max == t.of.Min || other.of.Min == t.of.Max) {
			return true
		}
	}
	return false
}

// isCutBetween reports whether a page may have been cut after an LSN and before another one, because a neighbouring
// lease is there, with which the lease of a tenure is about to be joined.
func (m *model) isCutBetween(by *instance, t *tenure, after, before int64) bool {
	for at, other := range m.tenures {
		if at.by != by || other.of.Max != t.of.Min && other.of.Min != t.of.Max {
			continue
		}
		for token := range other.tokens {
			if lsn := lsnOf(token); after <= lsn && lsn < before {
				return true
			}
		}
		if lsn := lsnOf(other.root); after <= lsn && lsn < before {
			return true
		}
	}
	return false
}

// hasReachedNearly reports whether no change read lies between a token and one before it that the lease may be at. Two
// leases that are about to be joined meet at such a token.
func (t *tenure) hasReachedNearly(token string) bool {
	at := lsnOf(token)
	if at > t.read || t.hasLeft(at) {
		return false
	}
	for reached := range t.reached {
		if from := lsnOf(reached); from <= at && !slices.ContainsFunc(t.line, func(v version) bool {
			return from < v.lsn && v.lsn <= at
		}) {
			return true
		}
	}
	return false
}

// emptyTokens are the tokens after what the process has passed and empty reads.
func (t *tenure) emptyTokens() []string {
	found, at := []string{t.last}, lsnOf(t.last)
	for _, p := range t.idle {
		if p.fromLSN <= at { // else a batch comes before it
			found, at = append(found, p.next), max(at, p.nextLSN)
		}
	}
	return found
}

// allowEmpty allows the lease the positions found empty, if all before them is done.
func (t *tenure) allowEmpty() {
	if t.last != t.root && !t.reached[t.last] {
		return
	}
	for _, token := range t.emptyTokens()[1:] {
		t.reached[token] = true
	}
}

// tokenOf is the token of the lease on a range a process works on.
func (m *model) tokenOf(by *instance, of feed.Range) string {
	if t := m.tenures[place{by, of.String()}]; t != nil && !t.over {
		return of.String()
	}
	for at, t := range m.tenures { // a lease of version 0
		if at.by == by && !t.over && t.of == of {
			return at.token
		}
	}
	return ""
}

// noteReturned records how a handler has returned.
func (t *tenure) noteReturned(c *call, ok bool) {
	cause := context.Cause(c.ctx)
	switch {
	case ok:
		t.passBatch(c)
		if c.page != nil && !t.manual {
			t.allowReached(c)
			for _, change := range c.changes {
				t.done = append(t.done, change.LSN)
			}
			t.newest = len(c.changes)
		}
	case c.redriven:
	case cause == nil || errors.Is(cause, feed.ErrHandlerTimeout): // else it was cut short
		t.late, t.newest = t.late || cause != nil, 0
		for _, change := range c.changes {
			t.calls[versionOf(change)]++
		}
	}
}

// passBatch records the progress of the process past a batch.
func (t *tenure) passBatch(c *call) {
	if c.page == nil {
		return
	}
	for _, change := range c.changes {
		t.passed[versionOf(change)] = true
	}
	if c.page == t.hand {
		t.n = max(t.n, c.end)
	}
	if after := c.page.tokenAfter(c.end); lsnOf(after) > lsnOf(t.last) {
		t.last = after
		at := lsnOf(after)
		t.idle = slices.DeleteFunc(t.idle, func(p emptyRead) bool { return p.fromLSN < at })
	}
}

// allowReached allows the lease the positions after a batch.
func (t *tenure) allowReached(c *call) {
	t.reached[c.page.tokenAfter(c.end)] = true
	t.reached[service.Token(c.page.changes[c.end-1].lsn)] = true             // in a page that is longer
	if next := t.next[c.page]; next != nil && c.end == len(c.page.changes) { // there was nothing up to that
		t.reached[next.from] = true
	}
	t.allowEmpty()
}

// callsAfter is how often the handler has received the first change after a token.
func (t *tenure) callsAfter(token string) int {
	for _, v := range t.line {
		if v.lsn > lsnOf(token) {
			return t.calls[v]
		}
	}
	if len(t.line) == 0 {
		return t.first
	}
	return 0
}

// isHandled reports whether the first change after a token is handled, and waits to be confirmed by hand.
func (t *tenure) isHandled(token string) bool {
	i := slices.IndexFunc(t.line, func(v version) bool { return v.lsn > lsnOf(token) })
	return t.manual && i >= 0 && t.passed[t.line[i]]
}

// noteAsked records a handler's wish to have a batch, and all before it, checkpointed.
func (g *ledger) noteAsked(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := c.tenure
	if !g.strict { // of each key what comes before it
		for _, change := range c.changes {
			t.passed[versionOf(change)] = true
		}
		for v := range t.passed {
			for _, change := range c.changes {
				takesIn := v.key == change.PartitionKey || c.by.(*instance).opts.Concurrency == 1
				if takesIn && v.lsn <= change.LSN && !t.gone[v] {
					t.asked[v] = true
				}
			}
		}
		return
	}
	if t.passBatch(c); c.page == nil {
		return
	}
	t.allowReached(c)
	for v := range t.passed {
		if v.lsn <= c.page.changes[c.end-1].lsn && !t.gone[v] {
			t.asked[v] = true
		}
	}
}

// checkSaved checks that a successful checkpoint by hand is stored. A reset may have come since its call began.
func (g *ledger) checkSaved(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, change := range c.changes {
		if v := versionOf(change); g.isOpen(v) && !g.isReopenedSince(v, c.begun) {
			g.breach("checkpoint of %s by %s after LSN %d has succeeded, and was not stored", c.token, c.by, v.lsn)
		}
	}
}
