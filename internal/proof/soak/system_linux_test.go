package soak_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/outbox/webhookpub"
)

// system is all of the soak: a server, two hosts with two units each, a relay, and the webhook that gets its events.
type system struct {
	t         *testing.T
	dir       string
	binary    string
	endpoint  string
	begun     time.Time
	processes []*process // the server first
	series    []*series
	ledger    *ledger
	orders    *cosmos.Container
	contacts  *cosmos.Container
	rng       *rand.Rand // of the chaos

	mu    sync.Mutex
	lags  []sample // changes pending, of all units
	sizes []sample // bytes on the disk
	asked map[string]int
}

// units are the units of the hosts, and the relay.
var units = []string{"mailer", "audit"}

// newSystem builds the command and starts everything.
func newSystem(t *testing.T, seed uint64) *system {
	t.Helper()
	s := &system{
		t: t, dir: t.TempDir(), ledger: newLedger(), rng: rand.New(rand.NewPCG(seed, 30)),
		asked: map[string]int{},
	}
	s.binary = filepath.Join(s.dir, "changefeed")
	said, err := exec.Command("go", "build", "-o", s.binary, "../../../cmd/changefeed").CombinedOutput()
	if err != nil {
		t.Fatalf("build the command: %v\n%s", err, said)
	}
	webhook := httptest.NewServer(http.HandlerFunc(s.receive))
	t.Cleanup(webhook.Close)
	s.endpoint = "http://" + freeAddress(t)
	s.plan(webhook.URL)
	s.begun = time.Now()
	if err := s.processes[0].start(s.binary); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.killAll)
	s.connect()
	for _, p := range s.processes[1:] {
		if err := p.start(s.binary); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// plan says which processes there are.
func (s *system) plan(webhook string) {
	program, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	file := filepath.Join(s.dir, "host.yaml")
	text := fmt.Sprintf("defaults: {source: %q, create-leases: true, long-lived: true}\nunits:\n",
		s.endpoint+"/soak/orders")
	text += fmt.Sprintf("  - {name: mailer, program: [%q]}\n", program)
	text += fmt.Sprintf("  - {name: audit, program: [%q], concurrency: 8, batch-size: 10}\n", program)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	add := func(name string, args ...string) {
		ui := freeAddress(s.t)
		s.processes = append(s.processes, &process{
			name: name, dir: s.dir, ui: "http://" + ui, args: append(args, "--ui", ui),
			env: []string{programVariable + "=" + s.dir},
		})
		for _, figure := range []string{"memory", "heap", "goroutines", "files"} {
			s.series = append(s.series, &series{process: name, figure: figure})
		}
	}
	add("server", "serve", "--db", filepath.Join(s.dir, "store"), "--http", "--faults", "--listen",
		strings.TrimPrefix(s.endpoint, "http://"))
	add("host-1", "host", file)
	add("host-2", "host", file)
	add("relay", "relay", "--source", s.endpoint+"/soak/contacts", "--name", "events", "--create-leases",
		"--to", webhook, "--expire-after", "1m")
}

// freeAddress is an address of the loopback where nobody listens.
func freeAddress(t *testing.T) string {
	var listening net.ListenConfig
	l, err := listening.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// connect makes the containers when the server is there.
func (s *system) connect() {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	for name, flags := range map[string][]string{
		"orders": {"--pk", "/city", "--ranges", "2"}, "contacts": {"--pk", "/partitionKey", "--ttl", "-1"},
	} {
		for {
			create := append([]string{"create", s.endpoint + "/soak/" + name, "--if-missing"}, flags...)
			said, err := exec.CommandContext(ctx, s.binary, create...).CombinedOutput()
			if err == nil {
				break
			}
			if pause.For(ctx, 200*time.Millisecond) != nil {
				s.t.Fatalf("create %s: %v\n%s", name, err, said)
			}
		}
	}
	client, err := cosmos.Open(ctx, s.endpoint, cosmos.Key(cosmosrest.EmulatorKey), cosmos.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(client.Close)
	if s.orders, err = client.Container(ctx, "soak", "orders"); err != nil {
		s.t.Fatal(err)
	}
	if s.contacts, err = client.Container(ctx, "soak", "contacts"); err != nil {
		s.t.Fatal(err)
	}
}

// receive is the webhook of the relay.
func (s *system) receive(w http.ResponseWriter, r *http.Request) {
	m, err := webhookpub.Receive(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.ledger.published(m.ID)
	w.WriteHeader(http.StatusNoContent)
}

// endAll ends all processes in order, the server last.
func (s *system) endAll() {
	for i := len(s.processes) - 1; i >= 0; i-- {
		if err := s.processes[i].end(); err != nil {
			s.t.Error(err)
		}
	}
}

// killAll leaves nothing behind, also if the test has failed.
func (s *system) killAll() {
	for _, p := range s.processes {
		if p.cmd != nil && p.cmd.ProcessState == nil {
			_ = p.kill()
		}
	}
	if keep := *keep; keep != "" {
		for _, p := range s.processes {
			text, err := os.ReadFile(filepath.Join(s.dir, p.name+".log"))
			if err == nil {
				err = os.WriteFile(filepath.Join(keep, p.name+".log"), text, 0o600)
			}
			if err != nil {
				s.t.Log(err)
			}
		}
	}
}
