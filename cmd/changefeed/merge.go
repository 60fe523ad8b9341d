package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
)

// mergeCommand is the command merge.
func mergeCommand() *cobra.Command {
	var o partitionOptions
	cmd := &cobra.Command{
		Use:   "merge [ADDRESS] ID ID",
		Short: "Merge two neighbouring physical partitions",
		Long: `Merge two physical partitions whose ranges touch, and show the result. changefeed split
--help says which stores can be changed.` + addressHelp,
		Example: `  changefeed merge --db data --container orders 1 2
  changefeed merge http://127.0.0.1:8081/shop/orders 1 2`,
		Args: mergeArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids := args[len(args)-2:]
			return o.withContainer(cmd, args[:len(args)-2], func(c *place.Container) error {
				parts, err := c.Merge(cmd.Context(), ids[0], ids[1])
				return o.writePartitions(parts, err)
			})
		},
	}
	o.register(cmd)
	return cmd
}

// mergeArgs accepts two ids, alone or after an address. An id contains no colon, but every address does.
func mergeArgs(_ *cobra.Command, args []string) error {
	if n := len(args); n < 2 || n > 3 || n == 2 && strings.Contains(args[0], ":") {
		return fmt.Errorf("arguments are %q: want the ids of two partitions, as changefeed ranges shows them, after "+
			"the ADDRESS if there is one", args)
	}
	return nil
}
