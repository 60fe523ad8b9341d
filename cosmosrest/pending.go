package cosmosrest

import (
	"net/http"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// pending is the number of changes in a range after a position.
type pending struct {
	Items  int64      `json:"items"`
	Oldest *time.Time `json:"oldest,omitempty"` // commit time of the first change
	Ahead  bool       `json:"ahead,omitempty"`  // the position is after the end of the feed
}

// countPending answers a change feed request that asks for the number of changes instead of a page. The service has
// no such request. In the service, LSNs count the transactions of a single partition, so clients subtract them. Here
// LSNs count the transactions of the container, so a difference says nothing about a range. Unlike a page, a count
// may span several partitions.
func (f *feedRead) countPending() (err error) {
	if f.o.Mode, f.wrapped, err = f.c.in.FeedMode(); err != nil {
		return err
	}
	if f.from, err = f.c.in.FeedStart(); err != nil {
		return err
	}
	sel, err := f.c.readSelection(f.cont)
	if err != nil {
		return err
	}
	f.rng, f.o.Key = sel.Range, sel.Key
	if err := f.checkVersions(); err != nil {
		return err
	}
	f.part = f.cont.PartitionAt(f.rng.Min)
	if err := f.c.admitRequest(f.cont, f.part.ID); err != nil {
		return err
	}
	begun := time.Now()
	backlog, err := f.cont.Pending(f.c.work.Limit(), f.rng, f.from, f.o)
	took := time.Since(begun) // the count may have read many changes that do not count
	if err != nil {
		return err
	}
	f.c.chargeRequest(f.cont, f.part.ID, max(service.CountCharge(backlog.Items), float64(took.Milliseconds())))
	p := pending{Items: backlog.Items, Ahead: backlog.Ahead}
	if !backlog.Oldest.IsZero() {
		p.Oldest = &backlog.Oldest
	}
	return f.c.sendReply(http.StatusOK, wire.Encode(p))
}
