package cosmosrest

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/cosmosrest/internal/meter"
	"github.com/millrace/changefeed/cosmosrest/internal/query"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// Images says before which changes the feed of all versions and deletes has the image of the
// item. It never has that of an item that expired.
type Images int

// The images that accounts show.
const (
	ImagesOfDeletes Images = iota // before a delete, as the emulator does
	ImagesOfAll                   // before a replace, too, as accounts do for which that was turned on
	NoImages                      // as all other accounts do
)

// showsImage reports whether the image before a change is shown.
func (i Images) showsImage(ch *feed.Change) bool {
	switch {
	case ch.Expired || i == NoImages:
		return false
	case i == ImagesOfAll:
		return true
	}
	return ch.Op == feed.OpDelete
}

// Unlimited is the [Options.Throughput] with which no container is throttled.
const Unlimited = -1

// Options are the optional settings of [New]. The zero value is a strict server with the
// emulator's well-known key, no throttling and no Entra tokens.
type Options struct {
	// Keys are the account's keys; without any, the emulator's well-known key is the
	// read-write key. Anybody knows it: give other keys where others can reach the server.
	Keys Keys

	// Tokens says whose Entra tokens are accepted, and what they may do; nil refuses all.
	Tokens *Tokens

	// Hosts are the names by which clients call a server whose key is the emulator's, or that
	// accepts [Tokens.Insecure], besides localhost and loopback addresses: without a port,
	// such as "cosmos" or "cosmos.internal". Requests to other hosts get a 403, because any
	// web page could make them. With keys of your own every host is served.
	Hosts []string

	// Consistency is the level that the account tells its clients: Strong, BoundedStaleness,
	// Session, ConsistentPrefix or Eventual. Empty is Session. Each is served as Strong.
	Consistency string

	// Lenient serves what the service refuses though it could be done: queries that
	// need a plan, writes without a partition key header, ids that cannot be read back.
	Lenient bool

	// Throughput is the budget in request units a second of a container that was
	// created without its own; 0 does not throttle. With [Unlimited] no
	// container is throttled, also those with an offer.
	Throughput int

	// Dedicated plays the dedicated gateway, which takes ids of every kind.
	Dedicated bool

	// PreviousImages says before which changes the feed of all versions and deletes shows
	// the image. The zero value is what the emulator shows: [ImagesOfDeletes].
	PreviousImages Images

	// Ending, when it is done, ends the requests that wait for a change, with what they
	// have; the others go on. A server that shuts down would wait for them in vain. With
	// nil they end when their time is up.
	Ending context.Context

	// Logger gets one record for each request that ends in a 5xx answer, and at level
	// debug one for each request; nil is silent.
	Logger *slog.Logger
}

// DefaultRetention is how long changefeed serve and package cosmostest keep all versions
// and deletes of containers without a changeFeedPolicy. As in an account with continuous
// backup, programs need not ask for them then. A server over a store of yours leaves this
// to [docstore.DB.SetRetention].
const DefaultRetention = 10 * time.Minute

// Server is the protocol over one store. Several servers may share a store.
type Server struct {
	db        *docstore.DB
	o         Options
	log       *slog.Logger
	authority *auth.Authority
	hosts     knownHosts
	budgets   *meter.Budgets // nil is no limit
	load      *meter.Load
	results   query.Results
}

// New is a server over a store, which stays the caller's to close.
func New(db *docstore.DB, o Options) (*Server, error) {
	s := &Server{db: db, o: o, log: o.Logger, load: meter.NewLoad()}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if o.Throughput < Unlimited {
		return nil, fmt.Errorf("new server: throughput is %d: want request units a second, 0 or Unlimited", o.Throughput)
	}
	if o.Throughput != Unlimited {
		s.budgets = meter.NewBudgets(db, o.Throughput, offeredIn)
	}
	if s.o.Consistency = cmp.Or(o.Consistency, "Session"); !slices.Contains(wire.Consistencies, s.o.Consistency) {
		return nil, fmt.Errorf("new server: consistency is %q: want one of %s", o.Consistency, strings.Join(wire.Consistencies, ", "))
	}
	var err error
	if s.authority, err = o.authority(s.log); err != nil {
		return nil, fmt.Errorf("new server: %w", err)
	}
	if s.hosts, err = o.known(); err != nil {
		return nil, fmt.Errorf("new server: %w", err)
	}
	return s, nil
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := newCall(s, w, r)
	defer c.work.End()
	defer c.recoverPanic()
	if err := c.serveRequest(); err != nil {
		c.sendError(err)
	}
	if s.log.Enabled(c.ctx, slog.LevelDebug) {
		s.log.Debug("request", "method", r.Method, "path", r.URL.Path, "status", c.out.Status, "charge", c.out.Charge, "activity", c.out.Activity)
	}
}

// byRID is the container with these resource ids; nil for none.
func (s *Server) byRID(db, coll string) *docstore.Container {
	for _, c := range s.db.Containers() {
		if c.RID() == coll && strings.HasPrefix(c.Self(), "dbs/"+db+"/") {
			return c
		}
	}
	return nil
}

// ConnectionString is the form of an address and a key that SDKs take.
func ConnectionString(url, key string) string {
	return "AccountEndpoint=" + strings.TrimSuffix(url, "/") + "/;AccountKey=" + key + ";"
}
