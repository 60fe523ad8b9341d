package scaler_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/proof/fleet"
)

// The unit of the simulation: an instance handles a change in two seconds, so 20 instances handle 10 changes a second.
const (
	workOfChange  = 2 * time.Second
	leasesOfUnit  = 40
	mostInstances = 20
	targetPending = 10.0 // changes for each instance: 20 s of work
)

// load is how many changes a second are written from a time on.
type load struct {
	from      time.Duration
	perSecond float64
}

// The load: a quiet unit, 24 times as much within a second, and back.
var (
	loads   = []load{{0, 0.25}, {time.Minute, 6}, {7 * time.Minute, 0.25}, {14 * time.Minute, 0}}
	rise    = loads[1].from
	fall    = loads[2].from
	runtime = 20 * time.Minute
)

// unit is a unit with its deployment, its scaler and its writer, in virtual time.
type unit struct {
	rng    *rand.Rand
	scaler *autoscaler
	deploy *deployment
	fleet  *fleet.Fleet
	ledger *fleet.Ledger
	orders *docstore.Container

	options changefeed.Options
	begun   time.Time
	rate    float64 // of the load now
	owed    float64 // changes to be written
	written int
	story   []string
	found   figures
}

// figures are the times that an operator waits for.
type figures struct {
	balance []time.Duration // from the last change of the running processes until they share the leases evenly
	target  time.Duration   // from the rise of the load until the lag is at the target
	after   time.Duration   // the most work for an instance after the fall of the load
	most    int             // instances at once
}

// plan is what happens to a unit beside the load.
type plan struct {
	least    int // instances
	kills    time.Duration
	rollouts []time.Duration
}

// newUnit makes a unit in a store in memory.
func newUnit(t *testing.T, seed uint64, p plan) *unit {
	t.Helper()
	ctx := t.Context()
	db, err := docstore.Open("", docstore.Options{InMemory: true, CacheBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Check(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	u := &unit{
		rng: rand.New(rand.NewPCG(seed, 26)), scaler: newAutoscaler(p.least, mostInstances, targetPending),
		ledger: fleet.NewLedger(), begun: time.Now(),
		options: changefeed.Options{Start: feed.FromBeginning(), MinLeases: leasesOfUnit, MaxItems: 3},
	}
	u.orders, err = db.CreateContainer(ctx, docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}, Ranges: 4})
	if err != nil {
		t.Fatal(err)
	}
	records, err := db.CreateContainer(ctx, docstore.LeaseSpec("leases"))
	if err != nil {
		t.Fatal(err)
	}
	leases, err := docstore.NewLeases(ctx, records, "mailer", u.orders)
	if err != nil {
		t.Fatal(err)
	}
	u.fleet = &fleet.Fleet{Source: u.orders, Leases: leases, Look: time.Second, Report: func(name string, err error) {
		u.tell("%s reports %v", name, err)
	}}
	u.deploy = &deployment{u: u, rng: u.rng, version: 1, want: 1}
	return u
}

// tell adds a line to the story of the unit.
func (u *unit) tell(format string, of ...any) {
	u.story = append(u.story, fmt.Sprintf("%7v  ", time.Since(u.begun).Round(time.Second))+fmt.Sprintf(format, of...))
}

// run plays a plan, a second at a time, and then waits until all is handled.
func (u *unit) run(ctx context.Context, p plan) error {
	nextKill, nextSync := time.Duration(0), time.Duration(0)
	if p.kills > 0 {
		nextKill = p.kills/2 + time.Duration(u.rng.Int64N(int64(p.kills)))
	}
	rollouts := slices.Clone(p.rollouts)
	w := &watch{u: u, changed: u.begun}
	for now := time.Duration(0); now < runtime; now = time.Since(u.begun).Round(time.Second) {
		if err := u.write(ctx, now); err != nil {
			return err
		}
		if now >= nextSync {
			nextSync += syncPeriod
			if err := u.scale(ctx); err != nil {
				return err
			}
		}
		if len(rollouts) > 0 && now >= rollouts[0] {
			rollouts = rollouts[1:]
			u.deploy.version++
			u.tell("version %d is rolled out", u.deploy.version)
		}
		if p.kills > 0 && now >= nextKill && now < fall+5*time.Minute {
			nextKill += p.kills/2 + time.Duration(u.rng.Int64N(int64(p.kills)))
			u.deploy.killOne()
			u.tell("a process was killed")
		}
		if err := u.deploy.reconcile(ctx); err != nil {
			return err
		}
		if err := w.look(ctx, now); err != nil {
			return err
		}
		if err := pause.For(ctx, time.Second); err != nil {
			return err
		}
	}
	return u.settle(ctx)
}

// settle has what is written handled: a deployment that has scaled to zero starts once more if something is left.
func (u *unit) settle(ctx context.Context) error {
	for range 600 {
		written, handled := u.ledger.Totals()
		if handled >= written && u.ledger.Open() == 0 {
			return u.fleet.Stop()
		}
		if err := u.deploy.reconcile(ctx); err != nil {
			return err
		}
		if err := pause.For(ctx, time.Second); err != nil {
			return err
		}
	}
	return u.fleet.Stop()
}

// write writes the changes of one second.
func (u *unit) write(ctx context.Context, now time.Duration) error {
	for _, l := range loads {
		if now >= l.from {
			u.rate = l.perSecond
		}
	}
	for u.owed += u.rate; u.owed >= 1; u.owed-- {
		u.written++
		id, city := fmt.Sprint("order-", u.written), fmt.Sprint("city-", u.rng.IntN(400))
		results, err := u.orders.Commit(ctx, feed.Key(city), []feed.Write{{
			Op: feed.WriteUpsert, ID: id, Body: fmt.Appendf(nil, `{"id":%q,"city":%q}`, id, city),
		}})
		if err != nil {
			return err
		}
		u.ledger.Wrote(feed.Key(city), []string{id}, results)
	}
	return nil
}

// scale has the autoscaler decide. It reads the metric where a scaler of KEDA does: from the leases and the feed.
func (u *unit) scale(ctx context.Context) error {
	var failed error
	had := u.deploy.want
	u.deploy.want = u.scaler.decide(time.Now(), had, func() float64 {
		var e changefeed.Estimator
		est, err := e.Measure(ctx, u.orders, u.fleet.Leases)
		failed = err
		return float64(est.Total.Pending)
	})
	if u.deploy.want != had {
		u.tell("from %d to %d instances, for %v pending changes", had, u.deploy.want, u.scaler.metric)
	}
	return failed
}

// watch measures the figures.
type watch struct {
	u       *unit
	running string    // the names of the running instances
	changed time.Time // when they last changed
	even    bool
}

// look looks at the unit once a second.
func (w *watch) look(ctx context.Context, now time.Duration) error {
	u := w.u
	u.found.most = max(u.found.most, u.deploy.working())
	if names := strings.Join(u.deploy.names(), " "); names != w.running {
		w.running, w.changed, w.even = names, time.Now(), false
	}
	if err := w.lookAtBalance(ctx); err != nil {
		return err
	}
	written, handled := u.ledger.Totals()
	share := float64(written-handled) / float64(max(1, u.deploy.working()))
	switch {
	case now < rise+time.Minute: // so that the load has been felt
	case now > fall:
		u.found.after = max(u.found.after, time.Duration(share*float64(workOfChange)))
	case u.found.target == 0 && share <= targetPending:
		u.found.target = now - rise
		u.tell("the lag is at its target: %d changes for %d instances", written-handled, u.deploy.working())
	}
	return nil
}

// lookAtBalance measures how long the running instances wait until they share the leases. A wait that has no end within
// the run counts too, if it is longer than patience.
func (w *watch) lookAtBalance(ctx context.Context) error {
	if w.even || w.running == "" {
		return nil
	}
	owners, err := w.u.fleet.Owners(ctx)
	if err != nil {
		return err
	}
	waited := time.Since(w.changed)
	w.even = isEven(owners, w.u.deploy.names())
	if w.even || waited > patience {
		w.u.found.balance = append(w.u.found.balance, waited)
	}
	if !w.even && waited > patience {
		w.u.tell("not balanced for %v: %v", waited, owners)
	}
	return nil
}

// patience is longer than any balance may take.
const patience = 2 * time.Minute

// isEven reports whether some instances, and no others, share the leases.
func isEven(owners map[string]int, names []string) bool {
	low, high := 1<<30, 0
	for _, name := range names {
		low, high = min(low, owners[name]), max(high, owners[name])
	}
	return len(owners) == len(names) && high-low <= 1 && low > 0
}
