package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/docstore"
)

// A container is one that a command works on, wherever it is.
type container struct {
	address address
	paths   []string // of the partition key, if they are known
	source  changefeed.Source
	writer  changefeed.Committer
	local   *docstore.Container // nil for one of an account
	remote  *cosmos.Container   // nil for one of a store
	account *account            // the same

	retries *retrier // with an account, for who writes; nil is none
}

// stored is a container of a store.
func stored(c *docstore.Container, a address) *container {
	return &container{address: a, paths: c.Spec().Paths, source: c, writer: c, local: c}
}

// upsert writes a document, whose partition key a store finds out by itself.
func (c *container) upsert(ctx context.Context, key changefeed.PartitionKey, body []byte) error {
	if c.local != nil {
		_, err := c.local.Upsert(ctx, body)
		return err
	}
	if key == "" && json.Valid(body) {
		return fmt.Errorf("%w: partition key %s is an object or an array: want a string, number, boolean or null", changefeed.ErrBadRequest, strings.Join(c.paths, ","))
	}
	_, err := c.writer.Commit(ctx, key, []changefeed.Write{{Op: changefeed.WriteUpsert, Body: body}})
	if w, ok := errors.AsType[*changefeed.WriteError](err); ok {
		err = w.Err
	}
	return err
}

// retains refuses a mode that the container is not made for. That of an account says so
// itself.
func (c *container) retains(m changefeed.Mode) error {
	if m == changefeed.AllVersionsAndDeletes && c.local != nil && c.local.Retention() == 0 {
		return fmt.Errorf("--mode is all: container %q keeps no versions: it was imported without --retention", c.address.name())
	}
	return nil
}

// An opener opens containers; those of one store or account share what is open.
type opener struct {
	flags    accountFlags
	retries  *retrier     // for the sources of accounts; nil is none
	log      *slog.Logger // for what the client of an account has to say; nil is silence
	stores   map[string]*docstore.DB
	accounts map[string]*account
}

func newOpener(flags accountFlags) *opener {
	return &opener{flags: flags, stores: map[string]*docstore.DB{}, accounts: map[string]*account{}}
}

// Close closes everything that was opened.
func (o *opener) Close() error {
	var errs []error
	for _, db := range o.stores {
		errs = append(errs, db.Close())
	}
	for _, a := range o.accounts {
		a.client.Close()
		a.http.CloseIdleConnections() // which we made
	}
	return errors.Join(errs...)
}

// open opens a container that must be there.
func (o *opener) open(ctx context.Context, a address) (*container, error) {
	if a.dir == "" {
		return o.openRemote(ctx, a)
	}
	db, err := o.store(a)
	if err != nil {
		return nil, err
	}
	c, err := find(db, a)
	if err != nil {
		return nil, err
	}
	return stored(c, a), nil
}

// store opens a store that must be there.
func (o *opener) store(a address) (*docstore.DB, error) {
	dir := filepath.Clean(a.dir)
	if db := o.stores[dir]; db != nil {
		return db, nil
	}
	db, err := docstore.Open(dir, docstore.Options{MustExist: true})
	switch {
	case errors.Is(err, docstore.ErrNotStore):
		return nil, fmt.Errorf("%s: there is no store in it: want the directory of one, as changefeed import makes", a.storeField())
	case err != nil:
		return nil, openError(err)
	}
	o.stores[dir] = db
	return db, nil
}

// openError adds to an error of opening a store what can be done about it.
func openError(err error) error {
	if errors.Is(err, docstore.ErrInUse) {
		return fmt.Errorf("%w; processes share what changefeed serve has open: want an address such as http://127.0.0.1:8081/DATABASE/container", err)
	}
	return err
}

// find is a container that must be there.
func find(db *docstore.DB, a address) (*docstore.Container, error) {
	c, err := db.Container(a.name())
	if !errors.Is(err, changefeed.ErrNotFound) {
		return c, err
	}
	var names []string
	for _, c := range db.Containers() {
		names = append(names, c.Name())
	}
	return nil, absent(a, errNoContainer, "the store", names)
}

var errNoContainer = errors.New("there is no such container")

// with opens the container that the flags and arguments tell, runs f on it, and closes
// it.
func (p *placeFlags) with(cmd *cobra.Command, args []string, f func(c *container) error) (err error) {
	a, err := p.address(cmd, args)
	if err != nil {
		return err
	}
	if err := p.retries.check(); err != nil {
		return err
	}
	o := newOpener(p.account)
	o.retries = p.retries
	defer closing(o, &err)
	c, err := o.open(cmd.Context(), a)
	if err != nil {
		return err
	}
	return f(c)
}

// closing closes what a function worked with, and makes a failure its own.
func closing(c io.Closer, err *error) {
	if cerr := c.Close(); *err == nil {
		*err = cerr
	}
}
