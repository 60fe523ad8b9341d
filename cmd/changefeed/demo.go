package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/terminal"
	"github.com/millrace/changefeed/internal/usage"
)

// demoOptions are the flags of demo.
type demoOptions struct {
	dir    string
	length time.Duration
	output *choice
}

const shortestDemo = 10 * time.Second

func demoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch a fleet of processors at work, and judge it",
		Long: `Watch a fleet of processors at work, and judge it.

A store with a container of orders in 4 ranges, some writers, and three instances of a
processor that share the ranges. On the way a fourth instance joins, one is killed
without a goodbye, and a range is split. At the end each acknowledged write is compared
with what the handlers got: every insert must have arrived, of every document the last
version, and never an older one after a newer one. The exit code is 1 if not.

The lease times are short, so that all this fits in 20 seconds: an instance that is
silent for 2 seconds is dead. With -o json the last line is one JSON object; latencies
there and elsewhere leave out the changes that waited for the takeover, whose time is a
figure of its own. Ctrl-C ends the demo early, with the same judgement.`,
		Example: `  changefeed demo
  changefeed demo --for 1m -d data
  changefeed demo -o json | tail -n 1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVarP(&o.dir, "dir", "d", "", "`directory` of the store, which is kept (default a temporary one, removed at the end)")
	f.DurationVar(&o.length, "for", 20*time.Second, "how long to write")
	_ = cmd.MarkFlagDirname("dir")
	o.output = output(cmd)
	return cmd
}

func (o *demoOptions) run(cmd *cobra.Command) (err error) {
	if o.length < shortestDemo {
		return usage.Flag("for", o.length.String(), fmt.Sprintf("at least %v, for the takeover to fit in", shortestDemo))
	}
	dir := o.dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "changefeed-demo-"); err != nil {
			return fmt.Errorf("make directory of the store: %w", err)
		}
		defer os.RemoveAll(dir)
	}
	out := cmd.OutOrStdout()
	if o.output.value == "json" {
		out = cmd.ErrOrStderr()
	}
	d := &demo{screen: newScreen(out), ledger: newLedger(), length: o.length}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	d.screen.leave = cancel
	found, err := d.run(ctx, dir)
	if lost := d.screen.unread(); lost != nil {
		return lost
	}
	if err != nil {
		return err
	}
	d.conclude(found)
	if o.dir != "" {
		d.screen.say("the store is kept: changefeed leases --db %s, changefeed tail --db %s --container orders", dir, dir)
	}
	if o.output.value == "json" {
		if err := json.NewEncoder(cmd.OutOrStdout()).Encode(found); err != nil {
			return err
		}
	}
	if found.Lost > 0 || found.OutOfOrder > 0 {
		return fmt.Errorf("%d lost, %d out of order", found.Lost, found.OutOfOrder)
	}
	return nil
}

// demo is a performance: a stage, those on it, and the book in which everything is noted.
type demo struct {
	orders *docstore.Container
	fleet  *fleet
	ledger *ledger
	screen *screen
	length time.Duration

	takeover *time.Duration
	rounds   *int
}

// The times of the demo's leases.
const (
	demoAcquire    = 500 * time.Millisecond
	demoRenew      = 500 * time.Millisecond
	demoExpiration = 2 * time.Second
	demoDrain      = time.Second
	demoPoll       = time.Second
	demoWork       = 2 * time.Millisecond // of a handler, for each batch
	demoLook       = 10 * time.Millisecond
	demoPatience   = 30 * time.Second // for the fleet to handle what was written
)

// run plays the demo on a store and judges it.
func (d *demo) run(ctx context.Context, dir string) (found findings, err error) {
	db, err := docstore.Open(filepath.Clean(dir), docstore.Options{})
	if err != nil {
		return found, err
	}
	defer func() { err = cmp.Or(err, db.Close()) }()
	if err := d.prepare(ctx, db); err != nil {
		return found, err
	}
	d.screen.say("container orders, keyed by /city, in %d ranges", demoRanges)
	if err := cmp.Or(d.play(ctx), d.screen.unread()); err != nil {
		return found, errors.Join(err, d.fleet.stop())
	}
	if err := d.audit(context.WithoutCancel(ctx)); err != nil {
		return found, errors.Join(err, d.fleet.stop())
	}
	found = d.ledger.judge()
	if d.takeover != nil {
		found.TakeoverMS = new(d.takeover.Milliseconds())
	}
	found.RebalanceRounds = d.rounds
	return found, nil
}

const demoRanges = 4

// prepare makes the containers.
func (d *demo) prepare(ctx context.Context, db *docstore.DB) (err error) {
	spec := docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}, Ranges: demoRanges}
	if d.orders, err = db.CreateContainer(ctx, spec); errors.Is(err, changefeed.ErrConflict) {
		return usage.Error{Err: errors.New("--dir has a container orders already: want a new directory")}
	}
	if err != nil {
		return err
	}
	records, err := db.CreateContainer(ctx, leaseSpec())
	if err != nil {
		return err
	}
	leases, err := docstore.NewLeases(ctx, records, "demo", d.orders)
	d.fleet = &fleet{source: d.orders, leases: leases, look: demoLook, report: func(instance string, err error) {
		d.screen.note("%s reports: %v", instance, err)
	}}
	return err
}

// enter starts an instance.
func (d *demo) enter(ctx context.Context, name string) error {
	d.screen.say("starting %s", name)
	_, err := d.fleet.start(ctx, changefeed.HandlerFunc(d.handle), changefeed.Options{
		Instance: name, Start: changefeed.FromBeginning(),
		Acquire: demoAcquire, Renew: demoRenew, Expiration: demoExpiration, Drain: demoDrain, Poll: demoPoll,
		Hooks: changefeed.Hooks{
			Acquired: func(l changefeed.Lease) { d.screen.note("%s works on %s", name, terminal.Short(l.Token)) },
			Released: func(l changefeed.Lease, why changefeed.Reason) {
				switch why {
				case changefeed.ReasonGiven:
					d.screen.note("%s hands over %s", name, terminal.Short(l.Token))
				case changefeed.ReasonSplit:
					d.screen.note("%s has replaced the lease of %s", name, terminal.Short(l.Token))
				}
			},
		},
	})
	return err
}

var errDead = errors.New("this instance was killed")

// handle is the handler of all instances: a little work, and a line in the book.
func (d *demo) handle(ctx context.Context, b *changefeed.Batch) error {
	arrived := time.Now()
	if err := pause.For(ctx, demoWork); err != nil {
		return err
	}
	if !d.ledger.handledBatch(b, arrived) {
		return errDead
	}
	return nil
}

// conclude writes the judgement.
func (d *demo) conclude(f findings) {
	l := d.ledger
	row := func(name string, bad bool, value, why string, args ...any) line {
		style := good
		if bad {
			style = alarming
		}
		return line{{fmt.Sprintf("  %-18s", name), plain}, {fmt.Sprintf("%10s", value), style}, {"  ", plain}, {fmt.Sprintf(why, args...), dim}}
	}
	ms := func(x float64) string {
		return time.Duration(x * float64(time.Millisecond)).Round(100 * time.Microsecond).String()
	}
	lines := []line{
		{},
		{{fmt.Sprintf("%d writes were acknowledged, %d transactions among them", f.Written, l.batches), bold}},
		row("inserts", false, fmt.Sprint(l.inserts), "documents that were new"),
		row("overwrites", false, fmt.Sprint(l.overwrites), "documents that were there already"),
		row("handled", false, fmt.Sprint(f.Handled), "versions; the others were overwritten before somebody looked"),
		row("lost", f.Lost > 0, fmt.Sprint(f.Lost), "every insert has arrived, and the last version of every document"),
		row("out of order", f.OutOfOrder > 0, fmt.Sprint(f.OutOfOrder), "never an older version after a newer one"),
		row("handled again", f.DuplicatesPlannedMoves > 0, fmt.Sprint(f.Duplicates),
			"%d because of the kill, %d because of planned moves", f.Duplicates-f.DuplicatesPlannedMoves, f.DuplicatesPlannedMoves),
		row("latency", false, ms(f.LatencyMS.P50), "from the acknowledgement to the handler; 99 of 100 within %s", ms(f.LatencyMS.P99)),
	}
	if f.RebalanceRounds != nil {
		lines = append(lines, row("rebalance", false, fmt.Sprint(*f.RebalanceRounds), "acquire rounds of %v until the newcomer had its share", demoAcquire))
	}
	if f.TakeoverMS != nil {
		lines = append(lines, row("takeover", false, ms(float64(*f.TakeoverMS)), "from the kill until others had its leases, which expire after %v", demoExpiration))
	}
	d.screen.write(append(lines, line{})...)
}
