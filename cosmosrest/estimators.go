package cosmosrest

import (
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// The estimators of other processors read a page of a single change, and take the LSN of the session token, less the
// LSN of this change, for the number of the remaining changes. In the service LSNs count the commits of a partition;
// here they count the commits of the container, and the difference would be too large. So in the token of such a page
// the LSN is as many above that of the change as changes remain (docs/decisions/0012). The token is never above the LSN
// of the partition, and a client that reads with the token still sees the change.
//
// A count takes milliseconds, and a reader that always reads a single change must not pay for a count each time. So the
// counts of a partition take at most a small part of the time; between two counts the number is an upper bound.

const (
	maxWalk    = 20_000 // LSNs in which a part of a partition is counted, because such a count reads each change
	countShare = 20     // a partition is counted for one part of its time in so many
	maxCounted = 1000   // partitions whose last count is kept
)

// counts keeps the last count of each partition.
type counts struct {
	mu   sync.Mutex
	last map[string]*keptCount // by the resource ids of container and partition
}

// keptCount is the count of the changes after a position.
type keptCount struct {
	rng    feed.Range
	from   feed.Position
	newest int64     // LSN of the partition at the time of the count
	items  int64     // changes after the position
	until  time.Time // when the next count may begin
}

// lastCount returns the last count of a partition, or nil.
func (k *counts) lastCount(partition string) *keptCount {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last[partition]
}

// keepCount keeps a count as the last of its partition.
func (k *counts) keepCount(partition string, c *keptCount) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last == nil || len(k.last) >= maxCounted {
		k.last = map[string]*keptCount{}
	}
	k.last[partition] = c
}

// sessionOf returns the session token of a page.
func (f *feedRead) sessionOf(page feed.Page) (string, error) {
	if f.o.MaxItems != 1 || len(page.Changes) != 1 || f.o.Mode != feed.LatestVersion || f.o.Key != "" {
		return page.Session, nil
	}
	first := page.Changes[0].LSN
	left, err := f.countLeft(page.Head, first)
	if err != nil {
		return "", err
	}
	return service.SessionToken(f.part.ID, min(page.Head, first+max(left, 1)-1)), nil
}

// countLeft returns how many changes are after the position, of which first is the LSN of the first change; newest is
// the LSN of the partition. If the changes cannot be counted now, the result is an upper bound.
func (f *feedRead) countLeft(newest, first int64) (int64, error) {
	partition, rng := f.cont.RID()+"/"+f.part.ID, f.waitRange()
	last := f.c.s.counts.lastCount(partition)
	begun := time.Now()
	same := last != nil && last.rng == rng && last.from == f.from
	switch {
	case same && last.newest == newest:
		return last.items, nil
	case same && begun.Before(last.until):
		return last.items + newest - last.newest, nil
	case last != nil && begun.Before(last.until), rng != f.part.Range && newest-first > maxWalk:
		return newest - first + 1, nil
	}
	backlog, err := f.cont.Pending(f.c.work.Limit(), rng, f.from, f.o)
	if err != nil {
		return 0, err
	}
	f.c.s.counts.keepCount(partition, &keptCount{
		rng: rng, from: f.from, newest: newest, items: backlog.Items,
		until: begun.Add(time.Since(begun) * countShare),
	})
	return backlog.Items, nil
}
