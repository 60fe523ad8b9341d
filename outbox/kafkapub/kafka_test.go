//go:build unix

package kafkapub_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/kafkapub"
	"github.com/millrace/changefeed/outbox/outboxtest"
)

var classpath = flag.String("kafka", "",
	"the class path of Apache Kafka's broker, which is started for the tests; make kafka")

// realKafka is a broker of Apache Kafka that listens on the loopback alone, with all that it has in a folder of the
// test.
type realKafka struct {
	address, config string
	server          *exec.Cmd
}

const (
	realPartitions = 4
	realMaxData    = 100_000
)

func startRealKafka(t *testing.T) *realKafka {
	t.Helper()
	if *classpath == "" {
		t.Skip("it needs Apache Kafka: make kafka")
	}
	dir := t.TempDir()
	k := &realKafka{address: freeAddress(t), config: filepath.Join(dir, "server.properties")}
	controller := freeAddress(t)
	properties := fmt.Sprintf(`process.roles=broker,controller
node.id=1
controller.quorum.voters=1@%s
listeners=PLAINTEXT://%s,CONTROLLER://%s
controller.listener.names=CONTROLLER
log.dirs=%s
num.partitions=%d
auto.create.topics.enable=true
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
message.max.bytes=%d
`, controller, k.address, controller, filepath.Join(dir, "log"), realPartitions, realMaxData+4_000)
	if err := os.WriteFile(k.config, []byte(properties), 0o600); err != nil {
		t.Fatal(err)
	}
	format := exec.CommandContext(t.Context(), "java", "-cp", *classpath, "kafka.tools.StorageTool",
		"format", "--cluster-id", "AAAAAAAAAAAAAAAAAAAAAQ", "--config", k.config)
	if out, err := format.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { k.kill(t) })
	k.start(t)
	return k
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start starts the broker, with what its folder has, and waits until it answers.
func (k *realKafka) start(t *testing.T) {
	t.Helper()
	k.server = exec.Command("java", "-Xmx512m", "-cp", *classpath, "kafka.Kafka", k.config)
	k.server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := k.server.Start(); err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(k.address))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for tick := time.Tick(200 * time.Millisecond); client.Ping(ctx) != nil; <-tick {
		if ctx.Err() != nil {
			t.Fatal("Kafka does not answer")
		}
	}
}

// kill ends the broker at once. What it has given to the system is kept.
func (k *realKafka) kill(t *testing.T) {
	t.Helper()
	if k.server == nil {
		return
	}
	if err := k.server.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = k.server.Wait() // that it was ended
	k.server = nil
}

// ends tells the marks of one read of a topic from those of another.
var ends atomic.Int64

// consume reads the committed records of a topic, which may not exist yet. It puts a mark at the end of each partition
// and reads up to these; marks are left out of what it returns.
func (k *realKafka) consume(t *testing.T, topic string) (got []*kgo.Record) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	const mark = "test-mark"
	client, err := kgo.NewClient(kgo.SeedBrokers(k.address), kgo.ConsumeTopics(topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.AllowAutoTopicCreation())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	end := strconv.FormatInt(ends.Add(1), 10)
	for p := range int32(realPartitions) {
		r := &kgo.Record{Topic: topic, Partition: p, Headers: []kgo.RecordHeader{{Key: mark, Value: []byte(end)}}}
		if err := client.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for left := realPartitions; left > 0; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		for r := range fetches.RecordsAll() {
			switch header(r, mark) {
			case "":
				got = append(got, r)
			case end:
				left--
			}
		}
	}
	return got
}

// broker is a topic for the suite.
func (k *realKafka) broker(t *testing.T, topic string, client ...kgo.Opt) outboxtest.Broker {
	t.Helper()
	k.consume(t, topic) // whose marks create it
	return outboxtest.Broker{
		Publisher: func(t *testing.T) outbox.Publisher {
			p, err := kafkapub.New([]string{k.address}, topic, kafkapub.Options{
				Timeout: 10 * time.Second,
				Client:  client,
			})
			if err != nil {
				t.Fatal(err)
			}
			return p
		},
		Received: func(t *testing.T) []outboxtest.Received { return asReceived(k.consume(t, topic)) },
	}
}

func TestKafka(t *testing.T) {
	k := startRealKafka(t)
	t.Run("conformance", func(t *testing.T) {
		topics := 0
		outboxtest.TestPublisher(t, func(t *testing.T) outboxtest.Broker {
			topics++
			line := outboxtest.NewLine(t)
			b := k.broker(t, fmt.Sprint("conformance-", topics), impatient(kgo.Dialer(line.Dial),
				kgo.ProducerBatchMaxBytes(realMaxData+1_000), kgo.ProducerBatchCompression(kgo.NoCompression()))...)
			b.Stop, b.Stall, b.Start = func(*testing.T) {
				line.Cut()
			}, func(*testing.T) { line.Stall() }, func(*testing.T) { line.Mend() }
			b.Misbehave, b.MaxData = line.Misbehaviours(), realMaxData
			return b
		})
	})
	t.Run("a topic that is missing is created", func(t *testing.T) {
		p, err := kafkapub.New([]string{k.address}, "new", kafkapub.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if n, err := p.Publish(t.Context(), events("k", 1, 3)); n != 3 || err != nil {
			t.Errorf("%d of 3 are published: %v", n, err)
		}
		if got := k.consume(t, "new"); len(got) != 3 {
			t.Errorf("the topic has %d of 3", len(got))
		}
	})
	t.Run("what is accepted survives kills of the broker", func(t *testing.T) {
		outboxtest.TestKills(t, k.broker(t, "killed", impatient()...), realKills, func(t *testing.T) {
			k.kill(t)
			k.start(t)
		})
	})
	t.Run("each event is published once though the broker is killed", func(t *testing.T) {
		publishOnceAcrossKills(t, k)
	})
}

// realKills is how often a broker is killed in a test.
const realKills = 3

// publishOnceAcrossKills hands batches over until each is done, while the broker is killed and started again.
func publishOnceAcrossKills(t *testing.T, k *realKafka) {
	const topic = "once"
	h, err := kafkapub.NewExactlyOnce([]string{k.address}, topic, "relay", kafkapub.ExactlyOnceOptions{
		Client: impatient(kgo.AllowAutoTopicCreation()),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close(context.Background(), feed.Lease{Token: full.String()}, feed.ReasonStopped)
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	lsn := int64(1)
	more := func() {
		for range 20 {
			b := batch(full, 1, max(1, lsn-7), lsn+4) // with some that are done
			for h.Handle(ctx, b) != nil {
				if ctx.Err() != nil {
					t.Fatal("the handler does not find the broker again")
				}
			}
			lsn += 5
		}
	}
	for range realKills {
		more()
		k.kill(t)
		restarted := make(chan struct{})
		go func() { // a batch is under way meanwhile
			defer close(restarted)
			k.start(t)
		}()
		more()
		<-restarted
	}
	want, got := map[string][]string{}, map[string][]string{}
	for n := range lsn - 1 {
		key := fmt.Sprint("key-", (n+1)%3)
		want[key] = append(want[key], fmt.Sprint(n+1))
	}
	for _, r := range k.consume(t, topic) {
		got[string(r.Key)] = append(got[string(r.Key)], header(r, "ce_id"))
	}
	for key := range want {
		if !slices.Equal(got[key], want[key]) {
			t.Errorf("%s has %v, want %v", key, got[key], want[key])
		}
	}
}
