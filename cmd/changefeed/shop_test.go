//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/feed"
)

// shop is a server in a process of its own, with a container of orders, and processes
// that handle them.
type shop struct {
	*testing.T
	times  shopTimes
	dir    string
	url    string // of the container
	orders *cosmos.Container
	leases *cosmos.Leases
	fleet  map[string]*exec.Cmd
	server *exec.Cmd
	around []string // the command that runs the server; empty if the server is run directly

	mu   sync.Mutex
	sold map[string]int // by key: the number of the last order that was acknowledged
}

const shopKeys = 16

func openShop(t *testing.T, times shopTimes) *shop {
	t.Helper()
	s := newShop(t, times)
	s.open()
	return s
}

// newShop returns a shop whose server is not started.
func newShop(t *testing.T, times shopTimes) *shop {
	return &shop{T: t, times: times, dir: t.TempDir(), fleet: map[string]*exec.Cmd{}, sold: map[string]int{}}
}

// open makes the containers, and starts the server.
func (s *shop) open() {
	s.Helper()
	t := s.T
	none := filepath.Join(s.dir, "none")
	if err := os.WriteFile(none, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "import", none, "docstore:"+s.store()+"#shop/orders", "--pk", "/key")
	endpoint := s.serve("127.0.0.1:0")
	t.Cleanup(s.shut)
	s.url = endpoint + "/shop/orders"
	client, err := cosmos.Open(t.Context(), endpoint, cosmos.Key(cosmosrest.EmulatorKey), cosmos.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	if s.orders, err = client.Container(t.Context(), "shop", "orders"); err != nil {
		t.Fatal(err)
	}
	leases, err := client.CreateLeaseContainer(t.Context(), "shop", "leases")
	if err != nil {
		t.Fatal(err)
	}
	if s.leases, err = cosmos.OpenLeases(t.Context(), leases, "mailer", s.orders, cosmos.LeaseOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (s *shop) store() string { return filepath.Join(s.dir, "store") }

// serve starts the server and returns its endpoint.
func (s *shop) serve(listen string) string {
	s.Helper()
	args := append(slices.Clone(s.around), "changefeed", "serve", "--db", s.store(), "--listen", listen, "--http",
		"-o", "json")
	s.server = exec.Command(args[0], args[1:]...)
	log, err := os.OpenFile(filepath.Join(s.dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		s.Fatal(err)
	}
	defer log.Close()
	s.server.Stderr = log
	out, err := s.server.StdoutPipe()
	if err != nil {
		s.Fatal(err)
	}
	if err := s.server.Start(); err != nil {
		s.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var said struct{ Endpoint string }
	if err != nil || json.Unmarshal(line, &said) != nil {
		s.Fatalf("serve: said %q, %v: want its endpoint as JSON", line, err)
	}
	return strings.TrimRight(said.Endpoint, "/")
}

// shut ends the server kindly.
func (s *shop) shut() {
	if err := s.server.Process.Signal(syscall.SIGTERM); err != nil {
		s.Error(err)
	}
	if err := s.server.Wait(); err != nil {
		s.Errorf("serve: got %v, want that SIGTERM ends it well", err)
	}
	if s.Failed() {
		said, _ := os.ReadFile(filepath.Join(s.dir, "server.log"))
		s.Logf("the server:\n%s", said)
	}
}

// crash kills the server and starts it again in its place.
func (s *shop) crash() {
	s.Helper()
	s.kill()
	s.restart()
}

// kill kills the server.
func (s *shop) kill() {
	s.Helper()
	if err := s.server.Process.Kill(); err != nil {
		s.Fatal(err)
	}
	_ = s.server.Wait() // killed, as wanted
}

// restart starts a server that was killed in its place.
func (s *shop) restart() {
	s.Helper()
	u, err := url.Parse(s.url)
	if err != nil {
		s.Fatal(err)
	}
	s.serve(u.Host)
}

// start starts a process of the fleet, whose program is recordBatch.
func (s *shop) start(name string) {
	s.Helper()
	s.launch(name, "run", "--name", "mailer", "--from", "beginning", "--batch-size", "100", "--min-leases", "8",
		"--meta", "-v", "--grace", (s.times.drain / 2).String(), "--", "record", filepath.Join(s.dir, "handled"))
}

// launch starts a process of the fleet: a command on the container, with its flags.
func (s *shop) launch(name, command string, flags ...string) {
	s.Helper()
	log, err := os.Create(filepath.Join(s.dir, name+".log"))
	if err != nil {
		s.Fatal(err)
	}
	defer log.Close()
	run := exec.Command("changefeed", append([]string{
		command, "--source", s.url, "--instance", name,
		"--acquire", s.times.acquire.String(), "--renew", s.times.renew.String(), "--expiration",
		s.times.expiration.String(),
		"--drain", s.times.drain.String(),
	}, flags...)...)
	run.Stderr = log
	if err := run.Start(); err != nil {
		s.Fatal(err)
	}
	s.fleet[name] = run
	s.Cleanup(func() {
		if run.ProcessState == nil {
			_ = run.Process.Kill() // the test has failed before its end
			_ = run.Wait()
		}
		if s.Failed() {
			said, _ := os.ReadFile(log.Name())
			s.Logf("process %s:\n%s", name, said)
		}
	})
}

func (s *shop) signal(name string, what syscall.Signal) {
	s.Helper()
	if err := s.fleet[name].Process.Signal(what); err != nil {
		s.Fatal(err)
	}
	if what == syscall.SIGKILL {
		_ = s.fleet[name].Wait() // killed, as wanted
	}
}

// close ends processes kindly.
func (s *shop) close(names ...string) {
	s.Helper()
	for _, name := range names {
		s.signal(name, syscall.SIGTERM)
	}
	for _, name := range names {
		if err := s.fleet[name].Wait(); err != nil {
			s.Errorf("process %s: got %v, want that SIGTERM ends it well", name, err)
		}
	}
}

// await waits until something is so.
func (s *shop) await(what string, is func() bool) {
	s.Helper()
	const step = 50 * time.Millisecond
	for begun := time.Now(); !is(); {
		if time.Since(begun) > s.times.patience {
			s.Fatalf("waited %v for this: %s; leases: %v", s.times.patience, what, s.owners())
		}
		select {
		case <-time.After(step):
		case <-s.Context().Done():
			s.Fatal(context.Cause(s.Context()))
		}
	}
}

// owners are the numbers of leases by owner.
func (s *shop) owners() map[string]int {
	s.Helper()
	records, _, err := s.leases.List(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	owners := map[string]int{}
	for _, l := range records {
		if l.Kind == feed.KindLease && l.State == feed.StateLive {
			owners[l.Owner]++
		}
	}
	return owners
}

// lostLeases tells whether a process says that it has lost some.
func (s *shop) lostLeases(name string) bool {
	log, err := os.ReadFile(filepath.Join(s.dir, name+".log"))
	if err != nil {
		s.Fatal(err)
	}
	return bytes.Contains(log, []byte("reason=lost"))
}

// checkLeases wants all leases free, and with nothing behind them. It counts them.
func (s *shop) checkLeases() (leases int) {
	s.Helper()
	for line := range strings.Lines(command(s.T, "leases", strings.Replace(s.url, "/orders", "/leases", 1), "-o",
		"json")) {
		var r unit.Row
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			s.Fatal(err)
		}
		if r.Kind != unit.KindLease {
			if r.Kind != unit.KindInstance && r.Kind != unit.KindUnit {
				s.Errorf("got %s, want leases, instances and the unit only", line)
			}
			continue
		}
		leases++
		if r.Owner != "" || r.Lag == nil || *r.Lag != 0 {
			s.Errorf("got %s, want a free lease with nothing behind", line)
		}
	}
	return leases
}

// sell writes orders until it is told to stop: for each key one after the other. When
// stop returns, each order that is there was acknowledged.
func (s *shop) sell() (stop func()) {
	stopped := make(chan struct{})
	var sellers sync.WaitGroup
	for i := range shopKeys {
		key := "key" + strconv.Itoa(i)
		sellers.Go(func() {
			for n := 1; ; n++ {
				if !s.order(key, n) {
					return
				}
				s.mu.Lock()
				s.sold[key] = n
				s.mu.Unlock()
				select {
				case <-stopped:
					return
				case <-time.After(sellPause):
				}
			}
		})
	}
	return func() {
		close(stopped)
		sellers.Wait()
	}
}

const sellPause = 250 * time.Millisecond

// order writes one order until that is acknowledged, which an earlier try may have
// written. It is false at the end of the test.
func (s *shop) order(key string, n int) bool {
	body := fmt.Appendf(nil, `{"id":"%s-%06d","key":%q,"n":%d}`, key, n, key, n)
	for {
		_, err := s.orders.Commit(s.Context(), feed.Key(key), []feed.Write{{Op: feed.WriteCreate, Body: body}})
		if err == nil || errors.Is(err, feed.ErrConflict) {
			return true
		}
		select {
		case <-s.Context().Done():
			return false
		case <-time.After(sellPause):
		}
	}
}

// entries are what the programs have written down so far.
func (s *shop) entries() (all []entry) {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "handled"))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		s.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) { // it is being written
			break
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			s.Fatalf("line %q: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

// handlers are the numbers of batches that were done, by instance.
func (s *shop) handlers() map[string]int {
	batches := map[string]int{}
	for _, e := range s.entries() {
		if e.Done {
			batches[e.Instance]++
		}
	}
	return batches
}

// awaitHandled waits until all orders that were acknowledged are handled.
func (s *shop) awaitHandled() {
	s.Helper()
	s.mu.Lock()
	sold := maps.Clone(s.sold)
	s.mu.Unlock()
	s.await("all orders are handled", func() bool { return !s.lacks(sold) })
}

// lacks tells whether one of these orders is in no batch that was done.
func (s *shop) lacks(sold map[string]int) bool {
	done := map[string]int{}
	open := map[string][]entry{} // by batch
	for _, e := range s.entries() {
		open[e.Batch] = append(open[e.Batch], e)
		if e.Done {
			for _, o := range open[e.Batch] {
				done[o.Key] = max(done[o.Key], o.N)
			}
		}
	}
	for key, n := range sold {
		if done[key] < n {
			return true
		}
	}
	return false
}

// judge looks at what was handled. Those that were killed are victims, and so are one that
// was stopped, if any, and who knows that it has lost a lease.
func (s *shop) judge(stopped string, killed ...string) {
	s.Helper()
	s.Logf("%d lines; batches by instance: %v", len(s.entries()), s.handlers())
	victims := map[string]bool{}
	for name := range s.fleet {
		victims[name] = name == stopped || slices.Contains(killed, name) || s.lostLeases(name)
	}
	for _, wrong := range judge(s.entries(), s.sold, victims, stopped) {
		s.Error(wrong)
	}
}

// awaitLeases waits until each of some processes has a lease, and nobody else has.
func (s *shop) awaitLeases(names []string) {
	s.Helper()
	s.await("each living process has leases, and nobody else", func() bool {
		owners := s.owners()
		return len(owners) == len(names) && !slices.ContainsFunc(names, func(name string) bool {
			return owners[name] == 0
		})
	})
}

// reshape splits the first partition, or merges it with the second.
func (s *shop) reshape(merge bool) {
	s.Helper()
	parts, err := s.orders.Partitions(s.Context())
	switch {
	case err != nil:
		s.Fatal(err)
	case merge:
		command(s.T, "merge", s.url, parts[0].ID, parts[1].ID)
	default:
		command(s.T, "split", s.url, parts[0].ID)
	}
}
