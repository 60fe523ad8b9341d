package cosmosrest

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/cosmosrest/internal/meter"
	"github.com/millrace/changefeed/cosmosrest/internal/query"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// Images says for which changes the feed of all versions and deletes contains the previous image of the item. The
// feed never contains the previous image of an expired item.
type Images int

// The choices of previous images. Accounts of the service differ in them.
const (
	ImagesOfDeletes Images = iota // for deletes, as in the emulator
	ImagesOfAll                   // for replaces too, as in accounts with this feature turned on
	NoImages                      // for no changes, as in all other accounts
)

// showsImage reports whether the feed shows the previous image of a change.
func (i Images) showsImage(ch *feed.Change) bool {
	switch {
	case ch.Expired || i == NoImages:
		return false
	case i == ImagesOfAll:
		return true
	}
	return ch.Op == feed.OpDelete
}

// Unlimited is the value of [Options.Throughput] to turn throttling off for all containers.
const Unlimited = -1

// Options are the optional settings of [New]. The zero value is a strict server with the
// emulator's well-known key, no throttling and no Entra tokens.
type Options struct {
	// Keys are the account's keys. If you set none, the emulator's well-known key is the read-write key. Everyone
	// knows that key, so set your own keys if others can reach the server.
	Keys Keys

	// Tokens says which Entra tokens are accepted, and which rights they have. Nil refuses all tokens.
	Tokens *Tokens

	// Hosts are additional host names for clients, without a port, such as "cosmos" or "cosmos.internal". You need them
	// only if the key is the emulator's or you set [Tokens.Insecure]: then requests to hosts other than localhost,
	// loopback addresses and these names get a 403, because any web page could send them. If you set your own keys, the
	// server answers to every host name.
	Hosts []string

	// Consistency is the consistency level reported by the account: Strong, BoundedStaleness, Session, ConsistentPrefix
	// or Eventual. Empty means Session. All levels are served as Strong.
	Consistency string

	// Lenient serves some requests that the service refuses although they could be served: queries that need a plan,
	// writes without a partition key header, and ids that cannot be read back.
	Lenient bool

	// Throughput is the budget, in request units a second, of a container created without its own. 0 means no
	// throttling of such containers. If you set [Unlimited], no container is throttled, even with an offer.
	Throughput int

	// Dedicated makes the server behave like the dedicated gateway, which accepts ids of every kind.
	Dedicated bool

	// PreviousImages says for which changes the feed of all versions and deletes shows the previous image. The zero
	// value, [ImagesOfDeletes], is the emulator's behaviour.
	PreviousImages Images

	// Ending ends the requests waiting for a change: when this context is done, they return at once with the page they
	// have, and other requests go on. Without Ending, a shutdown would wait for these requests in vain. If Ending is
	// nil, they end when their time is over.
	Ending context.Context

	// Logger receives a record for each request with a 5xx answer; but a full disk is one record when it begins and one
	// when there is room again. Logger receives at most one record a minute for each address whose key, token or clock
	// is refused and, at level debug, a record for each request. Nil logs nothing.
	Logger *slog.Logger

	// RequestDone is called once for each answered request, also for refused ones. It is called by the goroutine of the
	// request, before the end of the answer has left, so it must return soon; several goroutines call it at the same
	// time. The context is that of the request. Package metrics/servermetrics has such a function. Nil costs nothing.
	RequestDone func(context.Context, RequestDone)
}

// DefaultRetention is how long changefeed serve and package cosmostest keep all versions and deletes of containers
// without a changeFeedPolicy. So your program need not set a policy, as in an account with continuous backup. If you
// serve a store of your own, set the retention with [docstore.DB.SetRetention].
const DefaultRetention = 10 * time.Minute

// Server serves the protocol over a store. Several servers may share a store.
type Server struct {
	db        *docstore.DB
	o         Options
	log       *slog.Logger
	authority *auth.Authority
	hosts     knownHosts
	budgets   *meter.Budgets // nil means no limit
	load      *meter.Load
	results   query.Results
	changes   atomic.Int64 // the LSN of databases, containers and offers: it grows with each change of them
	failures  failures
	counts    counts
	growing   sync.Map // resource ids of containers whose partitions are being split (growth.go)
}

// New returns a server over a store. The server does not close the store; you must do this.
func New(db *docstore.DB, o Options) (*Server, error) {
	s := &Server{db: db, o: o, log: o.Logger, load: meter.NewLoad()}
	s.failures.checkRoom = db.CheckRoom
	s.changes.Store(time.Now().Unix()) // so that a server begins above the LSNs of the server before
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if o.Throughput < Unlimited {
		return nil, fmt.Errorf("new server: throughput is %d: want request units a second, 0 or Unlimited",
			o.Throughput)
	}
	if o.Throughput != Unlimited {
		s.budgets = meter.NewBudgets(db, o.Throughput, offeredIn)
	}
	if s.o.Consistency = cmp.Or(o.Consistency, "Session"); !slices.Contains(wire.Consistencies, s.o.Consistency) {
		return nil, fmt.Errorf("new server: consistency is %q: want one of %s", o.Consistency,
			strings.Join(wire.Consistencies, ", "))
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
	defer c.reportDone()
	defer c.recoverPanic()
	if err := c.serveRequest(); err != nil {
		c.sendError(err)
	}
	c.logRecovery()
	if s.log.Enabled(c.ctx, slog.LevelDebug) {
		s.log.Debug("request", "method", r.Method, "path", r.URL.Path, "status", c.out.Status, "charge", c.out.Charge,
			"activity", c.out.Activity)
	}
}

// byRID returns the container with these resource ids, or nil.
func (s *Server) byRID(db, coll string) *docstore.Container {
	for _, c := range s.db.Containers() {
		if c.RID() == coll && strings.HasPrefix(c.Self(), "dbs/"+db+"/") {
			return c
		}
	}
	return nil
}

// ConnectionString returns an address and a key as a connection string for SDKs.
func ConnectionString(url, key string) string {
	return "AccountEndpoint=" + strings.TrimSuffix(url, "/") + "/;AccountKey=" + key + ";"
}
