package tenure

import (
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/keyspace"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
)

// meterTime is how long a meter counts before it says anything, so that a burst does not move a lease.
const meterTime = time.Minute

// A meter measures the load of a lease: the changes of a minute for the handler, and how far the last page was behind
// the feed. Until the first minute is over, the lease keeps the load that the last owner has measured.
type meter struct {
	mu     sync.Mutex
	since  time.Time
	count  int64 // since then
	behind int64 // in LSNs
	load   int64 // of the last minute; negative is unknown
}

func newMeter() *meter { return &meter{since: time.Now(), load: -1} }

// see counts a page, of which the handler wants this many changes.
func (m *meter) see(page feed.Page, wanted int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count += int64(wanted)
	m.behind = 0
	if n := len(page.Changes); n > 0 {
		m.behind = max(0, page.Head-page.Changes[n-1].LSN)
	}
}

// shareLoad gives a child its part of the parent's load, by the width of its range.
func shareLoad(child *feed.Record, parent feed.Record) {
	load := notes.Number(parent.Properties, notes.LoadProperty)
	if whole := keyspace.Width(parent.Range); load > 0 && whole > 0 {
		load = int64(float64(load) * keyspace.Width(child.Range) / whole)
		records.SetProperty(child, notes.LoadProperty, notes.PlainNumber(load))
	}
}

// writeTo writes the load into a lease.
func (m *meter) writeTo(lease *feed.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if passed := time.Since(m.since); passed >= meterTime {
		m.load = int64(float64(m.count)*float64(meterTime)/float64(passed)) + m.behind
		m.since, m.count = time.Now(), 0
	}
	if m.load >= 0 {
		records.SetProperty(lease, notes.LoadProperty, notes.PlainNumber(m.load))
	}
}
