package main

import (
	"slices"
	"sync"
	"time"

	"github.com/millrace/changefeed"
)

// ledger compares what was acknowledged with what the handlers got. It is outside of the
// system that it judges: it knows LSNs and names, and nothing of leases.
type ledger struct {
	mu       sync.Mutex
	versions map[edition]*passage
	docs     map[string]*newest
	keys     map[changefeed.PartitionKey]int64 // the newest version handled of each key
	meters   map[string]*meter                 // by instance

	dead    map[string]bool // instances that were killed: what their handlers do is not done
	orphans map[string]bool // leases that they left
	adopted time.Time       // when others had taken all of those

	inserts, overwrites, batches int
	handled, outOfOrder          int
	duplicates, planned          int
	waits                        []float64 // ms from the acknowledgement to the handler
}

// edition is one state of one document.
type edition struct {
	doc string
	lsn int64
}

// passage is how far a version has come.
type passage struct {
	acked, handled time.Time
	by             string // the instance that handled it last
	orphan         bool   // it waited for a takeover
}

// newest are the LSNs of the newest versions of a document.
type newest struct{ acked, handled int64 }

// meter counts what one instance does between two looks at it.
type meter struct {
	handled int
	waits   []float64
}

func newLedger() *ledger {
	return &ledger{
		versions: map[edition]*passage{}, docs: map[string]*newest{}, keys: map[changefeed.PartitionKey]int64{},
		meters: map[string]*meter{}, dead: map[string]bool{}, orphans: map[string]bool{},
	}
}

func (l *ledger) passage(v edition) *passage {
	p := l.versions[v]
	if p == nil {
		p = &passage{}
		l.versions[v] = p
	}
	return p
}

func (l *ledger) doc(name string) *newest {
	d := l.docs[name]
	if d == nil {
		d = &newest{}
		l.docs[name] = d
	}
	return d
}

func (l *ledger) meter(instance string) *meter {
	m := l.meters[instance]
	if m == nil {
		m = &meter{}
		l.meters[instance] = m
	}
	return m
}

// acked notes that writes are durable.
func (l *ledger) acked(key changefeed.PartitionKey, ids []string, results []changefeed.Result) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(ids) > 1 {
		l.batches++
	}
	for i, r := range results {
		if r.Created {
			l.inserts++
		} else {
			l.overwrites++
		}
		name := string(key) + ids[i]
		d := l.doc(name)
		d.acked = max(d.acked, r.LSN)
		p := l.passage(edition{name, r.LSN})
		p.acked = now
		l.time(p)
	}
}

// handledBatch notes that the handler of an instance has done a batch that came at
// arrived. It returns false when the instance is dead and so has done nothing.
func (l *ledger) handledBatch(b *changefeed.Batch, arrived time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead[b.Instance] {
		return false
	}
	for _, c := range b.Changes {
		name := string(c.PartitionKey) + c.ID
		p, d := l.passage(edition{name, c.LSN}), l.doc(name)
		first := p.handled.IsZero()
		if c.LSN < d.handled || first && c.LSN < l.keys[c.PartitionKey] {
			l.outOfOrder++
		}
		d.handled = max(d.handled, c.LSN)
		l.keys[c.PartitionKey] = max(l.keys[c.PartitionKey], c.LSN)
		l.meter(b.Instance).handled++
		if first {
			l.handled++
			p.handled, p.by = arrived, b.Instance
			p.orphan = l.orphans[b.LeaseToken] && (l.adopted.IsZero() || p.acked.Before(l.adopted))
			l.time(p)
			continue
		}
		l.duplicates++
		if !l.dead[p.by] {
			l.planned++ // who had it before could have said so, and has not
		}
		p.by = b.Instance
	}
	return true
}

// time takes the time of a version that has come all the way. Those that waited for a
// takeover are left out: how long that takes is a figure of its own.
func (l *ledger) time(p *passage) {
	if p.acked.IsZero() || p.handled.IsZero() || p.orphan {
		return
	}
	wait := float64(max(0, p.handled.Sub(p.acked)).Microseconds()) / 1000
	l.waits = append(l.waits, wait)
	m := l.meter(p.by)
	m.waits = append(m.waits, wait)
}

// kill has all that an instance does from now on ignored.
func (l *ledger) kill(instance string, leases []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead[instance] = true
	for _, token := range leases {
		l.orphans[token] = true
	}
}

// adopt tells that others have taken all leases of those who were killed.
func (l *ledger) adopt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.adopted = time.Now()
}

// open counts documents whose last acknowledged version has not been handled.
func (l *ledger) open() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.docs {
		if d.handled < d.acked {
			n++
		}
	}
	return n
}

// totals are what there is to show of the whole.
func (l *ledger) totals() (written, handled int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inserts + l.overwrites, l.handled
}

// read takes what an instance has done since the last time.
func (l *ledger) read(instance string) meter {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := *l.meter(instance)
	delete(l.meters, instance)
	slices.Sort(m.waits)
	return m
}

// findings is what demo -o json writes.
type findings struct {
	Written                int     `json:"written"`
	Handled                int     `json:"handled"` // versions, each counted once
	Lost                   int     `json:"lost"`
	OutOfOrder             int     `json:"out_of_order"`
	Duplicates             int     `json:"duplicates"`
	DuplicatesPlannedMoves int     `json:"duplicates_planned_moves"`
	TakeoverMS             *int64  `json:"takeover_ms"`      // null when the demo ended before
	RebalanceRounds        *int    `json:"rebalance_rounds"` // the same
	LatencyMS              latency `json:"latency_ms"`
}

type latency struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// judge compares everything.
func (l *ledger) judge() findings {
	lost := l.open()
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.waits)
	return findings{
		Written: l.inserts + l.overwrites, Handled: l.handled, Lost: lost, OutOfOrder: l.outOfOrder,
		Duplicates: l.duplicates, DuplicatesPlannedMoves: l.planned,
		LatencyMS: latency{quantile(l.waits, 0.5), quantile(l.waits, 0.99)},
	}
}
