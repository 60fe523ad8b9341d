package changefeedtest

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
)

// TortureOptions configure [Torture]. The zero value works.
type TortureOptions struct {
	// Changes are the changes of the feed, in the order of the feed. The default is 21 changes of 5 partition keys,
	// with bodies such as {"id":"order-7","city":"city-2","n":7}; some are later versions of an item, and two are of a
	// transaction. Changes with the same LSN are a transaction, which is never divided. If a change has no LSN, the
	// number of the change, counted from 1, is the LSN.
	Changes []feed.Change

	// Seeds is the number of runs with faults, 50 by default. First is the seed of the first run, 1 by default. A seed
	// determines which faults happen when.
	Seeds int
	First uint64

	// Faults is the largest number of faults in a run, 6 by default.
	Faults int

	// MaxItems is the largest number of changes in a batch, 5 by default; a transaction may have more. Leases is the
	// number of leases at the beginning of a run, 3 by default.
	MaxItems, Leases int

	// HandlerTimeout limits the virtual time of a call of the handler, as in the options of the processor; the default
	// is 10 min.
	HandlerTimeout time.Duration

	// Manual leaves the checkpoints to [feed.Batch.Checkpoint], as in the options of the processor.
	Manual bool

	// Freezes adds a fault: an instance freezes for a minute just after the handler has checked the context. The lease
	// moves, other owners go on, and then the handler goes on as if nothing had happened. No processor can prevent
	// this; a handler can, by a check of [feed.Batch].Epoch in the transaction of the effect. The handler must not hold
	// a mutex during the check of the context: virtual time stands still while a goroutine waits for a mutex.
	Freezes bool
}

// withDefaults returns the options with all values set, or an error naming the wrong value.
func (o TortureOptions) withDefaults() (TortureOptions, error) {
	for _, n := range []*int{&o.Seeds, &o.Faults, &o.MaxItems, &o.Leases} {
		if *n < 0 {
			return o, fmt.Errorf("a number in TortureOptions is %d: want a positive number, or 0 for the default", *n)
		}
	}
	o.Seeds, o.First = cmp.Or(o.Seeds, 50), cmp.Or(o.First, 1)
	o.Faults, o.MaxItems, o.Leases = cmp.Or(o.Faults, 6), cmp.Or(o.MaxItems, 5), cmp.Or(o.Leases, 3)
	o.HandlerTimeout = cmp.Or(o.HandlerTimeout, 10*time.Minute)
	if len(o.Changes) == 0 {
		o.Changes = tortureChanges()
	}
	o.Changes = slices.Clone(o.Changes)
	last := int64(0)
	for i := range o.Changes {
		c := &o.Changes[i]
		c.LSN = cmp.Or(c.LSN, int64(i+1))
		c.ETag = cmp.Or(c.ETag, fmt.Sprintf(`"%d-%d"`, c.LSN, i))
		if c.LSN < last {
			return o, fmt.Errorf("TortureOptions.Changes[%d].LSN is %d after %d: want the order of the feed", i, c.LSN,
				last)
		}
		last = c.LSN
	}
	return o, nil
}

// tortureChanges are the changes of a run without changes of the user.
func tortureChanges() (all []feed.Change) {
	begun := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	add := func(n int, lsn int64, id string) {
		city := fmt.Sprintf("city-%d", n%5)
		all = append(all, feed.Change{
			ID: id, PartitionKey: feed.Key(city), LSN: lsn, Time: begun.Add(time.Duration(n) * time.Second),
			Body: fmt.Appendf(nil, `{"id":%q,"city":%q,"n":%d}`, id, city, n),
		})
	}
	for n := range 20 {
		add(n, int64(n+1), fmt.Sprintf("order-%d", n%15)) // the last five are new versions of the first
		if n == 8 {
			add(n, int64(n+1), "order-8-note")
		}
	}
	return all
}

// Torture proves that a handler has the same effects whatever a processor does within the promise of at-least-once
// delivery. Torture calls the handler in virtual time (testing/synctest), first in a clean run, which delivers each
// change once, alone and in order. Then, for each seed, Torture delivers the same changes with faults:
//
//   - A process ends after the handler has returned, before the position is stored. Another instance receives the batch
//     again, divided differently, or only its end.
//   - A lease moves while the handler has a batch: the handler's context ends with [feed.ErrLeaseLost] or
//     [feed.ErrStopped], often just when the handler checks the context, and the result does not count. Another
//     instance receives the batch five seconds later at the latest: a handler still at work then is not alone.
//   - The time of a call is over: the context ends with [feed.ErrHandlerTimeout], and the same instance receives the
//     batch in smaller parts.
//   - A partition splits: the rest of the changes arrives as two leases.
//
// Several leases have batches at the same time. Changes of a partition key arrive in order, and [feed.Batch].Epoch
// grows with each owner, as a processor promises.
//
// start makes the handler and its stores anew for each run, and returns the handler and a function to report the
// effects at the end of the run. The effects are compared with [reflect.DeepEqual], so they must not depend on the time
// or on the order of different keys: a map of totals is good, a list of all calls is not. start runs in the bubble of
// the run; use the t of start to open stores and to close them (t.Cleanup). If your handler keeps something in memory,
// which ends with its process, return a [PerInstance].
//
// If the effects of a seed differ, Torture removes faults and changes as long as the effects still differ, and fails
// the test with the shortest story found: the deliveries, the faults, and the difference. Torture also fails the test
// if the handler
//
//   - has the same effects without a change, or other effects in a second clean run, because the test would prove
//     nothing,
//   - returns an error in the clean run, or five errors in a row for the same batch,
//   - leaves a goroutine behind at its return: start such goroutines in start, or in Open,
//   - does not return although its context has ended, for an hour of virtual time or for 30 s of real time.
//
// Torture calls [feed.Opener] and [feed.Closer] as a processor does, and knows nothing of the needs and filters of the
// processor's options. Do not call Torture in a bubble.
func Torture[E any](t *testing.T, o TortureOptions, start func(t *testing.T) (feed.Handler, func() E)) {
	t.Helper()
	report := torture(t, o, withoutType(start))
	if report != "" {
		t.Error(report)
	}
}

// PerInstance returns a handler for [Torture] which is made anew for each instance, as by a starting process. So the
// handler's memory is gone after a crash, and two instances do not share it. If you return a plain handler, all
// instances share that handler.
func PerInstance(start func() feed.Handler) feed.Handler {
	if start == nil {
		return &perInstance{} // which Torture refuses
	}
	return &perInstance{start(), start}
}

// withoutType returns start with effects of any type, and nil for nil.
func withoutType[E any](start func(t *testing.T) (feed.Handler, func() E)) func(*testing.T) (feed.Handler, func() any) {
	if start == nil {
		return nil
	}
	return func(t *testing.T) (feed.Handler, func() any) {
		handler, effects := start(t)
		if each, ok := handler.(*perInstance); ok && each.Handler == nil {
			handler = nil
		}
		if effects == nil {
			return handler, nil
		}
		return handler, func() any { return effects() }
	}
}

// perInstance is the first handler, and makes others.
type perInstance struct {
	feed.Handler
	start func() feed.Handler
}

// torture returns why the handler fails; empty if the handler passes, or if the user has failed the test.
func torture(t *testing.T, o TortureOptions, start func(t *testing.T) (feed.Handler, func() any)) string {
	t.Helper()
	o, err := o.withDefaults()
	if err != nil {
		return err.Error()
	}
	if start == nil {
		return "start is nil: want a function that returns a handler, and a function that reports the handler's effects"
	}
	p := &prober{t: t, o: o, start: start, failed: t.Failed()}
	clean := p.runPlan(plan{changes: o.Changes, isCalm: true})
	if clean.problem != noProblem {
		return p.report("in a clean run, without any fault", clean)
	}
	if what := p.checkStart(clean); what != "" {
		return "Torture proves nothing: " + what
	}
	for seed := o.First; seed < o.First+uint64(o.Seeds) && !p.isOver(); seed++ {
		drawn := drawPlan(seed, o)
		if out := p.tryPlan(drawn); out.problem != noProblem {
			least, out := p.shrinkPlan(drawn, out)
			out.faults = least.faults
			return p.report(least.describe(len(o.Changes)), out) + fmt.Sprintf(
				"\nTo run this seed alone, set TortureOptions.First to %d and Seeds to 1.", seed)
		}
	}
	return ""
}

// checkStart says why a comparison with a clean run would prove nothing; empty if the comparison is valid. A store not
// made anew has the effects of earlier runs, and if the effects are the store itself, the clean effects change with the
// store.
func (p *prober) checkStart(clean outcome) string {
	if p.isOver() {
		return ""
	}
	before := fmt.Sprintf("%+v", clean.effects)
	again := p.runPlan(plan{changes: p.o.Changes, isCalm: true})
	const anew = "make the handler and its stores in start, which is called for each run"
	if after := fmt.Sprintf("%+v", clean.effects); after != before {
		return "the effects of a clean run have changed in the next one, so they are not of one run: " + anew
	}
	if again.problem == noProblem && !reflect.DeepEqual(clean.effects, again.effects) {
		return "two clean runs have different effects: " + anew + ", and leave out what depends on the time"
	}
	if p.isOver() {
		return ""
	}
	none := p.runPlan(plan{isCalm: true})
	if none.problem == noProblem && reflect.DeepEqual(clean.effects, none.effects) {
		return fmt.Sprintf("the effects are the same without any change and after %d changes: let them show what the "+
			"handler has done", len(p.o.Changes))
	}
	return ""
}

// prober runs plans.
type prober struct {
	t      *testing.T
	o      TortureOptions
	start  func(t *testing.T) (feed.Handler, func() any)
	failed bool // the test had failed before

	clean     outcome // of the clean run with these changes
	cleanWith []feed.Change
}

// isOver reports whether the user's functions have failed the test, so that more runs tell nothing.
func (p *prober) isOver() bool { return p.t.Failed() && !p.failed }

// tryPlan runs a plan, and compares the effects with those of a clean run with the same changes.
func (p *prober) tryPlan(pl plan) outcome {
	if !sameChanges(p.cleanWith, pl.changes) {
		p.clean, p.cleanWith = p.runPlan(plan{changes: pl.changes, isCalm: true}), pl.changes
	}
	out := p.runPlan(pl)
	if p.clean.problem == noProblem && out.problem == noProblem && !p.isOver() &&
		!reflect.DeepEqual(p.clean.effects, out.effects) {
		out.problem, out.detail = effectsDiffer, difference(p.clean.effects, out.effects)
	}
	return out
}
