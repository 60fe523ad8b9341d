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
		Short:   "Compare a container with its copy, while both are written",
		Long: `Each item of the source is compared with what copy makes of it, so pass the same --ttl, --deleted-when and COMMAND.
Counts and checksums are shown for each range of the target, then the differing documents by name: missing, surplus,
different, in conflict, or never copied. What differs at first is looked at again, until it agrees, or has
not changed in the source for --settle and still differs. If something differs, the exit code is 1.

With --repair what differs is written as copy writes it, and documents that no item of the source has are deleted from
the target. Records of all documents are kept in the directory for temporary files meanwhile, some 100 bytes for each.`,
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
	f.BoolVar(&o.Repair, "repair", false, "bring what differs up to date, and delete what is left over")
	pair.register(cmd)
	p.addPatience(cmd)
	o.Report = output(cmd)
	return cmd
}
