package kafkapub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
)

// Options are the optional settings of a [Publisher].
type Options struct {
	// Timeout is how long the cluster may take to accept messages before Publish returns an
	// error; 10 s by default. The client repeats its requests for so long.
	Timeout time.Duration

	// Producers is how many calls of Publish are served at a time, each by a producer with
	// connections of its own; 32 by default. Further calls wait: a relay has 64 keys of a lease under way.
	Producers int

	// Client has further options of the producers, such as [kgo.DialTLSConfig] and [kgo.SASL].
	Client []kgo.Opt
}

// Publisher is an [outbox.Publisher] to one topic.
type Publisher struct {
	topic     string
	producers *pool
}

// New makes a publisher to a topic of the cluster that has these brokers, given as host:port. It
// connects when it is first used. A topic that does not exist is created if the cluster does that
// (auto.create.topics.enable); otherwise Publish returns an [ErrNoTopic].
func New(brokers []string, topic string, o Options) (*Publisher, error) {
	if o.Producers < 0 || o.Timeout < 0 {
		return nil, fmt.Errorf("negative Producers (%d) or Timeout (%v)", o.Producers, o.Timeout)
	}
	producers, err := newPool(cmp.Or(o.Producers, 32), append([]kgo.Opt{
		kgo.SeedBrokers(brokers...),
		kgo.RecordDeliveryTimeout(cmp.Or(o.Timeout, 10*time.Second)),
		// Without it a message could not time out while its request has no answer. That the message
		// may then be stored twice is for its consumer to recognize, as after a crash.
		kgo.AllowIdempotentProduceCancellation(),
		kgo.AllowAutoTopicCreation(),
	}, o.Client...))
	if err != nil {
		return nil, fmt.Errorf("make a producer for Kafka: %w", err)
	}
	return &Publisher{topic, producers}, nil
}

// Close waits for calls in progress, and ends the connections.
func (p *Publisher) Close() error {
	p.producers.close()
	return nil
}

// Publish implements [outbox.Publisher].
func (p *Publisher) Publish(ctx context.Context, msgs []outbox.Message) (n int, err error) {
	if len(msgs) == 0 {
		return 0, nil
	}
	records := make([]*kgo.Record, len(msgs))
	for i, m := range msgs {
		records[i] = record(p.topic, m)
	}
	producer, err := p.producers.take(ctx)
	if err == nil {
		n, err = producer.produce(ctx, records)
		p.producers.put(producer)
	}
	if err != nil {
		return n, fmt.Errorf("publish %q to Kafka topic %s: %w", msgs[n].ID, p.topic, explain(err))
	}
	return n, nil
}

// record is the message in the binary mode of CloudEvents. Its time is that of its publishing, not
// of the event: Kafka removes records by it.
func record(topic string, m outbox.Message) *kgo.Record {
	r := &kgo.Record{Topic: topic, Key: []byte(m.Key), Value: m.Data}
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: "content-type", Value: []byte(outbox.ContentType)})
	for name, value := range m.CloudEvent() {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "ce_" + name, Value: []byte(value)})
	}
	for name, value := range m.TraceContext() {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	return r
}

// ErrNoTopic: the topic does not exist, and the cluster has not created it. Create it, or set
// auto.create.topics.enable: the messages are published then.
var ErrNoTopic = errors.New("the topic does not exist and the cluster has not created it: create it, or set auto.create.topics.enable")

// explain says which errors no attempt can mend.
func explain(err error) error {
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("%w: %w", ErrNoTopic, err)
	case isTooLarge(err):
		return feed.Poison(fmt.Errorf("%w: %w", outbox.ErrTooLarge, err))
	case errors.Is(err, kerr.InvalidRecord):
		return feed.Poison(err)
	}
	return err
}

func isTooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}
