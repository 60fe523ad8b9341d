package sim

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed"
)

// ledger knows what was written and what was handled, and checks the promises of the
// processor from outside it.
type ledger struct {
	mode changefeed.Mode

	mu        sync.Mutex
	items     map[changefeed.PartitionKey]map[string][]version // acknowledged writes that must be delivered
	handled   map[version]bool
	calls     map[*call]bool
	positions map[string]int64 // by lease id
	broken    []string         // promises that did not hold
	trace     []event

	written, delivered, again int
}

// version is one state of one item.
type version struct {
	key changefeed.PartitionKey
	id  string
	lsn int64
}

// call is one call of a handler that has not returned.
type call struct {
	by  *instance
	b   *changefeed.Batch
	ctx context.Context
}

func newLedger(mode changefeed.Mode) *ledger {
	return &ledger{
		mode: mode, items: map[changefeed.PartitionKey]map[string][]version{},
		handled: map[version]bool{}, calls: map[*call]bool{}, positions: map[string]int64{},
	}
}

// event is one line of a run's trace, formatted only if somebody wants to read it.
type event struct {
	at     time.Time
	format string
	args   []any
}

// note adds a line to the trace.
func (g *ledger) note(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
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

func (g *ledger) breach(format string, args ...any) {
	const most = 20
	if len(g.broken) < most {
		g.broken = append(g.broken, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

// wrote notes an acknowledged write. In latest-version mode it replaces what was owed
// for the item; a delete leaves nothing owed.
func (g *ledger) wrote(key changefeed.PartitionKey, id string, lsn int64, deleted bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.written++
	if g.items[key] == nil {
		g.items[key] = map[string][]version{}
	}
	v := version{key, id, lsn}
	switch {
	case g.mode == changefeed.AllVersionsAndDeletes:
		g.items[key][id] = append(g.items[key][id], v)
	case deleted:
		delete(g.items[key], id)
	default:
		g.items[key][id] = []version{v}
	}
}

// begin checks a hand-over: nothing earlier of the same keys is owed, and nobody else
// is at work on them.
func (g *ledger) begin(ctx context.Context, by *instance, b *changefeed.Batch) *call {
	g.mu.Lock()
	defer g.mu.Unlock()
	for other := range g.calls {
		if other.by != by && !other.by.isDead() && other.ctx.Err() == nil && other.b.Range.Overlaps(b.Range) {
			g.breach("two owners: %s has %s while %s has %s", by, b.LeaseToken, other.by, other.b.LeaseToken)
		}
	}
	inBatch := map[version]bool{}
	for _, c := range b.Changes {
		for _, versions := range g.items[c.PartitionKey] {
			for _, v := range versions {
				if v.lsn < c.LSN && !g.handled[v] && !inBatch[v] {
					g.breach("order: %s got LSN %d of %s before LSN %d (%s) was done", by, c.LSN, c.PartitionKey, v.lsn, v.id)
				}
			}
		}
		inBatch[version{c.PartitionKey, c.ID, c.LSN}] = true
	}
	g.trace = append(g.trace, event{
		time.Now(), "%s handles %s, %d changes from LSN %d, attempt %d",
		[]any{by, b.LeaseToken, len(b.Changes), b.Changes[0].LSN, b.Attempt},
	})
	made := &call{by, b, ctx}
	g.calls[made] = true
	return made
}

// end notes that a call has returned, and with success what it has handled.
func (g *ledger) end(c *call, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.calls, c)
	g.trace = append(g.trace, event{
		time.Now(), "%s is done with %s from LSN %d: %v, dead %v",
		[]any{c.by, c.b.LeaseToken, c.b.Changes[0].LSN, ok, c.by.isDead()},
	})
	if !ok || c.by.isDead() {
		return
	}
	for _, change := range c.b.Changes {
		v := version{change.PartitionKey, change.ID, change.LSN}
		g.delivered++
		if g.handled[v] {
			g.again++
		}
		g.handled[v] = true
	}
}

// owed lists what was written and never handled.
func (g *ledger) owed() (missing []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, items := range g.items {
		for _, versions := range items {
			for _, v := range versions {
				if !g.handled[v] {
					missing = append(missing, fmt.Sprintf("lost: %s %s LSN %d", v.key, v.id, v.lsn))
				}
			}
		}
	}
	slices.Sort(missing)
	return missing
}

// witness is a lease store that sees every write arrive and checks that no position
// moves back.
type witness struct {
	changefeed.LeaseStore
	*ledger
	by *instance
}

func (w witness) Create(ctx context.Context, l changefeed.Lease) (changefeed.Lease, error) {
	got, err := w.LeaseStore.Create(ctx, l)
	w.note("%s creates %s %q for %s/%s at %v: %v", w.by, l.Kind, l.Token, l.Owner, l.Epoch, l.Position, err)
	w.saw(got, err)
	return got, err
}

func (w witness) Update(ctx context.Context, l changefeed.Lease) (changefeed.Lease, error) {
	got, err := w.LeaseStore.Update(ctx, l)
	w.note("%s writes %s %q for %s/%s at %v, %v: %v", w.by, l.Kind, l.Token, l.Owner, l.Epoch, l.Position, l.State, err)
	w.saw(got, err)
	return got, err
}

func (w witness) Delete(ctx context.Context, l changefeed.Lease) error {
	err := w.LeaseStore.Delete(ctx, l)
	w.note("%s deletes %s %q: %v", w.by, l.Kind, l.Token, err)
	if err == nil {
		w.mu.Lock()
		delete(w.positions, l.ID)
		w.mu.Unlock()
	}
	return err
}

func (w witness) Follow(ctx context.Context, cursor string) ([]changefeed.Lease, string, time.Time, error) {
	return w.LeaseStore.(changefeed.Follower).Follow(ctx, cursor)
}

func (w witness) saw(l changefeed.Lease, err error) {
	if err != nil || l.Kind != changefeed.KindLease {
		return
	}
	lsn, _ := strconv.ParseInt(strings.Trim(l.Position.Token, `"`), 10, 64)
	w.mu.Lock()
	defer w.mu.Unlock()
	if lsn < w.positions[l.ID] {
		w.breach("position of %s moved back from %d to %d by %q", l.Token, w.positions[l.ID], lsn, l.Owner)
	}
	w.positions[l.ID] = lsn
}

// fail is breach for callers that do not hold the lock.
func (g *ledger) fail(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.breach(format, args...)
}
