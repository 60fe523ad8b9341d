package kafkapub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
)

// ExactlyOnceOptions are the optional settings of an [ExactlyOnce].
type ExactlyOnceOptions struct {
	// Source is the source attribute of the messages; /events by default.
	Source string

	// Decode says which changes are events; those of type [outbox.EventType] by default.
	Decode outbox.Decoder

	// Marks is the topic of the marks; by default that of the events with -marks added. It has one
	// partition and is compacted. It is created where it is missing and the cluster allows it.
	Marks string

	// Timeout is how long the cluster may take for a transaction; 10 s by default.
	Timeout time.Duration

	// Client has further options of the producers, such as [kgo.DialTLSConfig] and [kgo.SASL].
	Client []kgo.Opt
}

// ExactlyOnce is a [feed.Handler] that publishes each event of a feed once, to consumers that
// read what is committed (isolation.level read_committed).
//
// The events of a batch are one transaction of Kafka, together with a mark: how far the range of the
// lease is published. After a crash the next owner reads the mark and passes over what comes again.
// The transactional id is the unit and the range, so that Kafka itself refuses what an earlier owner
// still sends. The owner of a part of a range that was split goes by the marks of the whole too, and
// has Kafka refuse the owner of the whole. See docs/exactly-once.md for what holds, and does not, with
// any such mark.
//
// The mark is a place in the order of the feed, so batches have to come in this order, and Options
// refuses what would change it, with a [changefeed.OptionError]: keys in parallel, dead letters and held keys. A dead
// letter that is redriven is older than the mark, and would be passed over though it was never
// published; to note each such letter would take a mark for each key. So an event that Kafka never takes,
// such as one that is too large, stops its range, and is reported, until it is skipped by hand. Where that
// is too much, use a [Publisher] with an [outbox.Relay], and consumers that
// know an event by its id. No relay of another unit may have [outbox.RelayOptions.ExpireAfter]: what that one marks
// comes again as another version of the event.
type ExactlyOnce struct {
	topic, marks, unit string
	source             string
	decode             outbox.Decoder
	cluster            []kgo.Opt

	mu     sync.Mutex
	owners map[string]*owner // by lease
}

// NewExactlyOnce makes a handler for a unit, which publishes to a topic. It connects when it gets the
// first batch.
func NewExactlyOnce(brokers []string, topic, unit string, o ExactlyOnceOptions) (*ExactlyOnce, error) {
	h := &ExactlyOnce{
		topic: topic, unit: unit, marks: cmp.Or(o.Marks, topic+"-marks"), source: cmp.Or(o.Source, "/events"), decode: o.Decode,
		cluster: append([]kgo.Opt{
			kgo.SeedBrokers(brokers...),
			kgo.RecordDeliveryTimeout(cmp.Or(o.Timeout, 10*time.Second)),
			kgo.TransactionTimeout(cmp.Or(o.Timeout, 10*time.Second)),
			kgo.AllowAutoTopicCreation(),
		}, o.Client...),
		owners: map[string]*owner{},
	}
	if h.decode == nil {
		h.decode = outbox.EventsOfType(outbox.EventType)
	}
	client, err := h.producer("check") // of the options: it does not connect
	if err != nil {
		return nil, fmt.Errorf("make a producer for Kafka: %w", err)
	}
	client.Close()
	return h, nil
}

// ErrOutOfOrder: changes were handed over in another order than that of the feed.
var ErrOutOfOrder = errors.New("changes come out of order")

// Needs are what the handler needs of its processor: all changes in the order of the feed, from the beginning if the options
// have no Start. So [changefeed.New] refuses a Concurrency above 1, MaxAttempts, MaxAge, DeadLetters and HoldKeys.
func (h *ExactlyOnce) Needs() changefeed.Needs {
	return changefeed.Needs{InOrder: true, Start: feed.FromBeginning()}
}

var errLater = errors.New("the range has had a later owner")

// Handle publishes the events of a batch, unless that is done.
func (h *ExactlyOnce) Handle(ctx context.Context, b *feed.Batch) error {
	if b.Redriven || b.Cut {
		return ErrOutOfOrder
	}
	o, err := h.borrow(b.LeaseToken)
	if err != nil {
		return err
	}
	if o.client == nil || o.epoch != b.Epoch {
		o.retire()
		err = h.open(ctx, o, b)
	}
	if err == nil {
		err = h.publish(ctx, o, b)
	}
	if err != nil || ctx.Err() != nil {
		o.retire() // what has become of the transaction the mark says
	}
	h.giveBack(o)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("publish changes of range %v to Kafka topic %s: %w", b.Range, h.topic, explain(err))
	}
	return nil
}

// Close ends the connections of a lease.
func (h *ExactlyOnce) Close(_ context.Context, l feed.Lease, _ feed.Reason) error {
	o, err := h.borrow(l.Token)
	if err != nil {
		return err
	}
	o.retire()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.owners, l.Token)
	return nil
}

// owner is what this process has of a lease.
type owner struct {
	isBusy bool
	client *kgo.Client // nil before the first batch, and after a failure
	epoch  int64
	mark   mark
}

func (o *owner) retire() {
	if o.client != nil {
		o.client.Close()
		o.client = nil
	}
}

func (h *ExactlyOnce) borrow(lease string) (*owner, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := h.owners[lease]
	if o == nil {
		o = &owner{}
		h.owners[lease] = o
	}
	if o.isBusy {
		return nil, ErrOutOfOrder
	}
	o.isBusy = true
	return o, nil
}

func (h *ExactlyOnce) giveBack(o *owner) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o.isBusy = false
}

// publish sends the events that are not done, and the mark after them, in one transaction.
func (h *ExactlyOnce) publish(ctx context.Context, o *owner, b *feed.Batch) error {
	type event struct {
		lsn int64
		outbox.Message
	}
	var events []event
	after := mark{LSN: o.mark.LSN, Items: slices.Clone(o.mark.Items)}
	for i := range b.Changes {
		c := &b.Changes[i]
		if !after.pass(c) {
			continue
		}
		m, ok, err := h.decode(c)
		if err != nil {
			return fmt.Errorf("event %q: %w", c.ID, err)
		}
		if ok {
			m.Source = cmp.Or(m.Source, h.source)
			events = append(events, event{c.LSN, m})
		}
	}
	if len(events) > 0 {
		slices.SortStableFunc(events, func(a, b event) int {
			return cmp.Or(cmp.Compare(a.lsn, b.lsn), cmp.Compare(a.UnitSeq, b.UnitSeq), cmp.Compare(a.Seq, b.Seq))
		})
		records := make([]*kgo.Record, 0, len(events)+1)
		for _, e := range events {
			records = append(records, record(h.topic, e.Message))
		}
		after.Range, after.Epoch = b.Range.String(), b.Epoch
		if err := commit(ctx, o.client, append(records, h.record(after))...); err != nil {
			return err
		}
	}
	o.mark = after
	return nil
}

// commit sends records in a transaction. After an error they may be there, all or none.
func commit(ctx context.Context, client *kgo.Client, records ...*kgo.Record) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return errors.Join(err, client.EndTransaction(ctx, kgo.TryAbort))
	}
	return client.EndTransaction(ctx, kgo.TryCommit)
}
