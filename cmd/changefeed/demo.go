package main

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/demo"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/scratch"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/ui"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// The command demo. Its result is the exit code, so a script can use the demo as a first test that a binary works on
// a machine.

// demoOptions are the flags of demo.
type demoOptions struct {
	dir    string
	length time.Duration
	report *report.Report
	ui     uiOptions
}

// shortestDemo is the shortest time that all scenes of the demo need.
const shortestDemo = 10 * time.Second

// demoCommand is the command demo. The demo itself is in cmd/changefeed/internal/demo.
func demoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:     "demo",
		GroupID: groupTools,
		Short:   "Watch a fleet of processors at work, and check the deliveries",
		Long: `The demo has a store with a container of orders in 4 ranges, some writers, and three instances of a processor that
share the ranges. On the way a fourth instance joins, an instance is killed, and a range is split.

At the end the demo compares each acknowledged write with the deliveries. Every insert must have arrived, and the last
version of every document, and never an older version after a newer version. If not, the exit code is 1.

The lease times are short, so that all this takes 20 seconds: an instance that is silent for 2 seconds counts as dead.
Latencies leave out the changes that waited for the takeover, which has a separate figure. Ctrl-C ends the demo early,
with the same judgement.`,
		Example: `  changefeed demo
  changefeed demo --for 1m --db data
  changefeed demo --for 5m --ui 127.0.0.1:8090
  changefeed demo -o json 2>/dev/null`,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.dir, "db", "", "`directory` of the store, which is kept (default a temporary directory)")
	f.DurationVar(&o.length, "for", 20*time.Second, "how long to write")
	o.ui.register(cmd)
	o.report = output(cmd)
	return cmd
}

// run runs the demo, in a temporary store unless the user has named a directory. With -o json, the screen goes to
// standard error, so standard output contains only the report.
func (o *demoOptions) run(cmd *cobra.Command) (err error) {
	if o.length < shortestDemo {
		return usage.Flag("for", terminal.Exact(o.length), fmt.Sprintf("at least %v, for the takeover to fit in",
			shortestDemo))
	}
	dir := o.dir
	if dir == "" {
		var temporary *scratch.Dir
		if temporary, err = scratch.Make("", "changefeed-demo-", exitAtOnce); err != nil {
			return err
		}
		defer func() { err = cmp.Or(err, temporary.Remove()) }()
		dir = temporary.Path
	}
	out := cmd.OutOrStdout()
	if !o.report.ForPeople() {
		out = cmd.ErrOrStderr()
	}
	// A store that the user has named is kept, and the demo reports its place.
	s := demo.Settings{Dir: dir, IsKept: o.dir != "", Length: o.length, Out: out}
	var found demo.Findings
	err = o.ui.during(cmd, o.report, ui.Options{Name: "demo"}, func(on *ui.UI) (err error) {
		s.UI = on
		found, err = demo.Play(cmd.Context(), s)
		return err
	})
	if err != nil {
		return err
	}
	return cmp.Or(o.report.Object(found, nothing), verdict(found))
}

// nothing writes nothing: the demo has shown its findings on its screen.
func nothing(io.Writer) error { return nil }

// verdict returns an error if the demo found a broken promise. Changes delivered twice are no failure, because the
// promise is at-least-once delivery.
func verdict(found demo.Findings) error {
	if found.Lost > 0 || found.OutOfOrder > 0 {
		return fmt.Errorf("%d lost, %d out of order", found.Lost, found.OutOfOrder)
	}
	return nil
}
