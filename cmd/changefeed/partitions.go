package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/internal/place"
	"github.com/millrace/changefeed/internal/terminal"
	"github.com/millrace/changefeed/internal/usage"
)

// The commands ranges, split and merge, about physical partitions. They work on a store in
// a directory and over a server alike.

// partitionOptions are the flags of the commands about physical partitions.
type partitionOptions struct {
	placeFlags
	id   string
	at   string
	form *choice
}

// rangesCommand is the command ranges.
func rangesCommand() *cobra.Command {
	var o partitionOptions
	cmd := &cobra.Command{
		Use:   "ranges [ADDRESS]",
		Short: "Show the physical partitions of a container",
		Long: `Show the physical partitions of a container: the id of each, its range of effective
partition keys, and the partitions that it came from.` + addressHelp,
		Example: `  changefeed ranges http://127.0.0.1:8081/shop/orders`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.with(cmd, args, func(c *place.Container) error { return o.show(cmd, c) })
		},
	}
	o.register(cmd)
	return cmd
}

// splitCommand is the command split.
func splitCommand() *cobra.Command {
	var o partitionOptions
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
			return o.with(cmd, args, func(c *place.Container) error { return o.split(cmd, c) })
		},
	}
	o.register(cmd)
	cmd.Flags().StringVar(&o.id, "range", "", "`id` of the partition, if there are several")
	cmd.Flags().StringVar(&o.at, "at", "", "effective partition `key` in hex that the second half begins with (default in the middle)")
	return cmd
}

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
			return o.with(cmd, args[:len(args)-2], func(c *place.Container) error { return o.merge(cmd, c, ids) })
		},
	}
	o.register(cmd)
	return cmd
}

// mergeArgs accepts two ids, alone or after an address. An id has no colon, and every
// address has.
func mergeArgs(_ *cobra.Command, args []string) error {
	if n := len(args); n < 2 || n > 3 || n == 2 && strings.Contains(args[0], ":") {
		return fmt.Errorf("arguments are %q: want the ids of two partitions, as changefeed ranges shows them, after the ADDRESS if there is one", args)
	}
	return nil
}

// register adds the flags to a command.
func (o *partitionOptions) register(cmd *cobra.Command) {
	o.placeFlags.register(cmd)
	o.form = output(cmd)
}

// show writes all partitions.
func (o *partitionOptions) show(cmd *cobra.Command, c *place.Container) error {
	parts, err := c.Source.Partitions(cmd.Context())
	if err != nil {
		return err
	}
	return o.write(cmd.OutOrStdout(), parts)
}

// split splits the partition that was named; it need not be named if there is only one.
func (o *partitionOptions) split(cmd *cobra.Command, c *place.Container) error {
	ctx := cmd.Context()
	if strings.Trim(o.at, "0123456789abcdefABCDEF") != "" {
		return usage.Flag("at", o.at, "hex such as 1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF")
	}
	parts, err := c.Source.Partitions(ctx)
	if err != nil {
		return err
	}
	// A wrong guess would change the container, so with several the partition must be named.
	if o.id == "" && len(parts) == 1 {
		o.id = parts[0].ID
	}
	if err := among(parts, "--range", o.id); err != nil {
		return err
	}
	// Effective partition keys are compared as text, in upper case.
	if parts, err = c.Split(ctx, o.id, strings.ToUpper(o.at)); err != nil {
		return err
	}
	return o.write(cmd.OutOrStdout(), parts)
}

// merge merges two partitions.
func (o *partitionOptions) merge(cmd *cobra.Command, c *place.Container, ids []string) error {
	ctx := cmd.Context()
	parts, err := c.Source.Partitions(ctx)
	if err != nil {
		return err
	}
	// The ids are verified here, because the server would answer a wrong one with a
	// refusal that does not list the others.
	for _, id := range ids {
		if err := among(parts, "ID", id); err != nil {
			return err
		}
	}
	if parts, err = c.Merge(ctx, ids[0], ids[1]); err != nil {
		return err
	}
	return o.write(cmd.OutOrStdout(), parts)
}

// among refuses an id that no partition has, before anything is changed, and lists those
// that there are.
func among(parts []changefeed.Partition, field, id string) error {
	if slices.ContainsFunc(parts, func(partition changefeed.Partition) bool { return partition.ID == id }) {
		return nil
	}
	var ids []string
	for _, partition := range parts {
		ids = append(ids, partition.ID)
	}
	if id == "" {
		return usage.Error{Err: fmt.Errorf("%s is missing: want one of %s", field, strings.Join(ids, ", "))}
	}
	return usage.Error{Err: fmt.Errorf("%s is %s: there is no such partition: want one of %s", field, id, strings.Join(ids, ", "))}
}

// write writes partitions, one a line.
func (o *partitionOptions) write(w io.Writer, parts []changefeed.Partition) error {
	if o.form.value == "json" {
		enc := json.NewEncoder(w)
		for _, partition := range parts {
			if err := enc.Encode(struct {
				ID      string   `json:"id"`
				Range   string   `json:"range"`
				Parents []string `json:"parents,omitempty"`
			}{partition.ID, partition.Range.String(), partition.Parents}); err != nil {
				return fmt.Errorf("write partition: %w", err)
			}
		}
		return nil
	}
	edges := terminal.Of(w).Edges
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PARTITION\tRANGE\tCAME FROM")
	for _, partition := range parts {
		fmt.Fprintf(t, "%s\t%s\t%s\n", partition.ID, edges(partition.Range.String()), terminal.OrDash(strings.Join(partition.Parents, " ")))
	}
	return t.Flush()
}
