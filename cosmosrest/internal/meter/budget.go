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

// Budgets limit the throughput of containers in request units. They use buckets, which fill at a steady rate.
//
// A request is admitted if its bucket is not empty, and pays afterwards, because its cost is known only then. So a
// bucket may become negative, and later requests wait for its recovery. Each refused client gets a different time to
// retry. If all clients retried at the same time, they would be refused again, and the .NET SDK gives up after nine
// retries.

// Budgets contains the throughput of each container and its use. A container has the throughput of its offer, in
// equal parts for its partitions. A container without an offer shares its database's offer with other such
// containers. If the database has no offer either, the container has the server's default.
type Budgets struct {
	db      *docstore.DB
	usual   int                            // request units a second of a container without an offer; 0 means no limit
	offered func(meta json.RawMessage) int // returns the offer in the metadata of a database or container; 0 means none

	of sync.Map // *docstore.Container to *budget

	mu     sync.Mutex         // held while a budget is created
	shared map[string]*bucket // by resource id of the database
}

// budget is the budget of a container. A budget is valid until an offer changes.
type budget struct {
	tag, databaseTag string             // ETags of its source versions
	shared           *bucket            // of the database
	ranges           map[string]*bucket // by partition id; empty means no limit
}

// NewBudgets returns the budgets of a store's containers, which come from their offers. usual is the throughput of a
// container without an offer; 0 means no limit. Nil Budgets limit nothing.
func NewBudgets(db *docstore.DB, usual int, offered func(meta json.RawMessage) int) *Budgets {
	return &Budgets{db: db, usual: usual, offered: offered}
}

// Admit refuses a request if the partition has used up its budget. An admitted request may cost more than the
// remaining budget; later requests then wait.
func (all *Budgets) Admit(ctx context.Context, cont *docstore.Container, partition string) error {
	b := all.bucketOf(ctx, cont, partition)
	if b == nil {
		return nil
	}
	after := b.promise(time.Now())
	if after == 0 {
		return nil
	}
	return wire.Throttled(after, "partition %s of container %q has used up its request units", partition, cont.ID())
}

// Spend charges an admitted request.
func (all *Budgets) Spend(cont *docstore.Container, partition string, ru float64) {
	if all == nil {
		return
	}
	if v, ok := all.of.Load(cont); ok {
		if b := v.(*budget).bucketFor(partition); b != nil {
			b.take(ru, time.Now())
		}
	}
}

// Containers returns how many containers have a budget, including containers without a limit.
func (all *Budgets) Containers() (n int) {
	all.of.Range(func(any, any) bool {
		n++
		return true
	})
	return n
}

// bucketOf returns the bucket of a partition, according to the present offers; nil means no limit.
func (all *Budgets) bucketOf(ctx context.Context, cont *docstore.Container, partition string) *bucket {
	if all == nil {
		return nil
	}
	var b *budget
	if v, ok := all.of.Load(cont); ok {
		b = v.(*budget)
	}
	if tag, _ := cont.Version(); b == nil || b.tag != tag || b.databaseTag != all.db.DatabaseETag(cont.Database()) ||
		!b.knowsPartition(partition) {
		d, _ := all.db.Database(cont.Database()) // fails if the store is being closed; then the request fails too
		b = all.makeBudget(ctx, cont, d)
	}
	return b.bucketFor(partition)
}

// bucketFor returns the database's bucket if this is shared, otherwise the partition's.
func (b *budget) bucketFor(partition string) *bucket {
	if b.shared != nil {
		return b.shared
	}
	return b.ranges[partition]
}

// knowsPartition reports whether the budget has a bucket for the partition. After a split there may be none.
func (b *budget) knowsPartition(partition string) bool {
	return b.shared != nil || len(b.ranges) == 0 || b.ranges[partition] != nil
}

// makeBudget creates a budget according to the present offers. A budget whose partitions cannot be read is not stored:
// the request fails with the same error anyway, and the next request tries again.
func (all *Budgets) makeBudget(ctx context.Context, cont *docstore.Container, d docstore.Database) *budget {
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
		all.shared[d.RID] = all.shared[d.RID].withRate(float64(common))
		b.shared = all.shared[d.RID]
	case all.usual > 0:
		b.ranges, err = all.rangeBuckets(ctx, cont, float64(all.usual))
	}
	if err == nil { // otherwise this request fails with the same error
		all.of.Store(cont, b)
	}
	return b
}

// rangeBuckets divides a throughput among the partitions of a container. Partitions with a bucket keep its level, so
// a change of an offer does not refill the bucket.
func (all *Budgets) rangeBuckets(ctx context.Context, cont *docstore.Container, rate float64) (map[string]*bucket,
	error,
) {
	var old map[string]*bucket
	if v, ok := all.of.Load(cont); ok {
		old = v.(*budget).ranges
	}
	parts, err := cont.Partitions(ctx)
	ranges := make(map[string]*bucket, len(parts))
	for _, p := range parts {
		ranges[p.ID] = old[p.ID].withRate(rate / float64(len(parts)))
	}
	return ranges, err
}

// forgetDropped drops the budgets of deleted containers and databases.
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

// bucket contains the unused request units.
type bucket struct {
	mu    sync.Mutex
	rate  float64 // units added per second
	level float64 // units; negative after a request with a higher cost than the level
	at    time.Time
	usual float64   // moving average of the units of a request
	next  time.Time // when the next refused client may retry: earlier times are promised to others
}

// burst is how long a bucket saves unused units.
const burst = time.Second

// withRate returns the bucket with another rate. For a nil bucket, the result is a new, full bucket.
func (b *bucket) withRate(rate float64) *bucket {
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

// fill adds the units since the last time.
func (b *bucket) fill(now time.Time) {
	b.level = min(b.level+b.rate*now.Sub(b.at).Seconds(), b.rate*burst.Seconds())
	b.at = now
}

// emptyFor returns how long the bucket stays empty; 0 if the bucket has units.
func (b *bucket) emptyFor(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.retryAfter(now)
}

// retryAfter is wait without the lock. dry returns whole milliseconds, because the answer's header has no smaller unit.
// dry rounds up, so a client is admitted after this wait.
func (b *bucket) retryAfter(now time.Time) time.Duration {
	if b.fill(now); b.level > 0 {
		return 0
	}
	return time.Duration(math.Floor(-b.level/b.rate*1000)+1) * time.Millisecond
}

// MaxPromise limits the wait of a refused client, because .NET's clients wait 30 s in total. The usual cost of a
// request is a moving average, and the latest request counts for a fifth.
const (
	MaxPromise = 5 * time.Second // .NET's clients wait 30 s in total, and retry nine times
	usualShare = 0.2             // weight of the latest request in the usual cost
)

// promise returns the time after which a refused request may retry; 0 means not refused. Requests refused at the same
// time get different times, at each of which there will be units for the request. But no units are reserved: another
// request may take them meanwhile, and the client then gets another time.
func (b *bucket) promise(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	wait := b.retryAfter(now)
	if wait == 0 {
		if b.level > b.rate*burst.Seconds()/2 { // the clients with promised times have not come
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
