package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
)

// partitionOptions are the flags of the commands about physical partitions. The commands work on a store in a
// directory and over a server.
type partitionOptions struct {
	placeFlags
	form *choice
}

// register adds the flags to a command.
func (o *partitionOptions) register(cmd *cobra.Command) {
	o.placeFlags.register(cmd)
	o.form = output(cmd)
}

// writePartitions writes partitions, each on a line, unless there was an error.
func (o *partitionOptions) writePartitions(w io.Writer, parts []feed.Partition, failed error) error {
	if failed != nil {
		return failed
	}
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
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PARTITION\tRANGE\tCAME FROM")
	for _, partition := range parts {
		fmt.Fprintf(t, "%s\t%s\t%s\n", partition.ID, partition.Range.String(),
			terminal.OrDash(strings.Join(partition.Parents, " ")))
	}
	return t.Flush()
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
			return o.withContainer(cmd, args, func(c *place.Container) error {
				parts, err := c.Source.Partitions(cmd.Context())
				return o.writePartitions(cmd.OutOrStdout(), parts, err)
			})
		},
	}
	o.register(cmd)
	return cmd
}
