package dashboard

import (
	"context"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
)

// The state of the units as JSON. An unknown value is null, and never 0.

// statusVersion is the version of [Status]. The number changes if a member changes meaning or goes, and not for new
// members.
const statusVersion = 1

// mostHeld is how many held keys of a lease are named.
const mostHeld = 20

// mostSkew is by how much the clock of an instance may differ from that of the lease store.
const mostSkew = 5 * time.Second

// surveyTimeout is how long a unit may take to be listed.
const surveyTimeout = 10 * time.Second

// Status is the answer of GET /status. All times are by the clock of this process, but those of leases and instances,
// which are by the clock of their store.
type Status struct {
	Version int          `json:"version"` // 1
	At      time.Time    `json:"at"`
	Name    string       `json:"name"`    // of the process
	Program string       `json:"program"` // and its version
	Write   bool         `json:"write"`   // Options.Write
	Store   bool         `json:"store"`   // there is an Options.Explorer
	Health  Health       `json:"health"`
	Units   []UnitStatus `json:"units"`
	Error   *string      `json:"error"` // why units cannot be found; null if they can

	taken time.Time
	json  []byte // made once for all who ask
}

// UnitStatus is the state of a unit.
type UnitStatus struct {
	Name      string  `json:"name"`
	Container string  `json:"container"`
	Sentence  string  `json:"sentence"` // how the unit is
	Error     *string `json:"error"`    // why the unit cannot be listed; null after success
	IsHere    bool    `json:"is_here"`  // this process runs an instance

	Lag
	Finds     []Finding  `json:"findings"` // the worst first
	Leases    []Lease    `json:"leases"`   // by their ranges
	Holes     []Hole     `json:"holes"`
	Instances []Instance `json:"instances"`
	Requests  int        `json:"requests"`      // that this listing has sent
	Charge    *float64   `json:"request_units"` // that these requests cost
	Costs     []Cost     `json:"costs"`
	Says      []string   `json:"says"` // further sentences of this process: see [Unit]
}

// Lag is how far a lease or a unit is behind.
type Lag struct {
	Pending   *int64     `json:"pending"`       // changes that are not handled
	Exact     bool       `json:"pending_exact"` // Pending is a count
	Shared    bool       `json:"pending_shared"`
	Oldest    *float64   `json:"oldest_seconds"` // how long the oldest of them has waited
	PerSecond *float64   `json:"per_second"`     // changes handled a second, since the listing before
	Left      *float64   `json:"seconds_left"`   // until nothing is behind; null if unknown, or if that is never
	Watermark *time.Time `json:"watermark"`      // all before is handled
}

// Finding is a problem: see [admin.Finding].
type Finding struct {
	Word  string `json:"word"`
	Grade string `json:"grade"` // warning or failure
	Lease string `json:"lease"`
	Text  string `json:"text"`
	Means string `json:"means"` // the same in general, also for several leases
	Next  string `json:"next"`
}

// Lease is a lease of a unit: see [admin.Lease].
type Lease struct {
	Lease      string   `json:"lease"`
	Range      string   `json:"range"`
	From       float64  `json:"from"` // where the range begins in the key space, from 0 to 1
	To         float64  `json:"to"`
	Owner      string   `json:"owner"` // empty if the lease is free
	State      string   `json:"state"`
	Position   string   `json:"position"`
	Attempts   int      `json:"attempts"`
	Held       int      `json:"held"`
	HeldKeys   []string `json:"held_keys"` // the first 20 of them, each a JSON array
	SetAside   int      `json:"set_aside"`
	Silent     float64  `json:"silent_seconds"` // since the last write
	Expiration float64  `json:"expiration_seconds"`
	InHand     *float64 `json:"in_hand_seconds"` // of the slowest batch; null if none is too long in the handler
	Failing    *float64 `json:"failing_seconds"` // since the changes fail
	Outage     *float64 `json:"outage_seconds"`
	Notes      []string `json:"notes"`
	Here       *Work    `json:"here"` // null if another process has the lease

	Lag
}

// Work is the present work of this process on a lease: see [feed.LeaseStatus].
type Work struct {
	Activity string  `json:"activity"`
	Since    float64 `json:"since_seconds"`
	InHand   int     `json:"in_hand"`
	Buffered int     `json:"buffered"`
	Parked   int     `json:"parked"`
	Failures int     `json:"failures"`
	Error    *string `json:"error"` // the last failure
}

// Hole is a part of the key space that no lease covers.
type Hole struct {
	Range string   `json:"range"`
	From  float64  `json:"from"`
	To    float64  `json:"to"`
	Notes []string `json:"notes"`
}

// Instance is an instance of a unit: see [admin.Instance].
type Instance struct {
	Name     string   `json:"name"`
	Presence string   `json:"presence"`
	IsHere   bool     `json:"is_here"` // it is of this process
	Leases   int      `json:"leases"`
	Weight   int      `json:"weight"`
	Silent   float64  `json:"silent_seconds"`
	Handler  string   `json:"handler"` // and its version; empty if the instance does not tell
	Program  string   `json:"program"`
	Options  string   `json:"options"`
	Notes    []string `json:"notes"`
}

// serveStatus answers GET /status.
func (d *Dashboard) serveStatus(w http.ResponseWriter, r *http.Request) {
	s := d.survey(r.Context())
	select {
	case <-s.done:
		write(w, http.StatusOK, s.status.json)
	case <-r.Context().Done():
	}
}

// unknownStatus is the state of a unit that cannot be listed.
func (s *shown) unknownStatus(err error) UnitStatus {
	text := err.Error()
	return UnitStatus{
		Name: s.Name, Container: s.Container, IsHere: s.Processor != nil, Error: &text,
		Sentence: "nobody knows how the unit is: " + text,
		Finds:    []Finding{}, Leases: []Lease{}, Holes: []Hole{}, Instances: []Instance{},
		Costs: []Cost{}, Says: []string{},
	}
}

// statusNow is the state of a unit.
func (s *shown) statusNow(ctx context.Context) UnitStatus {
	l, err := s.admin.List(ctx)
	if err != nil {
		return s.unknownStatus(err)
	}
	u := s.unknownStatus(errNotListed)
	u.Error = nil
	u.Sentence, u.Lag = l.Sentence(), lagOf(&l.Estimate.Total, l.At)
	u.Requests, u.Charge = l.Estimate.Cost.Requests, numberIn(l.Estimate.Cost.Charge)
	s.costs.addRequests(forListings, int64(l.Estimate.Cost.Requests), l.Estimate.Cost.Charge)
	u.Costs = s.costs.listSpent()
	if s.Says != nil {
		u.Says = textsOf(s.Says())
	}
	for _, f := range slices.Concat(l.Findings(), l.Skewed(mostSkew)) {
		next := s.completeCommands(f.Next)
		u.Finds = append(u.Finds, Finding{string(f.Word), gradeOf(f.Grade), f.Token, f.Text, f.Means, next})
	}
	for _, h := range l.Holes {
		from, to := placeOf(h.Range)
		u.Holes = append(u.Holes, Hole{h.Range.String(), from, to, textsOf(h.Notes)})
	}
	here, names := s.workHere()
	for i := range l.Leases {
		u.Leases = append(u.Leases, leaseOf(&l.Leases[i], l.At, here))
	}
	for i := range l.Instances {
		u.Instances = append(u.Instances, instanceOf(&l.Instances[i], names))
	}
	return u
}

// workHere is the work of this process, by the tokens of leases, and the names of the process's instances.
func (s *shown) workHere() (here map[string]*Work, names map[string]bool) {
	here, names = map[string]*Work{}, map[string]bool{}
	if s.Processor == nil {
		return here, names
	}
	for _, run := range s.Processor.Status() {
		names[run.Instance] = true
		for i := range run.Leases {
			l := &run.Leases[i]
			w := &Work{
				Activity: string(l.Activity), Since: time.Since(l.Since).Seconds(), InHand: l.InHand,
				Buffered: l.Buffered, Parked: l.Parked, Failures: l.Failures,
			}
			if len(l.Errors) > 0 {
				w.Error = new(l.Errors[len(l.Errors)-1].Error())
			}
			here[l.Lease.Token] = w
		}
	}
	return here, names
}

// gradeOf is the word of a grade.
func gradeOf(g admin.Grade) string {
	if g == admin.GradeFailure {
		return "failure"
	}
	return "warning"
}

// lagOf is a lag as JSON.
func lagOf(l *changefeed.Lag, now time.Time) (made Lag) {
	if l == nil || !l.Known() {
		return made
	}
	made.Pending, made.Exact, made.Shared = &l.Pending, l.Exact, l.Shared
	if age, isKnown := l.Age(now); isKnown {
		made.Oldest = new(age.Seconds())
	}
	if l.Pace != nil {
		made.PerSecond = &l.Pace.PerSecond
		if l.Pace.CatchUp != changefeed.Never {
			made.Left = new(l.Pace.CatchUp.Seconds())
		}
	}
	if !l.Watermark.IsZero() {
		made.Watermark = new(l.Watermark.UTC())
	}
	return made
}

// leaseOf is a lease as JSON.
func leaseOf(l *admin.Lease, now time.Time, here map[string]*Work) Lease {
	made := Lease{
		Lease: l.Token, Owner: l.Owner, State: string(l.State), Attempts: l.Attempts, Held: len(l.Held),
		HeldKeys: textsOf(l.Held[:min(len(l.Held), mostHeld)]),
		SetAside: len(l.SetAside), Silent: l.Silent.Seconds(), Expiration: l.Expiration.Seconds(),
		Notes: textsOf(l.Notes), Lag: lagOf(l.Lag, now), Here: here[l.Token], Position: positionOf(l.Position),
		Failing: ageOf(l.FailingSince, now), Outage: ageOf(l.Outage, now),
	}
	if !l.Range.Empty() {
		made.Range = l.Range.String()
		made.From, made.To = placeOf(l.Range)
	}
	if len(l.Slow) > 0 {
		made.InHand = new(l.InHand(now).Seconds())
	}
	return made
}

// instanceOf is an instance as JSON.
func instanceOf(i *admin.Instance, here map[string]bool) Instance {
	made := Instance{
		Name: i.Owner, Presence: string(i.Presence), Leases: i.Leases, Weight: i.Weight,
		IsHere: here[i.Owner] && i.Presence == admin.Running,
		Silent: i.Silent.Seconds(), Notes: textsOf(i.Notes),
	}
	if i.Runs != nil {
		made.Handler, made.Program, made.Options = i.Runs.Handler, i.Runs.Program, i.Runs.Options
	}
	return made
}

// positionOf is a position in words: the token, or the start of a lease.
func positionOf(p feed.Position) string {
	if p.Token != "" {
		return p.Token
	}
	return p.Start.String()
}

// numberIn is a number for JSON, which has none that is infinite or no number. A broken account may send those; then
// the value is unknown.
func numberIn(n float64) *float64 {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return nil
	}
	return &n
}

// ageOf is how many seconds ago something began; nil before the beginning.
func ageOf(since, now time.Time) *float64 {
	if since.IsZero() {
		return nil
	}
	return new(max(0, now.Sub(since).Seconds()))
}

// textsOf makes a list of JSON that is never null.
func textsOf(texts []string) []string { return append([]string{}, texts...) }

// placeOf is where a range begins and ends in the key space, from 0 to 1. Effective partition keys of the second hash
// are 16 bytes, of which the first two bits are 0.
func placeOf(r feed.Range) (from, to float64) {
	const all = 0x4000_0000_0000_0000
	return min(1, numberOf(r.Min)/all), min(1, numberOf(r.Max)/all)
}

// numberOf is the number that the first 16 digits of an edge make.
func numberOf(edge string) (n float64) {
	for i := range 16 {
		digit := 0
		if i < len(edge) {
			switch c := edge[i]; {
			case '0' <= c && c <= '9':
				digit = int(c - '0')
			case 'A' <= c && c <= 'F':
				digit = int(c-'A') + 10
			}
		}
		n = n*16 + float64(digit)
	}
	return n
}
