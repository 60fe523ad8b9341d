package changefeed

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/millrace/changefeed/feed"
)

// Needs are the requirements of a handler for the processor. A handler states its Needs as a [HandlerWithNeeds], and
// [New] joins them with the [Options]. So you do not have to know them. The zero value needs nothing.
type Needs struct {
	// Filter says which changes the handler wants. The handler receives a change if both this Filter and Options.Filter
	// accept the change.
	Filter func(c *feed.Change) bool

	// Concurrency and Start apply if you do not set them in the options.
	Concurrency int
	Start       feed.Start

	// InOrder says that the handler needs all changes of a range in the order of the feed, and none of them parked. New
	// refuses options with a Concurrency above 1, or with a limit, dead letters or held keys in OnFailure.
	InOrder bool

	// NeverJoin says that the handler keeps state for each range of keys that the handler cannot combine. The leases of
	// this instance are then not joined, and no other instance gives this instance a lease for a join: see
	// Options.MinLeases.
	NeverJoin bool

	// Hooks are called after the hooks of the options. They replace no default.
	Hooks Hooks
}

// HandlerWithNeeds is a [feed.Handler] with requirements for the processor. If your handler wraps another handler, pass
// the needs of that handler on: see [NeedsOf].
type HandlerWithNeeds interface {
	feed.Handler
	Needs() Needs
}

// NeedsOf returns the needs that a handler states, or the zero value if the handler is no [HandlerWithNeeds].
func NeedsOf(handler feed.Handler) Needs {
	if h, ok := handler.(HandlerWithNeeds); ok {
		return h.Needs()
	}
	return Needs{}
}

// withNeeds returns the options joined with the needs of a handler, except for hooks: New adds those to the defaults.
func (o Options) withNeeds(n Needs) (Options, error) {
	if n.InOrder && n.Concurrency > 1 {
		return o, &OptionError{
			Field: "Needs.Concurrency", Value: strconv.Itoa(n.Concurrency),
			Want: "1 or none beside Needs.InOrder",
		}
	}
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

// inOrder refuses options that park changes or hand them over in another order than that of the feed.
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
			return &OptionError{rule.field, fmt.Sprint(rule.value), rule.want +
				": the handler needs all changes in the order of the feed"}
		}
	}
	return nil
}
