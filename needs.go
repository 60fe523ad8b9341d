package changefeed

import (
	"cmp"
	"fmt"

	"github.com/millrace/changefeed/feed"
)

// Needs are what a handler needs of the processor that calls it. A handler states them as a [HandlerWithNeeds], and [New]
// joins them with the [Options] of its caller, who does not have to know them. The zero value needs nothing.
type Needs struct {
	// Filter says which changes the handler wants. The handler receives those that Options.Filter wants too.
	Filter func(c *feed.Change) bool

	// Concurrency and Start are used if the options have none.
	Concurrency int
	Start       feed.Start

	// InOrder says that the handler needs all changes of a range in the order of the feed, and none of them parked. Options
	// with a Concurrency above 1, or with a limit, dead letters or held keys in OnFailure, are refused.
	InOrder bool

	// Hooks are called after those of the options. They replace no default.
	Hooks Hooks
}

// HandlerWithNeeds is a [feed.Handler] that needs more of its processor than to be called. A handler that wraps another one
// passes its needs on: see [NeedsOf].
type HandlerWithNeeds interface {
	feed.Handler
	Needs() Needs
}

// NeedsOf returns the needs that a handler states, none if it is no [HandlerWithNeeds].
func NeedsOf(handler feed.Handler) Needs {
	if h, ok := handler.(HandlerWithNeeds); ok {
		return h.Needs()
	}
	return Needs{}
}

// withNeeds returns the options with what a handler needs, but for its hooks, which New adds to the defaults.
func (o Options) withNeeds(n Needs) (Options, error) {
	if n.InOrder {
		if err := o.inOrder(); err != nil {
			return o, err
		}
	}
	o.Concurrency = cmp.Or(o.Concurrency, n.Concurrency)
	if o.Start.IsZero() {
		o.Start = n.Start
	}
	if own := o.Filter; own == nil {
		o.Filter = n.Filter
	} else if n.Filter != nil {
		o.Filter = func(c *feed.Change) bool { return n.Filter(c) && own(c) }
	}
	return o, nil
}

// inOrder refuses options with which changes are parked, or handed over in another order than that of the feed.
func (o Options) inOrder() error {
	p := o.OnFailure
	for _, rule := range []struct {
		ok    bool
		field string
		value any
		want  string
	}{
		{o.Concurrency <= 1, "Concurrency", o.Concurrency, "1"},
		{p.MaxAttempts == 0, "OnFailure.MaxAttempts", p.MaxAttempts, "none"},
		{p.MaxAge == 0, "OnFailure.MaxAge", p.MaxAge, "none"},
		{p.DeadLetters == nil, "OnFailure.DeadLetters", fmt.Sprintf("%T", p.DeadLetters), "none"},
		{!p.HoldKeys, "OnFailure.HoldKeys", p.HoldKeys, "false"},
	} {
		if !rule.ok {
			return &OptionError{rule.field, fmt.Sprint(rule.value), rule.want + ": the handler needs all changes in the order of the feed"}
		}
	}
	return nil
}
