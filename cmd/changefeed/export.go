package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unload"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// The command export. cmd/changefeed/internal/unload writes the documents.

// exportOptions are the flags of export.
type exportOptions struct {
	placeFlags
	selection
	system  bool
	wrecked bool
	report  *report.Report
}

// salvageHelp is the part of export's help about salvage.
const salvageHelp = `

With --salvage the store may be damaged. What can still be read of it is written, and
what cannot is listed on standard error, by file and by document, as one JSON object with
-o json. The directory is not changed. Without --container the documents of all containers
are written, each as {"container":NAME,"document":{…}}. With it nothing is said of others,
but for files that may have had its documents. A document that is written, and of which a
lost file may have had a later version or the deletion, is listed as doubtful; after the
loss of a log or of the manifest any may be, and they are not listed. The exit code is 1
when something may be missing or old.`

// exportCommand is the command export.
func exportCommand() *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use:   "export [ADDRESS]",
		Short: "Write the documents of a container, one a line",
		Long: `Write the documents of a container to standard output, one JSON document a line, as
they were given: what the store adds to them (_rid, _self, _etag, _attachments, _ts) is
left out unless --system asks for it. Those of one partition key come in the order of
their last writes, so that import makes the same container of them. With -o json it is
the same: documents are JSON.` + salvageHelp,
		Example: `  changefeed export --db data --container restaurants > restaurants.ndjson
  changefeed export --db data --container restaurants --key CF24 | jq .name
  changefeed export docstore:data#orders --key '["tenant 1", 5]' --system
  changefeed export --salvage --db data --container restaurants > left.ndjson
  changefeed export cosmos:shop/orders --endpoint https://contoso.documents.azure.com > orders.ndjson`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			// A damaged store cannot be opened, so salvage parses the arguments itself.
			if o.wrecked {
				return o.salvageDocuments(cmd, args)
			}
			return o.withContainer(cmd, args, func(c *place.Container) error {
				return unload.Documents(cmd.Context(), c.Source, cmd.OutOrStdout(), o.documentOptions())
			})
		},
	}
	o.placeFlags.register(cmd)
	o.addPatience(cmd)
	o.selection.register(cmd)
	o.report = output(cmd) // for callers that pass -o to every command, and for the list of losses
	cmd.Flags().BoolVar(&o.system, "system", false, "keep the system properties")
	cmd.Flags().BoolVar(&o.wrecked, "salvage", false,
		"write what can still be read of a damaged store, and list what cannot")
	cmd.MarkFlagsMutuallyExclusive("salvage", "range")
	return cmd
}

// documentOptions returns the options that choose the documents.
func (o *exportOptions) documentOptions() unload.Options {
	return unload.Options{Key: o.key.Value, Range: o.rng.Value(), System: o.system}
}

// salvageDocuments writes the remaining documents of a container, or of all containers, in a damaged store, and then
// the losses. The losses come last, because on a terminal the end is read. They go to standard error, so they are
// separate from documents that are written into a file.
func (o *exportOptions) salvageDocuments(cmd *cobra.Command, args []string) error {
	dir, name, err := o.damagedStore(cmd, args)
	if err != nil {
		return err
	}
	left, err := unload.Salvage(cmd.Context(), dir, name, cmd.OutOrStdout(), o.documentOptions())
	switch {
	case err != nil:
		return err
	case o.report.Form == report.JSON:
		var line []byte
		if line, err = report.Line(left.Line()); err == nil {
			_, err = cmd.ErrOrStderr().Write(line)
		}
	default:
		err = left.WriteLosses(cmd.ErrOrStderr())
	}
	return cmp.Or(err, left.Err())
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
