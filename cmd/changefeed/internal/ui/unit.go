package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/dashboard"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/sentence"
	"github.com/millrace/changefeed/metrics"
	"github.com/millrace/changefeed/outbox"
)

// A Unit is a unit that a command runs, with instruments. A nil Unit is shown nowhere.
type Unit struct {
	ui              *UI
	name, container string
	metrics         *metrics.Metrics
	relay           atomic.Pointer[outbox.Relay] // nil without a relay, or while not shown
}

// Unit returns the display of a unit.
func (u *UI) Unit(name, container string) (*Unit, error) {
	if u == nil {
		return nil, nil
	}
	m, err := metrics.New(metrics.Options{Unit: name, Container: container, MeterProvider: u.provider})
	return &Unit{ui: u, name: name, container: container, metrics: m}, err
}

// Hooks are the hooks through which a processor reports and counts events.
func (u *Unit) Hooks() changefeed.Hooks {
	if u == nil {
		return changefeed.Hooks{}
	}
	return u.metrics.Hooks().And(u.ui.dashboard.Events(u.name, u.container))
}

// Parts are the parts of a unit.
type Parts struct {
	Source    feed.Source
	Leases    feed.LeaseStore
	Letters   feed.DeadLetters      // nil if there are none
	Processor *changefeed.Processor // nil if this process has no instance
	Commands  unit.Commands         // about the unit
}

// Show shows a unit, and measures the instance, until hide is called.
func (u *Unit) Show(ctx context.Context, parts Parts) (hide func(), err error) {
	if u == nil {
		return func() {}, nil
	}
	stop := func() error { return nil }
	if parts.Processor != nil {
		if stop, err = u.metrics.Observe(parts.Processor); err != nil {
			return nil, err
		}
	}
	box, _ := parts.Letters.(feed.LetterBox)
	away := u.ui.dashboard.Show(dashboard.Unit{
		Name: u.name, Container: u.container, Source: parts.Source, Leases: parts.Leases, Letters: box,
		LettersAt: parts.Commands.Letters, Processor: parts.Processor,
		Says:     u.says,
		Complete: func(advice string) string { return parts.Commands.Complete(advice) },
	})
	u.ui.begun.Add(1)
	ctx, end := context.WithCancel(ctx)
	var measuring sync.WaitGroup
	measuring.Go(func() { u.measureLag(ctx, parts.Source, parts.Leases) })
	return func() {
		end()
		measuring.Wait()
		away()
		_ = stop() // fails only if it was called before
	}, nil
}

// Relay adds the hooks that count published events.
func (u *Unit) Relay(hooks outbox.RelayHooks) outbox.RelayHooks {
	if u == nil {
		return hooks
	}
	return u.metrics.RelayHooks(hooks)
}

// ShowRelay measures a relay until hide is called.
func (u *Unit) ShowRelay(r *outbox.Relay) (hide func(), err error) {
	if u == nil {
		return func() {}, nil
	}
	stop, err := u.metrics.ObserveRelay(r)
	if err != nil {
		return nil, err
	}
	u.relay.Store(r)
	return func() {
		u.relay.Store(nil)
		_ = stop() // fails only if it was called before
	}, nil
}

// says is the page's text about a relay.
func (u *Unit) says() []string {
	r := u.relay.Load()
	if r == nil {
		return nil
	}
	return relaySentences(r.Status(), time.Now())
}

// relaySentences says how far a relay is.
func relaySentences(s outbox.RelayStatus, now time.Time) (all []string) {
	text := fmt.Sprintf("The broker has accepted %s", sentence.Count(s.Published, "message"))
	if s.Published > 0 {
		text += ", the last one " + sentence.Duration(s.Lag) + " after its commit"
	}
	if s.Failed > 0 {
		text += "; " + sentence.Count(s.Failed, "call") + " have failed"
	}
	if s.Parked > 0 {
		text += "; " + sentence.Count(s.Parked, "event") + " parked"
	}
	all = append(all, text+".")
	if s.Waiting > 0 {
		text := fmt.Sprintf("On their way: events of %s, the oldest for %s", sentence.Count(s.Waiting, "key"),
			sentence.Duration(now.Sub(s.Oldest)))
		if !s.Expires.IsZero() {
			text += "; the first expires at " + s.Expires.UTC().Format(time.TimeOnly) + " UTC"
		}
		all = append(all, text+".")
	}
	if s.Err != nil {
		all = append(all, "The last call has failed: "+s.Err.Error())
	}
	return all
}

// lagEvery is how often the lag of a unit is measured for metrics, which costs requests; and scraped is how long after
// the last question for metrics.
const (
	lagEvery = 15 * time.Second
	scraped  = 2 * time.Minute
)

// errNotAsked is why the lag of a unit is unknown while nobody asks for metrics, and when the unit has ended.
var errNotAsked = errors.New("nobody asks for metrics")

// measureLag measures the lag of a unit while somebody asks for metrics, until ctx ends. Otherwise the lag is unknown:
// an old lag would look like the present lag.
func (u *Unit) measureLag(ctx context.Context, source feed.Source, leases feed.LeaseStore) {
	var estimator changefeed.Estimator
	ticks := time.NewTicker(lagEvery)
	defer ticks.Stop()
	defer u.metrics.RecordLag(changefeed.Estimation{}, errNotAsked)
	for {
		if u.ui.scrapes.since() < scraped {
			lag, err := estimator.Measure(ctx, source, leases)
			if errors.Is(ctx.Err(), context.Canceled) {
				return
			}
			u.metrics.RecordLag(lag, err)
		} else {
			u.metrics.RecordLag(changefeed.Estimation{}, errNotAsked)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// scrapes serves metrics, and remembers when.
type scrapes struct {
	next http.Handler
	last atomic.Int64 // in nanoseconds since 1970; 0 before the first
}

// ServeHTTP implements [http.Handler].
func (s *scrapes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.last.Store(time.Now().UnixNano())
	s.next.ServeHTTP(w, r)
}

// since is how long ago somebody asked last.
func (s *scrapes) since() time.Duration { return time.Since(time.Unix(0, s.last.Load())) }
