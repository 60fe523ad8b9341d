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

// Budgets are what containers may use, and have used. A container has the throughput of its offer, in equal parts for
// its partitions. One without an offer shares that of its database with others like it; without that, it has the
// server's default.
type Budgets struct {
	db      *docstore.DB
	usual   int                            // request units a second of a container without an offer; 0 is no limit
	offered func(meta json.RawMessage) int // the offer in what the store keeps with a database or container; 0 is none

	of sync.Map // *docstore.Container to *budget

	mu     sync.Mutex         // of whoever makes a budget
	shared map[string]*bucket // by resource id of the database
}

// budget is that of a container, as long as nobody changes the offers.
type budget struct {
	tag, databaseTag string             // ETags of what it was made from
	shared           *bucket            // of the database
	ranges           map[string]*bucket // by partition id; empty is no limit
}

// NewBudgets reads the budgets of a store's containers from their offers. usual is the throughput of a container without
// one, 0 for no limit. The nil Budgets limit nothing.
func NewBudgets(db *docstore.DB, usual int, offered func(meta json.RawMessage) int) *Budgets {
	return &Budgets{db: db, usual: usual, offered: offered}
}

// Admit refuses a request when the partition has used up its budget. A request that is admitted may cost more than
// there is left: the next ones wait for that.
func (all *Budgets) Admit(ctx context.Context, cont *docstore.Container, partition string) error {
	b := all.bucket(ctx, cont, partition)
	if b == nil {
		return nil
	}
	after := b.promise(time.Now())
	if after == 0 {
		return nil
	}
	return wire.Throttled(after, "Request rate is large: partition %s of container %q has used up its request units", partition, cont.ID())
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

// bucket is what a partition may use, by the offers as they are now; nil is no limit.
func (all *Budgets) bucket(ctx context.Context, cont *docstore.Container, partition string) *bucket {
	if all == nil {
		return nil
	}
	d, _ := all.db.Database(cont.Database()) // none when the store closes: then the request will fail
	var b *budget
	if v, ok := all.of.Load(cont); ok {
		b = v.(*budget)
	}
	if b == nil || b.tag != cont.ETag() || b.databaseTag != d.ETag || !b.knows(partition) {
		b = all.make(ctx, cont, d)
	}
	return b.bucket(partition)
}

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

// make makes a budget of what the offers are now.
func (all *Budgets) make(ctx context.Context, cont *docstore.Container, d docstore.Database) *budget {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.forgetDropped()
	b := &budget{tag: cont.ETag(), databaseTag: d.ETag}
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

// rangeBuckets splits a throughput over the ranges of a container. Those that were there
// before keep what they have used.
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

// forgetDropped drops the budgets of what has been deleted.
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

// bucket holds the request units that there are to use.
type bucket struct {
	mu    sync.Mutex
	rate  float64 // units that flow in each second
	level float64 // units; below 0 after a request that cost more than there was
	at    time.Time
	usual float64   // units that a request takes, of late
	next  time.Time // when whoever is refused next may come: others have the time before
}

// burst is how long a bucket saves up what is not used.
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

// fill lets flow in what has come since the last time.
func (b *bucket) fill(now time.Time) {
	b.level = min(b.level+b.rate*now.Sub(b.at).Seconds(), b.rate*burst.Seconds())
	b.at = now
}

// wait is how long it takes until there is something to use; 0 when there is.
func (b *bucket) wait(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dry(now)
}

func (b *bucket) dry(now time.Time) time.Duration {
	if b.fill(now); b.level > 0 {
		return 0
	}
	return time.Duration(math.Floor(-b.level/b.rate*1000)+1) * time.Millisecond
}

const (
	MaxPromise = 5 * time.Second // .NET's clients wait 30 s in all, and come nine times
	usualShare = 0.2             // of the latest request, in the usual one
)

// promise is when a request may come again that is refused now, so that those who are refused together come one after
// the other, each when there is something for it; 0 when it is not refused. Nothing is kept for them: a request that
// comes in between may take it, and then they get another time.
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
