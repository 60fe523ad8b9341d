package main

import (
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
)

// partitionOptions are the flags of the commands about physical partitions. The commands work on a store in a
// directory and over a server.
type partitionOptions struct {
	placeFlags
	report *report.Report
}

// register adds the flags to a command.
func (o *partitionOptions) register(cmd *cobra.Command) {
	o.placeFlags.register(cmd)
	o.report = outputRows(cmd, partitionKind)
}

// writePartitions writes partitions, each on a line, unless there was an error.
func (o *partitionOptions) writePartitions(parts []feed.Partition, failed error) error {
	if errors.Is(failed, feed.ErrBadRequest) { // such as --at outside the range
		return usage.Error{Err: failed}
	}
	if failed != nil {
		return failed
	}
	if !o.report.ForPeople() {
		rows := o.report.Rows()
		for _, p := range parts {
			if err := rows.Add(partition{p.ID, p.Range.String(), append([]string{}, p.Parents...)}); err != nil {
				return err
			}
		}
		return rows.Flush()
	}
	table := partitionTable(parts)
	_, err := io.WriteString(o.report.Out, terminal.Table(table, terminal.Of(o.report.Out).Room()))
	return err
}

// partitionTable returns the rows of partitions for people.
func partitionTable(parts []feed.Partition) [][]string {
	table := [][]string{{"PARTITION", "RANGE", "CAME FROM"}}
	for _, p := range parts {
		table = append(table, []string{p.ID, p.Range.String(), terminal.OrDash(strings.Join(p.Parents, " "))})
	}
	return table
}

// partition is a partition for programs.
type partition struct {
	ID      string   `json:"id" about:"of the partition, for split and merge"`
	Range   string   `json:"range" about:"of effective partition keys, min-max in hex"`
	Parents []string `json:"parents" about:"IDs of the partitions before the split or merge"`
}

// ReportedAs implements [report.Value].
func (partition) ReportedAs() string { return "partition" }

var partitionKind = report.Kind{Name: "partition", About: "A physical partition of a container: ranges, split, merge.", Of: partition{}}

// rangesCommand is the command ranges.
func rangesCommand() *cobra.Command {
	var o partitionOptions
	cmd := &cobra.Command{
		Use:     "ranges [ADDRESS]",
		GroupID: groupStore,
		Short:   "Show the physical partitions of a container",
		Long: `For each partition: the id, the range of effective partition keys, and the partitions before the split
or merge.`,
		Example: `  changefeed ranges http://127.0.0.1:8081/shop/orders
  changefeed ranges --db data --container orders -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withContainer(cmd, args, func(c *place.Container) error {
				parts, err := c.Source.Partitions(cmd.Context())
				return o.writePartitions(parts, err)
			})
		},
	}
	o.register(cmd)
	return cmd
}
