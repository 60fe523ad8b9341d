package dashboard

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/sentence"
)

// Actions on dead letters from the page. Package deadletters asks the instances of the unit.

// errNoLetters is why this process cannot act on letters.
var errNoLetters = fmt.Errorf("%w: this process has no access to the dead letters of the unit", feed.ErrNotFound)

// errFailedAgain is the outcome of a request that an instance has served.
var errFailedAgain = errors.New("the handler has failed again")

// findLetter finds the letter that a command means.
func (c *Command) findLetter(ctx context.Context, s *shown) (*feed.DeadLetter, error) {
	key, err := c.key()
	switch {
	case err != nil:
		return nil, err
	case c.Letter == "" || key == "":
		return nil, bad("letter", c.Letter, "the ID of a dead letter, and its key in key")
	case s.Letters == nil:
		return nil, errNoLetters
	}
	for l, err := range s.Letters.Letters(ctx, key) {
		if err != nil {
			return nil, err
		}
		if l.ID == c.Letter {
			return &l, nil
		}
	}
	return nil, fmt.Errorf("%w: key %s has no dead letter %s any more", feed.ErrNotFound, key, c.Letter)
}

// recorded adds an action on letters to the history of the unit.
func recorded(do action) action {
	return func(ctx context.Context, s *shown, c *Command) (Outcome, error) {
		done, err := do(ctx, s, c)
		if errors.Is(err, feed.ErrBadRequest) || errors.Is(err, feed.ErrNotFound) {
			return done, err
		}
		key, _ := c.key()
		line := admin.Entry{Action: admin.Action(c.Action), Count: 1, Key: key}
		switch {
		case err != nil:
			line.Failed = err.Error()
		case done.isIdle:
			line.Failed = "nothing to do"
		default:
			line.Done = 1
		}
		return done, errors.Join(err, c.openUnit(s).Record(ctx, line))
	}
}

// retry has the handler handle a letter again.
func retry(ctx context.Context, s *shown, c *Command) (Outcome, error) {
	l, err := c.findLetter(ctx, s)
	switch {
	case err != nil:
		return Outcome{}, err
	case l.Disposition == feed.DispositionHeld:
		return Outcome{}, fmt.Errorf("%w: the letter is held behind an earlier one of its key: retry that one, or release "+
			"the key", feed.ErrBadRequest)
	case c.Preview:
		return line("would give the handler letter %s of key %s again, %s", l.ID, l.Change.PartitionKey, failedOf(l)), nil
	}
	o, err := deadletters.Redrive(ctx, s.Source, s.Leases, l.Change.PartitionKey, l.ID)
	if err != nil {
		return Outcome{}, err
	}
	after := ""
	if o.Handled > 1 {
		after = fmt.Sprintf(", with %s after it", sentence.Count(o.Handled-1, "held letter"))
	}
	switch {
	case o.Result == deadletters.ResultNothing:
		return idle("letter %s: nothing to do, because it is gone or held behind another one", l.ID), nil
	case o.Result == deadletters.ResultHandled:
		return line("letter %s is handled%s", l.ID, after), nil
	case o.Handled == 0:
		return Outcome{}, fmt.Errorf("letter %s: %w: %s", l.ID, errFailedAgain, o.Cause)
	}
	return line("letter %s is handled%s", l.ID, after),
		fmt.Errorf("a held letter after it: %w: %s", errFailedAgain, o.Cause)
}

// failedOf says how often a letter has failed.
func failedOf(l *feed.DeadLetter) string {
	return "which has failed in " + sentence.Count(l.Attempts, "attempt")
}

// release lets a held key go on without the failed changes.
func release(ctx context.Context, s *shown, c *Command) (Outcome, error) {
	key, err := c.key()
	switch {
	case err != nil:
		return Outcome{}, err
	case key == "":
		return Outcome{}, bad("key", "", `the partition key that is held, as a JSON array, such as ["oslo"]`)
	case c.Preview:
		return line("would let key %s go on: its held changes are handled, and its failed ones stay dead letters", key), nil
	}
	o, err := deadletters.Release(ctx, s.Source, s.Leases, key)
	switch {
	case err != nil:
		return Outcome{}, err
	case o.Result == deadletters.ResultNothing:
		return idle("key %s: nothing to do, because it is not held", key), nil
	case o.Result == deadletters.ResultFailed:
		return Outcome{}, fmt.Errorf("key %s is held still, %s later: %w: %s", key,
			sentence.Count(o.Handled, "letter"), errFailedAgain, o.Cause)
	}
	return line("key %s is released; %s handled", key, sentence.Count(o.Handled, "held letter")), nil
}

// drop removes a letter.
func drop(ctx context.Context, s *shown, c *Command) (Outcome, error) {
	l, err := c.findLetter(ctx, s)
	switch {
	case err != nil:
		return Outcome{}, err
	case c.Preview:
		done := line("would remove letter %s of key %s with its document: afterwards nothing remembers that item %q was not "+
			"handled", l.ID, l.Change.PartitionKey, l.Change.ID)
		done.Lines = append(done.Lines, "if the key is held, it stays held until it is released")
		return done, nil
	}
	if err := s.Letters.Remove(ctx, l.Change.PartitionKey, l.ID); err != nil {
		return Outcome{}, errors.Join(fmt.Errorf("letter %s is not removed", l.ID), err)
	}
	return line("removed letter %s of key %s", l.ID, l.Change.PartitionKey), nil
}

// idle is the outcome of an action that had nothing to do.
func idle(format string, args ...any) Outcome {
	o := line(format, args...)
	o.isIdle = true
	return o
}

// line is an outcome of a single line.
func line(format string, args ...any) Outcome {
	return Outcome{Lines: []string{fmt.Sprintf(format, args...)}}
}
