package sim

import (
	"math/rand/v2"
	"time"

	"github.com/millrace/changefeed"
)

// weather is how the world of a seed differs from others. Each has only some of these
// faults, so that runs stay short and the cause of a broken promise can be found.
type weather struct {
	manual   bool // handlers checkpoint by hand: late, from other goroutines, the older after the newer
	late     bool // writes arrive minutes after their callers have given up
	slow     bool // replies come later than a lease is trusted
	uneven   bool // each instance has intervals of its own
	keepers  bool // nobody has the right to delete records
	steps    bool // clocks step, those of the hosts and the store's
	rooms    int  // partitions that the lease container begins with; it splits and merges if there are several
	foreign  bool // .NET hosts are in the unit
	steered  bool // an operator pauses, resumes and resets leases
	finer    bool // instances differ in how many leases they ask for
	joins    bool // leases are joined within the time of the faults, because their expiration is short
	weights  bool // instances differ in their shares
	loads    bool // leases are shared by their loads
	programs bool // the handlers of half of the processes are behind the contract of a long-lived program
	removal  removal
	ambushes []ambush

	at     int // Options.Concurrency
	buffer int // Options.BufferItems; 0 is the default

	// In worlds with dead letters:
	attempts int           // Options.MaxAttempts; 0 in the other worlds
	hold     bool          // Options.HoldKeys
	age      time.Duration // Options.MaxAge
	outages  bool          // all handlers fail for a while
	boxes    bool          // the letter box fails for a while
}

// removal is which documents of the unit an operator deletes.
type removal int

const (
	noRemoval removal = iota
	ofLeases
	ofOthers // markers, locks, presences
)

// newWeather draws the weather of a seed, from a generator of its own: a further fault here
// changes no draw elsewhere. A processor whose handler checkpoints by hand takes no dead letters.
func newWeather(seed uint64, hasLetters bool) weather {
	rng := rand.New(rand.NewPCG(seed, 3))
	one := func(in int) bool { return rng.IntN(in) == 0 }
	y := weather{
		manual: one(2) && !hasLetters, late: one(2), slow: one(4), uneven: one(3), keepers: one(10), steps: one(5),
		rooms: 1, foreign: one(6),
	}
	if one(3) {
		y.rooms += 1 + rng.IntN(3)
	}
	switch rng.IntN(6) {
	case 0:
		y.removal = ofLeases
	case 1:
		y.removal = ofOthers
	}
	if y.foreign { // .NET hosts know nothing of retired leases, nor of two for a range
		y.late, y.keepers = false, false
	}
	for range rng.IntN(6) {
		y.ambushes = append(y.ambushes, newAmbush(rng))
	}
	y.at = 1 + rng.IntN(2)*rng.IntN(8)
	if one(2) {
		y.buffer = 1 + rng.IntN(30)
	}
	if hasLetters {
		y.attempts, y.hold, y.outages, y.boxes = 2+rng.IntN(4), one(2), one(2), one(2)
		if one(3) {
			y.age = time.Duration(1+rng.IntN(90)) * time.Second
		}
		y.hold = y.hold && !y.foreign // .NET hosts know nothing of keys that are held
	}
	// From another generator, so that the seeds of other worlds keep their meaning. .NET hosts take paused leases.
	y.steered = rand.New(rand.NewPCG(seed, 4)).IntN(3) == 0 && !y.foreign
	sharing := rand.New(rand.NewPCG(seed, 6))
	y.finer, y.weights = sharing.IntN(2) == 0 && !y.foreign, sharing.IntN(3) == 0
	y.loads = sharing.IntN(3) == 0 && !y.weights
	y.joins = sharing.IntN(2) == 0 && y.finer && !y.steps // a step of a clock may be longer than a short expiration
	y.programs = rand.New(rand.NewPCG(seed, 8)).IntN(3) == 0
	return y
}

// isStrict reports that one batch after the other is handled and none is passed over, so that the order of pages,
// positions and attempts is known.
func (y weather) isStrict() bool { return y.at == 1 && y.attempts == 0 }

// isPlain reports that only our processes write the leases, by one clock. Histories are
// checked in such worlds only.
func (y weather) isPlain() bool { return !y.steps && !y.foreign && y.removal == noRemoval }

// drawIntervals sets those of an instance. An instance that shares leases with .NET hosts,
// which do not know its expiration, must not count on a longer expiration than theirs.
func (y weather) drawIntervals(rng *rand.Rand, o *changefeed.Options) {
	if !y.uneven && !y.joins {
		return
	}
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(rng.Int64N(int64(most-least)))
	}
	longest := 100 * time.Second
	switch {
	case y.foreign:
		longest = netExpiration
	case y.joins:
		longest = 25 * time.Second
	}
	o.Expiration = between(20*time.Second, longest)
	o.Renew = between(o.Expiration/8, o.Expiration/2)
	o.Acquire = between(3*time.Second, 15*time.Second)
	o.Poll = between(500*time.Millisecond, 10*time.Second)
	o.Drain = between(2*time.Second, 15*time.Second)
	o.HandlerTimeout = between(4*time.Second, 40*time.Second)
	o.RetryMax = between(5*time.Second, 30*time.Second)
}
