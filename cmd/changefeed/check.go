package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/docstore"
)

// The command check. Its report has the same form for a directory and for a server. The report is written even if the
// check could not be finished, because a violation that was found remains a violation.

// checkOptions are the flags of check.
type checkOptions struct {
	account place.Settings
	form    *choice
}

// checkCommand is the command check. checkCommand writes its report even if the check could not be finished.
func checkCommand() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check DIR|ADDRESS",
		Short: "Check every invariant of a store",
		Long: `Check every invariant of a store: that each document has its version in the feed and each
version its document, and that indexes, counts, times and ranges agree. The check reads
everything, in one state of the store, and holds up no reader or writer. While it runs on a
store that is served, the space of deleted documents is not freed.

Each violation is a line, 20 at most, and the exit code is then 5.` + storeHelp,
		Example: `  changefeed check data
  changefeed check http://127.0.0.1:8081 -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := o.checkStore(cmd, args[0])
			if _, wrong := errors.AsType[usage.Error](err); wrong {
				return err
			}
			return cmp.Or(o.writeReport(cmd.OutOrStdout(), found), err, found.verdict())
		},
	}
	accountFlags(cmd, &o.account)
	o.form = output(cmd)
	return cmd
}

// checked is the report of a check.
type checked struct {
	Store      string               `json:"store"`
	Records    int64                `json:"records"`
	Violations []docstore.Violation `json:"violations"`
	Error      string               `json:"error,omitempty"` // why the check could not be done
}

// verdict returns an error if the check did not finish, or found violations.
func (c checked) verdict() error {
	switch {
	case c.Error != "":
		return errors.New(c.Error)
	case len(c.Violations) > 0:
		return usage.Found{Err: fmt.Errorf("%s: %w: %d violations", c.Store, docstore.ErrCorrupt, len(c.Violations))}
	}
	return nil
}

// checkStore checks a store, and reports its progress on standard error.
func (o *checkOptions) checkStore(cmd *cobra.Command, store string) (checked, error) {
	ctx := cmd.Context()
	found := checked{Store: store, Violations: []docstore.Violation{}}
	var records atomic.Int64
	how := func() string { return fmt.Sprintf("%s: %d records checked", store, records.Load()) }
	err := terminal.WithProgress(cmd.ErrOrStderr(), how, func() error {
		// An empty list stays a list, so -o json never contains null there.
		violations, err := place.Check(ctx, o.account, store, records.Store)
		found.Violations = append(found.Violations, violations...)
		return err
	})
	found.Records = records.Load()
	if err != nil && ctx.Err() != nil { // the error of an interrupted read says nothing about the store
		err = fmt.Errorf("%s: interrupted after %d records, with %s until then", store, found.Records,
			terminal.Count(len(found.Violations), "violation"))
	}
	if err != nil {
		found.Error = err.Error()
	}
	return found, err
}

// writeReport writes the report. If the check failed, there is no summary, because the error follows.
func (o *checkOptions) writeReport(w io.Writer, c checked) error {
	if o.form.value == "json" {
		return json.NewEncoder(w).Encode(c)
	}
	for _, v := range c.Violations {
		if _, err := fmt.Fprintln(w, v); err != nil {
			return err
		}
	}
	if c.verdict() != nil {
		return nil
	}
	_, err := fmt.Fprintf(w, "%s: %d records, no violation\n", c.Store, c.Records)
	return err
}

// checkCopy checks a new copy.
func (o *checkOptions) checkCopy(cmd *cobra.Command, dir string) error {
	found, err := o.checkStore(cmd, dir)
	if err != nil {
		return err
	}
	for _, v := range found.Violations {
		fmt.Fprintln(cmd.ErrOrStderr(), v)
	}
	return found.verdict()
}
