package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/doctor"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// The command doctor. cmd/changefeed/internal/doctor has the checks.

// doctorOptions are the flags of doctor.
type doctorOptions struct {
	placeFlags
	each     time.Duration // per check
	whole    time.Duration
	intended []string
	report   *report.Report
}

// doctorCommand is the command doctor.
func doctorCommand() *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:     "doctor [ADDRESS|DIR]",
		GroupID: groupTools,
		Short:   "Find problems of an account, a store or units",
		Long: `A line for each check: ok, warn or FAIL, the name of the check, the finding and, after warn and FAIL, the
next step. An unknown answer is a warning. A check that fails keeps no other from running. If a check fails, the exit
code is 1; warnings do not change it. Nothing is changed.

An account or a server: the account and the key that are used, and where they come from; encryption; the name of the host;
the connection; the certificate; whether the key reads and writes (asked with a write that is refused in any case); the clock
of this machine; the latency; containers; throughput; and, of a small store that changefeed serve has open, all invariants.

A directory: the disk; whether the store opens; containers; all invariants of a small store.

Units: the containers with the partition key /id whose documents are leases, and leases by name. For each unit the
leases (holes, overlaps, outages, expired or foreign owners, pauses), instances and their clocks, lag, held keys and, if
the database has a container of dead letters, those. The address of a container narrows this to the units of that lease
container, or to the units that read that container.`,
		Example: `  changefeed doctor http://127.0.0.1:8081
  changefeed doctor data
  changefeed doctor cosmos:shop/leases -o json | jq 'select(.verdict == "fail")'`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	o.register(cmd)
	cmd.Flags().DurationVar(&o.each, "timeout", 10*time.Second, "how long each check may take")
	cmd.Flags().DurationVar(&o.whole, "wait", 2*time.Minute, "how long all checks may take")
	registerIntended(cmd, &o.intended)
	o.report = output(cmd)
	return cmd
}

// run runs all checks.
func (o *doctorOptions) run(cmd *cobra.Command, args []string) error {
	for name, d := range map[string]time.Duration{"timeout": o.each, "wait": o.whole} {
		if d <= 0 {
			return usage.Flag(name, terminal.Exact(d), "more than 0, such as 30s")
		}
	}
	at, err := o.wholeAddress(cmd, args)
	if err != nil {
		return err
	}
	rows := o.report.Rows()
	return o.withOpener(func(opener *place.Opener) error {
		e := doctor.Examination{Opener: opener, At: at, Each: o.each, Whole: o.whole, Intended: o.intended}
		e.Tell = func(f doctor.Finding) error {
			if o.report.ForPeople() {
				text := terminal.Wrap(f.Line(), 0, terminal.Of(o.report.Out).Room(), doctor.Indent)
				_, err := fmt.Fprintln(o.report.Out, text)
				return err
			}
			return rows.Add(f.Value())
		}
		sum, err := e.Run(cmd.Context())
		if err != nil {
			return err
		}
		if !o.report.ForPeople() {
			err = rows.Add(sum)
		} else {
			_, err = fmt.Fprintln(o.report.Out, sum.Text())
		}
		if err != nil || sum.OK {
			return err
		}
		if sum.Failed == 0 {
			return fmt.Errorf("none of %d checks could find anything out", sum.Checks)
		}
		return fmt.Errorf("%s of %d failed", terminal.Count(sum.Failed, "check"), sum.Checks)
	})
}
