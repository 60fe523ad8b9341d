package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/scratch"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/docstore"
)

// The command backup. A copy counts as a backup only after an opening and a check, because on the day of need, there
// may be nothing left to compare the copy with.

// backupOptions are the flags of backup.
type backupOptions struct {
	account place.Settings
	skip    bool // skip the check
	report  *report.Report
	exit    func() // ends the process after a second interrupt
}

// backupCommand is the command backup.
func backupCommand() *cobra.Command {
	o := backupOptions{exit: exitAtOnce}
	cmd := &cobra.Command{
		Use:     "backup DIR|ADDRESS TO",
		GroupID: groupStore,
		Short:   "Copy a store, also while changefeed serve has it open",
		Long: `The copy is the store at a single moment, with every write that was acknowledged before the command.
Readers and writers go on meanwhile.

TO is a directory that must not exist. The copy is written as TO.partial, renamed to TO when the whole copy is on the
disk, and then checked. If the backup fails or is interrupted, nothing is left. Exception: a copy in which the check
finds violations is kept, because the store has the same violations.

The copy is a store like any other. To restore it, serve it, or copy it back. The copy does not contain the certificate
in DIR/tls.

A restore rewinds only leases that are stored in the copy. Leases elsewhere are then ahead of the store: changefeed leases
shows them, and run reports them. Delete the leases of such a unit: the unit then begins anew.

DIR is the directory of a store that no process has open. ADDRESS is that of a store that changefeed serve has open,
such as http://127.0.0.1:8081; that needs the read-write key.`,
		Example: `  changefeed backup http://127.0.0.1:8081 backups/monday
  changefeed backup data backups/monday --no-check`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.backupStore(cmd, args[0], args[1]) },
	}
	accountFlags(cmd, &o.account)
	cmd.Flags().BoolVar(&o.skip, "no-check", false, "skip the check, which reads the whole copy")
	o.report = output(cmd)
	return cmd
}

// backedUp is the report of a backup.
type backedUp struct {
	Directory string `json:"directory" about:"the new directory"`
	Bytes     int64  `json:"bytes" about:"in all files"`
	Files     int    `json:"files" about:"number of files"`
	Checked   bool   `json:"checked" about:"the copy was checked, and has no violation"`
}

// ReportedAs implements [report.Value].
func (backedUp) ReportedAs() string { return "backup" }

// backupStore copies a store and checks the copy. A copy with violations is kept, because there may be no better copy:
// the store itself has the same violations.
func (o *backupOptions) backupStore(cmd *cobra.Command, from, to string) error {
	// A copy that another backup writes, or has left, is not ours to remove.
	if _, err := os.Lstat(to + docstore.PartialSuffix); err == nil {
		return fmt.Errorf("%s exists: another backup writes there, or was killed: want another TO, or remove the "+
			"directory first", to+docstore.PartialSuffix)
	}
	if err := o.makeCopy(cmd, from, to); err != nil {
		return err
	}
	done := backedUp{Directory: to, Checked: !o.skip}
	var err error
	if done.Files, done.Bytes, err = sizeOf(to); err != nil {
		return err
	}
	return o.report.Object(done, func(w io.Writer) error {
		checked := "checked"
		if o.skip {
			checked = "not checked"
		}
		_, err := fmt.Fprintf(w, "%s: %s in %s, %s\n", to, terminal.Size(done.Bytes),
			terminal.Count(done.Files, "file"), checked)
		return err
	})
}

// makeCopy copies a store and, unless the user skips this, checks the copy. A second interrupt ends the process, and
// removes a copy that is not whole, or not checked.
func (o *backupOptions) makeCopy(cmd *cobra.Command, from, to string) error {
	ctx := cmd.Context()
	unfinished := scratch.Guard(to+docstore.PartialSuffix, o.exit)
	defer unfinished.Release()
	err := o.report.During(from, report.Bytes, copied(from, to), func() error {
		return place.Backup(ctx, o.account, from, to)
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("interrupted before the copy was whole; nothing is left in %s, and the same command begins "+
			"anew", to)
	}
	if errors.Is(err, fs.ErrExist) {
		return usage.Error{Err: fmt.Errorf("TO is %s: there is such a file or directory already: want the name of a "+
			"new directory", to)}
	}
	if err != nil {
		return err
	}
	if o.skip {
		return nil
	}
	unfinished.MoveTo(to)
	// The command checks the copy instead of the source. This costs the server nothing, and also finds faults of the
	// transfer.
	if err := (&checkOptions{report: o.report}).checkCopy(cmd, to); err != nil {
		return o.copyUnchecked(ctx, to, err)
	}
	return nil
}

// copied returns a function that measures the progress of a copy. How large the store of a server is, is unknown.
func copied(from, to string) func() report.State {
	_, total, _ := sizeOf(strings.TrimPrefix(from, "docstore:")) // 0 for the address of a server
	var done int64
	return func() report.State {
		// At the end, the directory has its final name, and counts no more.
		if _, bytes, err := sizeOf(to + docstore.PartialSuffix); err == nil {
			done = max(done, bytes)
		}
		return report.State{Done: done, Total: total}
	}
}

// copyUnchecked returns the error of a copy whose check failed. A copy with violations is kept. If the check found no
// result, the copy is removed, because you can repeat the backup.
func (o *backupOptions) copyUnchecked(ctx context.Context, to string, err error) error {
	switch {
	case errors.Is(err, docstore.ErrCorrupt):
		return fmt.Errorf("%w; the copy is left in %s: the store that it was made of has the same violations", err, to)
	case ctx.Err() != nil:
		err = errors.New("interrupted before the copy was checked, and the same command begins anew")
	}
	if left := os.RemoveAll(to); left != nil {
		return fmt.Errorf("%w; the copy is left in %s: %w", err, to, left)
	}
	return fmt.Errorf("%w; removed %s", err, to)
}

// sizeOf returns the number of files of a store and their bytes. A store is a directory without subdirectories.
func sizeOf(dir string) (files int, bytes int64, err error) {
	entries, err := os.ReadDir(filepath.Clean(dir))
	if err != nil {
		return 0, 0, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return 0, 0, err
		}
		files, bytes = files+1, bytes+info.Size()
	}
	return files, bytes, nil
}
