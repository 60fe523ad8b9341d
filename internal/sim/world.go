// Package sim runs whole fleets in virtual time: several instances of the real
// processor over the real embedded store, with a network between them that loses,
// delays and repeats, with processes that die, freeze and come back under the same
// name, with partitions that split and merge, and with handlers that fail. What the
// world does follows from one seed; what the processors make of it also depends on
// their own random epochs and on the scheduler, so a seed that fails tells its story
// instead of being sure to fail again. Checkers outside the processor watch its promises:
//
//   - nothing that was acknowledged is lost
//   - of one partition key, nothing is handed over while something earlier is unfinished
//   - no range is handled by two owners at one instant
//   - no position moves back
//   - when the faults stop, the lag goes to zero and the leases are shared evenly
package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
)

// Bug replaces an instance's lease store by one with a defect, to see the checkers find it.
type Bug func(changefeed.LeaseStore) changefeed.LeaseStore

// How long a run takes, in virtual time.
const (
	faultyTime = 10 * time.Minute
	quietTime  = lateCreate + 3*time.Minute
)

// world is the state of one run.
type world struct {
	ctx context.Context
	rng *rand.Rand // of the chaos goroutine
	bug Bug

	mode      changefeed.Mode
	start0    changefeed.Start
	push      bool // sources and lease stores can be waited for
	minLeases int
	keys      int
	cities    string // how their names end
	calm      bool

	db     *docstore.DB
	orders *docstore.Container
	units  []changefeed.LeaseStore
	ledger *ledger

	alive, all []*instance
	processes  sync.WaitGroup

	ready     chan struct{}
	readyOnce sync.Once

	diceMu   sync.Mutex
	diceSeed *rand.Rand
}

// Run plays one seed and returns the promises that were broken, and then also what
// happened. It must be called inside a synctest bubble.
func Run(ctx context.Context, seed uint64, bug Bug) (broken []string, story string, err error) {
	w, err := newWorld(ctx, seed, bug)
	if err != nil {
		return nil, "", err
	}
	ctx, stopWriting := context.WithCancel(ctx)
	defer stopWriting()
	var writers sync.WaitGroup
	for range 1 + w.rng.IntN(3) {
		w.start(w.name())
	}
	for n := range 2 {
		dice := w.fork()
		writers.Go(func() { w.write(ctx, dice, n) })
	}
	w.chaos()
	stopWriting()
	writers.Wait()
	w.settle()
	w.finalChecks()
	w.stopAll()
	if err := w.db.Check(); err != nil {
		w.ledger.fail("store: %v", err)
	}
	if len(w.ledger.broken) > 0 {
		story = w.ledger.story()
	}
	return w.ledger.broken, story, w.db.Close()
}

func newWorld(ctx context.Context, seed uint64, bug Bug) (*world, error) {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := &world{
		ctx: ctx, rng: rng, bug: bug, push: rng.IntN(2) == 0, keys: 3 + rng.IntN(20),
		ready: make(chan struct{}), diceSeed: rand.New(rand.NewPCG(seed, 2)),
	}
	if rng.IntN(3) == 0 {
		w.mode = changefeed.AllVersionsAndDeletes
	} else if rng.IntN(2) == 0 {
		w.start0 = changefeed.FromBeginning()
	}
	if rng.IntN(3) == 0 {
		w.minLeases = rng.IntN(12)
	}
	w.ledger = newLedger(w.mode)
	var err error
	if w.db, err = docstore.Open("", docstore.Options{InMemory: true, CacheBytes: 1 << 20}); err != nil {
		return nil, err
	}
	spec := docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}, Ranges: 1 + rng.IntN(5), Retention: 24 * time.Hour}
	if w.mode == changefeed.LatestVersion {
		spec.Retention = 0
	}
	if seed%3 == 0 { // as a container made without a version, with keys of any length
		spec.HashVersion, w.cities = 1, strings.Repeat(" upon Thames", 8)
	}
	if w.orders, err = w.db.CreateContainer(ctx, spec); err != nil {
		return nil, err
	}
	leases, err := w.db.CreateContainer(ctx, docstore.ContainerSpec{ID: "leases", Paths: []string{"/id"}, DefaultTTL: new(docstore.NoDefaultTTL)})
	if err != nil {
		return nil, err
	}
	unit, err := docstore.NewLeases(ctx, leases, "unit", w.orders)
	w.units = []changefeed.LeaseStore{unit}
	return w, err
}

func (w *world) fork() *rand.Rand { return rand.New(rand.NewPCG(w.rng.Uint64(), w.rng.Uint64())) }

// dice is a generator for one call of a handler.
func (w *world) dice() *rand.Rand {
	w.diceMu.Lock()
	defer w.diceMu.Unlock()
	return rand.New(rand.NewPCG(w.diceSeed.Uint64(), w.diceSeed.Uint64()))
}

// name gives a process a name; few names, so that some run twice.
func (w *world) name() string { return fmt.Sprintf("host-%c", 'a'+rune(w.rng.IntN(6))) }

func (w *world) markReady() { w.readyOnce.Do(func() { close(w.ready) }) }

// write commits items until ctx ends. From now means from when the leases exist.
func (w *world) write(ctx context.Context, dice *rand.Rand, writer int) {
	if w.start0.IsNow() {
		select {
		case <-w.ready:
		case <-ctx.Done():
			return
		}
	}
	for n := 0; sleep(ctx, time.Duration(dice.Int64N(int64(4*time.Second)))) == nil; n++ {
		w.commit(ctx, dice, fmt.Sprintf("%d.%d", writer, n))
	}
}

// commit writes one to three items of one key; each writer has items of its own.
func (w *world) commit(ctx context.Context, dice *rand.Rand, value string) {
	city := fmt.Sprintf("city-%d%s", dice.IntN(w.keys), w.cities)
	key := changefeed.Key(city)
	var writes []changefeed.Write
	for _, n := range dice.Perm(3)[:1+dice.IntN(3)] {
		id := fmt.Sprintf("%s-%d", value[:1], n)
		body, _ := json.Marshal(map[string]string{"id": id, "city": city, "value": value})
		write := changefeed.Write{Op: changefeed.WriteUpsert, ID: id, Body: body}
		if dice.IntN(8) == 0 {
			write = changefeed.Write{Op: changefeed.WriteDelete, ID: id}
		}
		writes = append(writes, write)
	}
	results, err := w.orders.Commit(context.WithoutCancel(ctx), key, writes)
	if err != nil {
		return // a delete of what is not there refuses the batch
	}
	for i, r := range results {
		w.ledger.wrote(key, writes[i].ID, r.LSN, writes[i].Op == changefeed.WriteDelete)
	}
}

// chaos does something bad every few seconds.
func (w *world) chaos() {
	end := time.Now().Add(faultyTime)
	for time.Now().Before(end) {
		if sleep(w.ctx, time.Duration(w.rng.Int64N(int64(40*time.Second)))) != nil {
			return
		}
		w.disturb()
	}
}

func (w *world) disturb() {
	if len(w.alive) == 0 {
		w.start(w.name())
		return
	}
	n := w.rng.IntN(len(w.alive))
	i, until := w.alive[n], time.Now().Add(time.Duration(w.rng.Int64N(int64(2*time.Minute))))
	switch w.rng.IntN(9) {
	case 0, 1:
		if len(w.alive) < 6 {
			w.start(w.name())
		}
	case 2:
		w.alive = slices.Delete(w.alive, n, n+1)
		i.kill()
	case 3:
		w.ledger.note("%s is stopped", i)
		w.alive = slices.Delete(w.alive, n, n+1)
		i.stop()
	case 4:
		w.ledger.note("%s is cut off until %s", i, until.Format("15:04:05"))
		i.link.set(func(l *link) { l.cut, l.hang = until, w.rng.IntN(2) == 0 })
	case 5:
		w.ledger.note("%s is frozen until %s", i, until.Format("15:04:05"))
		i.link.set(func(l *link) { l.frozen = until })
	case 6:
		w.ledger.note("%s is throttled until %s", i, until.Format("15:04:05"))
		i.link.set(func(l *link) { l.full = until })
	case 7:
		w.split()
	case 8:
		w.merge()
	}
}

func (l *link) set(edit func(*link)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	edit(l)
}

func (w *world) split() {
	w.ledger.note("split")
	partitions, err := w.orders.Partitions(w.ctx)
	if err != nil || len(partitions) > 12 {
		return
	}
	n := w.rng.IntN(len(partitions))
	if _, err := w.orders.Split(w.ctx, partitions[n].ID); err != nil {
		w.ledger.fail("split: %v", err)
	}
	if w.rng.IntN(2) == 0 { // and undo it while the leases follow
		_ = sleep(w.ctx, time.Duration(w.rng.Int64N(int64(80*time.Second))))
		w.mergeAt(n)
	}
}

func (w *world) merge() {
	w.ledger.note("merge")
	partitions, err := w.orders.Partitions(w.ctx)
	if err != nil || len(partitions) < 2 {
		return
	}
	w.mergeAt(w.rng.IntN(len(partitions) - 1))
}

// mergeAt merges a partition with the next one.
func (w *world) mergeAt(n int) {
	partitions, err := w.orders.Partitions(w.ctx)
	if err != nil {
		w.ledger.fail("partitions: %v", err)
		return
	}
	if _, err := w.orders.Merge(w.ctx, partitions[n].ID, partitions[n+1].ID); err != nil {
		w.ledger.fail("merge: %v", err)
	}
}

// settle ends all faults and gives the fleet time to mend.
func (w *world) settle() {
	w.calm = true
	for _, i := range w.all {
		i.link.set(func(l *link) {
			l.calm, l.cut, l.full, l.frozen = true, time.Time{}, time.Time{}, time.Time{}
		})
	}
	for len(w.alive) < 2 {
		w.start(w.name())
	}
	_ = sleep(w.ctx, quietTime)
}

// finalChecks looks at what must hold when the faults have stopped.
func (w *world) finalChecks() {
	for _, missing := range w.ledger.owed() {
		w.ledger.fail("%s", missing)
	}
	lags, err := changefeed.Estimate(w.ctx, w.orders, w.units[0])
	if err != nil {
		w.ledger.fail("estimate: %v", err)
		return
	}
	owned := map[string]int{}
	at := ""
	for _, lag := range lags {
		l := lag.Lease
		owned[l.Owner+"/"+l.Epoch]++
		if lag.Pending != 0 {
			w.ledger.fail("lag: lease %s has %d pending, owner %q", l.Token, lag.Pending, l.Owner)
		}
		if l.Range.Min != at {
			w.ledger.fail("leases do not tile: %q follows %q", l.Token, at)
		}
		at = l.Range.Max
	}
	if at != "FF" {
		w.ledger.fail("leases end at %q", at)
	}
	low, high := len(lags)/len(w.alive), (len(lags)+len(w.alive)-1)/len(w.alive)
	for owner, n := range owned {
		if n < low || n > high {
			w.ledger.fail("balance: %s has %d of %d leases, %d instances", owner, n, len(lags), len(w.alive))
		}
	}
}

// stopAll ends every process gracefully and expects all leases to be free then.
func (w *world) stopAll() {
	for _, i := range w.all {
		i.stop()
	}
	w.processes.Wait()
	_ = sleep(w.ctx, time.Minute) // late requests
	records, _, err := w.units[0].List(w.ctx)
	if err != nil {
		w.ledger.fail("list: %v", err)
	}
	for _, l := range records {
		if l.Kind == changefeed.KindLease && !l.Free() {
			w.ledger.fail("stop: lease %s is still owned by %s", l.Token, l.Owner)
		}
	}
}
