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

// An account answers 404 for a database and for a container alike. Whoever has mistyped
// a name is helped by those that there are, so they are looked up after the error, when
// time does not matter.

// Status returns the HTTP status with which an account refused; 0 for other errors.
func Status(err error) int {
	if e, ok := errors.AsType[*cosmos.Error](err); ok {
		return e.Status
	}
	if e, ok := errors.AsType[*callError](err); ok {
		return e.status
	}
	return 0
}

// missing says which part of an address does not exist and which ones do, as far as whoever asks may know that.
func (a *Account) missing(ctx context.Context, at Address, err error) error {
	if !errors.Is(err, feed.ErrNotFound) {
		return err
	}
	var list struct {
		Databases, DocumentCollections []struct{ ID string }
	}
	// Who may not list, or has lost the connection, gets the error as it came.
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

const mostNames = 20 // that an error lists

// ErrNoDatabase is wrapped by the error of an address whose database does not exist.
var ErrNoDatabase = errors.New("there is no such database")

// absent is the error of something that is not among some names.
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
