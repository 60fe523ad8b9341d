package unit

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
)

// takeovers are the leases taken in a round from instances that show no life. Leases are taken in parallel.
type takeovers struct {
	mu  sync.Mutex
	all []feed.TakeOver // one for each instance
}

// add adds a lease as it was before. now is the time of the store.
func (t *takeovers) add(seen feed.Record, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.all, func(o feed.TakeOver) bool { return o.Instance == seen.Owner })
	if i < 0 {
		i = len(t.all)
		t.all = append(t.all, feed.TakeOver{Instance: seen.Owner})
	}
	t.all[i].Leases = append(t.all[i].Leases, seen.Token)
	t.all[i].Silent = max(t.all[i].Silent, now.Sub(seen.Updated))
}

// takeAll returns the leases, and forgets them.
func (t *takeovers) takeAll() []feed.TakeOver {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.all
	t.all = nil
	for _, o := range all {
		slices.Sort(o.Leases)
	}
	slices.SortFunc(all, func(a, b feed.TakeOver) int { return cmp.Compare(a.Instance, b.Instance) })
	return all
}
