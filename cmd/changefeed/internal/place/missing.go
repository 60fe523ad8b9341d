package place

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/feed"
)

// An account answers 404 both for a database and for a container. A user who has mistyped a name needs the existing
// names, so they are looked up after the error, when time does not matter.

// Status returns the HTTP status of an account's refusal; 0 for other errors.
func Status(err error) int {
	if e, ok := errors.AsType[*cosmos.Error](err); ok {
		return e.Status
	}
	if e, ok := errors.AsType[*callError](err); ok {
		return e.status
	}
	return 0
}

// Said returns the message of a server that refused a request; empty for other errors.
func Said(err error) string {
	if e, ok := errors.AsType[*callError](err); ok {
		return e.said
	}
	return ""
}

// explainMissing says which part of an address does not exist and which names do, if the caller may list them.
func (a *Account) explainMissing(ctx context.Context, at Address, err error) error {
	if !errors.Is(err, feed.ErrNotFound) {
		return err
	}
	// If the caller may not list, or has lost the connection, return the original error.
	known, failed := a.IDs(ctx, databases, "dbs")
	if failed != nil {
		return err
	}
	if !slices.Contains(known, at.Database) {
		return absent(at, ErrNoDatabase, "the account", known)
	}
	ids, failed := a.IDs(ctx, containers, "dbs", at.Database, "colls")
	if failed != nil {
		return err
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = at.Database + "/" + id
	}
	return absent(at, ErrNoContainer, "the database", names)
}

const mostNames = 20 // in an error

// ErrNoDatabase is wrapped by the error of an address whose database does not exist.
var ErrNoDatabase = errors.New("there is no such database")

// absent returns the error for a missing name, with the existing names.
func absent(at Address, what error, where string, names []string) error {
	return &absentError{at, what, where, names}
}

// absentError is the error for a missing name.
type absentError struct {
	at    Address
	what  error
	where string // the names are from
	names []string
}

// Error implements error.
func (e *absentError) Error() string {
	want := e.where + " has none"
	if len(e.names) > 0 {
		want = "want one of " + e.list()
	}
	return fmt.Sprintf("%s: %v: %s", e.at.Quote(), e.what, want)
}

// Unwrap returns what is missing.
func (e *absentError) Unwrap() error { return e.what }

// list returns the names that exist, but not too many.
func (e *absentError) list() string {
	text := strings.Join(e.names[:min(len(e.names), mostNames)], ", ")
	if more := len(e.names) - mostNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// IsGuessMissing reports whether an error means that the lease container does not exist whose name the command has
// guessed.
func IsGuessMissing(err error) bool {
	e, ok := errors.AsType[*absentError](err)
	return ok && errors.Is(e.what, ErrNoContainer) && e.at.Guessed
}

// Advise returns the error of a missing container with an advice first: the containers that exist are for other
// documents. They are named if the user has named a container, and so may have mistyped one of them.
func Advise(err error, advice string, isNamed bool) error {
	e, ok := errors.AsType[*absentError](err)
	if !ok || !errors.Is(e.what, ErrNoContainer) {
		return fmt.Errorf("%w; %s", err, advice)
	}
	if isNamed && len(e.names) > 0 {
		advice += "; " + e.where + " has " + e.list()
	}
	return fmt.Errorf("%s: %w: %s", e.at.Quote(), e.what, advice)
}

// NoDatabase returns the error for an address whose database does not exist, with the names of those that do.
func NoDatabase(at Address, names []string) error {
	where := "the account"
	if at.Dir != "" {
		where = "the store"
	}
	return absent(at, ErrNoDatabase, where, names)
}
