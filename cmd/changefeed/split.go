package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
)

// splitCommand is the command split.
func splitCommand() *cobra.Command {
	var o partitionOptions
	var at string
	cmd := &cobra.Command{
		Use:     "split [ADDRESS] [ID]",
		GroupID: groupStore,
		Short:   "Split a physical partition in two",
		Long: `The partition is split in the middle of the range or at --at, and the two new partitions are shown. ID is
needed only if there are several partitions. Azure splits by itself when a partition grows; here you split on demand, to
test your consumers.

A store that no process has open is changed in place. A store that changefeed serve has open is changed over the server,
which needs the read-write key.`,
		Example: `  changefeed split --db data --container orders
  changefeed split http://127.0.0.1:8081/shop/orders 0
  changefeed split docstore:data#orders 0 --at 1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF`,
		Args: func(cmd *cobra.Command, args []string) error {
			if _, ids := addressFirst(args); len(ids) > 1 {
				return errors.New("there are several IDs: want ADDRESS and the ID of one partition")
			}
			return checkArguments(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			address, ids := addressFirst(args)
			id := strings.Join(ids, "")
			return o.withContainer(cmd, address, func(c *place.Container) error {
				parts, err := c.Split(cmd.Context(), id, at)
				if at != "" && errors.Is(err, feed.ErrBadRequest) {
					err = usage.Error{Err: fmt.Errorf("--at is %s: %w", at, err)}
				}
				return o.writePartitions(parts, err)
			})
		},
	}
	o.register(cmd)
	cmd.Flags().StringVar(&at, "at", "",
		"effective partition `key` in hex where the second part begins (default in the middle)")
	return cmd
}

// addressFirst divides arguments into the address of a container, if any, and ids of partitions. An id has no colon,
// but every address has one.
func addressFirst(args []string) (address, ids []string) {
	if len(args) > 0 && strings.Trim(args[0], "0123456789") != "" {
		return args[:1], args[1:]
	}
	return nil, args
}
