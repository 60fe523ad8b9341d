package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/internal/place"
	"github.com/millrace/changefeed/internal/terminal"
	"github.com/millrace/changefeed/internal/unit"
	"github.com/millrace/changefeed/internal/usage"
)

// The commands dlq retry and dlq release. They ask the owner of the range that a key is in,
// by a request among the leases, and then look among the letters for what became of it.

// redriveHelp ends the help of the commands that ask a processor for something.
const redriveHelp = `

This is done by the instance of the unit that owns the range of the key: one must run, with
the same dead letters. The command waits for it as long as --wait says; after that the
request stays, and is served when an instance runs.

The lease container is looked for beside that of the letters; for letters in a FILE it has
to be given. The container that the unit reads is found in the same account.`

// redriveOptions are the flags of the commands that ask a processor for something.
type redriveOptions struct {
	letterOptions
	leases string
	wait   time.Duration
}

// register adds the flags to a command.
func (o *redriveOptions) register(cmd *cobra.Command) {
	o.letterOptions.register(cmd)
	o.sole = true
	f := cmd.Flags()
	f.StringVar(&o.leases, "leases", "", "`address` of the lease container (default leases, beside the letters)")
	f.DurationVar(&o.wait, "wait", 30*time.Second, "how long to wait for each")
	o.form = output(cmd)
}

// dlqRetryCommand is the command dlq retry.
func dlqRetryCommand() *cobra.Command {
	var o redriveOptions
	cmd := &cobra.Command{
		Use:   "retry ADDRESS|FILE --name NAME ID...",
		Short: "Have dead letters handled again",
		Long: `Have the changes in dead letters handled again, in order with what else there is of their
keys. A letter whose change is handled is removed; where its key is held and no other
letter of the key has failed, the held ones follow. One whose change fails again stays,
with the new cause, and the exit code is 1.` + redriveHelp + dlqHelp,
		Example: `  changefeed dlq retry http://127.0.0.1:8081/shop/letters --name mailer 4711.df8cf80227ec3237922df0ecd88385c5
  changefeed dlq retry mailer.ndjson --name mailer --leases http://127.0.0.1:8081/shop/leases --all`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.retry(cmd, args) },
	}
	o.register(cmd)
	cmd.Flags().BoolVar(&o.all, "all", false, "all letters of the unit or, with --key, of the key, but those that are held")
	return cmd
}

// dlqReleaseCommand is the command dlq release.
func dlqReleaseCommand() *cobra.Command {
	var o redriveOptions
	cmd := &cobra.Command{
		Use:   "release ADDRESS|FILE --name NAME [--key KEY] [ID...]",
		Short: "Let a held partition key go on without the changes that failed",
		Long: `Let a partition key go on that --hold has stopped, without the changes of it that have
failed: those that were held are handled, in their order, and then the key is not held any
more. The letters of the changes that failed stay, to be retried or dropped. If a held
change fails, its key stays held from there, and the exit code is 1. A key that is not held
is an error.

The key is that of --key, or those of the letters with the IDs.` + redriveHelp + dlqHelp,
		Example: `  changefeed dlq release http://127.0.0.1:8081/shop/letters --name mailer --key London`,
		RunE:    func(cmd *cobra.Command, args []string) error { return o.release(cmd, args) },
	}
	o.register(cmd)
	return cmd
}

// retry asks for each letter, and says what became of it.
func (o *redriveOptions) retry(cmd *cobra.Command, args []string) error {
	where, ids, err := o.leasesAt(cmd, args)
	if err != nil {
		return err
	}
	if o.all == (len(ids) > 0) {
		return errNoLetter
	}
	letters, err := o.gather(cmd, args)
	if err != nil {
		return err
	}
	if err := o.unambiguous(letters, ids); err != nil {
		return err
	}
	isHeld := func(l changefeed.DeadLetter) bool { return l.Disposition == changefeed.DispositionHeld }
	// A held change would pass the one before it that has failed, which is what --hold
	// is there to prevent.
	if i := slices.IndexFunc(letters, isHeld); i >= 0 && !o.all {
		return usage.Error{Err: fmt.Errorf("ID is %s: it is held behind a change of %s that has failed: want the ID of that, or changefeed dlq release to go on without it", letters[i].ID, letters[i].Change.PartitionKey)}
	}
	// With --all they are left out instead: a held change is handled by itself, when
	// those before it are.
	letters = slices.DeleteFunc(letters, isHeld)
	left, err := askAll(cmd, o, where, args[:len(args)-len(ids)], letters, func(ctx context.Context, source changefeed.Source, leases changefeed.LeaseStore, l changefeed.DeadLetter) error {
		return deadletters.Redrive(ctx, source, leases, l.Change.PartitionKey, l.ID)
	})
	if err != nil {
		return err
	}
	return o.report(cmd.OutOrStdout(), letters, left)
}

// release asks for each key.
func (o *redriveOptions) release(cmd *cobra.Command, args []string) error {
	where, ids, err := o.leasesAt(cmd, args)
	if err != nil {
		return err
	}
	if o.key.Value == "" && len(ids) == 0 {
		return usage.Error{Err: errors.New("--key is missing: want the partition key to release, or the ID of a letter of it")}
	}
	keys := []changefeed.PartitionKey{o.key.Value}
	if len(ids) > 0 {
		letters, err := o.gather(cmd, args)
		if err != nil {
			return err
		}
		keys = nil
		for _, l := range letters {
			keys = append(keys, l.Change.PartitionKey)
		}
		// Several letters of a key ask for it once.
		slices.Sort(keys)
		keys = slices.Compact(keys)
	}
	args = args[:len(args)-len(ids)]
	letters, err := o.gather(cmd, args)
	if err != nil {
		return err
	}
	left, err := askAll(cmd, o, where, args, keys, func(ctx context.Context, source changefeed.Source, leases changefeed.LeaseStore, key changefeed.PartitionKey) error {
		if err := o.checkHeld(ctx, leases, letters, key); err != nil {
			return err
		}
		return deadletters.Release(ctx, source, leases, key)
	})
	if err != nil {
		return err
	}
	return reportKeys(cmd.OutOrStdout(), o.form.value, keys, left)
}

// checkHeld refuses a key that is not held, which is a mistake most of the time. Its letters may have been dropped, which
// ends no hold; where they are held, a processor of another make may have ended the hold of the lease.
func (o *redriveOptions) checkHeld(ctx context.Context, leases changefeed.LeaseStore, letters []changefeed.DeadLetter, key changefeed.PartitionKey) error {
	records, _, err := leases.List(ctx)
	if err != nil {
		return err
	}
	says := func(r changefeed.Record) bool { return slices.Contains(unit.Held(r), string(key)) }
	waits := func(l changefeed.DeadLetter) bool {
		return l.Change.PartitionKey == key && (l.Disposition == changefeed.DispositionHeld || time.Since(l.Parked) < unsaid)
	}
	if slices.ContainsFunc(records, says) || slices.ContainsFunc(letters, waits) {
		return nil
	}
	return fmt.Errorf("%s is not held: no lease of unit %q says so, and no letter of it is held", terminal.OneLine(string(key)), o.name)
}

// unsaid is how long a key may be held before its lease says so: until the lease is renewed.
const unsaid = 5 * time.Minute

// gather reads the letters that a command line chooses.
func (o *redriveOptions) gather(cmd *cobra.Command, args []string) (all []changefeed.DeadLetter, err error) {
	err = o.read(cmd, args, func(_ string, letters letterSeq) error {
		for l, err := range letters {
			if err != nil {
				return err
			}
			all = append(all, nameOnly(l))
		}
		return nil
	})
	return all, err
}

// leasesAt is the address of the lease container, and the ids of the command line.
func (o *redriveOptions) leasesAt(cmd *cobra.Command, args []string) (at place.Address, ids []string, err error) {
	path, where, ids, err := o.place(cmd, args)
	switch {
	case err != nil:
		return at, nil, err
	case o.wait <= 0:
		return at, nil, usage.Flag("wait", o.wait.String(), "more than 0, such as 30s")
	case o.leases != "":
		if at, err = place.Parse("--leases", o.leases); err != nil {
			return at, nil, usage.Error{Err: err}
		}
	case path != "":
		return at, nil, usage.Error{Err: errors.New("--leases is missing: the letters are in a file: want the address of the unit's lease container")}
	default:
		if at, err = o.address(cmd, where); err != nil {
			return at, nil, err
		}
		at = at.Beside(unit.DefaultContainer)
	}
	// The request would lie in a store that this command has open and no processor can
	// open.
	if at.Dir != "" {
		return at, nil, usage.Error{Err: fmt.Errorf("the leases are in the store %s, which one process has open: no processor could serve this: want the address of changefeed serve", at.Dir)}
	}
	return at, ids, nil
}

// askAll asks for each of some letters or keys, and returns the letters that are left then. The processor answers a request
// by deleting it and says nothing of the outcome, which is in the letters: those that are gone were handled.
func askAll[T any](cmd *cobra.Command, o *redriveOptions, at place.Address, args []string, of []T, ask func(context.Context, changefeed.Source, changefeed.LeaseStore, T) error) ([]changefeed.DeadLetter, error) {
	err := o.unit(cmd.Context(), at, func(ctx context.Context, source changefeed.Source, leases changefeed.LeaseStore) error {
		for _, one := range of {
			if err := o.within(ctx, func(ctx context.Context) error { return ask(ctx, source, leases, one) }); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return o.gather(cmd, args)
}

// unit opens the unit and gives it to f.
func (o *redriveOptions) unit(ctx context.Context, at place.Address, f func(ctx context.Context, source changefeed.Source, leases changefeed.LeaseStore) error) (err error) {
	opener := place.NewOpener(o.account)
	defer func() { err = errors.Join(err, opener.Close()) }()
	leases, err := opener.Open(ctx, at)
	if err != nil {
		return err
	}
	among, err := o.candidates(ctx, opener, leases)
	if err != nil {
		return err
	}
	source, store, err := unit.Find(ctx, leases, among, o.name)
	if err != nil {
		return err
	}
	return f(ctx, source.Source, store)
}

// candidates are the containers that the unit may read.
func (o *redriveOptions) candidates(ctx context.Context, opener *place.Opener, leases *place.Container) ([]*place.Container, error) {
	if o.source == "" {
		return opener.Neighbours(ctx, leases)
	}
	at, err := place.Parse("--source", o.source)
	if err != nil {
		return nil, usage.Error{Err: err}
	}
	c, err := opener.Open(ctx, at)
	return []*place.Container{c}, err
}

// within bounds the wait for a processor.
// The time counts anew for each letter, because one that takes long says nothing of the
// next.
func (o *redriveOptions) within(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.wait, fmt.Errorf("nothing heard within %v (--wait)", o.wait))
	defer cancel()
	return f(ctx)
}

// redriven says what became of a letter.
type redriven struct {
	ID      string          `json:"id"`
	Key     json.RawMessage `json:"key"`
	Handled bool            `json:"handled"`
	Cause   string          `json:"cause,omitempty"` // of its last failure
}

// report says of each letter whether its change is handled now.
func (o *redriveOptions) report(w io.Writer, asked, left []changefeed.DeadLetter) error {
	failed := 0
	for _, l := range asked {
		r := redriven{ID: l.ID, Key: json.RawMessage(l.Change.PartitionKey), Handled: true}
		i := slices.IndexFunc(left, func(o changefeed.DeadLetter) bool {
			return o.ID == l.ID && o.Change.PartitionKey == l.Change.PartitionKey
		})
		if i >= 0 {
			r.Handled, r.Cause = false, left[i].Cause
			failed++
		}
		text := fmt.Sprintf("%s of %s is handled", l.ID, terminal.OneLine(string(r.Key)))
		if !r.Handled {
			text = fmt.Sprintf("%s of %s has failed again: %s", l.ID, terminal.OneLine(string(r.Key)), terminal.OneLine(r.Cause))
		}
		if err := writeEither(w, o.form.value, text, r); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d letters have failed again", failed, len(asked))
	}
	return nil
}

// reportKeys says of each key whether it is held still.
func reportKeys(w io.Writer, form string, keys []changefeed.PartitionKey, left []changefeed.DeadLetter) error {
	held := 0
	for _, key := range keys {
		is := slices.ContainsFunc(left, func(l changefeed.DeadLetter) bool {
			return l.Change.PartitionKey == key && l.Disposition == changefeed.DispositionHeld
		})
		text := fmt.Sprintf("%s is released", terminal.OneLine(string(key)))
		if is {
			text = fmt.Sprintf("%s is held still: a change of it has failed", terminal.OneLine(string(key)))
			held++
		}
		err := writeEither(w, form, text, struct {
			Key      json.RawMessage `json:"key"`
			Released bool            `json:"released"`
		}{json.RawMessage(key), !is})
		if err != nil {
			return err
		}
	}
	if held > 0 {
		return fmt.Errorf("%d of %d keys are held still", held, len(keys))
	}
	return nil
}

// writeEither writes a line for people, or the same for programs.
func writeEither(w io.Writer, form, text string, object any) error {
	if form == "json" {
		return json.NewEncoder(w).Encode(object)
	}
	_, err := fmt.Fprintln(w, text)
	return err
}
