package fleet

import (
	"slices"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
)

// A Ledger compares the writes acknowledged with the changes received by handlers. It stands outside of the judged
// system: it knows LSNs and names, and nothing of leases.
type Ledger struct {
	mu       sync.Mutex
	versions map[edition]*passage
	docs     map[string]*newest
	keys     map[feed.PartitionKey]int64 // the newest version handled of each key
	meters   map[string]*Meter           // by instance

	dead    map[string]bool // instances that were killed: the work of their handlers does not count
	orphans map[string]bool // leases that they left
	adopted time.Time       // when others had taken all of those

	found Judgement // so far, without what is lost and the latencies
	waits []float64 // ms from the acknowledgement to the handler
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

// A Meter counts what one instance has done since it was last taken.
type Meter struct {
	Handled int
	Waits   []float64 // ms, sorted, from the acknowledgements to its handler
}

// NewLedger makes an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{
		versions: map[edition]*passage{}, docs: map[string]*newest{}, keys: map[feed.PartitionKey]int64{},
		meters: map[string]*Meter{}, dead: map[string]bool{}, orphans: map[string]bool{},
	}
}

// passage finds the way of a version, and begins it where there is none: a handler may have a change before its writer
// knows of the write's success.
func (l *Ledger) passage(v edition) *passage {
	p := l.versions[v]
	if p == nil {
		p = &passage{}
		l.versions[v] = p
	}
	return p
}

func (l *Ledger) doc(name string) *newest {
	d := l.docs[name]
	if d == nil {
		d = &newest{}
		l.docs[name] = d
	}
	return d
}

func (l *Ledger) meter(instance string) *Meter {
	m := l.meters[instance]
	if m == nil {
		m = &Meter{}
		l.meters[instance] = m
	}
	return m
}

// Wrote notes acknowledged writes of one partition key: the results of one commit, and the ids written.
func (l *Ledger) Wrote(key feed.PartitionKey, ids []string, results []feed.Result) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(ids) > 1 {
		l.found.Transactions++
	}
	for i, r := range results {
		if r.Created {
			l.found.Inserts++
		} else {
			l.found.Overwrites++
		}
		name := string(key) + ids[i]
		d := l.doc(name)
		d.acked = max(d.acked, r.LSN)
		p := l.passage(edition{name, r.LSN})
		p.acked = now
		l.time(p)
	}
}

// Handled notes that the handler of an instance has done a batch that came at arrived. It returns false when the
// instance was killed: then nobody knows of it, and the batch must count as failed.
func (l *Ledger) Handled(b *feed.Batch, arrived time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead[b.Instance] {
		return false
	}
	for _, c := range b.Changes {
		name := string(c.PartitionKey) + c.ID
		p, d := l.passage(edition{name, c.LSN}), l.doc(name)
		first := p.handled.IsZero()
		// A document coming again after others of its key has been counted as a duplicate, and is no breach of their
		// order.
		if c.LSN < d.handled || first && c.LSN < l.keys[c.PartitionKey] {
			l.found.OutOfOrder++
		}
		d.handled = max(d.handled, c.LSN)
		l.keys[c.PartitionKey] = max(l.keys[c.PartitionKey], c.LSN)
		l.meter(b.Instance).Handled++
		if first {
			l.found.Handled++
			p.handled, p.by = arrived, b.Instance
			// By the lease and the time of the write: what was written after the
			// takeover did not wait for it.
			p.orphan = l.orphans[b.LeaseToken] && (l.adopted.IsZero() || p.acked.Before(l.adopted))
			l.time(p)
			continue
		}
		l.found.Duplicates++
		if !l.dead[p.by] {
			l.found.Planned++ // whoever had it before could have stored its position
		}
		p.by = b.Instance
	}
	return true
}

// time takes the time of a version which has come all the way. Those which waited for a takeover are left out: its time
// is a figure of its own.
func (l *Ledger) time(p *passage) {
	if p.acked.IsZero() || p.handled.IsZero() || p.orphan {
		return
	}
	wait := float64(max(0, p.handled.Sub(p.acked)).Microseconds()) / 1000
	l.waits = append(l.waits, wait)
	m := l.meter(p.by)
	m.Waits = append(m.Waits, wait)
}

// Kill notes a killed instance, and which leases it held: from now on its handlers do nothing.
func (l *Ledger) Kill(instance string, leases []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead[instance] = true
	for _, token := range leases {
		l.orphans[token] = true
	}
}

// Adopt notes that others have taken the leases of all killed instances.
func (l *Ledger) Adopt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.adopted = time.Now()
}

// Open counts the documents whose last acknowledged version has not been handled.
func (l *Ledger) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open()
}

func (l *Ledger) open() (n int) {
	for _, d := range l.docs {
		if d.handled < d.acked {
			n++
		}
	}
	return n
}

// Totals counts the versions written and handled so far.
func (l *Ledger) Totals() (written, handled int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.found.Written(), l.found.Handled
}

// Take takes the meter of an instance.
func (l *Ledger) Take(instance string) Meter {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := *l.meter(instance)
	delete(l.meters, instance)
	slices.Sort(m.Waits)
	return m
}

// A Judgement is the findings of a [Ledger].
type Judgement struct {
	Inserts, Overwrites, Transactions int

	Handled    int     // versions, each counted once
	Lost       int     // documents whose last version was not handled
	OutOfOrder int     // versions handled after a newer one of their key
	Duplicates int     // handled again
	Planned    int     // those duplicates whose first handler was not killed
	P50, P99   float64 // ms from the acknowledgement to the handler
}

// Written is the number of written versions.
func (j Judgement) Written() int { return j.Inserts + j.Overwrites }

// Judge returns the findings so far.
func (l *Ledger) Judge() Judgement {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.waits)
	found := l.found
	found.Lost, found.P50, found.P99 = l.open(), Quantile(l.waits, 0.5), Quantile(l.waits, 0.99)
	return found
}

// Quantile is the value below which a part of sorted values lies; 0 when there are none.
func Quantile(sorted []float64, part float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(part*float64(len(sorted))))]
}
