package main

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/internal/arg"
	"github.com/millrace/changefeed/internal/place"
	"github.com/millrace/changefeed/internal/terminal"
	"github.com/millrace/changefeed/internal/usage"
)

// The commands dlq: the dead letters of a unit, in a container or in a file. Which letters a
// command is about is found out alike for all: by the unit, ids and a key.

// dlqCommand is the command dlq, which has the others.
func dlqCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Look at changes that a handler could not handle",
		Long: `Look at the dead letters of a deployment unit: changes that its handler could not handle,
and that were parked so that the feed could go on.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := unknown(cmd, args); err != nil {
				return err
			}
			return cmd.Help()
		},
		SuggestionsMinimumDistance: 2,
	}
	cmd.AddCommand(dlqListCommand(), dlqShowCommand(), dlqRetryCommand(), dlqReleaseCommand(), dlqDropCommand())
	return cmd
}

// dlqHelp ends the help of the commands dlq.
const dlqHelp = `

An ID is the LSN of the change and a hash of its item, such as 4711.df8cf80227ec3237922df0ecd88385c5; in units that
read all versions and deletes the LSN and the place of the change, such as 4711.0.

FILE is a file in which a processor keeps its letters. It belongs to the host of that
processor: letters that were parked on other hosts are in the files of those. A container
has the letters of all.` + addressHelp

// letterOptions are the flags of the commands dlq.
type letterOptions struct {
	placeFlags
	name   string
	source string
	key    arg.Key
	all    bool // without ids
	sole   bool // letters of several units are a mistake
	form   *choice
}

// register adds the flags to a command.
func (o *letterOptions) register(cmd *cobra.Command) {
	o.placeFlags.register(cmd)
	cmd.Flags().StringVar(&o.name, "name", "", "`name` of the deployment unit")
	cmd.Flags().Var(&o.key, "key", `only letters of this partition key: text such as London, or JSON such as [5] or ["a","b"]`)
	cmd.Flags().StringVar(&o.source, "source", "", "`address` of the container that the unit reads, if several units have the name")
	_ = cmd.MarkFlagRequired("name") // fails only for a flag that is not there
	cmd.ValidArgsFunction = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
}

// dlqListCommand is the command dlq list.
func dlqListCommand() *cobra.Command {
	var o letterOptions
	cmd := &cobra.Command{
		Use:   "list ADDRESS|FILE --name NAME [ID...]",
		Short: "List dead letters",
		Long: `List dead letters: those of each partition key in the order of their changes. A letter is
named by its ID, and by its key where several keys have the same ID.

The disposition says why a change was parked:

  failed       its handler failed too often, or for too long
  poison       its handler said that trying again cannot help
  undecodable  it is not what the handler decodes
  crashed      the process ended too often while its handler had it
  held         an earlier change of its key is parked, and the unit holds such keys

With -o json, one object a line: id, key, item, lease, attempts, cause, disposition, parked.` + dlqHelp,
		Example: `  changefeed dlq list http://127.0.0.1:8081/shop/letters --name mailer
  changefeed dlq list mailer.ndjson --name mailer --key London
  changefeed dlq list docstore:data#letters --name mailer -o json | jq -r .cause | sort | uniq -c`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.read(cmd, args, func(from string, letters letterSeq) error {
				if o.form.value == "json" {
					return listLetters(cmd.OutOrStdout(), letters)
				}
				return o.writeTable(cmd.OutOrStdout(), from, letters)
			})
		},
	}
	o.register(cmd)
	o.form = output(cmd)
	return cmd
}

// dlqShowCommand is the command dlq show.
func dlqShowCommand() *cobra.Command {
	var o letterOptions
	cmd := &cobra.Command{
		Use:   "show ADDRESS|FILE --name NAME [ID...]",
		Short: "Show dead letters whole, with their documents",
		Long: `Show all that is known of dead letters: why each was parked, and the document as it was
in the feed. Without an ID, all letters are shown.

With -o json, one object a line, in the form in which letters are kept; the
documentation of package deadletters lists its members.` + dlqHelp,
		Example: `  changefeed dlq show http://127.0.0.1:8081/shop/letters --name mailer 4711.df8cf80227ec3237922df0ecd88385c5
  changefeed dlq show mailer.ndjson --name mailer -o json | jq .document`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.read(cmd, args, func(_ string, letters letterSeq) error {
				for l, err := range letters {
					if err == nil && o.form.value == "json" {
						err = writeLetter(cmd.OutOrStdout(), o.name, l)
					} else if err == nil {
						err = showLetter(cmd.OutOrStdout(), l)
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	o.register(cmd)
	o.form = output(cmd)
	return cmd
}

// dlqDropCommand is the command dlq drop.
func dlqDropCommand() *cobra.Command {
	var o letterOptions
	cmd := &cobra.Command{
		Use:   "drop ADDRESS|FILE --name NAME ID...",
		Short: "Remove dead letters, with their documents",
		Long: `Remove dead letters, with the documents in them: afterwards nothing remembers that these
changes were not handled. Either all letters that are named are there, or none is removed.
A key that is held stays held, and its next changes are parked too, until dlq release --key.

A file cannot be changed while a processor has it open.` + dlqHelp,
		Example: `  changefeed dlq drop http://127.0.0.1:8081/shop/letters --name mailer 4711.df8cf80227ec3237922df0ecd88385c5
  changefeed dlq drop mailer.ndjson --name mailer --key London --all`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.change(cmd, args, func(b letterPlace, ids []string) error { return o.drop(cmd, b, ids) })
		},
	}
	o.register(cmd)
	o.sole = true
	cmd.Flags().BoolVar(&o.all, "all", false, "remove all letters of the unit or, with --key, of the key")
	o.form = output(cmd)
	return cmd
}

// letterSeq are letters, until an error.
type letterSeq = iter.Seq2[changefeed.DeadLetter, error]

// read gives f the letters that a command line chooses, and where they are.
func (o *letterOptions) read(cmd *cobra.Command, args []string, f func(from string, letters letterSeq) error) error {
	path, where, ids, err := o.place(cmd, args)
	if err != nil {
		return err
	}
	if path != "" {
		return f(path+", a file of this host alone", o.chosen(deadletters.ReadFile(cmd.Context(), path, o.name), ids))
	}
	return o.boxes(cmd, where, func(b letterPlace, from string) error {
		return f(from, o.chosen(b.Letters(cmd.Context(), o.key.Value), ids))
	})
}

// change gives f the box, which it may change, and the ids of the command line.
func (o *letterOptions) change(cmd *cobra.Command, args []string, f func(b letterPlace, ids []string) error) error {
	path, where, ids, err := o.place(cmd, args)
	if err != nil {
		return err
	}
	// With neither there is nothing to do, and with both it is unclear which is meant:
	// letters are removed for good, so nothing is guessed.
	if o.all == (len(ids) > 0) {
		return errNoLetter
	}
	if path == "" {
		return o.boxes(cmd, where, func(b letterPlace, _ string) error { return f(b, ids) })
	}
	b, err := deadletters.File(path, o.name)
	if errors.Is(err, deadletters.ErrInUse) {
		return fmt.Errorf("%w: its processor has it open: stop that first", err)
	}
	if err != nil {
		return err
	}
	if n := b.Torn(); n > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: the last line of %s was cut off, %d bytes: a crash had interrupted it\n", cmd.CommandPath(), path, n)
	}
	return errors.Join(f(b, ids), b.Close())
}

// place separates the arguments: a file, or the address of a container, and ids.
func (o *letterOptions) place(cmd *cobra.Command, args []string) (path string, where, ids []string, err error) {
	// The flags name the container, so all arguments are ids, also one that looks like
	// an address.
	if o.db != "" || cmd.Flags().Changed("container") {
		return "", nil, args, nil
	}
	if len(args) == 0 {
		return "", nil, nil, usage.Error{Err: errors.New("ADDRESS or FILE is missing: want " + place.AddressForms + ", or a file of letters; or --db and --container")}
	}
	if isAddress(args[0]) {
		return "", args[:1], args[1:], nil
	}
	// The file must be there: a mistyped address would else be the name of a new file.
	if _, err := os.Stat(args[0]); err != nil {
		return "", nil, nil, fmt.Errorf("FILE is %s: %w; or want an address, %s", args[0], errors.Unwrap(err), place.AddressForms)
	}
	if o.source != "" && cmd.Flags().Lookup("leases") == nil {
		return "", nil, nil, usage.Error{Err: fmt.Errorf("--source is %s: the letters are in a file, which does not have what their unit reads: leave it out", o.source)}
	}
	return args[0], nil, args[1:], nil
}

// isAddress reports whether a text is the address of a container, right or wrong, and not a file.
func isAddress(text string) bool {
	scheme, _, ok := strings.Cut(text, ":")
	return ok && slices.Contains([]string{"docstore", "cosmos", "http", "https"}, scheme)
}

// chosen are the letters of the key and with the ids that were given. An id that no letter
// has is an error after the others.
func (o *letterOptions) chosen(letters letterSeq, ids []string) letterSeq {
	return func(yield func(changefeed.DeadLetter, error) bool) {
		// Letters go on one by one, because a box may hold more than fit in memory. So
		// what is missing is known only at the end.
		found := map[string]bool{}
		for l, err := range letters {
			if err == nil && (o.key.Value != "" && l.Change.PartitionKey != o.key.Value || len(ids) > 0 && !slices.Contains(ids, l.ID)) {
				continue
			}
			if found[l.ID] = true; !yield(l, err) || err != nil {
				return
			}
		}
		for _, id := range ids {
			if !found[id] {
				yield(changefeed.DeadLetter{}, fmt.Errorf("ID is %s: unit %q has no such letter here: want one that changefeed dlq list shows", id, o.name))
				return
			}
		}
	}
}

// errNoLetter is a command line that says of no letter, or in two ways, which it is about.
var errNoLetter = usage.Error{Err: errors.New("ID is missing: want those that changefeed dlq list shows, or --all, and not both")}

// nameOnly is a letter without its documents, which may be large.
func nameOnly(l changefeed.DeadLetter) changefeed.DeadLetter {
	l.Change.Body, l.Change.Previous, l.Stack = nil, nil, ""
	return l
}

// unambiguous refuses ids that letters of several keys have.
func (o *letterOptions) unambiguous(letters []changefeed.DeadLetter, ids []string) error {
	first := map[string]changefeed.PartitionKey{}
	for _, l := range letters {
		if other, twice := first[l.ID]; twice && len(ids) > 0 {
			return usage.Error{Err: fmt.Errorf("ID is %s: letters of several keys have it, among them %s and %s: want --key", l.ID, other, l.Change.PartitionKey)}
		}
		first[l.ID] = l.Change.PartitionKey
	}
	return nil
}

// drop removes letters, all or none: whoever types an id that is not there has mistaken it.
func (o *letterOptions) drop(cmd *cobra.Command, b letterPlace, ids []string) error {
	// Without their documents: all of them are in memory at once here.
	var doomed []changefeed.DeadLetter
	for l, err := range o.chosen(b.Letters(cmd.Context(), o.key.Value), ids) {
		if err != nil {
			return err
		}
		doomed = append(doomed, nameOnly(l))
	}
	if err := o.unambiguous(doomed, ids); err != nil {
		return err
	}
	// All are looked up before the first is removed, and a box of letters has no
	// transactions: what fails half-way has removed the letters before.
	for _, l := range doomed {
		if err := b.Remove(cmd.Context(), l.Change.PartitionKey, l.ID); err != nil {
			return err
		}
	}
	if o.form.value == "json" {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), `{"dropped":%d}`+"\n", len(doomed))
		return err
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "dropped %s\n", terminal.Count(len(doomed), "letter"))
	return err
}
