//go:build unix

package rabbitpub_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/outboxtest"
	"github.com/millrace/changefeed/outbox/rabbitpub"
)

var server = flag.String("rabbitmq", "",
	"the folder with Debian's rabbitmq-server, which is started for the tests; make rabbitmq")

// rabbitMQ is a server that listens on the loopback alone, with all that it has in a folder of the test.
type rabbitMQ struct {
	url string
	env []string
	pid int // of its group of processes
}

func startRabbitMQ(t *testing.T) *rabbitMQ {
	t.Helper()
	if *server == "" {
		t.Skip("it needs RabbitMQ: make rabbitmq")
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	port, epmd, dist := freePort(t), freePort(t), freePort(t)
	r := &rabbitMQ{url: "amqp://guest:guest@127.0.0.1:" + port + "/"}
	r.env = append(os.Environ(),
		"HOME="+dir, "ERL_EPMD_ADDRESS=127.0.0.1", "ERL_EPMD_PORT="+epmd, "RABBITMQ_NODENAME=changefeed@localhost",
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1", "RABBITMQ_NODE_PORT="+port, "RABBITMQ_DIST_PORT="+dist,
		"RABBITMQ_MNESIA_BASE="+filepath.Join(dir, "mnesia"), "RABBITMQ_LOG_BASE="+filepath.Join(dir, "log"),
		"RABBITMQ_PID_FILE="+filepath.Join(dir, "pid"), "RABBITMQ_CONF_ENV_FILE="+write("env.conf", ""),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+write("enabled_plugins", "[rabbitmq_consistent_hash_exchange].\n"),
		"RABBITMQ_CONFIG_FILE="+write("rabbitmq.conf", fmt.Sprintf("max_message_size = %d\n", maxMessage)),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
	)
	run(t, r.env, "epmd", "-address", "127.0.0.1", "-port", epmd)
	r.start(t)
	return r
}

// start starts the server, with what its folder has, and waits until it answers.
func (r *rabbitMQ) start(t *testing.T) {
	t.Helper()
	r.pid = run(t, r.env, filepath.Join(*server, "rabbitmq-server"))
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for tick := time.Tick(200 * time.Millisecond); ; {
		conn, err := amqp.Dial(r.url)
		if err == nil {
			conn.Close()
			return
		}
		select {
		case <-tick:
		case <-ctx.Done():
			t.Fatalf("RabbitMQ does not answer: %v", err)
		}
	}
}

// kill ends the server at once, as a loss of power does but for what the system has not written to the disk yet.
func (r *rabbitMQ) kill(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(-r.pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

const maxMessage = 1 << 20

// run starts a program in a group of its own, which is ended with the test, and returns the number of the group.
func run(t *testing.T, env []string, name string, args ...string) (pid int) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.SysProcAttr = env, &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Error(err)
		}
		_ = cmd.Wait() // that it was ended
	})
	return cmd.Process.Pid
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// admin is a channel to make and read queues.
func admin(t *testing.T, url string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func TestRabbitMQ(t *testing.T) {
	broker := startRabbitMQ(t)
	url := broker.url
	t.Run("conformance", func(t *testing.T) { conformance(t, url) })
	t.Run("what no queue gets is refused", func(t *testing.T) {
		ch := admin(t, url)
		must(t, ch.ExchangeDeclare("nowhere", "direct", false, true, false, false, nil))
		p := newPublisher(t, url, "nowhere", rabbitpub.Options{})
		n, err := p.Publish(t.Context(), []outbox.Message{event("Oslo", 1)})
		if n != 0 || !errors.Is(err, rabbitpub.ErrNoRoute) || feed.IsPoison(err) {
			t.Errorf("%d, %v", n, err)
		}
		_, err = ch.QueueDeclare("somewhere", false, true, false, false, nil)
		must(t, err)
		must(t, ch.QueueBind("somewhere", "Oslo", "nowhere", false, nil))
		if n, err := p.Publish(t.Context(), []outbox.Message{event("Oslo", 1)}); n != 1 || err != nil {
			t.Errorf("once there is one: %d, %v", n, err)
		}
	})
	t.Run("an exchange that is missing", func(t *testing.T) {
		p := newPublisher(t, url, "missing", rabbitpub.Options{})
		for range 2 {
			if n, err := p.Publish(t.Context(), []outbox.Message{event("Oslo", 1)}); n != 0 || err == nil ||
				!strings.Contains(err.Error(), "NOT_FOUND") || feed.IsPoison(err) {
				t.Errorf("%d, %v", n, err)
			}
		}
	})
	t.Run("one queue by its name", func(t *testing.T) {
		_, err := admin(t, url).QueueDeclare("one", false, true, false, false, nil)
		must(t, err)
		p := newPublisher(t, url, "", rabbitpub.Options{RoutingKey: "one"})
		if n, err := p.Publish(t.Context(), []outbox.Message{event("Oslo", 1)}); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
	t.Run("keys keep their order over several queues", func(t *testing.T) { hashed(t, url) })
	t.Run("what is accepted survives kills of the broker", func(t *testing.T) {
		outboxtest.TestKills(t, fanout(t, broker.url, "killed", nil), 3, func(t *testing.T) {
			broker.kill(t)
			broker.start(t)
		})
	})
}

func conformance(t *testing.T, url string) {
	names := 0
	outboxtest.TestPublisher(t, func(t *testing.T) outboxtest.Broker {
		names++
		name := fmt.Sprint("conformance-", names)
		line := outboxtest.NewLine(t)
		b := fanout(t, url, name, func(network, address string) (net.Conn, error) {
			return line.Dial(t.Context(), network, address)
		})
		b.Stop, b.Stall, b.Start = func(*testing.T) {
			line.Cut()
		}, func(*testing.T) { line.Stall() }, func(*testing.T) { line.Mend() }
		b.Misbehave, b.MaxData = line.Misbehaviours(), maxMessage
		return b
	})
}

// fanout makes an exchange with one queue, which survive a restart, for the suite.
func fanout(t *testing.T, url, name string, dial func(network, address string) (net.Conn, error)) outboxtest.Broker {
	t.Helper()
	ch := admin(t, url)
	must(t, ch.ExchangeDeclare(name, "fanout", true, false, false, false, nil))
	_, err := ch.QueueDeclare(name, true, false, false, false, nil)
	must(t, err)
	must(t, ch.QueueBind(name, "", name, false, nil))
	return outboxtest.Broker{
		Publisher: func(t *testing.T) outbox.Publisher {
			p, err := rabbitpub.New(url, name, rabbitpub.Options{Client: amqp.Config{Dial: dial}})
			must(t, err)
			return p
		},
		Received: func(t *testing.T) []outboxtest.Received { return received(t, admin(t, url), name) },
	}
}

// received reads a queue from the first message on. They go back into it when the channel is closed.
func received(t *testing.T, ch *amqp.Channel, queue string) (all []outboxtest.Received) {
	t.Helper()
	defer ch.Close()
	for {
		m, ok, err := ch.Get(queue, false)
		must(t, err)
		if !ok {
			return all
		}
		r := outboxtest.Received{
			Attributes: map[string]string{}, Trace: map[string]string{},
			ContentType: m.ContentType, Data: m.Body,
		}
		for name, value := range m.Headers {
			if name, ok := strings.CutPrefix(name, "cloudEvents:"); ok {
				r.Attributes[name], _ = value.(string)
			}
			if strings.HasPrefix(name, "trace") {
				r.Trace[name], _ = value.(string)
			}
		}
		r.ID = r.Attributes["id"]
		r.Key, _ = m.Headers["key"].(string)
		if m.DeliveryMode != amqp.Persistent || len(r.ID) < 256 && m.MessageId != r.ID ||
			len(r.Key) < 256 && m.RoutingKey != r.Key {
			t.Errorf("message id %q, routing key %q, mode %d", m.MessageId, m.RoutingKey, m.DeliveryMode)
		}
		all = append(all, r)
	}
}

func hashed(t *testing.T, url string) {
	ch := admin(t, url)
	must(t, ch.ExchangeDeclare("hashed", "x-consistent-hash", true, false, false, false, nil))
	queues := []string{"hashed-1", "hashed-2", "hashed-3", "hashed-4"}
	for _, queue := range queues {
		_, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
		must(t, err)
		must(t, ch.QueueBind(queue, "10", "hashed", false, nil))
	}
	p := newPublisher(t, url, "hashed", rabbitpub.Options{})
	want := map[string][]string{}
	for seq := 1; seq <= 5; seq++ {
		for k := range 40 {
			m := event(fmt.Sprint("key-", k), seq)
			want[m.Key] = append(want[m.Key], m.ID)
			if n, err := p.Publish(t.Context(), []outbox.Message{m}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
	}
	used := 0
	for _, queue := range queues {
		got := map[string][]string{}
		for _, r := range received(t, admin(t, url), queue) {
			got[r.Key] = append(got[r.Key], r.ID)
		}
		for key, ids := range got {
			if !slices.Equal(ids, want[key]) {
				t.Errorf("%s of %s has %v", key, queue, ids)
			}
			delete(want, key)
		}
		used += min(1, len(got))
	}
	if len(want) > 0 || used < 2 {
		t.Errorf("%d keys are nowhere, %d queues are used", len(want), used)
	}
}
