package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/arg"
	"github.com/millrace/changefeed/cmd/changefeed/internal/confirm"
	"github.com/millrace/changefeed/cmd/changefeed/internal/items"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// The commands get, put and delete. cmd/changefeed/internal/items reads and writes the documents.

// keyHelp is the end of the help of commands about a document.
const keyHelp = `

--key is the document's partition key. You need no --key if the partition key path is /id.`

// itemOptions are the flags of commands about documents.
type itemOptions struct {
	placeFlags
	key    arg.Key
	report *report.Report
}

// register adds the flags, except for -o.
func (o *itemOptions) register(cmd *cobra.Command) {
	o.placeFlags.register(cmd)
	cmd.Flags().Var(&o.key, "key", `partition key: text such as London, or JSON such as [5] or ["a","b"]`)
}

// withTarget splits the arguments into the address and another argument, opens the container, and runs f.
func (p *placeFlags) withTarget(cmd *cobra.Command, args []string, name string,
	f func(t *items.Target, argument string) error,
) error {
	address, argument, err := p.splitArguments(cmd, args, name)
	if err != nil {
		return err
	}
	at, err := p.containerAddress(cmd, address)
	if err != nil {
		return err
	}
	return p.withOpener(func(opener *place.Opener) error {
		t, err := items.Open(cmd.Context(), opener, at)
		if err != nil {
			return err
		}
		return f(t, argument)
	})
}

// splitArguments returns the address, unless flags name the container, and the argument after it.
func (p *placeFlags) splitArguments(cmd *cobra.Command, args []string, name string) (address []string, argument string,
	err error,
) {
	forms := "want ADDRESS " + name
	if p.db != "" || cmd.Flags().Changed("container") {
		forms = "want " + name + " alone, because --db and --container name the container"
	} else if len(args) > 0 {
		address, args = args[:1], args[1:]
	}
	switch {
	case len(args) == 0 && len(address) == 1 && !place.IsAddress(address[0]):
		err = fmt.Errorf("%q is the only argument: want ADDRESS %s, and the address is %s; or --db and --container",
			address[0], name, place.AddressForms)
	case len(args) == 0:
		err = fmt.Errorf("%s is missing: %s", name, forms)
	case len(args) > 1:
		err = fmt.Errorf("%q is an argument too many: %s", args[1], forms)
		if strings.HasPrefix(args[1], "-") {
			err = fmt.Errorf("%w; flags come before --", err)
		}
	case args[0] == "":
		err = fmt.Errorf("%s is empty: %s", name, forms)
	}
	if err != nil {
		return nil, "", usage.Error{Err: err}
	}
	return address, args[0], nil
}

// getCommand is the command get.
func getCommand() *cobra.Command {
	var o itemOptions
	cmd := &cobra.Command{
		Use:     "get [ADDRESS] ID --key KEY",
		GroupID: groupData,
		Short:   "Print a document",
		Long:    `The document is printed as stored, with the system properties.` + keyHelp,
		Example: `  changefeed get cosmos:shop/orders 17 --key London
  changefeed get --db data --container orders 17 --key '["tenant 1",5]'`,
		Args: cobra.ArbitraryArgs, // withTarget checks them
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withTarget(cmd, args, "ID", func(t *items.Target, id string) error {
				key, err := t.FullKey(o.key.Value, id)
				if err != nil {
					return err
				}
				document, err := t.Get(cmd.Context(), items.Document{ID: id, Key: key})
				if err != nil {
					return err
				}
				rows := o.report.Rows()
				return cmp.Or(rows.AddDocument(document), rows.Flush())
			})
		},
	}
	o.register(cmd)
	o.report = addOutput(cmd, report.JSON, report.YAML)
	return cmd
}

// itemKind describes the rows of put.
var itemKind = report.Kind{Name: "item", About: "A document that changefeed put has written.", Of: items.Item{}}

// putOptions are the flags of put.
type putOptions struct {
	placeFlags
	write  items.Write
	report *report.Report
}

// putCommand is the command put.
func putCommand() *cobra.Command {
	var o putOptions
	cmd := &cobra.Command{
		Use:     "put [ADDRESS] FILE|-",
		GroupID: groupData,
		Short:   "Create or replace a document",
		Long: `The document replaces a stored document with the same id and partition key, and the new etag is printed.
The document is a JSON object in a file, or on standard input when FILE is -. Several documents, in a sequence or in an
array, are written in their order; for many there is changefeed import. Nothing is written if a document is no JSON, has
no id or a bad partition key.`,
		Example: `  echo '{"id":"17","city":"London"}' | changefeed put cosmos:shop/orders -
  changefeed put --db data --container orders order.json --create
  changefeed put cosmos:shop/orders order.json --if-match '"0a00-4f"'`,
		Args: cobra.ArbitraryArgs, // withTarget checks them
		RunE: func(cmd *cobra.Command, args []string) error {
			// The input comes before the container, so that nobody waits for the store while somebody types.
			_, file, err := o.splitArguments(cmd, args, "FILE or -")
			if err != nil {
				return err
			}
			documents, err := o.read(cmd, file)
			if err != nil {
				return err
			}
			return o.withTarget(cmd, args, "FILE or -", func(t *items.Target, _ string) error {
				return o.put(cmd, t, documents)
			})
		},
	}
	o.register(cmd)
	cmd.Flags().BoolVar(&o.write.Create, "create", false, "fail if the document exists")
	cmd.Flags().StringVar(&o.write.IfMatch, "if-match", "", "replace the document only if the etag is this `etag`")
	o.report = outputRows(cmd, itemKind)
	return cmd
}

// read reads the documents of a file.
func (o *putOptions) read(cmd *cobra.Command, file string) ([]json.RawMessage, error) {
	if o.write.Create && o.write.IfMatch != "" {
		return nil, usage.Error{Err: errors.New("--create and --if-match are set: want one of them, because a new " +
			"document has no etag")}
	}
	documents, err := readDocuments(cmd, file)
	if err != nil {
		return nil, err
	}
	if len(documents) > 1 && o.write.IfMatch != "" {
		return nil, usage.Flag("if-match", o.write.IfMatch, fmt.Sprintf("one document, not the %d of the input",
			len(documents)))
	}
	return documents, nil
}

// put writes documents. All are written, even if the output has no reader any more.
func (o *putOptions) put(cmd *cobra.Command, t *items.Target, documents []json.RawMessage) (err error) {
	for i, body := range documents {
		if _, err := t.Place(body); err != nil {
			return fmt.Errorf("document %d of the input: %w", i+1, err)
		}
	}
	rows, table := o.report.Rows(), [][]string{items.ItemHeading}
	var unread error // of the output
	for i, body := range documents {
		item, failed := t.Put(cmd.Context(), body, o.write)
		if failed != nil {
			err = writtenBefore(failed, i)
			break
		}
		if o.report.ForPeople() {
			table = append(table, item.Row())
		} else if unread == nil {
			unread = rows.Add(item)
		}
	}
	switch {
	case !o.report.ForPeople() && unread == nil:
		unread = rows.Flush()
	case len(table) > 1:
		_, unread = io.WriteString(cmd.OutOrStdout(), terminal.Table(table, terminal.Of(cmd.OutOrStdout()).Room()))
	}
	if err == nil && unread != nil {
		err = fmt.Errorf("%s written, but not the report about it: %w", terminal.Count(len(documents), "document"),
			unread)
	}
	return err
}

// writtenBefore returns the error of a document before which others were written.
func writtenBefore(err error, documents int) error {
	switch documents {
	case 0:
		return err
	case 1:
		return fmt.Errorf("%w; the document before this one was written", err)
	}
	return fmt.Errorf("%w; the %s before this one were written", err, terminal.Count(documents, "document"))
}

// readDocuments reads the documents of a file, or of standard input.
func readDocuments(cmd *cobra.Command, file string) ([]json.RawMessage, error) {
	in, err := openInput(cmd, "FILE", file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	documents, err := items.Read(in)
	if err != nil && file == "-" {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return documents, nil
}

// openInput opens a file, or standard input if the path is -. On Unix a directory can be opened, and fails only at the
// first read, so openInput refuses directories.
func openInput(cmd *cobra.Command, field, path string) (*os.File, error) {
	if path == "-" {
		return terminal.Input(cmd.Context()), nil
	}
	f, err := terminal.Open(cmd.Context(), path)
	if err != nil {
		return nil, usage.Path(field, path, err)
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		wrong := usage.Error{Err: fmt.Errorf("%s is %s: it is a directory: want a file, or -", field, path)}
		return nil, errors.Join(wrong, f.Close())
	}
	return f, nil
}

// deleteOptions are the flags of delete.
type deleteOptions struct {
	itemOptions
	ifMatch string
	sure    confirm.Flags
}

// deleteCommand is the command delete.
func deleteCommand() *cobra.Command {
	var o deleteOptions
	cmd := &cobra.Command{
		Use:     "delete [ADDRESS] ID --key KEY",
		GroupID: groupData,
		Short:   "Delete a document",
		Long:    `On a terminal, delete asks first; elsewhere --yes is required.` + keyHelp,
		Example: `  changefeed delete cosmos:shop/orders 17 --key London
  changefeed delete --db data --container orders 17 --key London --yes`,
		Args: cobra.ArbitraryArgs, // withTarget checks them
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withTarget(cmd, args, "ID", func(t *items.Target, id string) error { return o.remove(cmd, t, id) })
		},
	}
	o.register(cmd)
	cmd.Flags().StringVar(&o.ifMatch, "if-match", "", "delete the document only if the etag is this `etag`")
	o.sure.Register(cmd.Flags())
	o.report = output(cmd)
	return cmd
}

// remove deletes a document, if the user agrees.
func (o *deleteOptions) remove(cmd *cobra.Command, t *items.Target, id string) error {
	key, err := t.FullKey(o.key.Value, id)
	if err != nil {
		return err
	}
	d := items.Document{ID: id, Key: key}
	// Nobody is asked about a document that is not there, and no other version is deleted than that of the question.
	etag, err := t.Find(cmd.Context(), d, o.ifMatch)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%v in %s", d, t.Name())
	question := confirm.Question{Text: fmt.Sprintf("Delete %s of %s?", what, t.Where())}
	result := deletedItem{ID: id, Key: json.RawMessage(key), DryRun: true}
	return deleteIfSure(cmd, o.report, o.sure, question, what,
		func() (report.Value, error) {
			done := result
			done.DryRun = false
			done.Charge, err = t.Delete(cmd.Context(), d, etag)
			return done, err
		}, result)
}

// deletedItem is the result of delete.
type deletedItem struct {
	ID     string          `json:"id" about:"id of the document"`
	Key    json.RawMessage `json:"key" about:"partition key of the document"`
	Charge *float64        `json:"charge" about:"request units of the deletion; null if unknown"`
	DryRun bool            `json:"dry_run" about:"true if nothing was deleted, but would be"`
}

// ReportedAs implements [report.Value].
func (deletedItem) ReportedAs() string { return "deleted_item" }
