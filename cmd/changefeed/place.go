package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/usage"
)

// What is done to a store as a whole: in its directory when no process has it open, and
// over changefeed serve when that has.

const storeHelp = `

DIR is the directory of a store that no process has open, ADDRESS one that changefeed
serve has open, such as http://127.0.0.1:8081; there the read-write key is wanted. The
emulator's well-known key is the default on a loopback address.`

// parseStore reads a directory or the address of a server.
func parseStore(text string) (address, error) {
	a := address{field: "DIR", given: text}
	if !strings.HasPrefix(text, "http://") && !strings.HasPrefix(text, "https://") {
		a.dir = strings.TrimPrefix(text, "docstore:")
		if a.dir == "" || strings.Contains(text, "://") || strings.HasPrefix(text, "cosmos:") {
			return a, usage.Error{Err: fmt.Errorf("DIR|ADDRESS is %q: want the directory of a store, or the http or https address of changefeed serve", text)}
		}
		return a, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || strings.Trim(u.Path, "/") != "" {
		return a, usage.Error{Err: fmt.Errorf("ADDRESS is %q: want that of a server, such as http://127.0.0.1:8081, without a path", text)}
	}
	a.field, a.endpoint = "ADDRESS", u.Scheme+"://"+u.Host
	return a, nil
}

// withStore runs f on the store of a directory, or g on the account of a server.
func withStore(ctx context.Context, flags accountFlags, text string, f func(*docstore.DB) error, g func(*account) error) (err error) {
	a, err := parseStore(text)
	if err != nil {
		return err
	}
	o := newOpener(flags)
	defer closing(o, &err)
	if a.dir != "" {
		db, err := o.store(a)
		if err != nil {
			return err
		}
		return f(db)
	}
	server, err := o.account(ctx, a)
	if err != nil {
		return err
	}
	return g(server)
}

// long asks a server for something that takes long, and has read read the answer.
func (a *account) long(ctx context.Context, kind string, read func(io.Reader) error) error {
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

// whileWorking says now and then how far f is.
func whileWorking(w io.Writer, how func() string, f func() error) error {
	done := make(chan error, 1)
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { done <- f() })
	tick := time.NewTicker(lineEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			fmt.Fprintln(w, how())
		}
	}
}

var errEnded = errors.New("the server's answer has no end: it stopped, or the connection broke")
