package functions

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/trigger/function"
)

// A Plan says how a function would run.
type Plan struct {
	Name         string       `json:"name" about:"of the function"`
	Program      []string     `json:"program" about:"the custom handler and the arguments in host.json"`
	Source       Place        `json:"source" about:"the monitored container"`
	Leases       Place        `json:"leases" about:"the lease container"`
	CreateLeases bool         `json:"create_leases" about:"a missing lease container is made"`
	Prefix       string       `json:"prefix" about:"leaseContainerPrefix, the name of the unit; may be empty"`
	Mode         string       `json:"mode" about:"latest, or all"`
	Start        string       `json:"start" about:"where new leases begin: now, beginning or a time"`
	BatchSize    int          `json:"batch_size" about:"changes in a batch, at most; 0 is a whole page"`
	Poll         float64      `json:"poll" about:"pause between reads when nothing is left, in seconds"`
	Acquire      float64      `json:"acquire" about:"time between rounds of sharing leases"`
	Expiration   float64      `json:"expiration" about:"silence after which others take leases"`
	Renew        float64      `json:"renew" about:"time between renewals of idle leases"`
	Timeout      *float64     `json:"timeout" about:"how long an invocation may take; null is no limit"`
	Retry        *RetryPlan   `json:"retry" about:"the retry policy; null if there is none"`
	Outputs      []OutputPlan `json:"outputs" about:"containers that the function writes"`
}

// A Place is a container of a connection.
type Place struct {
	Account   string `json:"account" about:"URL of the account"`
	Setting   string `json:"setting" about:"the setting that describes the account"`
	Identity  string `json:"identity" about:"key, or the kind of the identity of Microsoft Entra ID"`
	Database  string `json:"database" about:"of the container"`
	Container string `json:"container" about:"id of the container"`
}

// A RetryPlan is a retry policy.
type RetryPlan struct {
	Retries *int    `json:"retries" about:"after the first attempt; null is no limit"`
	Least   float64 `json:"least" about:"the shortest delay, in seconds"`
	Most    float64 `json:"most" about:"the longest delay, in seconds"`
}

// An OutputPlan is an output binding.
type OutputPlan struct {
	Name   string `json:"name" about:"key in Outputs, or $return"`
	To     Place  `json:"to" about:"the container"`
	Create bool   `json:"create" about:"a missing container is made"`
}

// ReportedAs implements [report.Value].
func (Plan) ReportedAs() string { return "function" }

// PlanKind describes the objects of functions --check.
var PlanKind = report.Kind{Name: "function", About: "How a function would run: functions --check.", Of: Plan{}}

// Plans returns how the functions of an app would run.
func Plans(app *function.App) (plans []Plan) {
	program := append([]string{app.Program.Executable}, app.Program.Arguments...)
	if app.Program.WorkerPath != "" {
		program = append(program, app.Program.WorkerPath)
	}
	program = append(program, app.Program.WorkerArguments...)
	for _, f := range app.Functions {
		t := f.Trigger
		p := Plan{
			Name: f.Name, Program: program, Source: placeOf(t.Connection, t.Database, t.Container),
			Leases:       placeOf(t.LeaseConnection, t.LeaseDatabase, t.LeaseContainer),
			CreateLeases: t.CreateLeases, Prefix: t.LeasePrefix, Mode: "latest", Start: startOf(t).String(),
			BatchSize: t.MaxItems, Poll: t.Poll.Seconds(), Acquire: t.Acquire.Seconds(),
			Expiration: t.Expiration.Seconds(), Renew: t.Renew.Seconds(), Outputs: []OutputPlan{},
		}
		if t.AllVersions {
			p.Mode = "all"
		}
		if app.Timeout > 0 {
			p.Timeout = new(app.Timeout.Seconds())
		}
		if r := f.Retry; r != nil {
			p.Retry = &RetryPlan{Least: (r.Fixed + r.Least).Seconds(), Most: (r.Fixed + r.Most).Seconds()}
			if r.Max >= 0 {
				p.Retry.Retries = new(r.Max)
			}
		}
		for _, out := range f.Outputs {
			p.Outputs = append(p.Outputs,
				OutputPlan{out.Name, placeOf(out.Connection, out.Database, out.Container), out.Create})
		}
		plans = append(plans, p)
	}
	return plans
}

// Unit returns a text that is the same for all instances of the unit: see [instance.Instance.Place].
func (p Plan) Unit() string {
	same := func(of Place) string {
		login := place.Login{Endpoint: of.Account}
		return place.Settings{}.Same(login.Address("", of.Database, of.Container))
	}
	return fmt.Sprintf("%q %s %s", p.Prefix, same(p.Source), same(p.Leases))
}

// placeOf returns a container of a connection.
func placeOf(c function.Connection, database, container string) Place {
	identity := "key"
	if c.Key == "" {
		identity = cmp.Or(string(c.Identity.Kind), "default")
	}
	return Place{c.Endpoint, c.Setting, identity, database, container}
}

// WriteText writes a plan for people.
func (p Plan) WriteText(w io.Writer) error {
	timeout := "none"
	if p.Timeout != nil {
		timeout = seconds(*p.Timeout)
	}
	create := ""
	if p.CreateLeases {
		create = ", made if missing"
	}
	batch := "whole pages"
	if p.BatchSize > 0 {
		batch = fmt.Sprintf("at most %s", terminal.Count(p.BatchSize, "change"))
	}
	lines := []string{
		p.Name,
		"program  " + strings.Join(p.Program, " "),
		"source   " + p.Source.text(),
		fmt.Sprintf("leases   %s, prefix %q%s", p.Leases.text(), p.Prefix, create),
		fmt.Sprintf("start    %s, for new leases; mode %s", p.Start, p.Mode),
		"batches  " + batch + ", timeout " + timeout,
		fmt.Sprintf("times    poll %s, acquire %s, expiration %s, renew %s", seconds(p.Poll), seconds(p.Acquire),
			seconds(p.Expiration), seconds(p.Renew)),
		"retry    " + p.Retry.text(),
	}
	for _, out := range p.Outputs {
		line := "output   " + out.Name + ": " + out.To.text()
		if out.Create {
			line += ", made if missing"
		}
		lines = append(lines, line)
	}
	for i := range lines {
		lines[i] = terminal.Harmless(lines[i])
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n  "))
	return err
}

// text returns the container for people.
func (p Place) text() string {
	return fmt.Sprintf("%s/%s of %s (%s of setting %s)", p.Database, p.Container, p.Account, p.Identity, p.Setting)
}

// text returns the policy for people.
func (r *RetryPlan) text() string {
	switch {
	case r == nil:
		return "for ever, from 100ms to 30s, because no policy is set"
	case r.Retries == nil:
		return fmt.Sprintf("for ever, from %s to %s", seconds(r.Least), seconds(r.Most))
	}
	return fmt.Sprintf("%d times, from %s to %s; then for ever, unless changes are parked", *r.Retries, seconds(r.Least),
		seconds(r.Most))
}

// seconds returns a duration in the form of Go.
func seconds(n float64) string { return time.Duration(n * float64(time.Second)).String() }
