package main

import (
	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
)

// splitCommand is the command split.
func splitCommand() *cobra.Command {
	var o partitionOptions
	var id, at string
	cmd := &cobra.Command{
		Use:   "split [ADDRESS]",
		Short: "Split a physical partition in two",
		Long: `Split a physical partition of a container in two, in the middle of its range or at an
effective partition key, and show the two. Azure splits by itself when a partition grows;
here you split on demand, to test how consumers cope.

A store that no process has open is changed in place. A store that changefeed serve has
open is changed over the server, which needs the read-write key.` + addressHelp,
		Example: `  changefeed split --db data --container orders
  changefeed split http://127.0.0.1:8081/shop/orders --range 0 --at 1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withContainer(cmd, args, func(c *place.Container) error {
				parts, err := c.Split(cmd.Context(), id, at)
				return o.writePartitions(parts, err)
			})
		},
	}
	o.register(cmd)
	cmd.Flags().StringVar(&id, "range", "", "`id` of the partition, if there are several")
	cmd.Flags().StringVar(&at, "at", "",
		"effective partition `key` in hex that the second half begins with (default in the middle)")
	return cmd
}
