package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
)

// mergeCommand is the command merge.
func mergeCommand() *cobra.Command {
	var o partitionOptions
	cmd := &cobra.Command{
		Use:     "merge [ADDRESS] ID ID",
		GroupID: groupStore,
		Short:   "Merge two neighbouring physical partitions",
		Long: `The ranges of the two partitions must touch. The result is shown. changefeed split --help says which stores can be
changed.`,
		Example: `  changefeed merge --db data --container orders 1 2
  changefeed merge http://127.0.0.1:8081/shop/orders 1 2`,
		Args: mergeArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			address, ids := addressFirst(args)
			return o.withContainer(cmd, address, func(c *place.Container) error {
				parts, err := c.Merge(cmd.Context(), ids[0], ids[1])
				return o.writePartitions(parts, err)
			})
		},
	}
	o.register(cmd)
	return cmd
}

// mergeArgs accepts two ids, alone or after an address.
func mergeArgs(_ *cobra.Command, args []string) error {
	const want = "want the IDs of two neighbouring partitions, as changefeed ranges shows them, after the ADDRESS if there is one"
	switch _, ids := addressFirst(args); {
	case len(ids) == 0:
		return errors.New("ID ID is missing: " + want)
	case len(ids) == 1:
		return fmt.Errorf("ID is %s alone: %s", ids[0], want)
	case len(ids) > 2:
		return fmt.Errorf("there are %d IDs: %s", len(ids), want)
	case ids[0] == ids[1]:
		return fmt.Errorf("ID is %s twice: %s", ids[0], want)
	}
	return nil
}
