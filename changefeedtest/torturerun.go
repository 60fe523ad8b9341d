package changefeedtest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
)

// A run does not use a processor, because its goroutines and its random epochs would make each run of a seed different,
// and a search for the shortest story impossible. So the deliverer here makes its decisions one after another, and
// keeps the promises of package changefeed: at least once, in order per key, and one owner, whose context ends before
// the next owner begins. TestTheDelivererKeepsThePromises holds it to that.

// problem is the kind of a failure.
type problem string

const (
	noProblem      problem = ""
	effectsDiffer  problem = "its effects depend on the faults of a processor"
	failsAlways    problem = "it does not get past a batch"
	ignoresContext problem = "it ignores the end of its context"
	leavesBehind   problem = "it leaves a goroutine behind"
	standsStill    problem = "it stands still"
	startsNothing  problem = "start has returned nil"
)

// outcome is what a run has shown.
type outcome struct {
	effects any
	problem problem
	detail  []string // lines that explain the problem
	story   []string
	faults  []plannedFault // of the plan, for the report
}

// Limits of a run.
const (
	mostErrors  = 5               // for the same batch
	togetherFor = 5 * time.Second // an old owner has to itself after the end of its context
	stuckAfter  = time.Hour       // of virtual time after the end of the context
	frozenFor   = time.Minute     // of virtual time, for an instance that freezes
)

// stillAfter is how much real time a run may take; shorter in a test.
var stillAfter = 30 * time.Second

// runPlan runs a plan in a bubble. If the bubble stands still, runPlan leaves it behind.
func (p *prober) runPlan(pl plan) outcome {
	r := &tortureRun{prober: p, plan: pl, dice: rand.New(rand.NewPCG(pl.seed, 2)), hosts: map[string]*host{}}
	var running sync.WaitGroup
	over := make(chan struct{})
	running.Go(func() {
		defer close(over)
		defer func() {
			if dead := recover(); dead != nil { // blocked goroutines are left, and nothing can wake them
				r.findLeftovers(fmt.Sprint(dead))
			}
		}()
		synctest.Test(p.t, r.deliver)
	})
	select {
	case <-over:
	case <-time.After(stillAfter):
		r.fail(standsStill, fmt.Sprintf("For %v of real time it has neither returned nor waited in virtual time.",
			stillAfter), "It may loop without looking at its context, or wait for a network or a mutex.")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out
}

// tortureRun is a run.
type tortureRun struct {
	prober *prober
	plan   plan
	dice   *rand.Rand // of the deliverer's goroutine
	bubble string     // its name in stacks

	first   feed.Handler // of the first instance
	effects func() any
	hosts   map[string]*host
	leases  []*tortureLease
	calls   sync.WaitGroup
	old     []*tortureCall // that have not returned after their contexts ended
	ctx     context.Context

	mu  sync.Mutex // protects the outcome and the positions
	out outcome
}

// host is an instance.
type host struct {
	name    string
	handler feed.Handler
	isDead  bool
}

// tortureLease is a lease.
type tortureLease struct {
	r        feed.Range
	from, to int           // its edges, below edgesOfKeys
	changes  []feed.Change // of its range
	stored   int           // how many are before the stored position
	read     int           // how many are handled; more than stored only if the handler has not confirmed them
	owner    *host
	epoch    int64
	errors   int // in a row
	most     int // changes of the next batch after the time of a call was over; 0 is no limit
	anew     int // how often in a row it has begun anew after an abandoned batch
	isOpen   bool

	isAbandoned bool // it begins anew after the round, and nothing is confirmed until then
}

// edgesOfKeys is the number of edges that leases may have. The places of keys begin with four digits below it.
const edgesOfKeys = 0x4000

func newTortureLease(from, to int, changes []feed.Change, owner *host) *tortureLease {
	edge := func(n int) string { return strings.TrimSuffix(fmt.Sprintf("%04X", n), "00") }
	r := feed.FullRange()
	if from > 0 {
		r.Min = edge(from)
	}
	if to < edgesOfKeys {
		r.Max = edge(to)
	}
	return &tortureLease{r: r, from: from, to: to, changes: inRange(changes, r), owner: owner, epoch: 1}
}

// fail notes the first problem.
func (r *tortureRun) fail(p problem, detail ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.out.problem == noProblem {
		r.out.problem, r.out.detail = p, detail
	}
}

func (r *tortureRun) hasFailed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.problem != noProblem
}

// tell adds a sentence to the story.
func (r *tortureRun) tell(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sentence := fmt.Sprintf(format, args...)
	if rest, ok := strings.CutPrefix(sentence, "the "); ok {
		sentence = "The " + rest
	}
	r.out.story = append(r.out.story, sentence)
}

// deliver delivers all changes.
func (r *tortureRun) deliver(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.ctx, r.bubble = ctx, bubbleOf(ownStack())
	r.first, r.effects = r.prober.start(t)
	switch {
	case t.Failed():
		return
	case r.first == nil:
		r.fail(startsNothing, "The handler is nil: want a handler, or PerInstance with a function that makes handlers.")
		return
	case r.effects == nil:
		r.fail(startsNothing, "The function that reports effects is nil: want one, because effects are compared.")
		return
	}
	r.begin()
	for !r.hasFailed() {
		isDone := func(l *tortureLease) bool { return l.read == len(l.changes) }
		open := slices.DeleteFunc(slices.Clone(r.leases), isDone)
		if len(open) == 0 {
			break
		}
		r.deliverRound(open)
	}
	for _, l := range r.leases {
		r.closeLease(l, feed.ReasonStopped)
	}
	cancel()
	r.waitForOld()
	if r.hasFailed() {
		return // goroutines may be left that never end
	}
	synctest.Wait()
	effects := r.effects()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out.effects = effects
}

// waitForOld waits for calls whose contexts have ended.
func (r *tortureRun) waitForOld() {
	for _, c := range r.old {
		if !c.hasReturned(stuckAfter) {
			r.fail(ignoresContext, fmt.Sprintf("The call for %s has not returned %v after its context ended (%v).",
				c.first(), stuckAfter, c.cause()))
			return
		}
	}
}

// begin makes the leases and the first instances.
func (r *tortureRun) begin() {
	n := r.plan.leases
	if r.plan.isCalm {
		n = 1
	}
	for i := range n {
		name := fmt.Sprint("host-", 1+i%2)
		if r.hosts[name] == nil {
			r.addHost()
		}
		from, to := edgesOfKeys*i/n, edgesOfKeys*(i+1)/n
		r.leases = append(r.leases, newTortureLease(from, to, r.plan.changes, r.hosts[name]))
	}
}

// addHost starts an instance.
func (r *tortureRun) addHost() *host {
	h := &host{name: fmt.Sprint("host-", len(r.hosts)+1), handler: r.first}
	if each, ok := r.first.(*perInstance); ok {
		h.handler = each.Handler // made by start, for the first instance
		if len(r.hosts) > 0 {
			h.handler = each.start()
		}
	}
	r.hosts[h.name] = h
	return h
}

// otherHost returns another running instance, or starts one.
func (r *tortureRun) otherHost(than *host) *host {
	for i := range len(r.hosts) {
		if h := r.hosts[fmt.Sprint("host-", i+1)]; h != than && !h.isDead {
			return h
		}
	}
	return r.addHost()
}

// inRange returns the changes of a range. Keys have random places, as in a container.
func inRange(changes []feed.Change, in feed.Range) (all []feed.Change) {
	for _, c := range changes {
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(c.PartitionKey)) // it has no errors
		if in.Holds(fmt.Sprintf("%08X", (hash.Sum32()*2654435761)>>2)) {
			all = append(all, c)
		}
	}
	return all
}

// deliverRound hands a batch to some of the leases at the same time, and waits for the results.
func (r *tortureRun) deliverRound(open []*tortureLease) {
	chosen := slices.DeleteFunc(slices.Clone(open), func(*tortureLease) bool { return r.dice.IntN(3) == 0 })
	if len(chosen) == 0 {
		chosen = open[:1]
	}
	together := r.dice.IntN(2) == 0
	var calls []*tortureCall
	for _, l := range chosen {
		if _, ok := r.takeFault(l, 1, func(f plannedFault) bool { return f.kind == rangeSplits }); ok {
			r.splitLease(l)
			continue
		}
		calls = append(calls, r.hand(l, len(calls) > 0))
		if !together {
			synctest.Wait() // it has returned, or waits
		}
	}
	for _, c := range calls {
		c.isBack = c.hasReturned(togetherFor)
	}
	synctest.Wait()
	r.checkLeftovers(calls)
	for _, c := range calls {
		if kind := c.fault.kind; kind == processEnds || kind == processEndsLate {
			c.host.isDead = true // before any position of the round is stored
		}
	}
	for _, c := range calls {
		r.settle(c)
	}
	for _, l := range r.leases {
		switch {
		case l.owner.isDead:
			r.moveLease(l, r.otherHost(l.owner))
		case r.mustBeginAnew(l):
			r.closeLease(l, feed.ReasonUnconfirmed)
			r.moveLease(l, r.otherHost(l.owner))
			r.tell("A batch of lease %s is abandoned, so what is not confirmed comes again, on %s.", l.r, l.owner.name)
		}
	}
}

// takeFault removes the first fault of the next n changes of a lease from the plan, of those that fit.
func (r *tortureRun) takeFault(l *tortureLease, n int, fits func(plannedFault) bool) (plannedFault, bool) {
	next := l.changes[l.read:]
	next = next[:min(n, len(next))]
	i := slices.IndexFunc(r.plan.faults, func(f plannedFault) bool {
		return fits(f) && slices.ContainsFunc(next, func(c feed.Change) bool { return c.LSN == f.at })
	})
	if i < 0 {
		return plannedFault{}, false
	}
	f := r.plan.faults[i]
	r.plan.faults = slices.Delete(slices.Clone(r.plan.faults), i, i+1)
	return f, true
}

// moveLease gives a lease to another owner, which begins at the stored position.
func (r *tortureRun) moveLease(l *tortureLease, to *host) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.owner, l.read, l.isOpen, l.isAbandoned = to, l.stored, false, false
	l.epoch++
}

// splitLease replaces a lease by those of its halves; the second goes to another instance.
func (r *tortureRun) splitLease(l *tortureLease) {
	middle := (l.from + l.to) / 2
	if middle == l.from {
		return
	}
	r.closeLease(l, feed.ReasonSplit)
	var children []*tortureLease
	for i, edges := range [][2]int{{l.from, middle}, {middle, l.to}} {
		child := newTortureLease(edges[0], edges[1], l.changes, l.owner)
		child.epoch, child.errors = l.epoch+1, l.errors
		child.stored = len(inRange(l.changes[:l.stored], child.r))
		if child.read = child.stored; i == 1 && !r.plan.isCalm {
			child.owner = r.otherHost(l.owner)
		}
		children = append(children, child)
	}
	r.tell("The partition of lease %s splits: %s has lease %s, and %s has lease %s.", l.r, children[0].owner.name,
		children[0].r, children[1].owner.name, children[1].r)
	i := slices.Index(r.leases, l)
	r.leases = slices.Replace(slices.Clone(r.leases), i, i+1, children...)
}

// closeLease tells the handler that its owner gives the lease up.
func (r *tortureRun) closeLease(l *tortureLease, why feed.Reason) {
	closer, ok := l.owner.handler.(feed.Closer)
	if !ok || !l.isOpen || r.hasFailed() {
		return
	}
	l.isOpen = false
	c := r.newCall(l, plannedFault{})
	r.start(c, func(ctx context.Context) error { return closer.Close(ctx, l.asLease(), why) })
	if !c.hasReturned(togetherFor) {
		r.old = append(r.old, c)
	}
}

// asLease is the lease as its handler sees it.
func (l *tortureLease) asLease() feed.Lease {
	return feed.Lease{
		ID: l.r.String(), Token: l.r.String(), Range: l.r, Owner: l.owner.name, Epoch: fmt.Sprint(l.epoch),
		Position: l.position(l.stored),
	}
}

// position is the position after the first n changes of a lease.
func (l *tortureLease) position(n int) feed.Position {
	if n == 0 {
		return feed.Position{Start: feed.FromBeginning()}
	}
	return feed.At(fmt.Sprintf(`"%d"`, l.changes[n-1].LSN))
}

// errEnded is the answer to a checkpoint of a process that ends.
var errEnded = errors.New("the process ends")
