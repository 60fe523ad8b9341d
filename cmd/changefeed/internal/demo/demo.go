// Package demo shows and judges a fleet of processors at work. Writers and instances work over an embedded store. An
// instance joins, another is killed, and a range is split. At the end, all written changes are compared with all
// handled changes.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/explorer"
	"github.com/millrace/changefeed/cmd/changefeed/internal/ui"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/proof/fleet"
)

// Settings are those of a demo.
type Settings struct {
	Dir    string        // of the store
	IsKept bool          // the store is kept, and its place is reported
	Length time.Duration // how long writers write
	Out    io.Writer     // where the demo is shown
	UI     *ui.UI        // shows the unit too; nil if there is no dashboard
}

// Play runs the demo on a store, shows the demo, and judges the result.
func Play(ctx context.Context, s Settings) (found Findings, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d := &performance{screen: newScreen(s.Out), ledger: fleet.NewLedger(), length: s.Length, ui: s.UI}
	if d.shown, err = s.UI.Unit("demo", "orders"); err != nil {
		return found, err
	}
	d.screen.leave = cancel
	found, err = d.playAndJudge(ctx, s.Dir)
	// This error comes before the error of the run, because a demo without a reader ends.
	if lost := d.screen.readerError(); lost != nil {
		return found, lost
	}
	if err != nil {
		return found, err
	}
	d.writeJudgement(found)
	if s.IsKept {
		d.screen.writeEvent("the store is kept: changefeed leases --db %s, changefeed tail --db %s --container orders",
			s.Dir, s.Dir)
	}
	return found, nil
}

// Findings are the results of a demo.
type Findings struct {
	OK                     bool     `json:"ok" about:"nothing was lost, and nothing came out of order"`
	Written                int      `json:"written" about:"writes that were acknowledged"`
	Handled                int      `json:"handled" about:"versions that were handled, each counted once"`
	Lost                   int      `json:"lost" about:"versions that no handler got"`
	OutOfOrder             int      `json:"out_of_order" about:"versions that came after a newer version"`
	Duplicates             int      `json:"duplicates" about:"versions that came again"`
	DuplicatesPlannedMoves int      `json:"duplicates_planned_moves" about:"of these, after a lease was given to another instance"`
	Takeover               *float64 `json:"takeover_seconds" about:"from the kill to the last lease that was taken; null if the demo ended before"`
	RebalanceRounds        *int     `json:"rebalance_rounds" about:"until the leases were shared again; null if the demo ended before"`
	Latency                latency  `json:"latency_seconds" about:"from the acknowledgement of a write to the handler"`

	ledger fleet.Judgement
}

// ReportedAs implements [report.Value].
func (Findings) ReportedAs() string { return "demo" }

// verdict returns the last line for people.
func (f Findings) verdict() line {
	if f.OK {
		return line{{"PASSED", good}, {"  nothing was lost, and nothing came out of order", plain}}
	}
	return line{{"FAILED", alarming}, {fmt.Sprintf("  %d lost, %d out of order", f.Lost, f.OutOfOrder), plain}}
}

// latency is the time from the acknowledgement of a write to the handler.
type latency struct {
	P50 float64 `json:"p50" about:"half of all were faster"`
	P99 float64 `json:"p99" about:"99 of 100 were faster"`
}

// performance is a run of the demo: its store, its instances and writers, and the ledger that records everything.
type performance struct {
	orders *docstore.Container
	fleet  *fleet.Fleet
	ledger *fleet.Ledger
	screen *screen
	length time.Duration
	ui     *ui.UI   // nil if there is no dashboard
	shown  *ui.Unit // nil if there is no dashboard

	takeover *time.Duration
	rounds   *int
}

// The intervals of the demo's leases.
const (
	acquireEvery = 500 * time.Millisecond
	renewEvery   = 500 * time.Millisecond
	expiration   = 2 * time.Second
	drainTime    = time.Second
	pollEvery    = time.Second
	workTime     = 2 * time.Millisecond // of a handler, for each batch
	lookEvery    = 10 * time.Millisecond
	patience     = 30 * time.Second // time for the fleet to handle all written changes
)

// playAndJudge runs and judges the demo on a store.
func (d *performance) playAndJudge(ctx context.Context, dir string) (found Findings, err error) {
	db, err := docstore.Open(filepath.Clean(dir), docstore.Options{})
	if err != nil {
		return found, err
	}
	defer func() { err = cmp.Or(err, db.Close()) }()
	if err := d.makeContainers(ctx, db); err != nil {
		return found, err
	}
	hide, err := d.shown.Show(ctx, ui.Parts{Source: d.fleet.Source, Leases: d.fleet.Leases})
	if err != nil {
		return found, err
	}
	defer hide()
	defer d.ui.Explore(explorer.OfStore(db, dir, nil))()
	d.screen.writeEvent("container orders, keyed by /city, in %d ranges", ranges)
	if err := cmp.Or(d.playAll(ctx), d.screen.readerError()); err != nil {
		return found, errors.Join(err, d.fleet.Stop())
	}
	// A demo that ends early is judged too.
	if err := d.auditAfterStop(context.WithoutCancel(ctx)); err != nil {
		return found, errors.Join(err, d.fleet.Stop())
	}
	return d.findings(d.ledger.Judge()), nil
}

// findings returns what a judgement says of the performance. Changes that come again are no failure.
func (d *performance) findings(j fleet.Judgement) Findings {
	found := Findings{
		OK:      j.Lost == 0 && j.OutOfOrder == 0,
		Written: j.Written(), Handled: j.Handled, Lost: j.Lost, OutOfOrder: j.OutOfOrder,
		Duplicates: j.Duplicates, DuplicatesPlannedMoves: j.Planned, RebalanceRounds: d.rounds,
		Latency: latency{j.P50 / 1000, j.P99 / 1000}, ledger: j,
	}
	if d.takeover != nil {
		found.Takeover = new(d.takeover.Round(time.Millisecond).Seconds())
	}
	return found
}

const ranges = 4

// makeContainers creates the containers.
func (d *performance) makeContainers(ctx context.Context, db *docstore.DB) (err error) {
	spec := docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}, Ranges: ranges}
	// Orders of an earlier demo would be handled too, but the ledger has not recorded their writes.
	if d.orders, err = db.CreateContainer(ctx, spec); errors.Is(err, feed.ErrConflict) {
		return usage.Error{Err: errors.New("--db has a container orders already: want a new directory")}
	}
	if err != nil {
		return err
	}
	records, err := db.CreateContainer(ctx, docstore.LeaseSpec("leases"))
	if err != nil {
		return err
	}
	leases, err := docstore.NewLeases(ctx, records, "demo", d.orders)
	d.fleet = &fleet.Fleet{Source: d.orders, Leases: leases, Look: lookEvery, Report: func(instance string, err error) {
		d.screen.writeAside("%s reports: %v", instance, err)
	}}
	return err
}

// startInstance starts an instance.
func (d *performance) startInstance(ctx context.Context, name string) error {
	d.screen.writeEvent("starting %s", name)
	_, err := d.fleet.Start(ctx, feed.HandlerFunc(d.handleBatch), changefeed.Options{
		Instance: name, Start: feed.FromBeginning(),
		Acquire: acquireEvery, Renew: renewEvery, Expiration: expiration, Drain: drainTime, Poll: pollEvery,
		Hooks: changefeed.JoinHooks(d.shown.Hooks(), changefeed.Hooks{
			Acquired: func(_ context.Context, lease feed.Lease) {
				d.screen.writeAside("%s works on %s", name, lease.Token)
			},
			Released: func(_ context.Context, lease feed.Lease, why feed.Reason) {
				switch why {
				case feed.ReasonGiven:
					d.screen.writeAside("%s hands over %s", name, lease.Token)
				case feed.ReasonSplit:
					d.screen.writeAside("%s has replaced the lease of %s", name, lease.Token)
				}
			},
		}),
	})
	return err
}

var errDead = errors.New("this instance was killed")

// handleBatch is the handler of all instances: the handler works a little, and records the batch in the ledger.
func (d *performance) handleBatch(ctx context.Context, b *feed.Batch) error {
	arrived := time.Now()
	if err := pause.For(ctx, workTime); err != nil {
		return err
	}
	// The instance was killed during this batch, so the batch must count as failed, as if the process had ended.
	if !d.ledger.Handled(b, arrived) {
		return errDead
	}
	return nil
}

// writeJudgement prints the findings.
func (d *performance) writeJudgement(f Findings) {
	row := func(name string, bad bool, value, why string, args ...any) line {
		style := good
		if bad {
			style = alarming
		}
		return line{
			{fmt.Sprintf("  %-18s", name), plain},
			{fmt.Sprintf("%10s", value), style},
			{"  ", plain},
			{fmt.Sprintf(why, args...), dim},
		}
	}
	ms := func(x float64) string {
		return time.Duration(x * float64(time.Millisecond)).Round(100 * time.Microsecond).String()
	}
	lines := []line{
		{},
		{{
			fmt.Sprintf("%d writes were acknowledged, %d transactions among them", f.Written, f.ledger.Transactions),
			bold,
		}},
		row("inserts", false, fmt.Sprint(f.ledger.Inserts), "documents that were new"),
		row("overwrites", false, fmt.Sprint(f.ledger.Overwrites), "documents that were there already"),
		row("handled", false, fmt.Sprint(f.Handled), "versions; the others were overwritten before somebody looked"),
		row("lost", f.Lost > 0, fmt.Sprint(f.Lost), "every insert has arrived, and the last version of every document"),
		row("out of order", f.OutOfOrder > 0, fmt.Sprint(f.OutOfOrder), "never an older version after a newer one"),
		row("handled again", f.DuplicatesPlannedMoves > 0, fmt.Sprint(f.Duplicates),
			"%d because of the kill, %d because of planned moves", f.Duplicates-f.DuplicatesPlannedMoves,
			f.DuplicatesPlannedMoves),
		row("latency", false, ms(1000*f.Latency.P50), "from the acknowledgement to the handler; 99 of 100 within %s",
			ms(1000*f.Latency.P99)),
	}
	if f.RebalanceRounds != nil {
		lines = append(lines, row("rebalance", false, fmt.Sprint(*f.RebalanceRounds),
			"acquire rounds of %v until the newcomer had its share", acquireEvery))
	}
	if f.Takeover != nil {
		lines = append(lines, row("takeover", false, ms(1000*(*f.Takeover)),
			"from the kill until others had its leases, which expire after %v", expiration))
	}
	lines = append(lines, line{}, f.verdict())
	d.screen.write(append(lines, line{})...)
}
