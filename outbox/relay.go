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
	// Source is the source attribute of the messages: a URI reference that names their origin; /events by default.
	Source string

	// Decode says which changes are events; by default those of type [EventType].
	Decode Decoder

	// Alarm says how early [RelayHooks.Expiring] is called before an unpublished event expires; by default a fifth of
	// the event's time to live.
	Alarm time.Duration

	// Container and ExpireAfter, if you set them, let an event expire ExpireAfter after its publication, in whole
	// seconds and at least a minute. This costs a write per event. Units of work can then store events for ever (a
	// negative [Options.EventTTL]), and no outage, however long, loses an event. Set them in at most one unit of
	// processors of a container. If other units publish the same events, they must do so within ExpireAfter, and need
	// Feed. An event with a time to live of its own stays unchanged.
	Container   feed.Committer
	ExpireAfter time.Duration

	// Feed is the container of the events. Set Feed if a relay of another unit has ExpireAfter: the writes of the other
	// relay move events behind later events of their object, and with Feed this relay still publishes them in their
	// order. Feed costs a read of the partition key for each batch with events that have no time to live of their own.
	// If all events of the batch have a time to live, there is no such read. So store either all events of a key for
	// ever, or none.
	Feed feed.Source

	Hooks RelayHooks
}

// Relay publishes the events in a change feed: it is the [feed.Handler] of a processor.
//
// A Relay does not retry, run keys in parallel or park events itself; the processor does. Concurrency publishes the
// events of different keys at the same time. MaxAge and DeadLetters park an event which cannot be published; an event
// with the error [feed.Poison] is parked at once. HoldKeys holds the later events of the key back until you release the
// key. Do not use MaxAttempts, because MaxAttempts parks events too early: a processor recognizes an outage when three
// keys fail, and fewer keys may have events while the broker is down.
//
// Events of the same key are published one after the other, in the order of their LSN and, within a transaction, in the
// order in which they were recorded. After a crash, or when an answer of the broker is lost, an event is published
// again, with the same ID.
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
		return nil, &changefeed.OptionError{Field: "ExpireAfter", Value: o.ExpireAfter.String(), Want: "at least " +
			LeastExpireAfter.String() + " and a Container, or neither"}
	}
	if o.Alarm < 0 {
		return nil, &changefeed.OptionError{
			Field: "Alarm", Value: o.Alarm.String(),
			Want: "a positive duration, or 0 for the default",
		}
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

// concurrency is the default number of a lease's partition keys published by a relay at the same time: enough for a
// broker which takes some milliseconds to acknowledge.
const concurrency = 64

// Needs returns the needs of the relay. A Filter passes only events to the relay, because otherwise each object handled
// without the broker would count as a success and hide an outage. The default Concurrency is 64. The default Start is
// from the beginning, so changes from the time before the relay ran are not skipped. A hook tells the relay about
// parked events.
func (r *Relay) Needs() changefeed.Needs {
	return changefeed.Needs{
		Filter: r.wantsChange, Concurrency: concurrency, Start: feed.FromBeginning(),
		Hooks: changefeed.Hooks{Parked: func(_ context.Context, l feed.DeadLetter) {
			r.hand.park(placeOf(l.Lease, &l.Change))
		}},
	}
}

// wantsChange reports whether a change is an event. If the decoder panics, wantsChange returns true, so Handle reports
// the panic: in a filter the panic would end the program.
func (r *Relay) wantsChange(c *feed.Change) (yes bool) {
	defer func() {
		if recover() != nil {
			yes = true
		}
	}()
	_, ok, err := r.decode(c)
	return ok || err != nil
}

// decode skips events marked as published by this relay. A relay of another unit still has to publish them.
func (r *Relay) decode(c *feed.Change) (m Message, ok bool, err error) {
	if r.opts.Container != nil && isMarked(c) {
		return m, false, nil
	}
	return r.opts.Decode(c)
}

// event is an event of a batch.
type event struct {
	Message
	index  int // of the change in the batch
	change *feed.Change
	lsn    int64 // of the commit
	err    error // why the event is unreadable
}

var errWaits = errors.New("waits for an earlier event of its key")

// Handle publishes the events of a batch.
func (r *Relay) Handle(ctx context.Context, b *feed.Batch) error {
	chains := r.chainsOf(b)
	left := &left{batch: b, items: map[int]error{}}
	for _, chain := range chains {
		at := placeOf(b.LeaseToken, chain[0].change)
		r.takeNext(b, chain[0])
		if left.down != nil { // the broker does not answer: do not try the other keys
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

// chainsOf returns the events of a batch, grouped by key and in their order.
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

// sortChain sorts the events of a key by their commit, and the events of a transaction in the order in which they were
// recorded. The service does not define the order of the latter in a feed.
func sortChain(chain []event) {
	slices.SortStableFunc(chain, compare)
}

func compare(a, b event) int {
	return cmp.Or(cmp.Compare(a.lsn, b.lsn), cmp.Compare(a.UnitSeq, b.UnitSeq), cmp.Compare(a.Seq, b.Seq))
}

// publishChain sends the events of a key, up to the first unreadable event.
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

// callPublisher calls the publisher, and refuses impossible results.
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

// left are the unfinished changes of a batch.
type left struct {
	batch *feed.Batch
	items map[int]error
	down  error // why the broker accepts no message at all
	first error
	after time.Duration
}

// addLeft notes the unfinished events of a key, and the reason.
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

// isDown reports whether an error says that the broker does not work, and nothing about the event.
func isDown(err error) bool { return !feed.IsPoison(err) && !errors.Is(err, ErrRefused) }

// failure returns the error for the processor. If the broker does not work, the error says nothing about the event.
func (l *left) failure() error {
	if l.first == nil {
		return nil
	}
	f := &feed.Failure{Err: l.first, Items: l.items, After: l.after, Outage: l.down != nil && !feed.IsPoison(l.first)}
	if f.Outage && len(l.items) == len(l.batch.Changes) {
		f.Items = nil // the whole batch
	}
	return f
}
