package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/letters"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// The commands dlq that send requests to the processors of a unit: retry and release. withdraw withdraws such
// requests.

// redriveHelp is the end of the help of the commands that wait for a processor.
const redriveHelp = `

The instance that owns the range of the key does this. Such an instance must run, with the same dead letters. The
command waits for each answer as long as --wait says. Then the command withdraws the request, says why no instance has
served the request, if that is known, and goes on. If three requests in a row to a lease are not served, the command
sends that lease no more.

A line has the outcome for each letter or key, and the last line counts the outcomes. The history of the unit records
the request, too (leases history). If a change has failed again, a request was not served, or a key to release was not
held, the exit code is 1.` + leasesHelp

// leasesHelp describes where the leases of the unit are.
const leasesHelp = `

The lease container is looked for beside that of the letters; if the letters are in a FILE, --leases is needed. The
container that the unit reads is found in the same account.`

// requestOptions are the flags of the commands that find the requests of a unit.
type requestOptions struct {
	letterOptions
	leases string
}

// register adds the flags to a command.
func (o *requestOptions) register(cmd *cobra.Command) {
	o.letterOptions.register(cmd)
	o.query.Sole = true
	cmd.Flags().StringVar(&o.leases, "leases", "",
		"`address` of the lease container (default leases, beside the letters)")
}

// withLetters calls f with the letters, and with the leases among which the requests are written.
func (o *requestOptions) withLetters(cmd *cobra.Command, args []string, check func() error,
	f func(r *letters.Redrive) error,
) error {
	at, err := o.parse(cmd, args)
	if err != nil {
		return err
	}
	leases, err := letters.LeasesOf(o.account, at, o.leases)
	if err != nil {
		return err
	}
	if err := check(); err != nil {
		return err
	}
	return o.withOpener(func(opener *place.Opener) error {
		return f(&letters.Redrive{Query: o.query, Letters: at, Leases: leases, Opener: opener})
	})
}

// redriveOptions are the flags of the commands that wait for a processor.
type redriveOptions struct {
	requestOptions
	whoFlags
	wait time.Duration
}

// register adds the flags to a command.
func (o *redriveOptions) register(cmd *cobra.Command) {
	o.requestOptions.register(cmd)
	o.registerWho(cmd)
	o.report = outputRows(cmd, letters.AnswerKind)
	cmd.Flags().DurationVar(&o.wait, "wait", 30*time.Second, "how long to wait for each answer; then the request is withdrawn")
}

// askProcessors calls f, which sends the requests, and writes the answers as they come.
func (o *redriveOptions) askProcessors(cmd *cobra.Command, args []string, check func() error, report *letters.Report,
	f func(r *letters.Redrive) error,
) error {
	if o.wait <= 0 {
		return usage.Flag("wait", terminal.Exact(o.wait), "more than 0, such as 30s")
	}
	return o.withLetters(cmd, args, check, func(r *letters.Redrive) error {
		r.Wait, r.By, report.Commands = o.wait, o.acting(), r.Commands()
		err := f(r)
		if err != nil && report.Empty() {
			return err
		}
		return cmp.Or(err, report.End())
	})
}

// dlqRetryCommand is the command dlq retry.
func dlqRetryCommand() *cobra.Command {
	var o redriveOptions
	cmd := &cobra.Command{
		Use:   "retry [ADDRESS|FILE] --name NAME [ID...]",
		Short: "Have dead letters handled again",
		Long: `The changes in the letters are handled in order with the other changes of their keys. If a change is
handled, the letter is removed. If the key is held and no other letter of the key has failed, the held letters follow.
If the change fails again, the letter stays, with the new cause.` + redriveHelp + dlqHelp,
		Example: `  changefeed dlq retry cosmos:shop/letters --name mailer 4711.df8cf802
  changefeed dlq retry m.ndjson --name mailer --leases cosmos:shop/leases --all`,
		RunE: func(cmd *cobra.Command, args []string) error {
			report := letters.NewReport(o.report, "handled", "letter")
			return o.askProcessors(cmd, args, o.checkIDs, report, func(r *letters.Redrive) error {
				return r.Retry(cmd.Context(), report.Write)
			})
		},
	}
	o.register(cmd)
	cmd.Flags().BoolVar(&o.all, "all", false,
		"all letters of the unit or, with --key, of the key, except those that are held")
	return cmd
}

// dlqReleaseCommand is the command dlq release.
func dlqReleaseCommand() *cobra.Command {
	var o redriveOptions
	cmd := &cobra.Command{
		Use:   "release [ADDRESS|FILE] --name NAME [--key KEY] [ID...]",
		Short: "Let a held partition key go on without the changes that failed",
		Long: `The key was stopped by --hold when a change failed. After the release the held changes are handled in their order, and
then the key is not held any more. The letters of the changes that failed stay, to be retried or dropped. If a held
change fails, the key stays held from there. A key that is not held is an error.

The key is that of --key, or those of the letters with the IDs.` + redriveHelp + dlqHelp,
		Example: `  changefeed dlq release cosmos:shop/letters --name mailer --key London`,
		RunE: func(cmd *cobra.Command, args []string) error {
			report := letters.NewReport(o.report, "released", "key")
			return o.askProcessors(cmd, args, o.checkKey, report, func(r *letters.Redrive) error {
				return r.Release(cmd.Context(), report.Write)
			})
		},
	}
	o.register(cmd)
	cmd.Flags().Lookup("key").Usage = "the partition key to release: " + keyForms
	return cmd
}

// checkKey requires a key, or letters that have a key.
func (o *redriveOptions) checkKey() error {
	if o.query.Key == "" && len(o.query.IDs) == 0 {
		return usage.Error{Err: errors.New("--key is missing: want the partition key to release, or the ID of a " +
			"letter of it")}
	}
	return nil
}

// dlqWithdrawCommand is the command dlq withdraw.
func dlqWithdrawCommand() *cobra.Command {
	var o requestOptions
	cmd := &cobra.Command{
		Use:   "withdraw [ADDRESS|FILE] --name NAME [--key KEY]",
		Short: "Withdraw requests of dlq retry and release",
		Long: `dlq retry and dlq release withdraw their own requests when they end. If such a command was killed, the
request stays for a minute longer than the --wait of the command. changefeed leases shows the requests. If a letter is
in the handler already, that letter is the last that is handled.` + leasesHelp,
		Example: `  changefeed dlq withdraw cosmos:shop/letters --name mailer --key London
  changefeed dlq withdraw cosmos:shop/letters --name mailer --all`,
		Args: cobra.ArbitraryArgs, // checkOneKey says that ids are no keys
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withLetters(cmd, args, o.checkOneKey, func(r *letters.Redrive) error {
				n, err := r.Withdraw(cmd.Context())
				if err != nil {
					return err
				}
				return o.report.Object(withdrawn{n}, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "withdrew %s\n", terminal.Count(n, "request"))
					return err
				})
			})
		},
	}
	o.register(cmd)
	o.report = output(cmd)
	cmd.Flags().Lookup("key").Usage = "the requests for this partition key: " + keyForms
	cmd.Flags().BoolVar(&o.all, "all", false, "the requests for all keys of the unit")
	return cmd
}

// withdrawn is the result of dlq withdraw.
type withdrawn struct {
	Requests int `json:"withdrawn" about:"number of requests"`
}

// ReportedAs implements [report.Value].
func (withdrawn) ReportedAs() string { return "withdrawn_requests" }

// checkOneKey requires a key or --all. checkOneKey refuses letters, because a request need not have a letter.
func (o *requestOptions) checkOneKey() error {
	switch {
	case len(o.query.IDs) > 0:
		return usage.Error{Err: fmt.Errorf("ID is %s: requests are withdrawn by their key: want --key, or --all",
			o.query.IDs[0])}
	case o.all == (o.query.Key != ""):
		return usage.Error{Err: errors.New("--key is missing: want the partition key of the requests, or --all, " +
			"and not both")}
	}
	return nil
}
