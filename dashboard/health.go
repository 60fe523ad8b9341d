package dashboard

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/millrace/changefeed"
)

// Health is the answer of GET /healthz and GET /readyz. Both ask only this process, and make no request.
type Health struct {
	OK      bool         `json:"ok"`
	Version string       `json:"version"` // of the program
	Waiting *string      `json:"waiting"` // why a process is not ready before the units begin
	Checks  []Check      `json:"checks"`
	Units   []UnitHealth `json:"units"`
}

// Check is something that /healthz asks beside the processors: see [Options.Checks].
type Check struct {
	Name string  `json:"name"`
	OK   bool    `json:"ok"`
	Why  *string `json:"why"` // not OK
}

// UnitHealth is the health of the instance of a unit in this process.
type UnitHealth struct {
	Name      string  `json:"name"`
	Container string  `json:"container"`
	OK        bool    `json:"ok"`
	Why       *string `json:"why"`     // not OK: see Processor.Healthy
	Ready     bool    `json:"ready"`   // has leases, or waits for them
	Waiting   *string `json:"waiting"` // why an instance is not ready, or is ready without a lease

	Leases  int      `json:"leases"`              // that the instance has
	View    *float64 `json:"view_seconds"`        // since the lease store last answered
	Outage  bool     `json:"outage"`              // the handler's downstream seems to be away
	Failing *float64 `json:"oldest_wait_seconds"` // how long the oldest unfinished change has waited
	InHand  *float64 `json:"in_hand_seconds"`     // of the slowest batch; null if none is too long in the handler
	Variant string   `json:"variant"`             // hash of handler, program and options of the instance
}

// serveHealth answers GET /healthz.
func (d *Dashboard) serveHealth(w http.ResponseWriter, _ *http.Request) {
	h := d.healthNow()
	answer(w, statusOf(h.OK), h)
}

// serveReady answers GET /readyz.
func (d *Dashboard) serveReady(w http.ResponseWriter, _ *http.Request) {
	h := d.healthNow()
	isReady := h.Waiting == nil && !slices.ContainsFunc(h.Units, func(u UnitHealth) bool { return !u.Ready })
	answer(w, statusOf(isReady), h)
}

// statusOf is the status of an answer of health.
func statusOf(ok bool) int {
	if ok {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

// healthNow is the health of this process. Units without an instance in this process are not part of that.
func (d *Dashboard) healthNow() Health {
	h := Health{OK: true, Version: d.o.Version, Checks: []Check{}, Units: []UnitHealth{}}
	if d.o.Begun != nil {
		h.Waiting = textOf(called(d.o.Begun))
	}
	for _, name := range slices.Sorted(maps.Keys(d.o.Checks)) {
		why := textOf(called(d.o.Checks[name]))
		h.OK = h.OK && why == nil
		h.Checks = append(h.Checks, Check{name, why == nil, why})
	}
	for _, s := range d.allShown() {
		if s.Processor != nil {
			u := s.healthOf()
			h.OK = h.OK && u.OK
			h.Units = append(h.Units, u)
		}
	}
	return h
}

// called calls a check. A panic is an error.
func called(check func() error) (err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("the check panicked: %v", why)
		}
	}()
	return check()
}

// healthOf is the health of the instance of a unit.
func (s *shown) healthOf() UnitHealth {
	why := textOf(s.Processor.Healthy())
	u := UnitHealth{Name: s.Name, Container: s.Container, OK: why == nil, Why: why}
	runs := slices.DeleteFunc(s.Processor.Status(), func(r changefeed.Status) bool { return r.Stopping })
	if len(runs) == 0 {
		u.Waiting = new("no instance runs in this process")
		return u
	}
	now := time.Now()
	u.Ready = true
	for i := range runs {
		u.addCall(&runs[i], now)
	}
	if u.Leases == 0 && why != nil { // it does not wait for a lease: something is wrong
		u.Ready, u.Waiting = false, why
	}
	return u
}

// addCall adds a running call of the processor.
func (u *UnitHealth) addCall(r *changefeed.Status, now time.Time) {
	u.Leases += len(r.Leases)
	u.Outage = u.Outage || r.Outage
	u.View = oldest(u.View, ageOf(r.View, now))
	for i := range r.Leases {
		u.Failing = oldest(u.Failing, ageOf(r.Leases[i].Failing, now))
	}
	for _, slow := range r.Slow {
		u.InHand = oldest(u.InHand, ageOf(slow.Since, now))
	}
	for _, v := range r.Variants {
		if slices.Contains(v.Instances, r.Instance) {
			u.Variant = v.Hash()
		}
	}
	switch {
	case !r.Ready:
		u.Ready, u.Waiting = false, new("the leases of the unit do not exist yet")
	case r.At.IsZero():
		u.Ready, u.Waiting = false, new("the first round of sharing leases is not over")
	case len(r.Leases) == 0:
		u.Waiting = new(fmt.Sprintf("this instance has no lease: the unit has %d for %d instances, and some may be paused",
			r.Round.Leases, r.Round.Instances))
	}
}

// oldest is the longer of two times, of which each may be unknown.
func oldest(a, b *float64) *float64 {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}

// textOf is the text of an error; nil if there is none.
func textOf(err error) *string {
	if err == nil {
		return nil
	}
	return new(err.Error())
}
