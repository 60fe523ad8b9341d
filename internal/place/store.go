package place

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/usage"
)

// parseStore reads a directory or the address of a server.
func parseStore(text string) (Address, error) {
	a := Address{Field: "DIR", Given: text}
	if !strings.HasPrefix(text, "http://") && !strings.HasPrefix(text, "https://") {
		a.Dir = strings.TrimPrefix(text, "docstore:")
		if a.Dir == "" || strings.Contains(text, "://") || strings.HasPrefix(text, "cosmos:") {
			return a, usage.Error{Err: fmt.Errorf("DIR|ADDRESS is %q: want the directory of a store, or the http or https address of changefeed serve", text)}
		}
		return a, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || strings.Trim(u.Path, "/") != "" {
		return a, usage.Error{Err: fmt.Errorf("ADDRESS is %q: want that of a server, such as http://127.0.0.1:8081, without a path", text)}
	}
	a.Field, a.endpoint = "ADDRESS", u.Scheme+"://"+u.Host
	return a, nil
}

// WithStore runs f on the store of a directory, or g on the account of a server.
func WithStore(ctx context.Context, flags Settings, text string, f func(*docstore.DB) error, g func(*Account) error) (err error) {
	a, err := parseStore(text)
	if err != nil {
		return err
	}
	o := NewOpener(flags)
	defer func() { err = cmp.Or(err, o.Close()) }()
	if a.Dir != "" {
		db, err := o.store(a)
		if err != nil {
			return err
		}
		return f(db)
	}
	server, err := o.Account(ctx, a)
	if err != nil {
		return err
	}
	return g(server)
}

// Stream asks a server for something that takes long, and has read read the answer.
func (a *Account) Stream(ctx context.Context, kind string, read func(io.Reader) error) error {
	request, err := a.request(ctx, http.MethodGet, nil, kind, nil)
	if err != nil {
		return err
	}
	err = a.send(request, read)
	refused, ok := errors.AsType[*callError](err)
	if ok && (refused.status == http.StatusNotFound || refused.status == http.StatusBadRequest) {
		return fmt.Errorf("%w; only changefeed serve does this", refused)
	}
	return err
}
