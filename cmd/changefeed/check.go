package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/docstore"
)

// The command check. Its report has the same form for a directory and for a server. The report is written even if the
// check could not be finished, because a violation that was found remains a violation.

// checkOptions are the flags of check.
type checkOptions struct {
	account place.Settings
	report  *report.Report
}

// checkCommand is the command check. checkCommand writes its report even if the check could not be finished.
func checkCommand() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:     "check DIR|ADDRESS",
		GroupID: groupStore,
		Short:   "Check every invariant of a store",
		Long: `Each document must have a version in the feed, and each version a document. Indexes, counts, times and
ranges must agree. The check reads a snapshot of the store, and blocks no reader and no writer. During the check of a
served store, the space of deleted documents is not freed.

Each violation is a line, 20 at most. If there is any, the exit code is 5.

DIR is the directory of a store that no process has open. ADDRESS is that of a store that changefeed serve has open,
such as http://127.0.0.1:8081; that needs the read-write key.`,
		Example: `  changefeed check data
  changefeed check http://127.0.0.1:8081 -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := o.checkStore(cmd, args[0])
			if _, wrong := errors.AsType[usage.Error](err); wrong {
				return err
			}
			return cmp.Or(o.report.Object(found, found.writeText), err, found.verdict())
		},
	}
	accountFlags(cmd, &o.account)
	o.report = output(cmd)
	return cmd
}

// checked is the report of a check.
type checked struct {
	Store      string               `json:"store" about:"directory or address"`
	OK         bool                 `json:"ok" about:"the check was done, and there is no violation"`
	Documents  *int64               `json:"documents" about:"documents in the store when the check began"`
	Records    int64                `json:"records" about:"records that were checked: several for a document"`
	Violations []docstore.Violation `json:"violations" about:"at most 20"`
	Error      report.Known         `json:"error" about:"why the check could not be done; null after a check"`
}

// ReportedAs implements [report.Value].
func (checked) ReportedAs() string { return "check" }

// verdict returns an error if the check did not finish, or found violations.
func (c checked) verdict() error {
	switch {
	case c.Error != "":
		return errors.New(string(c.Error))
	case len(c.Violations) > 0:
		return usage.Found{Err: fmt.Errorf("%s: %w: %d violations", c.Store, docstore.ErrCorrupt, len(c.Violations))}
	}
	return nil
}

// checkStore checks a store, and reports its progress on standard error.
func (o *checkOptions) checkStore(cmd *cobra.Command, store string) (checked, error) {
	ctx := cmd.Context()
	found := checked{Store: store, Violations: []docstore.Violation{}}
	var reached atomic.Pointer[place.Checked]
	reached.Store(&place.Checked{})
	measure := func() report.State { return stateOf(*reached.Load()) }
	err := o.report.During(store, report.Documents, measure, func() error {
		// An empty list stays a list, so -o json never contains null there.
		violations, err := place.Check(ctx, o.account, store, func(c place.Checked) { reached.Store(&c) })
		found.Violations = append(found.Violations, violations...)
		return err
	})
	found.Records, found.Documents = reached.Load().Records, reached.Load().Documents
	if err != nil && ctx.Err() != nil { // the error of an interrupted read says nothing about the store
		err = fmt.Errorf("%s: interrupted after %s, with %s until then; the same command begins anew", store,
			terminal.Count(found.Records, "record"), terminal.Count(len(found.Violations), "violation"))
	}
	if err != nil {
		found.Error = report.Known(place.Plain(err))
	}
	found.OK = found.verdict() == nil
	return found, err
}

// recordsOfDocument is how many records a store has for a document: the document, its version, its place in the index
// of ids, and the check of the version.
const recordsOfDocument = 4

// stateOf returns the progress of a check in documents, because users do not know about records. The number is an
// estimate.
func stateOf(c place.Checked) report.State {
	s := report.State{Done: c.Records / recordsOfDocument}
	if c.Documents != nil {
		s.Total = *c.Documents
		s.Done = min(s.Done, s.Total)
	}
	return s
}

// writeText writes the report for people. If the check failed, there is no summary, because the error follows.
func (c checked) writeText(w io.Writer) error {
	for _, v := range c.Violations {
		if _, err := fmt.Fprintln(w, v); err != nil {
			return err
		}
	}
	if c.verdict() != nil {
		return nil
	}
	size := terminal.Count(c.Records, "record")
	if c.Documents != nil {
		size = terminal.Count(*c.Documents, "document") + " in " + size
	}
	_, err := fmt.Fprintf(w, "%s: %s, no violation\n", c.Store, size)
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
