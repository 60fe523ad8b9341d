package sim

import (
	"math/rand/v2"

	"github.com/millrace/changefeed"
)

// An ambush does something to a process, or to the partition that it is about, while a
// certain call of it is at a certain point. So each step of whatever takes several is cut
// off after each other, whoever the seeds are.
type ambush struct {
	at    point
	count int // of calls that come to the point before
	deed  deed
}

// point is where a call is.
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

// deed is what an ambush does.
type deed int

const (
	stopIt  deed = iota // as by SIGTERM
	killIt              // as by kill -9
	mergeIt             // merge the partition with the next one
	splitIt             // split it
)

// The calls that a process makes. Writes of leases are told apart by what they are for.
var (
	callNames = []string{
		"partitions", "read", "list", "follow", "handle",
		"create lease", "create host", "create info", "create lock", "update host", "update lock", "delete",
		"checkpoint", "renew", "take", "free", "give", "split",
	}
	ofSplits = []string{"split", "create lease", "delete", "list", "partitions"}
)

func newAmbush(rng *rand.Rand) ambush {
	a := ambush{
		at:    point{callNames[rng.IntN(len(callNames))], phase(rng.IntN(4))},
		count: rng.IntN(30), deed: deed(rng.IntN(4)),
	}
	if a.deed >= mergeIt { // what is in the middle of a split is about partitions
		a.at.call, a.count = ofSplits[rng.IntN(len(ofSplits))], rng.IntN(8)
	}
	return a
}

// meaning names an update of a record by a process: seen is what the store has of it.
func (i *instance) meaning(seen, l changefeed.Record) string {
	others := seen.Owner != l.Owner || seen.Epoch != l.Epoch
	switch {
	case l.Kind != changefeed.KindLease:
		return "update " + string(l.Kind)
	case l.State != changefeed.StateLive:
		return "split"
	case l.Free():
		return "free"
	case others && l.Owner == i.name:
		return "take"
	case others:
		return "give"
	case seen.Position != l.Position:
		return "checkpoint"
	}
	return "renew"
}

// pass is called as a call of a process comes to a point.
func (i *instance) pass(at point, of changefeed.Range) {
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
	over := w.isCalm()
	w.mu.Unlock()
	if due == nil || over {
		return
	}
	w.ledger.note("ambush: %s at %s, phase %d: deed %d", i, at.call, at.phase, due.deed)
	switch due.deed {
	case stopIt:
		i.end()
	case killIt:
		i.kill()
	case mergeIt:
		w.mergeAt(w.orders, of.Min)
	case splitIt:
		w.splitAt(w.orders, of.Min)
	}
}
