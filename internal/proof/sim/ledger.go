package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/epk"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
)

// The ledger: everything written and handled. It stands outside of the processor and knows its promises only, so a
// defect of the processor cannot hide in it.

// ledger checks the promises of the processor.
type ledger struct {
	mode    feed.Mode
	hash    epk.Kind
	muddled atomic.Bool // a .NET host may have made leases beside ours

	mu      sync.Mutex
	items   map[feed.PartitionKey]map[string][]version // acknowledged writes that must be delivered
	open    map[version]entry                          // those that were not handled yet
	handled map[version]bool
	calls   map[*call]bool
	model   model
	broken  []string // promises that did not hold

	strict  bool // see weather.isStrict
	foreign bool // .NET hosts are in the unit

	// In worlds that are not strict:
	begun  map[version]int             // calls that handlers were given
	tried  map[transaction]int         // the most of them that a change of a transaction had
	noted  map[version]int             // calls that a lease has counted before they were begun
	failed map[version]bool            // a handler has failed on a batch with it
	holds  map[feed.PartitionKey]int64 // the least LSN of its letters so far
	freed  map[feed.PartitionKey]bool  // an operator has asked for it to go on

	steering  steering
	hasLetter func(version) bool
	trace     []event

	written, delivered, again int
}

// version is a state of an item.
type version struct {
	key feed.PartitionKey
	id  string
	lsn int64
}

// transaction is what was committed together.
type transaction struct {
	key feed.PartitionKey
	lsn int64
}

// entry is a version still to be handled.
type entry struct {
	epk string
	at  time.Time
}

// actor is a process: ours, or a .NET host.
type actor interface {
	fmt.Stringer
	isDead() bool
	isForeign() bool
}

// call is a running call of a handler.
type call struct {
	by      actor
	begun   time.Time
	token   string
	of      feed.Range
	changes []feed.Change
	ctx     context.Context
	tenure  *tenure // of ours

	redriven bool
	page     *page // in strict worlds
	end      int   // how many changes of the page are before its last one, and that one
}

func newLedger(mode feed.Mode, hash epk.Kind) *ledger {
	return &ledger{
		mode: mode, hash: hash, strict: true, items: map[feed.PartitionKey]map[string][]version{},
		begun: map[version]int{}, noted: map[version]int{}, tried: map[transaction]int{}, failed: map[version]bool{},
		holds: map[feed.PartitionKey]int64{}, freed: map[feed.PartitionKey]bool{},
		open: map[version]entry{}, handled: map[version]bool{}, calls: map[*call]bool{}, model: newModel(),
		steering: newSteering(),
	}
}

// event is a line of a run's trace, formatted only if somebody wants to read it.
type event struct {
	at     time.Time
	format string
	args   []any
}

// note adds a line to the trace.
func (g *ledger) note(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tell(format, args...)
}

// tell is note for callers with the lock.
func (g *ledger) tell(format string, args ...any) {
	g.trace = append(g.trace, event{time.Now(), format, args})
}

// story is the trace as text.
func (g *ledger) story() string {
	var b strings.Builder
	for _, e := range g.trace {
		fmt.Fprintf(&b, "%s %s\n", e.at.Format("15:04:05.000"), fmt.Sprintf(e.format, e.args...))
	}
	return b.String()
}

// breach records a broken promise. The first 20 are enough to read.
func (g *ledger) breach(format string, args ...any) {
	const most = 20
	g.tell("BROKEN: "+format, args...)
	if len(g.broken) < most {
		g.broken = append(g.broken, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

// fail is breach for callers without the lock.
func (g *ledger) fail(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.breach(format, args...)
}

// noteWrite records an acknowledged write. In latest-version mode it replaces the older
// versions of the item, which need not be delivered any more; after a delete none need.
func (g *ledger) noteWrite(key feed.PartitionKey, id string, lsn int64, deleted bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.written++
	if g.items[key] == nil {
		g.items[key] = map[string][]version{}
	}
	v := version{key, id, lsn}
	g.steering.times[v] = time.Now()
	if g.mode == feed.LatestVersion {
		for _, old := range g.items[key][id] {
			delete(g.open, old)
		}
		delete(g.items[key], id)
		if deleted {
			return
		}
	}
	g.items[key][id] = append(g.items[key][id], v)
	if !g.handled[v] && g.steering.skipped[v].IsZero() {
		g.open[v] = entry{g.placeOf(key), time.Now()}
	}
}

// isReplaced reports whether a feed of latest versions has a version no more.
func (g *ledger) isReplaced(v version) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mode == feed.LatestVersion && !slices.Contains(g.items[v.key][v.id], v)
}

// placeOf is the effective partition key of a key.
func (g *ledger) placeOf(key feed.PartitionKey) string {
	parts, err := pkey.Parse(string(key))
	if err != nil {
		g.breach("key %s: %v", key, err)
	}
	place, err := epk.Hash(g.hash, parts.Components())
	if err != nil {
		g.breach("hash of %s: %v", key, err)
	}
	return place
}

// handOver checks a batch before it is handled: the model expects it, nothing earlier of
// the same keys is owed, and nobody else is at work on them.
func (g *ledger) handOver(ctx context.Context, by *instance, b *feed.Batch) *call {
	made := &call{
		by: by, begun: time.Now(), token: b.LeaseToken, of: b.Range, changes: b.Changes, ctx: ctx,
		tenure: newTenure(by), redriven: b.Redriven,
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tell("%s handles %s, %d changes from LSN %d, attempt %d", by, b.LeaseToken, len(b.Changes), b.Changes[0].LSN,
		b.Attempt)
	g.checkPaused(made)
	g.checkSkipped(made)
	g.checkHanded(made, by, b)
	g.checkHandover(made)
	return made
}

// handOverTo checks a batch of a .NET host.
func (g *ledger) handOverTo(ctx context.Context, by *netHost, token string, of feed.Range,
	changes []feed.Change,
) *call {
	made := &call{
		by: by, begun: time.Now(), token: token, of: of, changes: changes, ctx: ctx,
		tenure: &tenure{passed: map[version]bool{}},
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tell("%s handles %s, %d changes from LSN %d", by, token, len(changes), changes[0].LSN)
	g.checkHandover(made)
	return made
}

// checkHandover checks that no other process is at work on the same keys, and that no earlier change
// of a key is still open.
func (g *ledger) checkHandover(made *call) {
	by := made.by
	for other := range g.calls {
		if other.by != by && !other.by.isDead() && other.ctx.Err() == nil && other.of.Overlaps(made.of) &&
			!g.mayMeet(made, other) {
			g.breach("two owners: %s has %s while %s has %s", by, made.token, other.by, other.token)
		}
	}
	inBatch := map[version]bool{}
	for _, c := range made.changes {
		for v := range g.open {
			// A letter handled again does not wait for changes asked for again by a reset.
			isReplayed := made.redriven && !g.steering.reopened[v].IsZero()
			if v.key == c.PartitionKey && v.lsn < c.LSN && !inBatch[v] && !made.tenure.passed[v] && !isReplayed &&
				!(by.isForeign() && g.isAside(made.token, v)) {
				g.breach("order: %s got LSN %d of %s before LSN %d (%s) was done", by, c.LSN, c.PartitionKey, v.lsn,
					v.id)
			}
		}
		inBatch[versionOf(c)] = true
	}
	g.calls[made] = true
}

// isAside reports whether a change comes again because the lease says that its key is set aside: a .NET host does not
// know this. It goes on for a while after an operator has deleted the lease, as the lease was.
func (g *ledger) isAside(token string, v version) bool {
	keeps := func(record feed.Record) bool {
		note := g.noteOf(record)
		return record.Token == token && note.keepsAside(v)
	}
	return keeps(g.model.leases[token].Record) || slices.ContainsFunc(g.model.deleted, keeps)
}

// mayMeet reports whether a process may begin on a range while another is at work there: a .NET host begins at once on
// a stolen lease, and the former owner hears of the theft later.
func (g *ledger) mayMeet(comer, holder *call) bool {
	steals := comer.by.isForeign() && !holder.by.isForeign()
	isRobbed := !comer.by.isForeign() && holder.by.isForeign() && comer.tenure.began.Before(holder.begun)
	return steals || isRobbed || g.muddled.Load()
}

func versionOf(c feed.Change) version { return version{c.PartitionKey, c.ID, c.LSN} }

// endCall records the return of a call and, with success, its changes as handled.
func (g *ledger) endCall(c *call, ok bool, done []feed.Change) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.calls, c)
	g.tell("%s is done with %s from LSN %d: %v, dead %v", c.by, c.token, c.changes[0].LSN, ok, c.by.isDead())
	// A handler of a killed process may return, as its goroutine goes on. Nobody has
	// seen that, so its changes must come again.
	if c.by.isDead() {
		return
	}
	c.tenure.noteReturned(c, ok)
	if !ok {
		for _, change := range c.changes {
			g.failed[versionOf(change)] = true
		}
	}
	for _, change := range done {
		v := versionOf(change)
		if c.redriven { // after an outage a letter comes again though nobody has asked
			g.freed[v.key] = true
		}
		if !g.strict {
			c.tenure.passed[v] = true
		}
		// done beside failed others: it comes again only if its key is set aside, and is not remembered then
		if !ok {
			delete(c.tenure.calls, v)
		}
		g.delivered++
		if g.handled[v] {
			g.again++
		}
		if !c.tenure.manual && !g.isReopenedSince(v, c.begun) {
			g.markDone(v)
		}
	}
}

// isHandled reports whether a version was handled before, and no reset has asked for it again.
func (g *ledger) isHandled(v version) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.handled[v] && !g.isOpen(v)
}

func (g *ledger) isOpen(v version) bool { _, open := g.open[v]; return open }

// markDone notes a handled version.
func (g *ledger) markDone(v version) {
	g.handled[v] = true
	delete(g.open, v)
}

// listOwed lists the changes written and never handled.
func (g *ledger) listOwed() (missing []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for v := range g.open {
		missing = append(missing, fmt.Sprintf("lost: %s %s LSN %d", v.key, v.id, v.lsn))
	}
	slices.Sort(missing)
	return missing
}
