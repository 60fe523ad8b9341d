package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/load"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// The command import. The command finds all possible mistakes before creating anything, the cheapest checks first:
// flags, then the input, then the container.

// importOptions are the flags of import.
type importOptions struct {
	placeFlags
	containerFlags
	to     place.Address
	input  string // path, or - for standard input
	load   load.Options
	report *report.Report
}

// There are many writers, because each waits for an acknowledgement, and the store or account commits waiting writes
// together.
const (
	defaultWriters = 256
	maxWriters     = 4096
)

// importCommand is the command import. cmd/changefeed/internal/load loads the documents.
func importCommand() *cobra.Command {
	var o importOptions
	cmd := &cobra.Command{
		Use:     "import FILE|- [ADDRESS]",
		GroupID: groupData,
		Short:   "Load documents from a file or a pipe",
		Long: `FILE is - for standard input. The input is a JSON document a line, or an array of documents. A document
replaces the document with the same id and partition key. Documents of one partition key are written in the order of the
input.

Bad input (no JSON, no object, no id, a bad partition key, too large) goes to the reject file, with the line number, the
reason and the text. The exit code is then 1. To import the mended documents:

  jq -r .text FILE.rejects > mended.ndjson

If an import was interrupted, start the command again with the same file and container: the import goes on where the
first stopped. Standard input is read from the beginning. If an account cannot be reached, the import waits; a document
without an acknowledged write is then written again.

--pk makes a missing container, together with a missing store or database.`,
		Example: `  changefeed import r.ndjson --db data --container restaurants --pk /outcode
  changefeed import o.json --db data --container orders --pk /tenant,/user
  zcat e.gz | changefeed import - --db data --container e --pk /id --ttl 24h
  changefeed import o.json http://127.0.0.1:8081/shop/orders --pk /city`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			o.input = args[0]
			if o.to, err = o.containerAddress(cmd, args[1:]); err != nil {
				return err
			}
			return o.run(cmd)
		},
	}
	o.placeFlags.register(cmd)
	o.containerFlags.register(cmd)
	o.addPatience(cmd)
	f := cmd.Flags()
	f.StringVar(&o.load.Rejects, "rejects", "", "`file` for refused input (default FILE.rejects)")
	f.IntVar(&o.load.Writers, "writers", defaultWriters, "documents that are written at the same time")
	f.BoolVar(&o.load.Restart, "restart", false, "begin anew instead of going on after an interrupted import")
	o.report = output(cmd)
	return cmd
}

// run checks everything that can be checked before creating the container, so a misspelled path does not leave an
// empty container behind.
func (o *importOptions) run(cmd *cobra.Command) (err error) {
	if err := o.checkFlags(); err != nil {
		return err
	}
	// The input is opened first, so a missing file does not leave an empty container behind either.
	in, err := openInput(cmd, "FILE", o.input)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := o.checkRejectsApart(in); err != nil {
		return err
	}
	opener := place.NewOpener(o.account)
	opener.Retries = o.retries
	defer func() { err = cmp.Or(err, opener.Close()) }()
	c, err := opener.Make(cmd.Context(), o.to, place.Wanted{
		Spec: o.spec(), Given: cmd.Flags().Changed,
	})
	if err != nil {
		return err
	}
	done, err := load.Documents(cmd.Context(), in, c, o.report, o.load)
	// Even after an error, the report shows how far the import has come.
	unread := o.writeResult(done, cmd.Context().Err() != nil)
	return cmp.Or(err, unread)
}

// checkFlags refuses invalid values of flags.
func (o *importOptions) checkFlags() error {
	rejects := o.input + ".rejects"
	o.load.Input = filepath.Base(o.input)
	if o.input == "-" {
		o.load.Input, rejects = "standard input", "stdin.rejects"
	}
	o.load.Rejects = cmp.Or(o.load.Rejects, rejects)
	if err := cmp.Or(o.check(), o.retries.Check()); err != nil {
		return err
	}
	switch {
	case o.load.Writers < 1 || o.load.Writers > maxWriters:
		return usage.Flag("writers", strconv.Itoa(o.load.Writers), fmt.Sprintf("1 to %d", maxWriters))
	case o.load.Rejects == "-": // would be a file with this name
		return usage.Flag("rejects", "-", "the path of a file")
	}
	return nil
}

// checkRejectsApart refuses a file of rejects that would overwrite the input, under whatever name.
func (o *importOptions) checkRejectsApart(in *os.File) error {
	read, err := in.Stat()
	if err != nil {
		return fmt.Errorf("read input: %w", err)
	}
	written, err := os.Stat(o.load.Rejects)
	if err == nil && read.Mode().IsRegular() && os.SameFile(read, written) {
		return usage.Flag("rejects", o.load.Rejects, "another file than the input")
	}
	return nil // a file that does not exist is not the input
}

// writeResult writes the result.
func (o *importOptions) writeResult(done *load.Result, isInterrupted bool) error {
	if done == nil {
		return nil
	}
	return o.report.Object(done, func(w io.Writer) error {
		before, verb := "", "imported"
		if isInterrupted {
			verb = "interrupted: imported so far"
		}
		if done.Before > 0 {
			before = fmt.Sprintf(", %s before", terminal.Number(done.Before))
		}
		_, err := fmt.Fprintf(w, "%s %s into %s in %.2f s (%s a second)%s, rejected %s\n",
			verb, terminal.Count(done.Imported, "document"), o.to.Name(), done.Seconds,
			terminal.Number(int64(done.Rate)), before, terminal.Number(done.Rejected))
		return err
	})
}
