package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/place"
	"github.com/millrace/changefeed/internal/usage"
)

// What run and relay do with changes that cannot be handled.

// registerPoison adds the flags about changes that fail, and about batches at once.
func (o *unitOptions) registerPoison(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&o.feed.MaxAttempts, "max-attempts", 0, "after so many failures of a batch look for the change that fails, and park it; 0 tries for ever")
	f.DurationVar(&o.feed.MaxAge, "max-age", 0, "the same after so much time")
	f.StringVar(&o.letters, "dead-letters", "", "park changes in the container of this `ADDRESS`, partitioned by "+deadletters.KeyPath+", or in a FILE of this process alone")
	f.BoolVar(&o.feed.HoldKeys, "hold", false, "park later changes of the partition key of a parked change too, so that their order is kept")
}

// checkPoison checks the flags about changes that fail.
func (o *unitOptions) checkPoison() error {
	switch {
	case o.feed.HoldKeys && o.letters == "":
		return usage.Error{Err: errors.New("--hold is set without --dead-letters: want a place for the changes that are held")}
	case o.letters != "" && o.feed.MaxAttempts == 0 && o.feed.MaxAge == 0:
		return usage.Error{Err: fmt.Errorf("--dead-letters is %s: want --max-attempts or --max-age beside it: without a limit nothing is ever parked", o.letters)}
	}
	return nil
}

// openLetters sets where the processor parks changes.
func (o *unitOptions) openLetters(ctx context.Context, opener *place.Opener, monitored *place.Container, log *slog.Logger) (err error) {
	switch {
	case o.letters == "":
		return nil
	case place.IsAddress(o.letters):
		o.feed.DeadLetters, err = o.letterBox(ctx, opener, monitored)
		return err
	}
	box, err := deadletters.File(o.letters, o.name)
	if errors.Is(err, deadletters.ErrInUse) {
		return fmt.Errorf("--dead-letters is %s: %w: want a file of its own for each process, or a container, which they share", o.letters, err)
	}
	if err != nil {
		return fmt.Errorf("--dead-letters is %s: %w", o.letters, err)
	}
	if n := box.Torn(); n > 0 {
		log.Warn("the last line of the dead letters was cut off: a crash had interrupted it", "file", o.letters, "bytes", n)
	}
	// It works as long as no range moves, so it is a warning and no refusal.
	if o.feed.HoldKeys {
		log.Warn("the file of dead letters belongs to this process: what is held of a key is scattered when its range moves; want a container", "file", o.letters)
	}
	o.feed.DeadLetters = box
	return nil
}

// closeLetters closes the file of letters, if they are in one.
func (o *unitOptions) closeLetters(err *error) {
	if c, ok := o.feed.DeadLetters.(io.Closer); ok {
		*err = cmp.Or(*err, c.Close())
	}
}

// letterBox is the box in a container, which is made if lease containers are.
func (o *unitOptions) letterBox(ctx context.Context, opener *place.Opener, monitored *place.Container) (changefeed.LetterBox, error) {
	at, err := place.Parse("--dead-letters", o.letters)
	if err != nil {
		return nil, usage.Error{Err: err}
	}
	c, err := opener.Open(ctx, at)
	if errors.Is(err, changefeed.ErrNotFound) || errors.Is(err, place.ErrNoContainer) {
		if !o.create {
			return nil, fmt.Errorf("%w; --create-leases makes the container for dead letters, too", err)
		}
		c, err = opener.Create(ctx, at, docstore.ContainerSpec{Paths: []string{deadletters.KeyPath}})
	}
	if err != nil {
		return nil, err
	}
	b, err := deadletters.Container(c.Concrete(), o.name, monitored.Concrete())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Address.Quote(), err)
	}
	return b, nil
}
