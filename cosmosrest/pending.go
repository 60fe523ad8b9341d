package cosmosrest

import (
	"net/http"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// pending is the number of changes in a range after a position.
type pending struct {
	Items  int64      `json:"items"`
	Oldest *time.Time `json:"oldest,omitempty"` // commit time of the first change
	Ahead  bool       `json:"ahead,omitempty"`  // the position is after the end of the feed
}

// maxWalk is the largest distance of LSNs for which sessionOf counts a part of a partition, because such a count reads
// each change.
const maxWalk = 20_000

// sessionOf returns the session token of a page. The estimators of other processors read a page of a single change, and
// take the LSN of the session token, less the LSN of this change, for the number of the remaining changes. In the
// service LSNs count the commits of a partition; here they count the commits of the container, and the difference would
// be too large. So in the token of such a page the LSN is as many above that of the change as changes remain. The token
// is never above the LSN of the partition, and a client that reads with the token still sees the change.
func (f *feedRead) sessionOf(page feed.Page) (string, error) {
	if f.o.MaxItems != 1 || len(page.Changes) != 1 || f.o.Mode != feed.LatestVersion || f.o.Key != "" {
		return page.Session, nil
	}
	first := page.Changes[0].LSN
	if f.rng != f.part.Range && page.Head-first > maxWalk {
		return page.Session, nil
	}
	backlog, err := f.cont.Pending(f.c.work.Limit(), f.waitRange(), f.from, f.o)
	if err != nil {
		return "", err
	}
	return service.SessionToken(f.part.ID, min(page.Head, first+max(backlog.Items, 1)-1)), nil
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
