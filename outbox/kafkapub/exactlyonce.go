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

	// Decode says which changes are events; by default those of type [outbox.EventType].
	Decode outbox.Decoder

	// Marks is the topic of the marks; by default the topic of the events with the suffix -marks. This topic has a
	// single partition and is compacted. A missing topic is created if the cluster allows it.
	Marks string

	// Timeout limits how long the cluster may take for a transaction; 10 s by default.
	Timeout time.Duration

	// Client contains further options of the producers, such as [kgo.DialTLSConfig] and [kgo.SASL].
	Client []kgo.Opt
}

// ExactlyOnce is a [feed.Handler] that publishes each event of a feed only once, for consumers that read committed
// records (isolation.level read_committed).
//
// The events of a batch are a single transaction of Kafka, together with a mark: the position up to which the range of
// the lease is published. After a crash the next owner reads the mark and skips redelivered changes. The transactional
// id is the unit and the range, so Kafka itself refuses later records of an earlier owner. After a split, the owner of
// a part also respects the marks of the whole range, and makes Kafka refuse the owner of the whole range. See
// docs/exactly-once.md for the guarantees of such marks, and their limits.
//
// The mark is a position in the order of the feed, so batches must arrive in this order. The processor therefore
// refuses, with a [changefeed.OptionError], options that would change the order: keys in parallel, dead letters and
// held keys. A redriven dead letter is older than the mark, and would be skipped although it was never published; to
// remember each such letter, every key would need a separate mark. So an event never accepted by Kafka, for example a
// too large event, stops the range, and is reported, until you skip the event by hand. If you cannot accept this, use a
// [Publisher] with an [outbox.Relay], and consumers that recognize an event by the id. No relay of another unit may set
// [outbox.RelayOptions.ExpireAfter], because the marks bring the event again as another version.
type ExactlyOnce struct {
	topic, marks, unit string
	source             string
	decode             outbox.Decoder
	cluster            []kgo.Opt

	mu     sync.Mutex
	owners map[string]*owner // by lease
}

// NewExactlyOnce makes a handler for a unit, which publishes to a topic. The handler connects at the first batch.
func NewExactlyOnce(brokers []string, topic, unit string, o ExactlyOnceOptions) (*ExactlyOnce, error) {
	h := &ExactlyOnce{
		topic: topic, unit: unit, marks: cmp.Or(o.Marks, topic+"-marks"), source: cmp.Or(o.Source, "/events"),
		decode: o.Decode,
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
	client, err := h.producer("check") // checks the options and does not connect
	if err != nil {
		return nil, fmt.Errorf("make a producer for Kafka: %w", err)
	}
	client.Close()
	return h, nil
}

// ErrOutOfOrder: changes arrived in another order than that of the feed.
var ErrOutOfOrder = errors.New("changes come out of order")

// Needs returns the needs of the handler: all changes in the order of the feed, from the beginning if you do not set
// Start. So [changefeed.New] refuses a Concurrency above 1, MaxAttempts, MaxAge, DeadLetters and HoldKeys. And no
// leases are joined, because a mark is valid for all keys of its range: of two marks, the later one would hide changes
// of the other range.
func (h *ExactlyOnce) Needs() changefeed.Needs {
	return changefeed.Needs{InOrder: true, NeverJoin: true, Start: feed.FromBeginning()}
}

var errLater = errors.New("the range has had a later owner")

// Handle publishes the unpublished events of a batch.
func (h *ExactlyOnce) Handle(ctx context.Context, b *feed.Batch) error {
	if b.Redriven || b.Cut {
		return ErrOutOfOrder
	}
	o, err := h.borrowOwner(b.LeaseToken)
	if err != nil {
		return err
	}
	if o.client == nil || o.epoch != b.Epoch {
		o.retire()
		err = h.openRange(ctx, o, b)
	}
	if err == nil {
		err = h.publishOnce(ctx, o, b)
	}
	if err != nil || ctx.Err() != nil {
		o.retire() // the mark says whether the transaction was committed
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
	o, err := h.borrowOwner(l.Token)
	if err != nil {
		return err
	}
	o.retire()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.owners, l.Token)
	return nil
}

// owner is the state of a lease in this process.
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

func (h *ExactlyOnce) borrowOwner(lease string) (*owner, error) {
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

// publishOnce sends the unpublished events and the mark after them in one transaction.
func (h *ExactlyOnce) publishOnce(ctx context.Context, o *owner, b *feed.Batch) error {
	type event struct {
		lsn int64
		outbox.Message
	}
	var events []event
	after := mark{LSN: o.mark.LSN, Items: slices.Clone(o.mark.Items)}
	for i := range b.Changes {
		c := &b.Changes[i]
		if !after.passChange(c) {
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
		if err := commit(ctx, o.client, append(records, h.markRecord(after))...); err != nil {
			return err
		}
	}
	o.mark = after
	return nil
}

// commit sends records in a transaction. After an error the topic may have all of them or none.
func commit(ctx context.Context, client *kgo.Client, records ...*kgo.Record) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return errors.Join(err, client.EndTransaction(ctx, kgo.TryAbort))
	}
	return client.EndTransaction(ctx, kgo.TryCommit)
}
