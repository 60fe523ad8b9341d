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

// Processor reads the change feed of a source with as many other instances as share
// its leases, and hands the changes to a handler. It is made by [New].
type Processor struct {
	source  feed.Source
	leases  feed.LeaseStore
	handler feed.Handler
	opts    Options

	runs latest.Set[string, *run] // that are under way, by their epochs
}

// New makes a processor. The lease store names the deployment unit: processors whose lease stores were opened with the
// same processor name share the work, those of different names each see every change.
// An option that makes no sense, or that the handler cannot work with, is an [*OptionError]. If the handler is a
// [HandlerWithNeeds], New joins its needs with the options.
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
	o.Hooks = o.Hooks.and(needs.Hooks)
	if err := o.validate(); err != nil {
		return nil, err
	}
	return &Processor{source: source, leases: leases, handler: handler, opts: o}, nil
}

func isNil(h feed.Handler) bool {
	f, isFunc := h.(feed.HandlerFunc)
	return h == nil || isFunc && f == nil
}

// Run works until ctx ends, then lets each batch in hand finish, stores the positions,
// releases the leases and returns nil. It returns an error only for what cannot mend itself: at
// the start [feed.ErrModeChanged], [feed.ErrStartIgnored], [feed.ErrNoStart], or [feed.ErrNotFound], [feed.ErrForbidden] or
// [feed.ErrBadRequest] of the source or the lease store; later [feed.ErrLeasesGone], or [feed.ErrSourceGone] if no read has found
// the monitored container for an [Options.Expiration]. All else is reported to [Hooks.Error] and retried.
//
// When ctx ends, Run returns within four times [Options.Drain], whatever it is about: the
// batch in hand may go on for one Drain, has another to heed the end of its context, then
// [feed.Closer] and the release of the lease have one each. That holds with a source or a lease
// store that does not answer, if their calls end with their contexts, and with a handler
// that does not return: it is left behind, and its lease to expire.
//
// It may be called again after it has returned, and even several times at once: each
// call is an instance of its own.
func (p *Processor) Run(ctx context.Context) error {
	in := instance.New(ctx, p.source, p.leases, p.handler, p.opts.toParts(), p.opts.Hooks.bindTo(context.WithoutCancel(ctx)))
	in.Begin = func(lease feed.Record, started time.Time, crashed bool) { tenure.Begin(in, lease, started, crashed) }
	r := &run{in, unit.New(in)}
	p.runs.Put(in.Me.Epoch, r)
	defer p.runs.Remove(in.Me.Epoch)
	return r.unit.Run(ctx, func() { dispatch.WarnOfKeys(in) })
}

// run is one call of [Processor.Run]: one owner of leases.
type run struct {
	in   *instance.Instance
	unit *unit.Unit
}
