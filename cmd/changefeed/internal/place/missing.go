package place

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
	var list struct {
		Databases, DocumentCollections []struct{ ID string }
	}
	// If the caller may not list, or has lost the connection, return the original error.
	if a.call(ctx, http.MethodGet, nil, "dbs", nil, &list) != nil {
		return err
	}
	var names []string
	for _, d := range list.Databases {
		names = append(names, d.ID)
		if d.ID != at.Database {
			continue
		}
		// Containers are listed only where the database is there. Else the databases
		// are what helps.
		if a.call(ctx, http.MethodGet, []string{"dbs", d.ID}, "colls", nil, &list) != nil {
			return err
		}
		names = nil
		for _, c := range list.DocumentCollections {
			names = append(names, d.ID+"/"+c.ID)
		}
		return absent(at, ErrNoContainer, "the database", names)
	}
	return absent(at, ErrNoDatabase, "the account", names)
}

const mostNames = 20 // in an error

// ErrNoDatabase is wrapped by the error of an address whose database does not exist.
var ErrNoDatabase = errors.New("there is no such database")

// absent returns the error for a missing name, with the existing names.
func absent(at Address, what error, where string, names []string) error {
	want := where + " has none"
	if n := len(names); n > 0 {
		want = "want one of " + strings.Join(names[:min(n, mostNames)], ", ")
		if n > mostNames {
			want += fmt.Sprintf(" and %d more", n-mostNames)
		}
	}
	return fmt.Errorf("%s: %w: %s", at.Quote(), what, want)
}

// NoDatabase returns the error for an address whose database does not exist, with the names of those that do.
func NoDatabase(at Address, names []string) error {
	where := "the account"
	if at.Dir != "" {
		where = "the store"
	}
	return absent(at, ErrNoDatabase, where, names)
}
