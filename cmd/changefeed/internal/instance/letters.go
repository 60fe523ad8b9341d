package instance

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// openLetters sets where the processor parks changes that cannot be handled. The returned function closes a file.
func (i *Instance) openLetters(ctx context.Context, opener *place.Opener,
	monitored *place.Container,
) (closed func() error, err error) {
	closed = func() error { return nil }
	switch {
	case i.Letters == "":
		return closed, nil
	case place.IsAddress(i.Letters):
		i.Options.OnFailure.DeadLetters, err = i.letterBox(ctx, opener, monitored)
		return closed, wrongContainer(err)
	}
	if named, ok, err := i.Account.ParseInContext("--dead-letters", i.Letters); ok && err == nil &&
		!strings.ContainsAny(i.Letters, "./\\") {
		return nil, usage.Flag("dead-letters", i.Letters,
			fmt.Sprintf("%s for the container of the context, or ./%s for a file", named, i.Letters))
	}
	box, err := deadletters.File(i.Letters, i.boxName())
	if errors.Is(err, deadletters.ErrInUse) {
		return nil,
			fmt.Errorf("--dead-letters is %s: %w: want a file of its own for each process, or a container, which "+
				"they share", i.Letters, err)
	}
	if err != nil {
		return nil, fmt.Errorf("--dead-letters is %s: %w", i.Letters, err)
	}
	if n := box.Torn(); n > 0 {
		i.Log.Warn("the last line of the dead letters was cut off: a crash had interrupted it", "file", i.Letters,
			"bytes", n)
	}
	// A file works as long as no range moves, so this is a warning and no refusal.
	if i.Options.OnFailure.HoldKeys {
		i.Log.Warn("the file of dead letters belongs to this process: what is held of a key is scattered when its "+
			"range moves; want a container", "file", i.Letters)
	}
	i.Options.OnFailure.DeadLetters = box
	return box.Close, nil
}

// checkLetters refuses an address of a container for dead letters that openLetters would refuse.
func (i *Instance) checkLetters(ctx context.Context, opener *place.Opener, monitored *place.Container) error {
	if !place.IsAddress(i.Letters) {
		return nil // a file is made when the instance runs
	}
	at, err := place.Parse("--dead-letters", i.Letters)
	if err != nil {
		return usage.Error{Err: err}
	}
	c, err := opener.Open(ctx, at)
	switch isMissing := errors.Is(err, feed.ErrNotFound) || errors.Is(err, place.ErrNoContainer); {
	case isMissing && i.Create:
		return nil
	case isMissing:
		return place.Advise(err, "--create-leases makes the container for dead letters, too", true)
	case err == nil:
		_, err = i.boxIn(c, monitored)
	}
	return wrongContainer(err)
}

// letterBox returns the box in a container. If --create applies to lease containers, letterBox also makes this
// container.
func (i *Instance) letterBox(ctx context.Context, opener *place.Opener, monitored *place.Container) (feed.LetterBox,
	error,
) {
	at, err := place.Parse("--dead-letters", i.Letters)
	if err != nil {
		return nil, usage.Error{Err: err}
	}
	c, err := opener.Open(ctx, at)
	if errors.Is(err, feed.ErrNotFound) || errors.Is(err, place.ErrNoContainer) {
		if !i.Create {
			return nil, place.Advise(err, "--create-leases makes the container for dead letters, too", true)
		}
		c, err = opener.CreateOrOpen(ctx, at, docstore.ContainerSpec{Paths: []string{deadletters.KeyPath}})
	}
	if err != nil {
		return nil, err
	}
	return i.boxIn(c, monitored)
}

// boxIn returns the box of the instance in a container.
func (i *Instance) boxIn(c, monitored *place.Container) (feed.LetterBox, error) {
	b, err := deadletters.Container(c.Concrete(), i.boxName(), monitored.Concrete())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Address.Quote(), err)
	}
	return b, nil
}
