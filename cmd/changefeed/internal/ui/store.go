package ui

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/millrace/changefeed/cmd/changefeed/internal/explorer"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/dashboard"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/metrics/servermetrics"
)

// Store is the content of a server's dashboard: the state of the store, and the units of the clients.
type Store struct {
	dir      string // empty if the store is in memory
	db       atomic.Pointer[docstore.DB]
	explorer *explorer.Explorer
	endpoint atomic.Pointer[string] // of the server, once it serves
}

// StoreOf returns the store in a directory, which is not open yet; an empty name is a store in memory.
func StoreOf(dir string) *Store { return &Store{dir: dir, explorer: explorer.New()} }

// ServedAt tells the store the URL at which clients reach it.
func (s *Store) ServedAt(endpoint string) { s.endpoint.Store(&endpoint) }

// account is the URL at which clients reach the store; empty before.
func (s *Store) account() string {
	if at := s.endpoint.Load(); at != nil {
		return *at
	}
	return ""
}

// Options are those of the store's dashboard.
func (s *Store) Options() Options {
	return Options{
		Name: cmp.Or(s.dir, "store in memory"), Find: s.find, Checks: map[string]func() error{"store": s.check},
		Explorer: s.explorer,
	}
}

// Show has the open store shown and measured until closing is called.
func (s *Store) Show(db *docstore.DB, m *servermetrics.Metrics) (closing func(), err error) {
	stop, err := m.Observe(db)
	if err != nil {
		return nil, err
	}
	s.db.Store(db)
	hide := s.explorer.Show(explorer.OfStore(db, s.dir, s.account))
	return func() {
		hide()
		s.db.Store(nil)
		_ = stop() // fails only in a second call
	}, nil
}

// errNotOpen is why a server does not serve yet, or no more.
var errNotOpen = errors.New("the store is not open")

// check returns why the server cannot serve, or cannot write.
func (s *Store) check() error {
	db := s.db.Load()
	if db == nil {
		return errNotOpen
	}
	return troubleOf(db.Health())
}

// troubleOf is why a store cannot serve, or cannot write.
func troubleOf(h docstore.Health) error { return cmp.Or(h.Err, h.Full) }

// find finds the units of the clients.
func (s *Store) find(ctx context.Context) (all []dashboard.Unit, err error) {
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
		commands := s.commands(u, found)
		all = append(all, dashboard.Unit{
			Name: name, Container: u.Container, Source: u.Source, Leases: u.Leases,
			Letters: u.Letters, LettersAt: u.Places.Letters,
			Complete: func(advice string) string { return commands.Complete(advice) },
		})
	}
	return all, err
}

// commands are the commands about a unit, which name the monitored container if units of the same name read several
// containers.
func (s *Store) commands(u unit.Found, all []unit.Found) unit.Commands {
	url := s.account()
	if url == "" {
		return unit.Commands{}
	}
	made := u.Places.Under(url, u.Name)
	if slices.ContainsFunc(all, func(o unit.Found) bool {
		return o.Name == u.Name && o.In == u.In && o.Container != u.Container
	}) {
		made.Source = url + u.Places.Monitored
	}
	return made
}
