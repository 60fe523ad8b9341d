package sim

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// The end of a run: the faults stop, the fleet recovers, and then everything must be in
// order.

// settle ends all faults, waits until the fleet must have recovered, and checks the promises which hold then.
func (w *world) settle() {
	close(w.quiet)
	if w.net != nil {
		w.startNet() // ends it
	}
	w.mu.Lock()
	for _, i := range w.all {
		i.link.changeState(func(l *link) { l.cut, l.full = time.Time{}, time.Time{} })
	}
	w.mu.Unlock()
	// With one instance there would be no balance to check.
	for len(w.living()) < 2 {
		w.start(w.drawName())
	}
	// Begun faults go on until their time: a frozen process, or a write on its way.
	w.noteStorm(time.Now())
	for {
		w.mu.Lock()
		left := time.Until(w.lastFault)
		w.mu.Unlock()
		if left <= 0 {
			break
		}
		_ = pause.For(w.ctx, left)
	}
	if w.steerer != nil {
		<-w.steerer.ended
		w.steerer.resumeAll()
		w.steerer.steerCalmly()
	}
	round, mending := w.longestWaits()
	_ = pause.For(w.ctx, mending+2*round)
	if !w.ledger.muddled.Load() {
		w.checkAtRest(w.checkTiling)
	}
	w.touchAll()
	_ = pause.For(w.ctx, 4*round+w.longestBeat()) // rarer checkpoints are stored with the next renewal
	if w.box.redriveAll(w); w.weather.attempts > 0 {
		w.releaseHeld()
	}
	for _, missing := range w.ledger.listOwed() {
		w.ledger.fail("%s", missing)
	}
	if !w.ledger.muddled.Load() {
		w.checkAtRest(w.finalChecks)
	}
	if w.steerer != nil {
		w.checkSteered()
	}
}

// complain reports a broken promise.
type complain func(format string, args ...any)

// checkAtRest makes a check. If leases may be joined now, the check is made again for some rounds until it holds,
// because two leases about to be joined look like a hole, and their owner has one more than its share before.
func (w *world) checkAtRest(check func(complain)) {
	const tries = 300
	for n := 0; !w.weather.foreign && n < tries; n++ {
		holds := true
		if check(func(string, ...any) { holds = false }); holds {
			return
		}
		_ = pause.For(w.ctx, time.Second)
	}
	check(w.ledger.fail)
}

// longestWaits is how long a round can take, and how long until all instances know what is to be
// repaired: the leases of a dead process are free after their expiration, and followers do
// not hear of deletes before the next listing.
func (w *world) longestWaits() (round, mending time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range w.all {
		mending = max(mending, i.opts.Expiration)
	}
	for _, i := range w.alive {
		round = max(round, i.opts.Acquire*11/10)
	}
	const grain, pause = time.Second, 30 * time.Second // a failed request is tried again after at most so long
	mending += grain + pause
	if w.push && (w.weather.late || w.weather.removal != noRemoval) {
		mending += listRounds * round
	}
	return round, mending
}

// longestBeat is how long a held lease can stay unwritten.
func (w *world) longestBeat() (longest time.Duration) {
	for _, i := range w.living() {
		longest = max(longest, i.opts.Renew*3/2)
	}
	return longest
}

// listRounds is after how many rounds an instance following the leases lists them.
const listRounds = 10

// checkTiling checks that the leases tile the key space. A splitting lease may stand beside its children.
func (w *world) checkTiling(fail complain) {
	records, _, err := w.unit.List(w.ctx)
	if err != nil {
		fail("list: %v", err)
	}
	at := ""
	for at < feed.FullRange().Max {
		next := ""
		for _, record := range records {
			if record.Kind == feed.KindLease && record.State == feed.StateLive && record.Range.Holds(at) {
				if next != "" {
					fail("tiling: two leases hold %q", at)
				}
				next = max(next, record.Range.Max)
			}
		}
		if next == "" {
			fail("tiling: no lease holds %q", at)
			return
		}
		at = next
	}
}

// touchAll writes to each key, so that every lease has something to do after the faults: a lease nobody works on would
// otherwise look as good as an idle one.
func (w *world) touchAll() {
	dice := w.fork()
	for n := range w.keys {
		w.commit(w.ctx, dice, w.cityName(n), fmt.Sprintf("2.%d", n))
	}
}

// finalChecks checks lag and balance.
func (w *world) finalChecks(fail complain) {
	lags, err := changefeed.Estimate(w.ctx, w.orders, w.unit)
	if err != nil {
		fail("estimate: %v", err)
		return
	}
	owned := map[string]int{}
	at, isForeign := "", false
	for _, lag := range lags {
		lease := lag.Lease
		isForeign = isForeign || !strings.Contains(lease.Token, "-") // the id of a partition
		owned[lease.Owner+"/"+lease.Epoch]++
		if lag.Pending != 0 {
			fail("lag: lease %s has %d pending, owner %q", lease.Token, lag.Pending, lease.Owner)
		}
		if lease.Range.Min != at {
			fail("leases do not tile: %q follows %q", lease.Token, at)
		}
		at = lease.Range.Max
	}
	if at != "FF" {
		fail("leases end at %q", at)
	}
	w.checkShares(fail, owned, len(lags), isForeign)
}

// checkShares checks how many leases there are, unless .NET has made some, and that each owner has its share of them,
// rounded down or up.
func (w *world) checkShares(fail complain, owned map[string]int, leases int, isForeign bool) {
	total := 0
	for _, i := range w.living() {
		total += max(1, i.opts.Weight)
		if leases < i.opts.MinLeases && !isForeign { // leases that .NET has made are not cut
			fail("balance: %d leases, and %s asks for %d", leases, i, i.opts.MinLeases)
		}
	}
	if w.weather.loads { // the number of leases says nothing
		return
	}
	for owner, n := range owned {
		name, _, _ := strings.Cut(owner, "/")
		share := leases * max(1, w.weights[name])
		if n < share/total || n > (share+total-1)/total {
			fail("balance: %s has %d of %d leases, want %d/%d", owner, n, leases, share, total)
		}
	}
}

// stopAll ends every process gracefully and expects all leases to be free then, because the range of a lease left to
// expire would wait for the expiration.
func (w *world) stopAll() {
	for _, i := range w.living() {
		i.stopInOrder()
	}
	w.processes.Wait()
	w.tasks.Wait()
	_ = pause.For(w.ctx, deafTime) // handlers that were left behind
	records, _, err := w.unit.List(w.ctx)
	if err != nil {
		w.ledger.fail("list: %v", err)
	}
	for _, record := range records {
		if record.Kind == feed.KindLease && !record.Free() && !w.ledger.muddled.Load() {
			w.ledger.fail("stop: lease %s is still owned by %s", record.Token, record.Owner)
		}
	}
}

// inBubble are the stacks of the goroutines in the caller's bubble, by their names.
func inBubble() map[string]string {
	stacks := map[string]string{}
	buf := make([]byte, 1<<20)
	n := runtime.Stack(buf, true)
	for ; n == len(buf); n = runtime.Stack(buf, true) { // cut off: thousands of worlds wait for their turn
		buf = make([]byte, 2*len(buf))
	}
	all := strings.Split(string(buf[:n]), "\n\n")
	_, mine, _ := strings.Cut(head(all[0]), "synctest bubble")
	for _, stack := range all {
		if name, bubble, found := strings.Cut(head(stack), "synctest bubble"); found && bubble == mine {
			name, _, _ = strings.Cut(name, "[")
			stacks[name] = stack
		}
	}
	return stacks
}

// head is the first line of a stack.
func head(stack string) string {
	line, _, _ := strings.Cut(stack, "\n")
	return line
}
