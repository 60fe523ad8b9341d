package changefeed

import (
	"context"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/dispatch"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/latest"
	"github.com/millrace/changefeed/internal/processor/tenure"
	"github.com/millrace/changefeed/internal/processor/unit"
)

// Processor reads the change feed of a source, together with the other instances of the unit, and hands the changes to
// a handler. [New] makes a Processor.
type Processor struct {
	source  feed.Source
	leases  feed.LeaseStore
	handler feed.Handler
	opts    Options

	runs latest.Set[string, *run] // running calls of Run, by their epochs
}

// New makes a processor. The lease store names the deployment unit. Processors share the work if you opened their lease
// stores with the same processor name; with different names each processor sees every change. If an option is invalid
// or does not fit the handler, New returns an [*OptionError]. If the handler is a [HandlerWithNeeds], New joins the
// handler's needs with the options.
func New(source feed.Source, leases feed.LeaseStore, handler feed.Handler, o Options) (*Processor, error) {
	switch {
	case source == nil:
		return nil, &OptionError{"source", "nil", "a Source, such as a docstore.Container"}
	case leases == nil:
		return nil, &OptionError{"leases", "nil", "a LeaseStore, such as docstore.Leases"}
	case isNil(handler):
		return nil, &OptionError{"handler", "nil", "a Handler, such as a HandlerFunc"}
	}
	needs := NeedsOf(handler)
	o, err := o.withNeeds(needs)
	if err != nil {
		return nil, err
	}
	o = o.withDefaults()
	o.Hooks = o.Hooks.And(needs.Hooks)
	if err := o.validate(); err != nil {
		return nil, err
	}
	return &Processor{source: source, leases: leases, handler: handler, opts: o}, nil
}

func isNil(h feed.Handler) bool {
	f, isFunc := h.(feed.HandlerFunc)
	return h == nil || isFunc && f == nil
}

// Run works until ctx ends. Then Run lets each batch in the handler finish, stores the positions, releases the leases
// and returns nil. Run returns an error only if a retry cannot help. At the start these errors are
// [feed.ErrModeChanged], [feed.ErrStartIgnored], [feed.ErrNoStart], or [feed.ErrNotFound], [feed.ErrForbidden] or
// [feed.ErrBadRequest] of the source or the lease store. Later they are [feed.ErrLeasesGone], or [feed.ErrSourceGone]
// if no read has found the monitored container for an [Options.Expiration]. All other errors are reported to
// [Hooks.Error] and retried.
//
// When ctx ends, Run returns within four times [Options.Drain]. A batch in the handler may go on for a Drain. Then
// its context ends, and the handler has another Drain to return. [feed.Closer] and the release of the lease have one
// Drain each. If a source or a lease store does not answer, this still holds, provided that the calls end with their
// contexts. If a handler does not return, Run leaves the handler behind and lets the lease expire.
//
// You may call Run again after its return, and even several times at once: each call is a separate instance.
func (p *Processor) Run(ctx context.Context) error {
	in := instance.New(ctx, p.source, p.leases, p.handler, p.opts.toParts(), p.opts.Hooks)
	_, counts := p.source.(feed.Sequencer)
	in.NeverJoin = NeedsOf(p.handler).NeverJoin || p.opts.OnFailure.HoldKeys || !counts
	in.Begin = func(lease feed.Record, started time.Time, crashed bool) { tenure.Begin(in, lease, started, crashed) }
	r := &run{in, unit.New(in)}
	p.runs.Put(in.Me.Epoch, r)
	defer p.runs.Remove(in.Me.Epoch)
	return r.unit.Run(ctx, func() { dispatch.WarnOfKeys(in) })
}

// run is a call of [Processor.Run]: an owner of leases.
type run struct {
	in   *instance.Instance
	unit *unit.Unit
}
