package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/migration"
)

// compareCommand is the command compare.
func compareCommand() *cobra.Command {
	var o migration.Compare
	var p placeFlags // for its patience
	var pair pairOptions
	cmd := &cobra.Command{
		Use:     "compare SOURCE TARGET [flags] [-- COMMAND [ARG...]]",
		GroupID: groupData,
		Short:   "Compare a container with a copy, while both are written",
		Long: `Each item of the source is converted as copy does and then compared, so pass the same --ttl,
--deleted-when and COMMAND. Counts and checksums are shown for each range of the target, then the differing documents by
name: missing, surplus, different, in conflict, or never copied. An item that differs at first is compared again, until
both sides agree, or until the item still differs although the source has not changed for --settle. If something
differs, the exit code is 1.

With --repair a differing item is copied anew, and documents without an item in the source are deleted from the target.
Records of all documents are kept in the directory for temporary files meanwhile, some 100 bytes for each.`,
		Example: `  changefeed compare docstore:data#orders docstore:data#views
  changefeed compare cosmos:shop/orders cosmos:shop/orders2 --repair
  changefeed compare http://127.0.0.1:8081/shop/orders docstore:new#o -o json`,
		Args: pairArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := pair.take(cmd, args); err != nil {
				return err
			}
			o.Pair, o.Retries = pair.Pair, p.retries
			return o.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Most, "most", 20, "differences that are listed, at most")
	f.DurationVar(&o.Patience, "settle", 5*time.Second, "how long a document must differ")
	f.BoolVar(&o.Repair, "repair", false, "copy differing items anew, and delete surplus documents")
	pair.register(cmd)
	p.addPatience(cmd)
	o.Report = output(cmd)
	return cmd
}
