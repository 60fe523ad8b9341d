package place

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
)

// WholeForms are the forms of an address that may also name a store, an account or a database, for errors.
const WholeForms = "DIR, docstore:DIR, http://HOST:PORT, http://HOST:PORT/DATABASE, cosmos:, cosmos:DATABASE, or a " +
	"container in one of them"

// ParseWhole reads what names a store or an account, a database in it, or a container. Empty names mean all. An empty
// text is the store or account of the context in use, and a text that is no directory may be a name there.
func (f Settings) ParseWhole(field, text string) (a Address, err error) {
	if a, err = Parse(field, text); err == nil {
		return a, nil
	}
	if info, err := os.Stat(text); err != nil || !info.IsDir() {
		if a, ok, err := f.wholeInContext(field, text); ok || err != nil {
			return a, err
		}
	}
	a = Address{Field: field, Given: text}
	scheme, rest, _ := strings.Cut(text, ":")
	ok := false
	switch {
	case !IsAddress(text):
		a.Dir, ok = text, text != "" && !strings.Contains(text, "://")
	case scheme == "docstore":
		a.Dir, ok = rest, rest != "" && !strings.Contains(rest, "#")
	case scheme == "cosmos":
		a.Database, ok = rest, !strings.Contains(rest, "/")
	default:
		ok = a.parseDatabase(text)
	}
	switch {
	case text == "":
		unused := ""
		if _, ok, err := f.Choice.Find(); ok && err == nil && environmentEndpoint() != "" {
			unused = "; the current context is not used while " + environmentEndpoint() + " is set"
		}
		return Address{}, usage.Error{Err: fmt.Errorf("%s is missing: want %s%s", field, WholeForms, unused)}
	case !ok:
		return Address{}, usage.Error{Err: fmt.Errorf("%s is %q: want %s", field, text, WholeForms)}
	}
	return a, nil
}

// wholeInContext reads a database, a database/container or nothing, in the context in use; ok is false if there is no
// context, or if flags name an account.
func (f Settings) wholeInContext(field, text string) (a Address, ok bool, err error) {
	if f.Endpoint != "" || f.Connection != "" || text != "" && !isName(text) {
		return a, false, nil
	}
	c, ok, err := f.inUse()
	if err != nil || !ok {
		return a, false, err
	}
	a = Address{Field: field, Dir: c.Directory, endpoint: strings.TrimRight(c.Endpoint, "/")}
	a.Database, a.Container, _ = strings.Cut(text, "/")
	a.Given = strings.TrimSpace(text + " of context " + c.Name)
	return a, true, nil
}

// parseDatabase reads scheme://host or scheme://host/database.
func (a *Address) parseDatabase(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return false
	}
	a.endpoint = u.Scheme + "://" + u.Host
	a.Database, err = url.PathUnescape(strings.Trim(u.EscapedPath(), "/"))
	return err == nil && !strings.Contains(a.Database, "/")
}

// ErrExists is wrapped by the error of MakeNew if there is such a container.
var ErrExists = errors.New("there is such a container already")

// MakeNew creates a container, together with the store or database. If there is such a container, MakeNew fails or,
// with ifMissing, returns the container, which must match the parts of w that the user gave.
func (o *Opener) MakeNew(ctx context.Context, at Address, w Wanted, ifMissing bool) (c *Container, isNew bool,
	err error,
) {
	if err := checkNewName(at); err != nil {
		return nil, false, err
	}
	if at.Dir != "" {
		if _, err := o.makeStore(ctx, at, w); err != nil {
			return nil, false, err
		}
	}
	a, err := o.Account(ctx, at)
	if err != nil {
		return nil, false, err
	}
	_, err = a.spec(ctx, at)
	isNew = errors.Is(err, feed.ErrNotFound)
	switch {
	case err == nil && !ifMissing:
		return nil, false, usage.Error{Err: fmt.Errorf("%s: %w: want another name, or --if-missing",
			at.Quote(), ErrExists)}
	case err != nil && !isNew:
		return nil, false, err
	}
	c, err = o.makeRemote(ctx, at, w)
	return c, isNew, err
}
