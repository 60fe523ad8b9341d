package sim

import (
	"math/rand/v2"

	"github.com/millrace/changefeed/feed"
)

// Ambushes: faults at a chosen point of a chosen call. Random faults rarely hit the moment
// between two steps of a split or a take-over; ambushes go through such moments one by one,
// over many seeds.

// ambush does something to a process, or to the partition of its call, when a certain call
// of it has come to a certain point. So each step of a procedure of several is cut off in
// some seed.
type ambush struct {
	at    point
	count int // of calls that come to the point before
	deed  deed
}

// point is a moment in the life of a call.
type point struct {
	call  string
	phase phase
}

// phase is how far a call has come.
type phase int

const (
	before phase = iota // not sent
	going               // on its way to the store
	coming              // the store has done it, the answer is on its way
	after               // answered
)

// deed is the fault of an ambush.
type deed int

const (
	stopIt  deed = iota // as by SIGTERM
	killIt              // as by kill -9
	mergeIt             // merge the partition with the next
	splitIt             // split it
)

// The calls of a process. Writes of leases have a name for each purpose, because they are
// the steps of the procedures that must survive.
var (
	callNames = []string{
		"partitions", "read", "read key", "list", "follow", "handle",
		"create lease", "create host", "create info", "create lock", "update host", "update lock", "delete",
		"checkpoint", "renew", "take", "free", "give", "split",
	}
	ofSplits = []string{"split", "create lease", "delete", "list", "partitions"}
)

// newAmbush draws an ambush. The middle of a split is about partitions, so such deeds wait
// at calls of splits.
func newAmbush(rng *rand.Rand) ambush {
	a := ambush{
		at:    point{callNames[rng.IntN(len(callNames))], phase(rng.IntN(4))},
		count: rng.IntN(30), deed: deed(rng.IntN(4)),
	}
	if a.deed >= mergeIt { // the middle of a split is about partitions
		a.at.call, a.count = ofSplits[rng.IntN(len(ofSplits))], rng.IntN(8)
	}
	return a
}

// purposeOf names the purpose of an update of a record; seen is the stored record.
func (i *instance) purposeOf(seen, record feed.Record) string {
	others := seen.Owner != record.Owner || seen.Epoch != record.Epoch
	switch {
	case record.Kind != feed.KindLease:
		return "update " + string(record.Kind)
	case record.State != feed.StateLive:
		return "split"
	case record.Free():
		return "free"
	case others && record.Owner == i.name:
		return "take"
	case others:
		return "give"
	case seen.Position != record.Position:
		return "checkpoint"
	}
	return "renew"
}

// springAmbush notes that a call of a process has come to a point, and springs the ambush that is
// due there, if any.
func (i *instance) springAmbush(at point, of feed.Range) {
	w := i.world
	w.mu.Lock()
	var due *ambush
	for n := range w.weather.ambushes {
		if a := &w.weather.ambushes[n]; a.at == at {
			if a.count--; a.count == -1 {
				due = a
			}
		}
	}
	// The deed is done outside of the lock, because it takes the lock itself.
	over := w.isCalm()
	w.mu.Unlock()
	if due == nil || over {
		return
	}
	w.ledger.note("ambush: %s at %s, phase %d: deed %d", i, at.call, at.phase, due.deed)
	switch due.deed {
	case stopIt:
		i.stopInOrder()
	case killIt:
		i.kill()
	case mergeIt:
		w.mergeAt(w.orders, of.Min)
	case splitIt:
		w.splitAt(w.orders, of.Min)
	}
}
