// Package sim runs whole fleets in virtual time: several instances of the real processor over the real embedded store,
// with a network between them that loses, delays and repeats, with processes that stop, die, freeze and come back under
// the same name, with splits and merges of partitions, and with failing handlers. Beside this each seed draws some of
// the further faults of a world (see weather): handlers checkpointing by hand and late, writes arriving minutes after
// their callers gave up, replies later than a lease is trusted, different intervals of the instances, no right to
// delete, records deleted by an operator, stepping clocks, a lease container of several partitions, which split and
// merge, hosts of the .NET processor, operators who pause, resume, reset and restore leases and die in the middle of
// it, instances with different weights, instances asking for more leases or fewer, and ambushes: something happens to a
// process or to its partition at one point of one call.
//
// What the world does follows from one seed; what the processors make of it also depends on their own random epochs and
// on the scheduler, so a failing seed tells its story instead of being sure to fail again. Checkers outside the
// processor watch its promises:
//
//   - nothing acknowledged is lost
//   - of one partition key, nothing is handed over while something earlier is unfinished
//   - no range is handled by two owners at one instant
//   - after every write a lease is where the model has it: all before its position is done, its writer has reached the
//     position, which is no further back than before, a child's is its parent's, and the attempts are those of the next
//     batch
//   - after a pause has returned and until its resume, no handler has a batch of its range; a reset is carried out
//     once, replays everything after its position and nothing before; steered.go has the details
//   - exactly the changes named by an operator are skipped, and a replayed key comes again as a whole
//   - each batch has the right attempt number, and the checkpoint before it is stored
//   - what a program has handled and not confirmed before its end, no other checkpoint confirms
//   - no lease with changes, and no instance, is left without its turn while its process is sound
//   - Run returns within four times Options.Drain, and leaves no goroutine behind
//   - within two rounds of the last fault the leases tile the key space; then the lag goes to
//     zero, the leases are shared by the weights of the instances, and are as many as an instance asks for
package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/epk"
	"github.com/millrace/changefeed/internal/pause"
)

// Bug replaces an instance's lease store by one with a defect, to see the checkers find it.
type Bug func(feed.LeaseStore) feed.LeaseStore

// faultyTime is how long there are faults, in virtual time.
const faultyTime = 10 * time.Minute

// world is the state of a run.
type world struct {
	ctx     context.Context
	rng     *rand.Rand // of the chaos goroutine
	bug     Bug
	weather weather
	sharing *rand.Rand     // of the chaos goroutine: how the instances share the leases
	weights map[string]int // of the instances, by their names

	mode      feed.Mode
	start0    feed.Start
	push      bool // sources and lease stores can be waited for
	minLeases int
	keys      int
	cities    string // how their names end

	db      *docstore.DB
	orders  *docstore.Container
	lobby   *docstore.Container // of the leases
	unit    *docstore.Leases
	desk    *desk // of operators
	clock   steps // of the lease container
	ledger  *ledger
	history history
	box     *box
	net     *netHost // of the chaos goroutine
	trouble trouble
	steerer *steerer

	processes, tasks sync.WaitGroup
	quiet            chan struct{} // closed when the faults have ended

	mu         sync.Mutex
	alive, all []*instance
	bad        time.Time    // until when something is wrong with all of them
	lastFault  time.Time    // until when faults go on that have begun
	paused     []feed.Range // leases in them may lie still
	resumed    time.Time    // when paused was last changed

	ready     chan struct{}
	readyOnce sync.Once

	diceMu   sync.Mutex
	diceSeed *rand.Rand
}

// Run plays a seed, in a world with dead letters or one without, and returns the broken promises and, if any were, the
// trace of the run. It must be called inside a synctest bubble, because ten minutes of faults would otherwise take ten
// minutes.
func Run(ctx context.Context, seed uint64, hasLetters bool, bug Bug) (broken []string, story string, err error) {
	goroutines := inBubble()
	w, err := newWorld(ctx, seed, hasLetters, bug)
	if err != nil {
		return nil, "", err
	}
	ctx, stopWriting := context.WithCancel(ctx)
	defer stopWriting()
	var writers sync.WaitGroup
	if w.weather.foreign && w.rng.IntN(2) == 0 {
		w.startNet() // it makes the unit
	}
	for range 1 + w.rng.IntN(3) {
		w.start(w.drawName())
	}
	// Two writers are the fewest whose commits can race for the same key.
	for n := range 2 {
		dice := w.fork()
		writers.Go(func() { w.write(ctx, dice, n) })
	}
	if w.weather.attempts > 0 {
		dice := w.fork()
		w.tasks.Go(func() { w.operate(dice) })
	}
	if w.weather.steered {
		w.steerer = &steerer{world: w, dice: rand.New(rand.NewPCG(seed, 5)), ended: make(chan struct{})}
		w.tasks.Go(w.steerer.run)
	}
	// Writing ends before the world settles, because the lag can only reach zero then.
	w.chaos()
	stopWriting()
	writers.Wait()
	w.settle()
	w.stopAll()
	if w.weather.isPlain() {
		w.history.checkHistories(w.ledger)
	}
	if err := w.db.Check(); err != nil {
		w.ledger.fail("store: %v", err)
	}
	err = w.db.Close()
	_ = pause.For(w.ctx, time.Millisecond) // the store's own goroutines may be about to end
	for id, stack := range inBubble() {
		if goroutines[id] == "" {
			w.ledger.fail("a goroutine is left: %s", stack)
		}
	}
	if len(w.ledger.broken) > 0 {
		story = w.ledger.story()
	}
	return w.ledger.broken, story, err
}

// newWorld makes the stores of a seed.
func newWorld(ctx context.Context, seed uint64, hasLetters bool, bug Bug) (*world, error) {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := &world{
		ctx: ctx, rng: rng, bug: bug, weather: newWeather(seed, hasLetters), push: rng.IntN(2) == 0, keys: 3 +
			rng.IntN(20),
		box: newBox(), ready: make(chan struct{}), quiet: make(chan struct{}),
		diceSeed: rand.New(rand.NewPCG(seed, 2)), sharing: rand.New(rand.NewPCG(seed, 7)), weights: map[string]int{},
	}
	w.trouble.mended = map[feed.PartitionKey]bool{}
	w.drawUnit()
	var err error
	if w.db, err = docstore.Open("", docstore.Options{InMemory: true, CacheBytes: 1 << 20}); err != nil {
		return nil, err
	}
	spec := docstore.ContainerSpec{
		ID: "orders", Paths: []string{"/city"}, Ranges: 1 + rng.IntN(5),
		Retention: 24 * time.Hour,
	}
	if w.mode == feed.LatestVersion {
		spec.Retention = 0
	}
	hash := epk.HashV2
	if seed%3 == 0 { // as a container made without a version, with keys of any length
		spec.HashVersion, w.cities, hash = 1, strings.Repeat(" upon Thames", 8), epk.HashV1
	}
	w.ledger = newLedger(w.mode, hash)
	w.ledger.hasLetter = w.box.hasVersion
	w.ledger.strict, w.ledger.foreign = w.weather.isStrict(), w.weather.foreign
	w.ledger.note("seed %d: %+v, push %v, start %v", seed, w.weather, w.push, w.start0)
	if w.orders, err = w.db.CreateContainer(ctx, spec); err != nil {
		return nil, err
	}
	w.lobby, err = w.db.CreateContainer(ctx, docstore.ContainerSpec{
		ID: "leases", Paths: []string{"/id"}, DefaultTTL: new(docstore.NoDefaultTTL), Ranges: w.weather.rooms,
	})
	if err != nil {
		return nil, err
	}
	w.unit, err = docstore.NewLeases(ctx, w.lobby, "unit", w.orders)
	w.desk = &desk{Leases: w.unit, container: w.lobby}
	return w, err
}

// drawUnit draws the mode, the start and the number of leases of the unit.
func (w *world) drawUnit() {
	switch {
	case w.weather.foreign:
		w.start0 = feed.FromBeginning()
	case w.rng.IntN(3) == 0:
		w.mode = feed.AllVersionsAndDeletes
		if w.weather.removal == ofLeases {
			w.weather.removal = noRemoval // a lease that is made anew cannot read older changes in this mode
		}
	case w.rng.IntN(2) == 0:
		w.start0 = feed.FromBeginning()
	}
	if w.rng.IntN(3) == 0 {
		w.minLeases = w.rng.IntN(12)
	}
}

// fork is a generator of its own, so goroutines do not depend on each other's draws.
func (w *world) fork() *rand.Rand { return rand.New(rand.NewPCG(w.rng.Uint64(), w.rng.Uint64())) }

// dice is a generator for a call of a handler.
func (w *world) dice() *rand.Rand {
	w.diceMu.Lock()
	defer w.diceMu.Unlock()
	return rand.New(rand.NewPCG(w.diceSeed.Uint64(), w.diceSeed.Uint64()))
}

// drawName gives a process a name. There are few, so that some processes share one, as they do
// when a process is replaced before it has ended.
func (w *world) drawName() string { return fmt.Sprintf("host-%c", 'a'+rune(w.rng.IntN(6))) }

// markReady notes that the unit has leases. Every instance reports it, the first counts.
func (w *world) markReady(context.Context) { w.readyOnce.Do(func() { close(w.ready) }) }

// isCalm reports the end of the faults.
func (w *world) isCalm() bool {
	select {
	case <-w.quiet:
		return true
	default:
		return false
	}
}

// noteStorm notes until when a fault goes on, because nothing can be asked of the fleet before.
func (w *world) noteStorm(until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if until.After(w.lastFault) {
		w.lastFault = until
	}
}

// write commits items until ctx ends. If the unit starts from now, it waits until there are
// leases.
func (w *world) write(ctx context.Context, dice *rand.Rand, writer int) {
	if w.start0.IsNow() {
		select {
		case <-w.ready:
		case <-ctx.Done():
			return
		}
	}
	for n := 0; pause.For(ctx, time.Duration(dice.Int64N(int64(4*time.Second)))) == nil; n++ {
		w.commit(ctx, dice, w.cityName(dice.IntN(w.keys)), fmt.Sprintf("%d.%d", writer, n))
	}
}

// cityName is the nth key.
func (w *world) cityName(n int) string { return fmt.Sprintf("city-%d%s", n, w.cities) }

// commit writes one to three items of one key. Each writer has items of its own, so the order of two acknowledgements
// is the order of their LSNs.
func (w *world) commit(ctx context.Context, dice *rand.Rand, city, value string) {
	key := feed.Key(city)
	var writes []feed.Write
	for _, n := range dice.Perm(3)[:1+dice.IntN(3)] {
		id := fmt.Sprintf("%s-%d", value[:1], n)
		body, _ := json.Marshal(map[string]string{"id": id, "city": city, "value": value})
		write := feed.Write{Op: feed.WriteUpsert, ID: id, Body: body}
		if dice.IntN(8) == 0 {
			write = feed.Write{Op: feed.WriteDelete, ID: id}
		}
		writes = append(writes, write)
	}
	// A write cut off could be in the store and not in the ledger.
	results, err := w.orders.Commit(context.WithoutCancel(ctx), key, writes)
	if err != nil {
		return // a delete of a missing item refuses the batch
	}
	for i, r := range results {
		w.ledger.noteWrite(key, writes[i].ID, r.LSN, writes[i].Op == feed.WriteDelete)
	}
}
