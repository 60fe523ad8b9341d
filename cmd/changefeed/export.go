package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/items"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unload"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
)

// The command export. cmd/changefeed/internal/unload writes the documents.

// exportOptions are the flags of export.
type exportOptions struct {
	placeFlags
	selection
	system  bool
	wrecked bool
	to      string // file; empty is standard output
	restart bool
	report  *report.Report
}

// exportCommand is the command export.
func exportCommand() *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use:     "export [ADDRESS]",
		GroupID: groupData,
		Short:   "Write the documents of a container, a line each",
		Long: `Each line is a JSON document as you wrote it, without the properties that the store adds (_rid, _self,
_etag, _attachments, _ts), unless you set --system. The documents of one partition key come in the order of their last
writes, so that import makes the same container. The output is JSON with any -o.

With --to the documents are written into a file. If such an export was interrupted, start the command again with the
same file, container and selection: the export goes on where the first stopped. A document that was written since may be
in the file twice, in the old and the new version. Until the end of the export, FILE.mark records the progress. If the
mark is damaged, or is ahead of a container that was restored from a backup, the export is refused, and --restart begins
anew. Into standard output an export always begins anew.

With --salvage the store may be damaged, and the directory is not changed. All readable documents are written. Losses
are listed on standard error, by file and by document. Without --container the documents of all containers are written,
each as {"container":NAME,"document":{…}}. With --container nothing is said of others, except for files that may have
had documents of this container. If a lost file may have had a later version of a document, or the deletion, the
document is listed as doubtful. After the loss of a log or of the manifest any document may be, and they are not listed.
If something may be missing or old, the exit code is 1.`,
		Example: `  changefeed export --db data --container restaurants > restaurants.ndjson
  changefeed export --db data --container restaurants --key CF24 | jq .name
  changefeed export docstore:data#orders --key '["tenant 1", 5]' --system
  changefeed export cosmos:shop/orders --to orders.ndjson
  changefeed export --salvage --db data > left.ndjson
  changefeed export cosmos:shop/orders > orders.ndjson`,
		RunE: func(cmd *cobra.Command, args []string) error {
			// A damaged store cannot be opened, so salvage parses the arguments itself.
			if o.wrecked {
				return o.salvageDocuments(cmd, args)
			}
			switch {
			case o.to == "-":
				return usage.Flag("to", "-", "the path of a file; without --to the output is standard output")
			case o.restart && o.to == "":
				return usage.Error{Err: errors.New("--to is missing: want the file that --restart overwrites")}
			}
			return o.withContainer(cmd, args, func(c *place.Container) error {
				return o.exportDocuments(cmd.Context(), c)
			})
		},
	}
	o.placeFlags.register(cmd)
	o.addPatience(cmd)
	o.selection.register(cmd)
	o.report = output(cmd) // for callers that pass -o to every command, and for the list of losses
	cmd.Flags().BoolVar(&o.system, "system", false, "keep the system properties")
	cmd.Flags().BoolVar(&o.wrecked, "salvage", false,
		"write the readable documents of a damaged store, and list the losses")
	cmd.Flags().StringVar(&o.to, "to", "", "`file` to write into, from where an interrupted export has stopped")
	cmd.Flags().BoolVar(&o.restart, "restart", false, "overwrite the file of --to, and begin anew")
	cmd.MarkFlagsMutuallyExclusive("salvage", "range")
	cmd.MarkFlagsMutuallyExclusive("salvage", "to")
	cmd.MarkFlagsMutuallyExclusive("salvage", "restart")
	return cmd
}

// documentOptions returns the options that choose the documents, and count them.
func (o *exportOptions) documentOptions() unload.Options {
	return unload.Options{Key: o.key.Value, Range: o.rng.Value(), System: o.system, Count: new(atomic.Int64)}
}

// exported is the summary of an export.
type exported struct {
	Documents int64   `json:"documents" about:"number of documents"`
	Before    int64   `json:"before" about:"how many of them an interrupted export had written before, see --to"`
	Seconds   float64 `json:"seconds" about:"how long the export took"`
}

// ReportedAs implements [report.Value].
func (exported) ReportedAs() string { return "export" }

// exportKind describes the summary of changefeed export.
var exportKind = report.Kind{
	Name: "export", About: "The summary of an export, on standard error: export.", Of: exported{},
}

// exportDocuments writes the documents of a container, and a summary.
func (o *exportOptions) exportDocuments(ctx context.Context, c *place.Container) (err error) {
	if err := items.CheckPrefix(c, o.key.Value); err != nil {
		return err
	}
	chosen, begun := o.documentOptions(), time.Now()
	write := func() error { return unload.Documents(ctx, c.Source, o.report.Out, chosen) }
	before, kept := int64(0), func() int64 { return 0 }
	if o.to != "" {
		var f *unload.File
		if f, err = unload.OpenFile(o.to, c, chosen, o.restart); err != nil {
			return err
		}
		defer func() { err = cmp.Or(err, f.Close()) }()
		before, kept, write = f.Before, f.Kept, func() error { return f.WriteDocuments(ctx, c.Source, chosen) }
	}
	err = o.showProgress(c.Address.Name(), unload.Count(ctx, c.Source, chosen), chosen, write)
	if err != nil || o.report.Quiet {
		return o.unfinished(ctx, chosen, kept(), o.blame(err))
	}
	done := exported{chosen.Count.Load(), before, time.Since(begun).Seconds()}
	return o.report.Aside(done, func(w io.Writer) error {
		earlier := ""
		if before > 0 {
			earlier = fmt.Sprintf(", %s of them before", terminal.Number(before))
		}
		_, err := fmt.Fprintf(w, "exported %s in %.2f s%s\n", terminal.Count(done.Documents, "document"), done.Seconds,
			earlier)
		return err
	})
}

// showProgress shows the progress of an export. On a terminal the documents themselves show the progress.
func (o *exportOptions) showProgress(what string, total int64, chosen unload.Options, f func() error) error {
	if o.to == "" && terminal.Of(o.report.Out).Width != nil {
		return f()
	}
	return o.report.During(what, report.Documents, func() report.State {
		return report.State{Done: chosen.Count.Load(), Total: total}
	}, f)
}

// unfinished describes the rest of the work after an error, and how to go on. kept is the number of documents of a file
// that do not come again: other documents in the file may be cut.
func (o *exportOptions) unfinished(ctx context.Context, chosen unload.Options, kept int64, err error) error {
	goesOn := fmt.Sprintf("%s are safe in %s, and the same command goes on after them", terminal.Count(kept, "document"),
		o.to)
	switch isInterrupted := ctx.Err() != nil; {
	case err == nil:
		return nil
	case errors.Is(err, feed.ErrAhead):
		return err // the same command would not go on
	case o.to != "" && isInterrupted:
		return fmt.Errorf("interrupted: %s", goesOn)
	case o.to != "":
		return fmt.Errorf("%w; %s", err, goesOn)
	case isInterrupted:
		return fmt.Errorf("interrupted after %s, the last of them whole; the same command begins anew; an export with "+
			"--to FILE goes on", terminal.Count(chosen.Count.Load(), "document"))
	}
	return err
}

// salvageDocuments writes the remaining documents of a container, or of all containers, in a damaged store, and then
// the losses. The losses come last, because on a terminal the end is read. They go to standard error, so they are
// separate from documents written into a file.
func (o *exportOptions) salvageDocuments(cmd *cobra.Command, args []string) error {
	dir, name, err := o.damagedStore(cmd, args)
	if err != nil {
		return err
	}
	var left *unload.Remains
	chosen := o.documentOptions()
	err = o.showProgress(dir, 0, chosen, func() (err error) {
		left, err = unload.Salvage(cmd.Context(), dir, name, o.report.Out, chosen)
		return err
	})
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			field := "ADDRESS"
			if o.db != "" {
				field = "--db"
			}
			err = usage.Missing{Err: fmt.Errorf("%s is %s: there is no store in it: want the directory of a store to "+
				"salvage", field, dir)}
		}
		return o.unfinished(cmd.Context(), chosen, 0, err)
	}
	return cmp.Or(o.report.Aside(left.Line(), left.WriteLosses), left.Err())
}

// damagedStore returns the directory, and the container if the command line names a container. Only a directory can be
// salvaged, because a server does not open a damaged store.
func (o *exportOptions) damagedStore(cmd *cobra.Command, args []string) (dir, container string, err error) {
	if len(args) == 0 && o.db != "" && o.container == "" {
		return o.db, "", nil
	}
	a, err := o.containerAddress(cmd, args)
	switch {
	case errors.Is(err, errNoAddress):
		return "", "", usage.Error{Err: errors.New("--db is missing: want the directory of a store to salvage")}
	case err == nil && a.Dir == "":
		return "", "", usage.Error{Err: fmt.Errorf("%s: want the directory of a store to salvage", a.Quote())}
	}
	return a.Dir, a.Name(), err
}
