package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// RelayOptions configure a [Relay]. The zero value works.
type RelayOptions struct {
	// Source is the source attribute of the messages: a URI reference that names where they
	// come from; /events by default.
	Source string

	// Decode says which changes are events; those of type [EventType] by default.
	Decode Decoder

	// Alarm is how long before an event expires that is not published [RelayHooks.Expiring]
	// is called; a fifth of its time to live by default.
	Alarm time.Duration

	// Container and ExpireAfter, when they are set, let an event expire so long after it was
	// published, in whole seconds and at least a minute, which costs a write for each: then units of work can
	// store events for ever (a negative [Options.EventTTL]), and none is lost to an outage
	// however long. At most one unit of processors of a container may do this, and others that
	// publish the same events have so long to do it, and need Feed. An event with a time to live
	// of its own is left as it is.
	Container   feed.Committer
	ExpireAfter time.Duration

	// Feed is the container that the events come from. Set it if a relay of another unit has
	// ExpireAfter: the writes of that one move events behind later ones of their object, and
	// with Feed this relay publishes them in their order all the same. It costs a read of the
	// partition key for each batch with events that have no time to live of their own, which is
	// not done where all have one: let the events of a key all be stored for ever, or none.
	Feed feed.Source

	Hooks RelayHooks
}

// Relay publishes the events in a change feed: it is the [feed.Handler] of a processor.
//
// It has no retries, lanes or parking of its own: the processor's Concurrency has the events
// of different keys under way at once, its MaxAge and DeadLetters park an event that cannot be
// published, at once what is [feed.Poison], and its HoldKeys hold the later ones of its
// key back until it is released. MaxAttempts parks sooner than a relay should: a processor sees
// an outage in the failures of three keys, and fewer may have events while the broker is down. Events of one key are published one after the other, in the order of their LSN
// and, in a transaction, in the order in which they were recorded. After a crash, or when an answer of the broker is lost,
// an event is published again, with the same ID.
type Relay struct {
	to   Publisher
	opts RelayOptions
	hand hand
}

// NewRelay makes a relay to a broker.
func NewRelay(to Publisher, o RelayOptions) (*Relay, error) {
	if to == nil {
		return nil, &changefeed.OptionError{Field: "Publisher", Value: "nil", Want: "where the events go"}
	}
	if (o.Container == nil) != (o.ExpireAfter == 0) || o.ExpireAfter != 0 && o.ExpireAfter < LeastExpireAfter {
		return nil, &changefeed.OptionError{Field: "ExpireAfter", Value: o.ExpireAfter.String(), Want: "at least " + LeastExpireAfter.String() + " and a Container, or neither"}
	}
	if o.Alarm < 0 {
		return nil, &changefeed.OptionError{Field: "Alarm", Value: o.Alarm.String(), Want: "a positive duration, or zero for the default"}
	}
	o.Source = cmp.Or(o.Source, "/events")
	if o.Decode == nil {
		o.Decode = EventsOfType(EventType)
	}
	if o.Hooks.Expiring == nil {
		o.Hooks.Expiring = logExpiring
	}
	return &Relay{to: to, opts: o, hand: hand{waiting: map[place]*waiting{}, early: map[place]map[string]bool{}}}, nil
}

// concurrency is how many partition keys of a lease a relay has under way by default: enough for a broker that takes
// some milliseconds to acknowledge.
const concurrency = 64

// Needs are what the relay needs of its processor. A Filter lets events alone reach the relay, for otherwise each object
// that was handled without the broker would say that there is no outage; a Concurrency that is not set is 64; a Start that
// is not set is from the beginning, so that nothing is skipped that was committed before the relay ran; and a hook tells
// the relay what was parked.
func (r *Relay) Needs() changefeed.Needs {
	return changefeed.Needs{
		Filter: r.wantsChange, Concurrency: concurrency, Start: feed.FromBeginning(),
		Hooks: changefeed.Hooks{Parked: func(_ context.Context, l feed.DeadLetter) { r.hand.park(placeOf(l.Lease, &l.Change)) }},
	}
}

// wantsChange reports whether a change is an event. Of one on which the decoder panics Handle is to say so: here it would
// end the program.
func (r *Relay) wantsChange(c *feed.Change) (yes bool) {
	defer func() {
		if recover() != nil {
			yes = true
		}
	}()
	_, ok, err := r.decode(c)
	return ok || err != nil
}

// decode leaves out what the relay has marked as published itself. Another one has to publish it all the same.
func (r *Relay) decode(c *feed.Change) (m Message, ok bool, err error) {
	if r.opts.Container != nil && isMarked(c) {
		return m, false, nil
	}
	return r.opts.Decode(c)
}

// event is one of a batch.
type event struct {
	Message
	index  int // of its change in the batch
	change *feed.Change
	lsn    int64 // of its commit
	err    error // why it cannot be read
}

var errWaits = errors.New("waits for an earlier event of its key")

// Handle publishes the events of a batch.
func (r *Relay) Handle(ctx context.Context, b *feed.Batch) error {
	chains := r.chainsOf(b)
	left := &left{batch: b, items: map[int]error{}}
	for _, chain := range chains {
		at := placeOf(b.LeaseToken, chain[0].change)
		r.takeNext(b, chain[0])
		if left.down != nil { // the broker does not answer: the other keys need not find that out
			left.addLeft(chain, left.down)
			continue
		}
		chain = r.withoutEarly(b, chain)
		n, err := r.publishAll(ctx, b, chain)
		if done, lost := r.expirePublished(ctx, chain[:n]); lost != nil {
			n, err = done, lost
		}
		if err == nil {
			r.hand.remove(at)
			continue
		}
		r.takeNext(b, chain[n])
		left.addLeft(chain[n:], err)
	}
	if left.first != nil {
		r.giveAlarms(time.Now())
	}
	return left.failure()
}

// chainsOf are the events of a batch, those of each key by themselves and in their order.
func (r *Relay) chainsOf(b *feed.Batch) (chains [][]event) {
	at := map[feed.PartitionKey]int{}
	for i := range b.Changes {
		c := &b.Changes[i]
		m, ok, err := r.decode(c)
		if !ok && err == nil {
			continue
		}
		if m.ID == "" && err == nil {
			err = ErrNoID
		}
		m.Source = cmp.Or(m.Source, r.opts.Source)
		n, known := at[c.PartitionKey]
		if !known {
			n = len(chains)
			at[c.PartitionKey] = n
			chains = append(chains, nil)
		}
		chains[n] = append(chains[n], event{Message: m, index: i, change: c, lsn: rightfulLSN(c), err: err})
	}
	for _, chain := range chains {
		sortChain(chain)
	}
	return chains
}

// sortChain sorts the events of a key by their commit, and those of one transaction as they were recorded. The service
// does not say in which order it has these.
func sortChain(chain []event) {
	slices.SortStableFunc(chain, compare)
}

func compare(a, b event) int {
	return cmp.Or(cmp.Compare(a.lsn, b.lsn), cmp.Compare(a.UnitSeq, b.UnitSeq), cmp.Compare(a.Seq, b.Seq))
}

// publishChain sends the events of a key, up to one that cannot be read.
func (r *Relay) publishChain(ctx context.Context, chain []event) (n int, err error) {
	readable := chain
	if i := slices.IndexFunc(chain, func(e event) bool { return e.err != nil }); i >= 0 {
		readable, err = chain[:i], feed.Poison(fmt.Errorf("event %q: %w", chain[i].change.ID, chain[i].err))
	}
	if len(readable) == 0 {
		return 0, err
	}
	msgs := make([]Message, len(readable))
	for i, e := range readable {
		msgs[i] = e.Message
	}
	n, refused := r.callPublisher(ctx, msgs)
	if n < len(msgs) {
		return n, fmt.Errorf("publish %s %q of key %q: %w", msgs[n].Action, msgs[n].ID, msgs[n].Key, refused)
	}
	return n, err
}

// callPublisher calls the publisher, and does not believe it what cannot be.
func (r *Relay) callPublisher(ctx context.Context, msgs []Message) (n int, err error) {
	said := func(int, error) {}
	if r.opts.Hooks.Publishing != nil {
		ctx, said = r.opts.Hooks.Publishing(ctx, msgs)
	}
	n, err = 0, errPanicked
	defer func() {
		r.hand.countCall(msgs[:n], err)
		said(n, err)
	}()
	n, err = r.to.Publish(ctx, msgs)
	switch {
	case n < 0 || n > len(msgs):
		n, err = 0, fmt.Errorf("publisher says that %d of %d messages are accepted", n, len(msgs))
	case n < len(msgs) && err == nil:
		err = errors.New("publisher has accepted a part and gives no reason")
	}
	return n, err
}

var errPanicked = errors.New("publisher has panicked")

// left are the changes of a batch that come again.
type left struct {
	batch *feed.Batch
	items map[int]error
	down  error // why the broker takes nothing at all
	first error
	after time.Duration
}

// addLeft notes the events of a key from the first one that is not done, and why.
func (l *left) addLeft(chain []event, err error) {
	if l.first == nil {
		l.first = err
	}
	if said, ok := errors.AsType[*feed.Failure](err); ok {
		l.after = max(l.after, said.After)
	}
	if isDown(err) {
		l.down = err
	}
	for i, e := range chain {
		l.items[e.index] = err
		if i > 0 {
			l.items[e.index] = errWaits
		}
	}
}

// isDown reports whether an error says that the broker does not work, and nothing of the event.
func isDown(err error) bool { return !feed.IsPoison(err) && !errors.Is(err, ErrRefused) }

// failure is what the processor is to know. That the broker does not take an event now says nothing of the event.
func (l *left) failure() error {
	if l.first == nil {
		return nil
	}
	f := &feed.Failure{Err: l.first, Items: l.items, After: l.after, Outage: l.down != nil && !feed.IsPoison(l.first)}
	if f.Outage && len(l.items) == len(l.batch.Changes) {
		f.Items = nil // the batch as a whole
	}
	return f
}
