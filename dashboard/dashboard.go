package dashboard

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
)

// Options of [New]. The zero value works, for people on the same machine.
type Options struct {
	// Name is the name of the process on the page, such as that of the instance.
	Name string

	// Version is the name and the version of the program.
	Version string

	// Key is the key that each request must have, except for /healthz and /readyz. Without a key everybody who reaches
	// the address may look, by the name localhost or an IP address.
	Key string

	// Write lets those who look also steer the units, and change documents if there is an Explorer. Without a key,
	// everybody on the machine may then do so. By default the dashboard only reads.
	Write bool

	// Explorer answers the requests of the page below /store/, to show the documents of an account. Explorer receives
	// only requests of users who may look, and only with Write requests other than GET and HEAD. By default the page
	// has no documents.
	Explorer http.Handler

	// Metrics answers GET /metrics, such as the handler of a Prometheus exporter. By default there is no /metrics.
	Metrics http.Handler

	// Interval is how often units are listed while somebody looks; 2 s by default.
	Interval time.Duration

	// Find finds units that are shown beside those of Show, without instances of this process, such as the units in the
	// store of a server. Find is called at most every 10 s, while somebody looks; after a failure, the last result
	// counts.
	Find func(ctx context.Context) ([]Unit, error)

	// Checks are further checks of /healthz beside the processors, by their names, such as the state of a store. A
	// check must return soon.
	Checks map[string]func() error

	// Begun is a further check of /readyz beside the units, such as whether all units are shown already: an error says
	// why the process still waits. Begun must return soon. By default, a process that shows no unit is ready.
	Begun func() error
}

// A Unit is a deployment unit that a dashboard shows.
type Unit struct {
	Name      string // of the unit
	Container string // the name of the monitored container, such as shop/orders

	Source feed.Source     // measures the lags; nil if they need not be shown
	Leases feed.LeaseStore // required

	Processor *changefeed.Processor // the instance of this process; nil if there is none
	Letters   feed.LetterBox        // the dead letters; nil if there are none, or if they cannot be read
	LettersAt string                // where the letters are, such as shop/letters; empty if nobody needs to know

	// Says returns further sentences about the unit, such as the progress of a relay. Says must return soon. Nil is
	// nothing.
	Says func() []string

	// Complete completes the commands in an advice, such as changefeed leases resume, so that they can be pasted into a
	// shell. Nil leaves them as they are.
	Complete func(advice string) string
}

// name is the name of a unit and its container. A process may show several units of the same name, on several
// containers.
type name struct{ unit, container string }

// shown is a unit on the dashboard.
type shown struct {
	Unit
	admin *admin.Unit
	costs *costs
	*lister
}

// lister lists one unit at a time once.
type lister struct {
	mu        sync.Mutex // guards the rest
	going     *listing   // nil if there is none
	isUnknown bool       // the last listing has failed
}

// A Dashboard is an [http.Handler] that shows units. Its methods may be called by several goroutines.
type Dashboard struct {
	o       Options
	handler http.Handler
	events  *journal
	viewers hub
	spent   ledger
	closed  chan struct{} // with Close
	closing sync.Once

	mu    sync.Mutex // guards the rest
	units []*shown   // by their names
	last  *survey

	found     []*shown
	foundAt   time.Time // start of the process
	isFinding bool
	findError error
}

// New makes a dashboard without units.
func New(o Options) *Dashboard {
	o.Interval = cmp.Or(max(o.Interval, 0), 2*time.Second)
	d := &Dashboard{
		o: o, closed: make(chan struct{}), events: &journal{run: time.Now().UnixMilli()},
		spent: ledger{costs: map[name]*costs{}},
	}
	d.events.tell = d.viewers.notifyViewers
	d.handler = d.guardRequests(d.routes())
	return d
}

// Show shows a unit until hide is called. Show replaces a shown unit of the same name on the same container.
func (d *Dashboard) Show(u Unit) (hide func()) {
	made := d.newShown(u)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.units = slices.DeleteFunc(d.units, func(s *shown) bool { return s.name() == made.name() })
	d.units = append(d.units, made)
	slices.SortFunc(d.units, byName)
	d.last = nil
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.units = slices.DeleteFunc(d.units, func(s *shown) bool { return s == made })
		d.last = nil
	}
}

// Close ends the streams of all viewers. A server that shuts down waits for all connections, and a stream does not end
// by itself, so give Close to [http.Server.RegisterOnShutdown].
func (d *Dashboard) Close() { d.closing.Do(func() { close(d.closed) }) }

// newShown makes a unit that is shown.
func (d *Dashboard) newShown(u Unit) *shown {
	return &shown{
		Unit: u, admin: admin.Open(u.Source, u.Leases, admin.Options{}),
		costs:  d.spent.costsOf(name{u.Name, u.Container}),
		lister: new(lister),
	}
}

// completeCommands completes the commands in an advice.
func (s *shown) completeCommands(advice string) string {
	if s.Complete == nil {
		return advice
	}
	return s.Complete(advice)
}

// name is the name of a unit that is shown.
func (s *shown) name() name { return name{s.Name, s.Container} }

// byName orders units by their names.
func byName(a, b *shown) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Container, b.Container))
}

// ServeHTTP answers a request.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

// routes are the addresses of a dashboard.
func (d *Dashboard) routes() http.Handler {
	mux := http.NewServeMux()
	servePage(mux)
	mux.HandleFunc("GET /healthz", d.serveHealth)
	mux.HandleFunc("GET /readyz", d.serveReady)
	mux.HandleFunc("GET /status", d.serveStatus)
	mux.HandleFunc("GET /events", d.serveEvents)
	mux.HandleFunc("GET /explain", d.serveExplain)
	mux.HandleFunc("GET /letters", d.serveLetters)
	mux.HandleFunc("POST /steer", d.serveSteer)
	if d.o.Metrics != nil {
		mux.Handle("GET /metrics", d.o.Metrics)
	}
	if d.o.Explorer != nil {
		mux.Handle("/store/", http.StripPrefix("/store", d.o.Explorer))
	}
	return mux
}

// allShown are the units that are shown.
func (d *Dashboard) allShown() []*shown {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.units)
}

// errNoUnit is why there is no answer about a unit.
var errNoUnit = errors.New("the dashboard shows no such unit")

// unitAsked returns the unit that the address of a request names.
func (d *Dashboard) unitAsked(r *http.Request) (*shown, error) {
	return d.findUnit(r.Context(), name{r.FormValue("unit"), r.FormValue("container")})
}

// findUnit returns the unit with a name. The container may be left out if only one unit has the name.
func (d *Dashboard) findUnit(ctx context.Context, wanted name) (*shown, error) {
	d.mu.Lock()
	isFirst := d.o.Find != nil && d.foundAt.IsZero()
	d.mu.Unlock()
	if isFirst {
		select {
		case <-d.survey(ctx).done:
		case <-ctx.Done():
		}
	}
	d.mu.Lock()
	all := withFound(d.units, d.found)
	d.mu.Unlock()
	var found *shown
	for _, s := range all {
		if s.Name != wanted.unit || wanted.container != "" && s.Container != wanted.container {
			continue
		}
		if found != nil {
			return nil, errors.New("several units have this name: want container beside unit")
		}
		found = s
	}
	if found == nil {
		return nil, errNoUnit
	}
	return found, nil
}
