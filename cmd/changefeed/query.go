package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/arg"
	"github.com/millrace/changefeed/cmd/changefeed/internal/items"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// The command query. cmd/changefeed/internal/items runs the query.

// queryOptions are the flags of query.
type queryOptions struct {
	placeFlags
	key        arg.Key
	file       string
	parameters []string
	most       int
	report     *report.Report
}

// queryCommand is the command query.
func queryCommand() *cobra.Command {
	var o queryOptions
	cmd := &cobra.Command{
		Use:     "query [ADDRESS] SQL",
		GroupID: groupData,
		Short:   "Query the documents of a container by SQL",
		Long: `The SQL is that of Azure Cosmos DB. Each result is a row. All pages are read unless --max is given. With -v the charge, the number of pages,
the time and the plan are written to standard error. A table shows whole documents without
their system properties.

-p city=Oslo gives the parameter @city a value. A value that is JSON, such as 5, true, null or ["a"], is that JSON, and
any other is a text; '"5"' is the text 5.

An account runs ORDER BY, aggregates, TOP, OFFSET, DISTINCT and GROUP BY only within a single partition key (--key), or
in a container of a single physical partition. So does changefeed serve without --lenient. A store in a directory runs
them over all partitions.`,
		Example: `  changefeed query cosmos:shop/orders 'SELECT * FROM c WHERE c.n > @n' -p n=5
  changefeed query --db data --container orders 'SELECT VALUE COUNT(1) FROM c'
  changefeed query cosmos:shop/orders --file top.sql --key London -n 10 -o csv`,
		Args: cobra.ArbitraryArgs, // withTarget checks them
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	o.register(cmd)
	f := cmd.Flags()
	f.Var(&o.key, "key", `only this partition key: text such as London, or JSON such as [5] or ["a","b"]`)
	f.StringVar(&o.file, "file", "", "`file` with the query, or - for standard input")
	f.StringArrayVarP(&o.parameters, "param", "p", nil, "parameter of the query, `NAME=VALUE`; repeatable")
	f.IntVarP(&o.most, "max", "n", 0, "end after this many rows; 0 is no limit")
	o.report = outputRows(cmd)
	return cmd
}

// run runs the query.
func (o *queryOptions) run(cmd *cobra.Command, args []string) error {
	q := items.Query{Key: o.key.Value, Max: o.most}
	if o.most < 0 {
		return usage.Flag("max", strconv.Itoa(o.most), "0 or more")
	}
	for _, text := range o.parameters {
		p, err := items.ParseParameter(text)
		if err != nil {
			return err
		}
		q.Parameters = append(q.Parameters, p)
	}
	if cmd.Flags().Changed("file") {
		named := o.db != "" || cmd.Flags().Changed("container")
		if len(args) > 1 || len(args) == 1 && named {
			return usage.Error{Err: fmt.Errorf("--file is %s, and SQL is an argument: want one of the two", o.file)}
		}
		text, err := o.readQuery(cmd)
		if err != nil {
			return err
		}
		args = append(args, text)
	}
	return o.withTarget(cmd, args, "SQL", func(t *items.Target, text string) error {
		q.Text = text
		rows := o.report.Rows()
		bill, err := t.Run(cmd.Context(), q, func(row json.RawMessage) error {
			if o.report.ForPeople() {
				row = items.WithoutSystem(row)
			}
			return rows.AddDocument(row)
		})
		if flushed := rows.Flush(); err == nil { // the rows before an error are right
			err = flushed
		}
		if err == nil && bill.Rows == 0 && o.report.ForPeople() {
			o.report.Notice("no rows")
		}
		verbose, _ := cmd.Flags().GetCount(verboseFlag) // fails only for an unknown flag
		if verbose > 0 && bill.Pages > 0 {
			o.report.Notice("%s, %s, %v RU, %s", terminal.Count(bill.Rows, "row"), terminal.Count(bill.Pages, "page"),
				math.Round(bill.Charge*100)/100, terminal.Seconds(bill.Elapsed.Seconds()))
			if plan, err := t.Explain(cmd.Context(), q); err == nil { // an account may have no plan
				o.report.Notice("plan: %s", plan)
			}
		}
		return err
	})
}

// readQuery reads the file with the query.
func (o *queryOptions) readQuery(cmd *cobra.Command) (string, error) {
	in, err := openInput(cmd, "--file", o.file)
	if err != nil {
		return "", err
	}
	defer in.Close()
	text, err := io.ReadAll(in)
	if err != nil {
		return "", fmt.Errorf("read --file: %w", err)
	}
	if strings.TrimSpace(string(text)) == "" {
		return "", usage.Error{Err: errors.New("--file is " + o.file + ": it is empty: want a query, such as SELECT * FROM c")}
	}
	return string(text), nil
}
