package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/millrace/changefeed/cmd/changefeed/internal/ui"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cmd/changefeed/internal/web"
	"github.com/millrace/changefeed/dashboard"
	"github.com/millrace/changefeed/docstore"
)

// What the dashboard of serve shows: the state of the store, and the units of its clients.

// servedStore is the store of a server, for its dashboard.
type servedStore struct {
	dir string // empty if the store is in memory
	db  atomic.Pointer[docstore.DB]
}

// shown is what the dashboard shows of the store.
func (s *servedStore) shown() ui.Options {
	return ui.Options{
		Name: cmp.Or(s.dir, "store in memory"), Find: s.find, Checks: map[string]func() error{"store": s.check},
	}
}

// measure has the store and its requests shown and counted, if there is a dashboard.
func (s *servedStore) measure(on *ui.UI, o *web.Options) error {
	m, err := on.Server()
	if err != nil || m == nil {
		return err
	}
	o.RequestDone = m.RequestDone
	o.Opened = func(db *docstore.DB) (closing func(), err error) {
		stop, err := m.Observe(db)
		if err != nil {
			return nil, err
		}
		s.db.Store(db)
		return func() {
			s.db.Store(nil)
			_ = stop() // fails only if it was called before
		}, nil
	}
	return nil
}

// errNotOpen is why a server does not serve yet, or no more.
var errNotOpen = errors.New("the store is not open")

// check returns why the server cannot serve, or cannot write.
func (s *servedStore) check() error {
	db := s.db.Load()
	if db == nil {
		return errNotOpen
	}
	h := db.Health()
	return cmp.Or(h.Err, h.Full)
}

// find finds the units of the clients.
func (s *servedStore) find(ctx context.Context) (all []dashboard.Unit, err error) {
	db := s.db.Load()
	if db == nil {
		return nil, errNotOpen
	}
	found, err := unit.FindIn(ctx, db)
	for _, u := range found {
		name := u.Name
		if slices.ContainsFunc(found, func(o unit.Found) bool {
			return o.Name == u.Name && o.Container == u.Container && o.In != u.In
		}) { // such as the leases of before beside those of now
			name += " in " + u.In
		}
		all = append(all, dashboard.Unit{Name: name, Container: u.Container, Source: u.Source, Leases: u.Leases})
	}
	return all, err
}
