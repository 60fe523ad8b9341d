package kafkapub_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/kafkapub"
	"github.com/millrace/changefeed/outbox/outboxtest"
)

const topic = "contacts"

// startKafka starts a cluster of three brokers with the topic in four partitions.
func startKafka(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append(opts, kfake.NumBrokers(3), kfake.SeedTopics(4, topic))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// impatient are client options that keep a test with faults short.
func impatient(more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.RetryBackoffFn(func(int) time.Duration { return time.Millisecond }),
		kgo.MetadataMinAge(10 * time.Millisecond),
	}, more...)
}

func newPublisher(t *testing.T, c *kfake.Cluster, o kafkapub.Options) *kafkapub.Publisher {
	t.Helper()
	o.Client = impatient(o.Client...)
	p, err := kafkapub.New(c.ListenAddrs(), topic, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func event(key string, seq int) outbox.Message {
	return outbox.Message{
		ID: fmt.Sprintf("%s/%d", key, seq), Key: key, Action: "ContactCreatedEvent", Source: "/contacts",
		Seq:  uint64(seq),
		Time: time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC), Data: fmt.Appendf(nil, `{"n":%d}`, seq),
	}
}

// events are so many messages of a key, with these numbers.
func events(key string, from, to int) (msgs []outbox.Message) {
	for seq := from; seq <= to; seq++ {
		msgs = append(msgs, event(key, seq))
	}
	return msgs
}

// stored reads what the topic has: of each key the ids of its records.
func stored(t *testing.T, c *kfake.Cluster) map[string][]string {
	t.Helper()
	byKey := map[string][]string{}
	for _, r := range consume(t, c, topic) {
		byKey[string(r.Key)] = append(byKey[string(r.Key)], header(r, "ce_id"))
	}
	return byKey
}

// consume reads the committed records of a topic, from the first to the last.
func consume(t *testing.T, c *kfake.Cluster, topic string) (got []*kgo.Record) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics(topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	left := map[int32]int64{} // the end of each partition that is not read up to it
	for _, p := range c.PartitionInfos(topic) {
		if p.LastStableOffset > 0 {
			left[p.Partition] = p.LastStableOffset
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		for r := range fetches.RecordsAll() {
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
			if !r.Attrs.IsControl() {
				got = append(got, r)
			}
		}
	}
	return got
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

func ids(msgs []outbox.Message) (ids []string) {
	for _, m := range msgs {
		ids = append(ids, m.ID)
	}
	return ids
}

func TestARecordIsACloudEvent(t *testing.T) {
	c := startKafka(t)
	m := event("Oslo", 7)
	m.TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	m.Data = json.RawMessage(`{ "n" : 1.0 }`)
	if n, err := newPublisher(t, c, kafkapub.Options{}).Publish(t.Context(), []outbox.Message{m}); n != 1 ||
		err != nil {
		t.Fatal(n, err)
	}
	r := consume(t, c, topic)[0]
	got := map[string]string{}
	for _, h := range r.Headers {
		got[h.Key] = string(h.Value)
	}
	want := map[string]string{
		"content-type": "application/json", "ce_specversion": "1.0", "ce_id": "Oslo/7", "ce_source": "/contacts",
		"ce_type": "ContactCreatedEvent", "ce_subject": "Oslo", "ce_time": "2026-11-22T10:00:00Z",
		"ce_partitionkey": "Oslo",
		"ce_sequence":     "00000000000000000007", "traceparent": m.TraceParent, "ce_traceparent": m.TraceParent,
	}
	if string(r.Key) != "Oslo" || string(r.Value) != `{ "n" : 1.0 }` || !maps.Equal(got, want) {
		t.Errorf("key %q, value %s, headers %v", r.Key, r.Value, got)
	}
}

// A third of the produce requests fail, some of them after the records were stored.
func TestRequestsThatFailLoseDoubleAndMoveNothing(t *testing.T) {
	c := startKafka(t)
	var produced int
	third := func(kmsg.Request) bool { produced++; return produced%3 == 0 }
	failed := c.Fault(
		kfake.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: -1,
			When: func(r kmsg.Request) bool { return third(r) && produced%2 == 0 },
		},
		kfake.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: -1,
			When: func(kmsg.Request) bool { return produced%3 == 0 && produced%2 == 1 },
		},
	)
	p := newPublisher(t, c, kafkapub.Options{})
	const keys, rounds, each = 20, 10, 5
	var publishing sync.WaitGroup
	for k := range keys {
		publishing.Go(func() {
			for round := range rounds {
				msgs := events(fmt.Sprint("key-", k), round*each+1, (round+1)*each)
				if n, err := p.Publish(t.Context(), msgs); n != each || err != nil {
					t.Errorf("%d, %v", n, err)
				}
			}
		})
	}
	publishing.Wait()
	for key, got := range stored(t, c) {
		if want := ids(events(key, 1, rounds*each)); !slices.Equal(got, want) {
			t.Errorf("%s has %v", key, got)
		}
	}
	if failed.Hits() < 5 {
		t.Errorf("%d requests failed", failed.Hits())
	}
}

func TestAMessageThatIsTooLargeIsPoison(t *testing.T) {
	large := event("Oslo", 3)
	large.Data = json.RawMessage(`"` + strings.Repeat("x", 2_000) + `"`)
	msgs := append(append(events("Oslo", 1, 2), large), events("Oslo", 4, 4)...)
	for name, limited := range map[string]struct {
		cluster []kfake.Opt
		client  []kgo.Opt
	}{
		"for the client": {nil, []kgo.Opt{kgo.ProducerBatchMaxBytes(1_500)}},
		"for the topic": {
			[]kfake.Opt{kfake.BrokerConfigs(map[string]string{"message.max.bytes": "1500"})},
			[]kgo.Opt{kgo.ProducerBatchCompression(kgo.NoCompression())},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := startKafka(t, limited.cluster...)
			p := newPublisher(t, c, kafkapub.Options{Client: limited.client})
			n, err := p.Publish(t.Context(), msgs)
			if n != 2 || !errors.Is(err, outbox.ErrTooLarge) || !feed.IsPoison(err) {
				t.Errorf("%d, %v", n, err)
			}
			if n, err := p.Publish(t.Context(), msgs[3:]); n != 1 || err != nil {
				t.Errorf("the next one: %d, %v", n, err)
			}
			if got := stored(t, c)["Oslo"]; !slices.Equal(got, []string{"Oslo/1", "Oslo/2", "Oslo/4"}) {
				t.Errorf("got %v", got)
			}
		})
	}
}

// A record that is refused while those after it are still being handed to the client.
func TestARefusedRecordHoldsBackTheNext(t *testing.T) {
	const rounds, many = 12, 5000
	for _, warm := range []bool{false, true} {
		t.Run(fmt.Sprint("known topic ", warm), func(t *testing.T) {
			c := startKafka(t)
			c.Fault(kfake.Fault{
				Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.UnknownServerError, Count: -1,
				When: func(r kmsg.Request) bool { return holds(r, "refused") },
			})
			for range rounds {
				p := newPublisher(t, c, kafkapub.Options{Client: []kgo.Opt{
					kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(20_000_000),
					kgo.ProducerLinger(0),
				}})
				if warm {
					if n, err := p.Publish(t.Context(), events("Bergen", 1, 1)); n != 1 || err != nil {
						t.Fatal(n, err)
					}
				}
				msgs := events("Oslo", 1, many)
				msgs[0].ID = "refused"
				if n, err := p.Publish(t.Context(), msgs); n != 0 || err == nil || feed.IsPoison(err) {
					t.Errorf("%d, %v", n, err)
				}
			}
			if got := stored(t, c)["Oslo"]; len(got) > 0 {
				t.Errorf("%d records after one that was refused, the first is %s", len(got), got[0])
			}
		})
	}
}

func TestATopicThatTakesLessThanTheClientGetsSmallerBatches(t *testing.T) {
	c := startKafka(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "2000"}))
	p := newPublisher(t, c, kafkapub.Options{Client: []kgo.Opt{kgo.ProducerBatchCompression(kgo.NoCompression())}})
	msgs := events("Oslo", 1, 100)
	if n, err := p.Publish(t.Context(), msgs); n != len(msgs) || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if got := stored(t, c)["Oslo"]; !slices.Equal(got, ids(msgs)) {
		t.Errorf("got %v", got)
	}
}

func TestACallThatWasGivenUpDoesNotHoldUpTheNext(t *testing.T) {
	c := startKafka(t)
	p := newPublisher(t, c, kafkapub.Options{Producers: 1})
	if n, err := p.Publish(t.Context(), events("Oslo", 1, 1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	gone := errors.New("gone")
	ctx, giveUp := context.WithCancelCause(t.Context())
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		giveUp(gone)
		return nil, nil, true // no answer
	})
	if n, err := p.Publish(ctx, events("Oslo", 2, 2)); n != 0 || !errors.Is(err, gone) {
		t.Errorf("%d, %v", n, err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	if n, err := p.Publish(ctx, events("Oslo", 2, 3)); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

func TestACallEndsWithItsTimeoutThoughNothingIsAnswered(t *testing.T) {
	c := startKafka(t)
	p := newPublisher(t, c, kafkapub.Options{Timeout: time.Second})
	if n, err := p.Publish(t.Context(), events("Oslo", 1, 1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) { return nil, nil, true })
	begun := time.Now()
	n, err := p.Publish(t.Context(), events("Oslo", 2, 2))
	if took := time.Since(begun); n != 0 || err == nil || feed.IsPoison(err) || took > 5*time.Second {
		t.Errorf("%d, %v after %v", n, err, took)
	}
}

func TestNoMoreCallsAreServedThanThereAreProducers(t *testing.T) {
	c := startKafka(t)
	p := newPublisher(t, c, kafkapub.Options{Producers: 1})
	if n, err := p.Publish(t.Context(), events("Oslo", 1, 1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	underWay, giveUp := make(chan struct{}), errors.New("no longer")
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		close(underWay)
		return nil, nil, true
	})
	first, end := context.WithCancelCause(t.Context())
	var calls sync.WaitGroup
	calls.Go(func() {
		if n, err := p.Publish(first, events("Oslo", 2, 2)); n != 0 || !errors.Is(err, giveUp) {
			t.Errorf("the first call: %d, %v", n, err)
		}
	})
	<-underWay
	second, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	if n, err := p.Publish(second, events("Bergen", 1, 1)); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second call: %d, %v; want that it waits for the first", n, err)
	}
	end(giveUp)
	calls.Wait()
}

// A refusal of a record for what it is, and not for what the cluster is, parks it by itself.
func TestARecordThatTheTopicNeverTakesIsPoison(t *testing.T) {
	for _, refusal := range []*kerr.Error{kerr.InvalidRecord, kerr.RecordListTooLarge, kerr.MessageTooLarge} {
		c := startKafka(t)
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: refusal, Count: -1, When: func(r kmsg.Request) bool {
			return holds(r, "Oslo/3")
		}})
		p := newPublisher(t, c, kafkapub.Options{Client: []kgo.Opt{kgo.ProducerBatchCompression(kgo.NoCompression())}})
		n, err := p.Publish(t.Context(), events("Oslo", 1, 5))
		if n != 2 || !feed.IsPoison(err) || errors.Is(err, outbox.ErrTooLarge) == errors.Is(refusal,
			kerr.InvalidRecord) {
			t.Errorf("%v: %d, %v", refusal, n, err)
		}
		if n, err := p.Publish(t.Context(), events("Oslo", 4, 5)); n != 2 || err != nil {
			t.Errorf("after %v: %d, %v", refusal, n, err)
		}
	}
}

func TestOptionsAreRefused(t *testing.T) {
	for _, o := range []kafkapub.Options{{Producers: -1}, {Timeout: -1}, {Client: []kgo.Opt{kgo.MetadataMinAge(1)}}} {
		if p, err := kafkapub.New([]string{"localhost:9092"}, topic, o); err == nil {
			t.Errorf("%+v is taken", o)
			p.Close()
		}
	}
}

func TestAClosedPublisherSaysSo(t *testing.T) {
	c := startKafka(t)
	p := newPublisher(t, c, kafkapub.Options{Producers: 2})
	p.Close()
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	for range 3 { // more often than it has producers
		if n, err := p.Publish(ctx, events("Oslo", 1, 1)); n != 0 || !errors.Is(err, kgo.ErrClientClosed) {
			t.Errorf("%d, %v", n, err)
		}
	}
}

func TestConformance(t *testing.T) {
	outboxtest.TestPublisher(t, func(t *testing.T) outboxtest.Broker {
		c := startKafka(t)
		line := outboxtest.NewLine(t)
		return outboxtest.Broker{
			Publisher: func(t *testing.T) outbox.Publisher {
				p, err := kafkapub.New(c.ListenAddrs(), topic, kafkapub.Options{
					Timeout: 2 * time.Second, Client: impatient(kgo.Dialer(line.Dial),
						kgo.ProducerBatchMaxBytes(100_000), kgo.ProducerBatchCompression(kgo.NoCompression())),
				})
				if err != nil {
					t.Fatal(err)
				}
				return p
			},
			Received: func(t *testing.T) []outboxtest.Received { return asReceived(consume(t, c, topic)) },
			Stop:     func(*testing.T) { line.Cut() },
			Stall:    func(*testing.T) { line.Stall() },
			Start:    func(*testing.T) { line.Mend() },
			Fail: func(_ *testing.T, id string) {
				c.Fault(kfake.Fault{
					Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.UnknownServerError,
					When: func(r kmsg.Request) bool { return holds(r, id) },
				})
			},
			Misbehave: line.Misbehaviours(),
			MaxData:   99_000,
		}
	})
}

func TestATopicThatIsMissingIsCreatedIfTheClusterCreatesTopics(t *testing.T) {
	for _, creates := range []bool{true, false} {
		opts := []kfake.Opt{kfake.NumBrokers(1), kfake.DefaultNumPartitions(1)}
		if creates {
			opts = append(opts, kfake.AllowAutoTopicCreation())
		}
		c, err := kfake.NewCluster(opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		p := newPublisher(t, c, kafkapub.Options{Timeout: 5 * time.Second})
		n, err := p.Publish(t.Context(), events("k", 1, 2))
		switch {
		case creates && (n != 2 || err != nil || len(stored(t, c)["k"]) != 2):
			t.Errorf("%d of 2 are published to a topic that the cluster creates: %v", n, err)
		case !creates && (n != 0 || !errors.Is(err, kafkapub.ErrNoTopic) || feed.IsPoison(err)):
			t.Errorf("%d are published to a topic that does not exist: %v, want %v", n, err, kafkapub.ErrNoTopic)
		}
	}
}

// asReceived is what a consumer makes of records.
func asReceived(records []*kgo.Record) (all []outboxtest.Received) {
	for _, r := range records {
		m := outboxtest.Received{
			ID: header(r, "ce_id"), Key: string(r.Key), Attributes: map[string]string{},
			Trace: map[string]string{}, ContentType: header(r, "content-type"), Data: r.Value,
		}
		for _, h := range r.Headers {
			if name, ok := strings.CutPrefix(h.Key, "ce_"); ok {
				m.Attributes[name] = string(h.Value)
			}
			if strings.HasPrefix(h.Key, "trace") {
				m.Trace[h.Key] = string(h.Value)
			}
		}
		all = append(all, m)
	}
	return all
}

// holds reports whether a produce request holds the id of a message. Its batches are not compressed.
func holds(r kmsg.Request, id string) bool {
	for _, t := range r.(*kmsg.ProduceRequest).Topics {
		for _, p := range t.Partitions {
			if bytes.Contains(p.Records, []byte(id)) {
				return true
			}
		}
	}
	return false
}
