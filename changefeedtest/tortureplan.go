package changefeedtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
)

// A plan is what a run delivers, and which faults it has. A fault belongs to a transaction, not to a moment: it happens
// when a batch with that transaction is delivered. So the other faults stay where they are if a fault is removed, and a
// failing plan can be made smaller step by step.

// faultKind is what happens to a batch.
type faultKind string

// The kinds of faults.
const (
	processEnds     faultKind = "the process ends before the position is stored"
	processEndsLate faultKind = "the process ends when the position of the first changes is stored"
	leaseLost       faultKind = "the lease is lost"
	leaseGiven      faultKind = "the lease is handed over"
	timeIsOver      faultKind = "the time of the call is over"
	rangeSplits     faultKind = "the partition splits"
	processFreezes  faultKind = "the process freezes, and goes on later"
)

var faultKinds = []faultKind{processEnds, processEndsLate, leaseLost, leaseGiven, timeIsOver, rangeSplits}

// plannedFault is a fault of a plan.
type plannedFault struct {
	kind faultKind
	at   int64 // LSN of the transaction
	// The context ends when the handler looks at it so often, or after that time, for kinds that end it.
	looks int64
	after time.Duration
}

// endsContext returns the cause with which the handler's context ends; nil if the fault does not end it.
func (f plannedFault) endsContext() error {
	switch f.kind {
	case leaseLost, processFreezes:
		return feed.ErrLeaseLost
	case leaseGiven:
		return feed.ErrStopped
	case timeIsOver:
		return feed.ErrHandlerTimeout
	}
	return nil
}

// plan is the plan of a run.
type plan struct {
	seed    uint64
	changes []feed.Change
	faults  []plannedFault
	leases  int
	size    int  // most changes of a batch
	isCalm  bool // a single lease, and a transaction in each batch
}

// isClean reports whether the plan is that of a clean run. Seeds begin at 1.
func (p plan) isClean() bool { return p.seed == 0 }

// drawPlan draws a plan.
func drawPlan(seed uint64, o TortureOptions) plan {
	dice := rand.New(rand.NewPCG(seed, 1))
	p := plan{seed: seed, changes: o.Changes, leases: 1 + dice.IntN(o.Leases), size: 1 + dice.IntN(o.MaxItems)}
	kinds := faultKinds
	if o.Freezes {
		kinds = append(slices.Clone(kinds), processFreezes)
	}
	for range 1 + dice.IntN(o.Faults) {
		p.faults = append(p.faults, plannedFault{
			kind: kinds[dice.IntN(len(kinds))], at: o.Changes[dice.IntN(len(o.Changes))].LSN,
			looks: 1 + dice.Int64N(8), after: share(dice, 10*time.Second),
		})
	}
	return p
}

// describe says how large the plan is.
func (p plan) describe(of int) string {
	return fmt.Sprintf("with %s and %d of %d changes (seed %d)", counted(len(p.faults), "fault"), len(p.changes), of,
		p.seed)
}

// counted is a number with its noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func sameChanges(a, b []feed.Change) bool {
	return slices.EqualFunc(a, b, func(c, d feed.Change) bool { return c.LSN == d.LSN && c.ETag == d.ETag })
}

// mostTries limits the runs of a search for a smaller plan.
const mostTries = 300

// shrinkPlan returns the smallest plan that it finds with the same problem, and its outcome. Problems that leave
// goroutines behind are not tried again.
func (p *prober) shrinkPlan(pl plan, out outcome) (plan, outcome) {
	s := shrinker{p, pl, out, 0}
	if out.problem == effectsDiffer || out.problem == failsAlways {
		for smaller := true; smaller; {
			smaller = s.calm()
			smaller = s.shrinkFaults() || smaller
			smaller = s.endEarlier() || smaller
			smaller = s.shrinkChanges() || smaller
		}
	}
	return s.plan, s.out
}

// shrinker holds the smallest plan so far.
type shrinker struct {
	prober *prober
	plan   plan
	out    outcome
	tries  int
}

// accept runs a smaller plan, and keeps it if it has the same problem.
func (s *shrinker) accept(smaller plan) bool {
	if s.tries++; s.tries > mostTries || s.prober.isOver() {
		return false
	}
	out := s.prober.tryPlan(smaller)
	if out.problem != s.out.problem {
		return false
	}
	s.plan, s.out = smaller, out
	return true
}

// calm tries a single lease and small batches.
func (s *shrinker) calm() bool {
	if s.plan.isCalm {
		return false
	}
	smaller := s.plan
	smaller.isCalm = true
	return s.accept(smaller)
}

// shrinkFaults removes faults: all, halves, and so on down to single ones.
func (s *shrinker) shrinkFaults() bool {
	return shrinkList(func() []plannedFault { return s.plan.faults }, func(rest []plannedFault) bool {
		smaller := s.plan
		smaller.faults = rest
		return s.accept(smaller)
	})
}

// endEarlier lets contexts end at the first look, so that a batch needs fewer changes.
func (s *shrinker) endEarlier() (smaller bool) {
	for i, f := range s.plan.faults {
		if f.endsContext() == nil || f.looks == 1 {
			continue
		}
		earlier := s.plan
		earlier.faults = slices.Clone(earlier.faults)
		earlier.faults[i].looks = 1
		smaller = s.accept(earlier) || smaller
	}
	return smaller
}

// shrinkChanges removes changes, together with their faults.
func (s *shrinker) shrinkChanges() bool {
	return shrinkList(func() []feed.Change { return s.plan.changes }, func(rest []feed.Change) bool {
		smaller := s.plan
		smaller.changes = rest
		smaller.faults = slices.DeleteFunc(slices.Clone(smaller.faults), func(f plannedFault) bool {
			return !slices.ContainsFunc(rest, func(c feed.Change) bool { return c.LSN == f.at })
		})
		return len(rest) > 0 && s.accept(smaller)
	})
}

// shrinkList removes parts of a list, which accept makes permanent or refuses.
func shrinkList[T any](list func() []T, accept func(rest []T) bool) (smaller bool) {
	for size := len(list()); size > 0; size /= 2 {
		for from := 0; from < len(list()); {
			to := min(from+size, len(list()))
			if accept(slices.Delete(slices.Clone(list()), from, to)) {
				smaller = true
			} else {
				from = to
			}
		}
	}
	return smaller
}
