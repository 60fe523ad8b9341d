package scaler_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/proof/fleet"
)

// pod is a pod of the deployment. A killed container is started again in the same pod, as another process.
type pod struct {
	name     string
	version  int // of the deployment
	process  *process
	restarts int
	startsAt time.Time // when its container starts; the process is nil before
	killAt   time.Time // when the grace is over, once the pod was asked to end
}

// process is one life of a container.
type process struct {
	id       string // by which the ledger knows it: instances of one name follow each other
	instance *fleet.Instance
	begun    time.Time

	mu     sync.Mutex
	served bool          // it has had a lease
	first  time.Duration // from its begin to its first lease
}

// deployment is the controller of the pods: it starts and ends as many as are wanted, and replaces those of an older
// version with a surge.
type deployment struct {
	u       *unit
	rng     *rand.Rand
	want    int
	version int
	made    int
	pods    []*pod
	leaving []*pod
	ended   []*process
	overdue int // pods that did not end in their grace
}

// Defaults of Kubernetes, but for the grace: Run returns within four times Options.Drain.
const (
	grace       = 45 * time.Second
	surgePart   = 0.25 // maxSurge; maxUnavailable is 0
	startAtMost = 8 * time.Second
)

// reconcile starts and ends pods; it is called once a second.
func (d *deployment) reconcile(ctx context.Context) error {
	d.bury()
	surge := 0
	if slices.ContainsFunc(d.pods, func(p *pod) bool { return p.version != d.version }) {
		surge = max(1, int(float64(d.want)*surgePart+0.999))
	}
	fresh := d.count(func(p *pod) bool { return p.version == d.version })
	for len(d.pods) < d.want+surge && fresh < d.want {
		d.create()
		fresh++
	}
	now := time.Now()
	for _, p := range d.pods {
		if p.process == nil && !now.Before(p.startsAt) {
			if err := d.start(ctx, p); err != nil {
				return err
			}
		}
	}
	d.retire()
	return nil
}

// retire has pods end: old ones for which a ready one has come, and those that are too many.
func (d *deployment) retire() {
	ready := d.count(func(p *pod) bool { return p.process != nil })
	for len(d.pods) > d.want {
		i := slices.IndexFunc(d.pods, func(p *pod) bool { return p.version != d.version })
		if i < 0 {
			i = d.leastUseful()
		}
		if p := d.pods[i]; p.process != nil && ready <= d.want && p.version != d.version {
			return // maxUnavailable is 0
		}
		d.endPod(i)
		ready = d.count(func(p *pod) bool { return p.process != nil })
	}
}

// leastUseful is a pod that has not started, or the youngest.
func (d *deployment) leastUseful() int {
	if i := slices.IndexFunc(d.pods, func(p *pod) bool { return p.process == nil }); i >= 0 {
		return i
	}
	return len(d.pods) - 1
}

func (d *deployment) count(is func(*pod) bool) (n int) {
	for _, p := range d.pods {
		if is(p) {
			n++
		}
	}
	return n
}

func (d *deployment) create() {
	d.made++
	d.pods = append(d.pods, &pod{
		name: fmt.Sprintf("mailer-%d-%d", d.version, d.made), version: d.version,
		startsAt: time.Now().Add(time.Second + time.Duration(d.rng.Int64N(int64(startAtMost)))),
	})
}

// start starts a process in a pod, with the pod's name as that of its instance.
func (d *deployment) start(ctx context.Context, p *pod) error {
	p.restarts++
	r := &process{id: fmt.Sprintf("%s/%d", p.name, p.restarts), begun: time.Now()}
	o := d.u.options
	o.Instance, o.Variant = p.name, fmt.Sprint("mailer ", p.version)
	o.Hooks.Acquired = func(context.Context, feed.Lease) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.served {
			r.served, r.first = true, time.Since(r.begun)
		}
	}
	var err error
	r.instance, err = d.u.fleet.Start(ctx, d.u.newHandler(r.id), o)
	p.process = r
	return err
}

// endPod is SIGTERM: the process hands its leases over, and is killed if it has not ended after the grace.
func (d *deployment) endPod(i int) {
	p := d.pods[i]
	d.pods = slices.Delete(d.pods, i, i+1)
	if p.process == nil {
		return
	}
	p.killAt = time.Now().Add(grace)
	p.process.instance.Leave()
	d.leaving = append(d.leaving, p)
}

// bury forgets the pods that have ended, and kills those whose grace is over.
func (d *deployment) bury() {
	d.leaving = slices.DeleteFunc(d.leaving, func(p *pod) bool {
		select {
		case <-p.process.instance.Ended():
			d.ended = append(d.ended, p.process)
			return true
		default:
		}
		if time.Now().After(p.killAt) {
			d.overdue++
			d.u.kill(p.process)
			d.ended = append(d.ended, p.process)
			return true
		}
		return false
	})
}

// killOne kills the process of a pod, as for its memory, or with its node. The container starts again in its pod, or
// another pod takes the place of this one.
func (d *deployment) killOne() {
	running := slices.DeleteFunc(slices.Clone(d.pods), func(p *pod) bool { return p.process == nil })
	if len(running) == 0 {
		return
	}
	p := running[d.rng.IntN(len(running))]
	d.u.kill(p.process)
	d.ended = append(d.ended, p.process)
	p.process = nil
	if d.rng.IntN(2) == 0 { // its node is gone
		d.pods = slices.DeleteFunc(d.pods, func(o *pod) bool { return o == p })
		return
	}
	p.startsAt = time.Now().Add(time.Second + time.Duration(d.rng.Int64N(int64(startAtMost))))
}

// working counts the pods whose process runs.
func (d *deployment) working() int { return d.count(func(p *pod) bool { return p.process != nil }) }

// names are the instances of the pods that run.
func (d *deployment) names() (names []string) {
	for _, p := range d.pods {
		if p.process != nil {
			names = append(names, p.name)
		}
	}
	return names
}

// newHandler returns the handler of a process. It works on one change at a time, however many leases the process has:
// so an instance has a rate, and more instances are faster.
func (u *unit) newHandler(id string) feed.Handler {
	processor := make(chan struct{}, 1)
	return feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
		arrived := time.Now()
		select {
		case processor <- struct{}{}:
			defer func() { <-processor }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := pause.For(ctx, time.Duration(len(b.Changes))*workOfChange); err != nil {
			return err
		}
		mine := *b
		mine.Instance = id
		if !u.ledger.Handled(&mine, arrived) {
			return fleet.ErrCutOff
		}
		return nil
	})
}

// kill kills a process: nothing of it reaches the leases any more.
func (u *unit) kill(r *process) {
	u.ledger.Kill(r.id, nil)
	r.instance.Kill()
}
