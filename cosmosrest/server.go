package cosmosrest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/docstore"
)

// Options are the optional settings of [New]. The zero value is a strict server with the
// emulator's well-known key, no throttling and no Entra tokens.
type Options struct {
	// Keys are the account's keys; without any, the emulator's well-known key is the
	// read-write key. Anybody knows it: give another one where others can reach the server.
	Keys Keys

	// Tokens says whose Entra tokens are accepted, and what they may do; nil refuses all.
	Tokens *Tokens

	// Lenient serves what the service refuses though it could be done: queries that
	// need a plan, writes without a partition key header, ids that cannot be read back.
	Lenient bool

	// Throughput is the budget in request units a second of a container that was
	// created without one of its own; 0 does not throttle. With [Unlimited] no
	// container is throttled, also those with an offer.
	Throughput int

	// Dedicated plays the dedicated gateway, which takes ids of every kind.
	Dedicated bool

	// PreviousImages plays an account that shows, in the feed of all versions and deletes,
	// the image before a replace. Others, as in the service, show the image before a delete only.
	PreviousImages bool

	// Ending, when it is done, ends the requests that wait for a change, with what they
	// have; the others go on. A server that shuts down would wait for them in vain. With
	// nil they end when their time is up.
	Ending context.Context

	// Logger gets one record for each request that ends in a 5xx answer, and at level
	// debug one for each request; nil is silent.
	Logger *slog.Logger
}

// DefaultRetention is for how long changefeed serve and a [TestServer] keep all versions
// and deletes of containers without a changeFeedPolicy. As in an account with continuous
// backup, programs need not ask for them then. A server over a store of yours leaves this
// to [docstore.DB.SetRetention].
const DefaultRetention = 10 * time.Minute

// Server is the protocol over one store. Several servers may share a store.
type Server struct {
	db      *docstore.DB
	o       Options
	log     *slog.Logger
	keys    keyring
	tokens  *verifier
	budgets budgets
	results results
	turns   turns
	held    atomic.Int64 // bytes of queries that are computed
	sending atomic.Int64 // bytes of large answers that are being sent
}

// New is a server over a store, which stays the caller's to close.
func New(db *docstore.DB, o Options) (*Server, error) {
	s := &Server{db: db, o: o, log: o.Logger, turns: newTurns()}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if o.Throughput < Unlimited {
		return nil, fmt.Errorf("new server: throughput is %d: want request units a second, 0 or Unlimited", o.Throughput)
	}
	var err error
	if s.keys, err = newKeyring(o.Keys); err != nil {
		return nil, fmt.Errorf("new server: %w", err)
	}
	if s.tokens, err = newVerifier(o.Tokens, o.Keys, s.log); err != nil {
		return nil, fmt.Errorf("new server: %w", err)
	}
	return s, nil
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := newCall(s, w, r)
	defer c.meter.end()
	defer c.recover()
	err := c.serve()
	if err != nil {
		c.refuse(err)
	}
	if s.log.Enabled(c.ctx, slog.LevelDebug) {
		s.log.Debug("request", "method", r.Method, "path", r.URL.Path, "status", c.status, "charge", c.charge, "activity", c.activity)
	}
}

// serve finds out what is asked, by whom, and does it.
func (c *call) serve() (err error) {
	if c.target, err = parsePath(c.r.URL.EscapedPath()); err != nil {
		return err
	}
	if c.who, err = c.s.authenticate(c); err != nil {
		return err
	}
	c.known = true
	vouch(c.ctx)
	op, err := c.operation()
	if err != nil {
		return err
	}
	return op(c)
}

// recover turns a panic, which is a mistake of ours, into a 500 that tells no details.
func (c *call) recover() {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	c.s.log.Error("request panicked", "method", c.r.Method, "path", c.r.URL.Path, "panic", p, "stack", string(debug.Stack()))
	c.refuse(errors.New("the server made a mistake: its log says which"))
}
