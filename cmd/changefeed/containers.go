package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/confirm"
	"github.com/millrace/changefeed/cmd/changefeed/internal/items"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// The commands containers, create and drop. cmd/changefeed/internal/items works on the containers.

// dataKinds returns the kinds of the results of the commands about containers and documents.
func dataKinds() []report.Kind {
	return []report.Kind{
		items.Kind,
		{Name: "created", About: "The result of changefeed create.", Of: created{}},
		{Name: "dropped_container", About: "The result of changefeed drop.", Of: droppedContainer{}},
		itemKind,
		{Name: "deleted_item", About: "The result of changefeed delete.", Of: deletedItem{}},
	}
}

// containersCommand is the command containers.
func containersCommand() *cobra.Command {
	var o placeFlags
	var out *report.Report
	cmd := &cobra.Command{
		Use:     "containers [ADDRESS|DIR]",
		GroupID: groupData,
		Short:   "List databases and containers",
		Long: `The containers of a store, of changefeed serve or of an account, with their partition keys, physical partitions,
documents, time to live, retention of all versions, and throughput. An address with a database lists that database, an
address with a container that container, and no address the store or account of the context. A dash means that the
account does not tell the value, or that the container has none.`,
		Example: `  changefeed containers data
  changefeed containers http://127.0.0.1:8081
  changefeed containers cosmos:shop -o csv --fields name,documents`,
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := o.wholeAddress(cmd, args)
			if err != nil {
				return err
			}
			return o.withOpener(func(opener *place.Opener) error {
				all, err := items.List(cmd.Context(), opener, at)
				if err != nil {
					return err
				}
				return writeContainers(out, all)
			})
		},
	}
	o.register(cmd)
	out = outputRows(cmd, items.Kind)
	return cmd
}

// wholeAddress returns the address of a store, an account, a database or a container.
func (p *placeFlags) wholeAddress(cmd *cobra.Command, args []string) (place.Address, error) {
	switch container := cmd.Flags().Changed("container"); {
	case len(args) == 0 && p.db != "" && !container:
		return place.Address{Dir: p.db}, nil
	case len(args) == 1 && p.db == "" && !container:
		return p.account.ParseWhole("ADDRESS", args[0])
	case len(args) == 0 && p.db == "" && !container:
		return p.account.ParseWhole("ADDRESS", "")
	}
	return p.containerAddress(cmd, args)
}

// containerTable returns the rows of containers for people.
func containerTable(all []items.Container) [][]string {
	table := [][]string{items.Heading}
	for _, c := range all {
		table = append(table, c.Row())
	}
	return table
}

// writeContainers writes containers.
func writeContainers(out *report.Report, all []items.Container) error {
	if out.ForPeople() {
		table := containerTable(all)
		_, err := io.WriteString(out.Out, terminal.Table(table, terminal.Of(out.Out).Room()))
		return err
	}
	rows := out.Rows()
	for _, c := range all {
		if err := rows.Add(c); err != nil {
			return err
		}
	}
	return rows.Flush()
}

// createOptions are the flags of create.
type createOptions struct {
	placeFlags
	containerFlags
	ru        int
	ifMissing bool
	report    *report.Report
}

// createCommand is the command create.
func createCommand() *cobra.Command {
	var o createOptions
	cmd := &cobra.Command{
		Use:     "create [ADDRESS] --pk PATH",
		GroupID: groupData,
		Short:   "Create a container",
		Long: `A missing database and, in a directory, a missing store are created too. If the container exists, this is
an error unless you set --if-missing; then the container must agree with the flags.`,
		Example: `  changefeed create cosmos:shop/orders --pk /city
  changefeed create --db data --container orders --pk /tenant,/user --ttl 24h
  changefeed create cosmos:shop/orders --pk /city --ru 1000 --if-missing`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	o.placeFlags.register(cmd)
	o.containerFlags.register(cmd)
	cmd.Flags().IntVar(&o.ru, "ru", 0, "throughput in request units a second (default as the account chooses)")
	cmd.Flags().BoolVar(&o.ifMissing, "if-missing", false, "do nothing if the container exists")
	o.report = output(cmd)
	return cmd
}

// The throughput of a container, in request units a second.
const (
	minThroughput   = 400
	maxThroughput   = 1_000_000
	stepThroughput  = 100
	rangeThroughput = 10_000 // at most, of a physical partition
)

// run creates the container.
func (o *createOptions) run(cmd *cobra.Command, args []string) error {
	at, err := o.containerAddress(cmd, args)
	if err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	changed := cmd.Flags().Changed
	switch {
	case changed("ru") && (o.ru < minThroughput || o.ru > maxThroughput || o.ru%stepThroughput != 0):
		return usage.Flag("ru", strconv.Itoa(o.ru), fmt.Sprintf("%d to %d in steps of %d", minThroughput, maxThroughput,
			stepThroughput))
	case o.retention%time.Minute != 0:
		return usage.Flag("retention", terminal.Exact(o.retention), "whole minutes, such as 90m or 24h")
	case o.ru > rangeThroughput && changed("ranges"):
		return usage.Flag("ru", strconv.Itoa(o.ru), fmt.Sprintf("at most %d with --ranges, because more has several "+
			"partitions by itself", rangeThroughput))
	}
	return o.withOpener(func(opener *place.Opener) error {
		_, isNew, err := opener.MakeNew(cmd.Context(), at, place.Wanted{
			Spec: o.spec(), Throughput: o.ru, Given: changed,
		}, o.ifMissing)
		if err != nil {
			return err
		}
		all, err := items.List(cmd.Context(), opener, at)
		if err != nil {
			return err
		}
		return o.report.Object(created{all[0], isNew}, func(w io.Writer) error {
			verb := "created"
			if !isNew {
				verb = "found"
			}
			_, err := fmt.Fprintf(w, "%s container %s\n", verb, terminal.OneLine(at.Name()))
			return err
		})
	})
}

// created is the result of create.
type created struct {
	items.Container
	New bool `json:"new" about:"false if the container existed before"`
}

// ReportedAs implements [report.Value].
func (created) ReportedAs() string { return "created" }

// dropCommand is the command drop.
func dropCommand() *cobra.Command {
	var o placeFlags
	var sure confirm.Flags
	var out *report.Report
	cmd := &cobra.Command{
		Use:     "drop [ADDRESS]",
		GroupID: groupData,
		Short:   "Delete a container with all documents",
		Long: `The container is deleted with all documents and the change feed. On a terminal, drop asks for the name of
the container first; elsewhere --yes is required.`,
		Example: `  changefeed drop cosmos:shop/orders --dry-run
  changefeed drop --db data --container orders --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := o.containerAddress(cmd, args)
			if err != nil {
				return err
			}
			return o.withOpener(func(opener *place.Opener) error { return dropContainer(cmd, out, opener, at, sure) })
		},
	}
	o.register(cmd)
	sure.Register(cmd.Flags())
	out = output(cmd)
	return cmd
}

// dropContainer deletes a container, if the user agrees.
func dropContainer(cmd *cobra.Command, out *report.Report, opener *place.Opener, at place.Address,
	sure confirm.Flags,
) error {
	all, err := items.List(cmd.Context(), opener, at)
	if err != nil {
		return err
	}
	where, err := opener.Where(cmd.Context(), at)
	if err != nil {
		return err
	}
	doomed := all[0]
	what := fmt.Sprintf("container %s with %s", at.Name(), doomed.Contents())
	question := fmt.Sprintf("Delete container %s of %s with %s?", at.Name(), where, doomed.Contents())
	return deleteIfSure(cmd, out, sure, confirm.Question{Text: question, Word: at.Name()}, what,
		func() (report.Value, error) {
			return droppedContainer{doomed.Name, doomed.Documents, false}, items.Drop(cmd.Context(), opener, at, doomed)
		}, droppedContainer{doomed.Name, doomed.Documents, true})
}

// deleteIfSure asks the user, deletes, and reports. With --dry-run deleteIfSure only reports: spared is the value for
// programs.
func deleteIfSure(cmd *cobra.Command, out *report.Report, sure confirm.Flags, q confirm.Question, what string,
	remove func() (report.Value, error), spared report.Value,
) error {
	result := spared
	yes, err := sure.Ask(cmd.Context(), confirm.AtTerminal(cmd.Context(), cmd.ErrOrStderr()), q)
	if yes {
		result, err = remove()
	}
	if err != nil {
		return err
	}
	return out.Object(result, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s %s\n", sure.Verb("deleted", "delete"), terminal.OneLine(what))
		return err
	})
}

// droppedContainer is the result of drop.
type droppedContainer struct {
	Name      string `json:"name" about:"DATABASE/CONTAINER"`
	Documents *int64 `json:"documents" about:"number of documents; null if unknown"`
	DryRun    bool   `json:"dry_run" about:"true if nothing was deleted, but would be"`
}

// ReportedAs implements [report.Value].
func (droppedContainer) ReportedAs() string { return "dropped_container" }
