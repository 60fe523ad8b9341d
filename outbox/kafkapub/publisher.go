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
	// Timeout limits how long the cluster may take to accept messages before Publish returns an error; 10 s by default.
	// Until then the client repeats requests.
	Timeout time.Duration

	// Producers limits how many calls of Publish run at a time, each with a separate producer and separate connections;
	// 32 by default. Further calls wait: a relay publishes 64 keys of a lease at the same time.
	Producers int

	// Client contains further options of the producers, such as [kgo.DialTLSConfig] and [kgo.SASL].
	Client []kgo.Opt
}

// Publisher is an [outbox.Publisher] to a topic.
type Publisher struct {
	topic     string
	producers *pool
}

// New makes a publisher to a topic of the cluster with these brokers, each as host:port. The publisher connects at the
// first use. A missing topic is created if the cluster is configured so (auto.create.topics.enable); otherwise Publish
// returns an [ErrNoTopic].
func New(brokers []string, topic string, o Options) (*Publisher, error) {
	if o.Producers < 0 || o.Timeout < 0 {
		return nil, fmt.Errorf("negative Producers (%d) or Timeout (%v)", o.Producers, o.Timeout)
	}
	producers, err := newPool(cmp.Or(o.Producers, 32), append([]kgo.Opt{
		kgo.SeedBrokers(brokers...),
		kgo.RecordDeliveryTimeout(cmp.Or(o.Timeout, 10*time.Second)),
		// Without this option a message could not time out while the request has no answer. The message may then be
		// stored twice; the consumer must recognize duplicates, as after a crash.
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

// record returns the message in the binary mode of CloudEvents. The time of the record is the time of publication, not
// of the event, because Kafka removes records by their time.
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

// ErrNoTopic: the topic does not exist, and the cluster has not created the topic. Create the topic, or set
// auto.create.topics.enable: then the messages are published.
var ErrNoTopic = errors.New("the topic does not exist and the cluster has not created it: create it, or set " +
	"auto.create.topics.enable")

// explain marks the errors that no retry can mend.
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
