package place

import (
	"fmt"
	"os"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/contexts"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/docstore"
)

// Containers by their names: with a context, an address is DATABASE/CONTAINER, or CONTAINER in the context's database.

// inUse returns the context in use: the named one, or the current one unless the environment names an account. A user
// who sets a variable for one command means that account, whatever is current.
func (f Settings) inUse() (c contexts.Context, ok bool, err error) {
	if !f.Choice.Explicit() && environmentEndpoint() != "" {
		return c, false, nil
	}
	return f.Choice.Find()
}

// environmentEndpoint returns the variable that names an account; empty if there is none.
func environmentEndpoint() string {
	for _, name := range []string{EndpointVariable, ConnectionVariable} {
		if os.Getenv(name) != "" {
			return "$" + name
		}
	}
	return ""
}

// offerOfContext returns the offer of the context in use; empty if there is none, or if it is a store.
func (f Settings) offerOfContext() (offer, error) {
	c, ok, err := f.inUse()
	if err != nil || !ok {
		return offer{}, err
	}
	from := "context " + c.Name
	if f.Choice.Explicit() {
		from += " of " + f.Choice.By
	}
	if k := c.Key.String(); k != "" {
		from += ", " + k
	}
	return offer{from: from, endpoint: c.Endpoint, key: c.Key}, nil
}

// Parse reads an address in one of [AddressForms], or the name of a container in the context in use.
func (f Settings) Parse(field, text string) (Address, error) {
	a, err := Parse(field, text)
	if err == nil || !isName(text) {
		return a, err
	}
	if named, ok, err := f.ParseInContext(field, text); ok || err != nil {
		return named, err
	}
	for _, given := range []struct{ value, by string }{
		{f.Endpoint, "--endpoint"},
		{f.Connection, "--connection-string"},
		{environmentEndpoint(), environmentEndpoint()},
	} {
		if given.value != "" {
			want := text
			if !strings.Contains(text, "/") {
				want = "DATABASE/" + text
			}
			return a, fmt.Errorf("%s is %q: want cosmos:%s for the account of %s", field, text, want, given.by)
		}
	}
	return a, err
}

// ParseInContext reads the name of a container in the context in use; ok is false if there is no context, or if flags
// name an account, to which a name does not belong.
func (f Settings) ParseInContext(field, text string) (a Address, ok bool, err error) {
	if f.Endpoint != "" || f.Connection != "" {
		return a, false, nil
	}
	c, ok, err := f.inUse()
	if err != nil || !ok {
		return a, ok, err
	}
	a = Address{Field: field, Given: text, Dir: c.Directory, endpoint: strings.TrimRight(c.Endpoint, "/")}
	if a.Database, a.Container, ok = ParseName(text); !ok {
		return a, false, usage.Error{Err: fmt.Errorf("%s is %q: want container or database/container", field, text)}
	}
	if !strings.Contains(text, "/") {
		if c.Database == "" && c.Directory == "" {
			return a, false, usage.Error{Err: fmt.Errorf("%s is %q, and context %s has no database: want "+
				"DATABASE/%[2]s, or a context with --database", field, text, c.Name)}
		}
		if c.Database != "" {
			a.Database = c.Database
		} else {
			a.Database = docstore.DefaultDatabase
		}
	}
	a.Given = fmt.Sprintf("%s (%s of context %s)", text, a, c.Name)
	if a.Dir != "" {
		f.say("%s is %s", field, a.Given)
	}
	return a, true, nil
}

// isName reports whether a text can be the name of a container, and is no path or URL.
func isName(text string) bool {
	database, container, ok := ParseName(text)
	return ok && !strings.ContainsAny(text, `:\#?`) && database != "." && database != ".." && container != ".."
}
