package meter

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
)

// Budgets: the throughput of containers in request units, by buckets that fill at a steady
// rate.
//
// A request is admitted while its bucket is not empty, and pays afterwards, since its cost
// is known only then; so a bucket may be overdrawn, and later requests wait until it has
// recovered. Whoever is refused is given a time of his own to come again: clients that all
// returned at once would be refused again, and the .NET SDK gives up after nine tries.

// Budgets are the throughputs of containers, and their use. A container has the throughput
// of its offer, in equal parts for its partitions. Without an offer it shares that of its
// database with others like it; without that, it has the server's default.
type Budgets struct {
	db      *docstore.DB
	usual   int                            // request units a second of a container without an offer; 0 is no limit
	offered func(meta json.RawMessage) int // the offer in what the store keeps with a database or container; 0 is none

	of sync.Map // *docstore.Container to *budget

	mu     sync.Mutex         // of whoever makes a budget
	shared map[string]*bucket // by resource id of the database
}

// budget is that of a container, until somebody changes an offer.
type budget struct {
	tag, databaseTag string             // ETags of what it was made from
	shared           *bucket            // of the database
	ranges           map[string]*bucket // by partition id; empty is no limit
}

// NewBudgets reads the budgets of a store's containers from their offers. usual is the
// throughput of a container without an offer, 0 for no limit. The nil Budgets limit
// nothing.
func NewBudgets(db *docstore.DB, usual int, offered func(meta json.RawMessage) int) *Budgets {
	return &Budgets{db: db, usual: usual, offered: offered}
}

// Admit refuses a request when the partition has used up its budget. A request that is
// admitted may cost more than there is left: the next ones wait for that.
func (all *Budgets) Admit(ctx context.Context, cont *docstore.Container, partition string) error {
	b := all.bucket(ctx, cont, partition)
	if b == nil {
		return nil
	}
	after := b.promise(time.Now())
	if after == 0 {
		return nil
	}
	return wire.Throttled(after, "partition %s of container %q has used up its request units", partition, cont.ID())
}

// Spend charges a request that was admitted.
func (all *Budgets) Spend(cont *docstore.Container, partition string, ru float64) {
	if all == nil {
		return
	}
	if v, ok := all.of.Load(cont); ok {
		if b := v.(*budget).bucket(partition); b != nil {
			b.take(ru, time.Now())
		}
	}
}

// Containers is how many containers have a budget, those without a limit included.
func (all *Budgets) Containers() (n int) {
	all.of.Range(func(any, any) bool {
		n++
		return true
	})
	return n
}

// bucket is that of a partition, by the present offers; nil is no limit.
func (all *Budgets) bucket(ctx context.Context, cont *docstore.Container, partition string) *bucket {
	if all == nil {
		return nil
	}
	var b *budget
	if v, ok := all.of.Load(cont); ok {
		b = v.(*budget)
	}
	if tag, _ := cont.Version(); b == nil || b.tag != tag || b.databaseTag != all.db.DatabaseETag(cont.Database()) || !b.knows(partition) {
		d, _ := all.db.Database(cont.Database()) // none when the store closes: then the request will fail
		b = all.make(ctx, cont, d)
	}
	return b.bucket(partition)
}

// bucket is the database's, or that of a partition.
func (b *budget) bucket(partition string) *bucket {
	if b.shared != nil {
		return b.shared
	}
	return b.ranges[partition]
}

// knows reports whether the budget was made after the last split.
func (b *budget) knows(partition string) bool {
	return b.shared != nil || len(b.ranges) == 0 || b.ranges[partition] != nil
}

// make makes a budget by the present offers. A budget without its partitions is not stored:
// the request fails of the same error anyway, and the next one tries again.
func (all *Budgets) make(ctx context.Context, cont *docstore.Container, d docstore.Database) *budget {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.forgetDropped()
	tag, _ := cont.Version()
	b := &budget{tag: tag, databaseTag: d.ETag}
	own, common := all.offered(cont.Spec().Meta), all.offered(d.Meta)
	var err error
	switch {
	case own > 0:
		b.ranges, err = all.rangeBuckets(ctx, cont, float64(own))
	case common > 0:
		if all.shared == nil {
			all.shared = map[string]*bucket{}
		}
		all.shared[d.RID] = all.shared[d.RID].with(float64(common))
		b.shared = all.shared[d.RID]
	case all.usual > 0:
		b.ranges, err = all.rangeBuckets(ctx, cont, float64(all.usual))
	}
	if err == nil { // else this request fails of it
		all.of.Store(cont, b)
	}
	return b
}

// rangeBuckets divides a throughput among the partitions of a container. A partition that
// existed before keeps its level, so that changing an offer refills nothing.
func (all *Budgets) rangeBuckets(ctx context.Context, cont *docstore.Container, rate float64) (map[string]*bucket, error) {
	var old map[string]*bucket
	if v, ok := all.of.Load(cont); ok {
		old = v.(*budget).ranges
	}
	parts, err := cont.Partitions(ctx)
	ranges := make(map[string]*bucket, len(parts))
	for _, p := range parts {
		ranges[p.ID] = old[p.ID].with(rate / float64(len(parts)))
	}
	return ranges, err
}

// forgetDropped drops the budgets of containers and databases that were deleted.
func (all *Budgets) forgetDropped() {
	all.of.Range(func(key, _ any) bool {
		cont := key.(*docstore.Container)
		if now, err := all.db.Container(cont.Database() + "/" + cont.ID()); err != nil || now != cont {
			all.of.Delete(key)
		}
		return true
	})
	alive := map[string]bool{}
	for _, d := range all.db.Databases() {
		alive[d.RID] = true
	}
	maps.DeleteFunc(all.shared, func(rid string, _ *bucket) bool { return !alive[rid] })
}

// bucket holds the request units that may be used.
type bucket struct {
	mu    sync.Mutex
	rate  float64 // units that flow in each second
	level float64 // units; below 0 after a request that cost more than there was
	at    time.Time
	usual float64   // units that a request takes, of late
	next  time.Time // when whoever is refused next may come: others have the time before
}

// burst is for how long a bucket saves units that are not used.
const burst = time.Second

// with is the bucket with another rate; nil becomes a full one.
func (b *bucket) with(rate float64) *bucket {
	now := time.Now()
	if b == nil {
		return &bucket{rate: rate, level: rate * burst.Seconds(), at: now}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now)
	b.rate = rate
	return b
}

// fill adds the units that have come since the last time.
func (b *bucket) fill(now time.Time) {
	b.level = min(b.level+b.rate*now.Sub(b.at).Seconds(), b.rate*burst.Seconds())
	b.at = now
}

// wait is how long the bucket stays empty; 0 if it is not.
func (b *bucket) wait(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dry(now)
}

// dry is wait, in whole milliseconds because the answer's header has no finer ones, and
// rounded up so that whoever waits that long is admitted.
func (b *bucket) dry(now time.Time) time.Duration {
	if b.fill(now); b.level > 0 {
		return 0
	}
	return time.Duration(math.Floor(-b.level/b.rate*1000)+1) * time.Millisecond
}

// MaxPromise bounds the time that a refused client is given, because .NET's clients wait 30
// s in all. The usual cost of a request is a moving average, in which the latest has a
// fifth.
const (
	MaxPromise = 5 * time.Second // .NET's clients wait 30 s in all, and come nine times
	usualShare = 0.2             // of the latest request, in the usual cost
)

// promise is the time after which a request that is refused now may come again; 0 if it is
// not refused. Requests that are refused together are given times one after the other, each
// when there are units for it. Nothing is reserved for them: a request that comes in
// between may take the units, and whoever comes in vain gets another time.
func (b *bucket) promise(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	wait := b.dry(now)
	if wait == 0 {
		if b.level > b.rate*burst.Seconds()/2 { // those who were given this time have not come
			b.next = now
		}
		return 0
	}
	wait = min(max(wait, b.next.Sub(now)), MaxPromise)
	b.next = now.Add(wait + time.Duration(b.usual/b.rate*float64(time.Second)))
	return (wait + time.Millisecond - 1).Truncate(time.Millisecond)
}

// take uses units.
func (b *bucket) take(ru float64, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now)
	b.level -= ru
	if b.usual == 0 {
		b.usual = ru
	}
	b.usual += usualShare * (ru - b.usual)
}
