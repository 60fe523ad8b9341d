package scaler_test

import (
	"math"
	"testing"
	"time"
)

// autoscaler decides how many instances a unit has, as KEDA 2 and the horizontal pod autoscaler of Kubernetes do with
// an external metric of type AverageValue. KEDA reads the metric at intervals and starts the first instance, or ends
// the last one; between one instance and the most, the pod autoscaler decides.
type autoscaler struct {
	least, most int
	target      float64       // pending changes for each instance
	poll        time.Duration // pollingInterval of KEDA
	cooldown    time.Duration // cooldownPeriod of KEDA: how long the metric is 0 before the last instance ends
	stabilize   time.Duration // stabilizationWindowSeconds of scaling down

	polled   time.Time
	metric   float64
	active   time.Time // when the metric was last above 0
	advised  []advice
	lastStep []step
}

// advice is what the metric alone would have.
type advice struct {
	at time.Time
	n  int
}

// step is a change of the number of instances.
type step struct {
	at time.Time
	by int
}

// The defaults of the pod autoscaler.
const (
	syncPeriod = 15 * time.Second
	stepPeriod = 15 * time.Second // of its policies: 4 pods or twice as many up, all down
	tolerance  = 0.1
	stepPods   = 4
)

// newAutoscaler has the defaults of KEDA and of the pod autoscaler.
func newAutoscaler(least, most int, target float64) *autoscaler {
	return &autoscaler{
		least: least, most: most, target: target,
		poll: 30 * time.Second, cooldown: 300 * time.Second, stabilize: 300 * time.Second,
	}
}

// decide returns how many instances there are to be. It is called once in each syncPeriod.
func (a *autoscaler) decide(now time.Time, have int, measure func() float64) int {
	if a.polled.IsZero() || now.Sub(a.polled) >= a.poll {
		a.polled, a.metric = now, measure()
	}
	if a.metric > 0 || a.active.IsZero() { // initialCooldownPeriod is the cool-down too: see docs/scaling.md
		a.active = now
	}
	switch {
	case have == 0 && a.metric > 0:
		return max(1, a.least)
	case have == 0:
		return 0
	case a.least == 0 && now.Sub(a.active) >= a.cooldown:
		a.advised, a.lastStep = nil, nil
		return 0
	}
	want := have
	if use := a.metric / a.target / float64(have); math.Abs(use-1) > tolerance {
		want = int(math.Ceil(a.metric / a.target))
	}
	want = a.limit(now, have, a.stabilized(now, min(max(want, 1, a.least), a.most)))
	if want != have {
		a.lastStep = append(a.lastStep, step{now, want - have})
	}
	return want
}

// stabilized is the largest advice of the stabilization window.
func (a *autoscaler) stabilized(now time.Time, n int) int {
	a.advised = append(a.advised, advice{now, n})
	for now.Sub(a.advised[0].at) > a.stabilize {
		a.advised = a.advised[1:]
	}
	for _, earlier := range a.advised {
		n = max(n, earlier.n)
	}
	return n
}

// limit applies the policy of scaling up, whose period may have seen other steps. Scaling down, a step may end all
// but the least.
func (a *autoscaler) limit(now time.Time, have, want int) int {
	begun := have
	for _, s := range a.lastStep {
		if now.Sub(s.at) < stepPeriod && s.by > 0 {
			begun -= s.by
		}
	}
	return min(want, max(begun+stepPods, 2*begun))
}

// The rules of the pod autoscaler, by their documentation.
func TestTheAutoscalerFollowsItsRules(t *testing.T) {
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a := newAutoscaler(0, 20, 10)
	have, now := 0, time.Duration(0)
	for _, c := range []struct {
		until  time.Duration
		metric float64 // from the last line on
		want   int
		why    string
	}{
		{0, 0, 0, "there is nothing to do"},
		{30 * time.Second, 1000, 1, "KEDA starts the first"},
		{45 * time.Second, 1000, 5, "four more at most in 15 s"},
		{60 * time.Second, 1000, 10, "or twice as many"},
		{75 * time.Second, 1000, 20, "or the most"},
		{90 * time.Second, 190, 20, "within the tolerance of a tenth"},
		{120 * time.Second, 100, 20, "what was advised before counts for 5 minutes"},
		{390 * time.Second, 100, 20, "as long as that is in the window"},
		{420 * time.Second, 100, 10, "and then no more"},
		{720 * time.Second, 0, 10, "nothing is pending: the window and the cool-down begin"},
		{735 * time.Second, 0, 0, "KEDA ends all"},
		{780 * time.Second, 0, 0, "and none begins"},
	} {
		for ; now <= c.until; now += syncPeriod {
			have = a.decide(begun.Add(now), have, func() float64 { return c.metric })
		}
		if have != c.want {
			t.Errorf("after %v with a metric of %v: %d instances, want %d: %s", c.until, c.metric, have, c.want, c.why)
		}
	}
}
