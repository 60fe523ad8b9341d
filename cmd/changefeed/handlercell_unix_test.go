//go:build unix

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/feed"
)

// suiteSettings are what a case sets for its unit, whatever its handler is. Zero is a default.
type suiteSettings struct {
	deadline    time.Duration // of a batch
	drain       time.Duration
	grace       time.Duration
	maxAttempts int
	hold        bool
	batchSize   int
	ranges      int // partitions of the container
	weight      int
	once        bool
	startsBadly bool // the handler, which nobody waits for
}

// suiteCell is a case of the suite with a kind of handler: a container of orders on a server, and a host of one unit.
type suiteCell struct {
	*testing.T
	suiteSettings

	kind     handlerKind
	dir      string
	endpoint string // of the server
	base     string // of the containers of this cell
	orders   *cosmos.Container
	written  map[string]int // by key: the number of the last order
	host     *exec.Cmd
	ended    chan struct{} // closed when the host has ended; hostErr says how
	hostErr  error
	before   int // bytes of the log that are of earlier hosts

	receiver suiteReceiver

	// shaken says that the server is killed. Then a host that has not started yet ends, and is started again.
	shaken bool
}

// The unit of each cell.
const suiteUnit = "mailer"

// The patience with what must happen, and that of the others when a cell has failed, because then the test has.
const (
	suitePatience = 30 * time.Second
	lastPatience  = 5 * time.Second
)

// suiteHasFailed says that a cell has failed.
var suiteHasFailed atomic.Bool

// lostBootstrap is how long the leases are made later if the host that made them was killed.
const lostBootstrap = 35 * time.Second

// newSuiteCell makes the containers of a cell.
func newSuiteCell(t *testing.T, endpoint, name string, kind handlerKind, s suiteSettings) *suiteCell {
	t.Helper()
	c := &suiteCell{
		T: t, suiteSettings: s, kind: kind, dir: t.TempDir(), endpoint: endpoint, base: endpoint + "/" + name,
		written: map[string]int{},
	}
	command(t, "create", c.base+"/orders", "--pk", "/key", "--ranges", strconv.Itoa(max(s.ranges, 1)))
	client, err := cosmos.Open(t.Context(), endpoint, cosmos.Key(cosmosrest.EmulatorKey), cosmos.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	if c.orders, err = client.Container(t.Context(), name, "orders"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.end)
	return c
}

// end ends what the cell has started, and shows all that was said if it has failed.
func (c *suiteCell) end() {
	c.killHost()
	c.receiver.end()
	if !c.Failed() {
		return
	}
	suiteHasFailed.Store(true)
	for _, file := range []string{"host.log", "journal"} {
		text, _ := os.ReadFile(filepath.Join(c.dir, file))
		c.Logf("%s:\n%s", file, text)
	}
}

// write writes the next order of a key, which says what its handler does.
func (c *suiteCell) write(key string, o suiteOrder) suiteOrder {
	c.Helper()
	c.written[key]++
	o.Key, o.N = key, c.written[key]
	o.ID = fmt.Sprintf("%s-%d", key, o.N)
	body, err := json.Marshal(o)
	if err != nil {
		c.Fatal(err)
	}
	c.await("the order is written", func() bool {
		_, err = c.orders.Commit(c.Context(), feed.Key(key), []feed.Write{{Op: feed.WriteCreate, Body: body}})
		return err == nil || errors.Is(err, feed.ErrConflict) // an earlier try has written it
	})
	return o
}

// writeSome writes so many orders of each key that are handled, of one key after the other.
func (c *suiteCell) writeSome(each int, keys ...string) {
	c.Helper()
	for range each {
		for _, key := range keys {
			c.write(key, suiteOrder{})
		}
	}
}

// await waits until something is so.
func (c *suiteCell) await(what string, is func() bool) {
	c.Helper()
	const step = 10 * time.Millisecond
	for begun := time.Now(); !is(); {
		select {
		case <-time.After(step):
		case <-c.ended: // nil before the first start
			if !is() {
				c.replaceHost(what)
			}
		case <-c.Context().Done():
			c.Fatal(context.Cause(c.Context()))
		}
		patience := suitePatience
		if c.shaken {
			patience += lostBootstrap
		}
		if suiteHasFailed.Load() && time.Since(begun) > lastPatience {
			c.Skipf("another cell has failed; waited %v for this: %s", lastPatience, what)
		}
		if time.Since(begun) > patience {
			c.Fatalf("waited %v for this: %s", patience, what)
		}
	}
}

// start starts the host, and what handles the batches if the host does not start it.
func (c *suiteCell) start() {
	c.Helper()
	if c.kind.prepare != nil {
		c.kind.prepare(c)
	}
	c.startHost()
}

// startHost starts the host.
func (c *suiteCell) startHost() {
	c.Helper()
	file := c.writeFile()
	log, err := os.OpenFile(filepath.Join(c.dir, "host.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		c.Fatal(err)
	}
	defer log.Close()
	at, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		c.Fatal(err)
	}
	c.before = int(at)
	c.host = exec.Command("changefeed", "host", file, "-v")
	c.host.Stderr = log
	if err := startHeeding(c.host, syscall.SIGHUP); err != nil {
		c.Fatal(err)
	}
	ended := make(chan struct{})
	go func(host *exec.Cmd) {
		c.hostErr = host.Wait()
		close(ended)
	}(c.host)
	c.ended = ended
}

// endInOrder stops the host, after which each change was handled once and in order, and the positions are stored.
func (c *suiteCell) endInOrder() {
	c.Helper()
	c.stopHost()
	c.checkOrder()
	c.checkOnce()
	c.checkPositions()
}

// writeFile writes the file of the host, and returns its path.
func (c *suiteCell) writeFile() string {
	c.Helper()
	file := filepath.Join(c.dir, "host.yaml")
	if err := os.WriteFile(file, []byte("units:\n  - "+c.kind.unit(c)+"\n"), 0o600); err != nil {
		c.Fatal(err)
	}
	return file
}

// replaceHost does what a supervisor does with a host that has ended by itself. It must not, after its start.
func (c *suiteCell) replaceHost(what string) {
	c.Helper()
	if !c.shaken || c.hostErr == nil || strings.Contains(c.said()[c.before:], "unit is started") {
		c.Fatalf("waited for this: %s; the host has ended: %v", what, c.hostErr)
	}
	c.startHost()
}

// shared are the settings that all kinds have in the host's file.
func (c *suiteCell) shared() string {
	text := fmt.Sprintf("create-leases: true, drain: %v, weight: %d, once: %v", cmp.Or(c.drain, 10*time.Second),
		max(c.weight, 1), c.once)
	if c.maxAttempts > 0 {
		text += fmt.Sprintf(", max-attempts: %d, dead-letters: %q, hold: %v", c.maxAttempts, c.base+"/letters", c.hold)
	}
	return text
}

// own are those that an app has in its own files.
func (c *suiteCell) own() string {
	return fmt.Sprintf("name: %s, source: %q, from: beginning, poll: 100ms, acquire: 300ms, renew: 400ms, expiration: 4s, "+
		"timeout: %v, batch-size: %d", suiteUnit, c.base+"/orders", cmp.Or(c.deadline, time.Minute), c.batchSize)
}

// patience is that with a program which is to end.
func (c *suiteCell) patience() string {
	return fmt.Sprintf("grace: %v", cmp.Or(c.grace, 500*time.Millisecond))
}

// stopHost ends the host with SIGTERM, and expects that it ends well.
func (c *suiteCell) stopHost() {
	c.Helper()
	c.signalHost(syscall.SIGTERM)
	c.awaitHostEnd()
}

func (c *suiteCell) signalHost(s syscall.Signal) {
	c.Helper()
	if err := c.host.Process.Signal(s); err != nil {
		c.Fatal(err)
	}
}

func (c *suiteCell) awaitHostEnd() {
	c.Helper()
	select {
	case <-c.ended:
		if c.hostErr != nil {
			c.Errorf("the host ends with %v", c.hostErr)
		}
		c.host, c.ended = nil, nil
	case <-time.After(suitePatience):
		c.Fatalf("the host does not end within %v", suitePatience)
	}
}

// killHost ends the host with kill -9.
func (c *suiteCell) killHost() {
	if c.host == nil {
		return
	}
	_ = c.host.Process.Kill() // it may have ended
	<-c.ended
	c.host, c.ended = nil, nil
}

// said is what the hosts have said so far.
func (c *suiteCell) said() string {
	text, err := os.ReadFile(filepath.Join(c.dir, "host.log"))
	if err != nil {
		c.Fatal(err)
	}
	return string(text)
}

// awaitSaid waits until the host has said a text.
func (c *suiteCell) awaitSaid(text string) {
	c.Helper()
	c.await("the host says "+text, func() bool { return strings.Contains(c.said(), text) })
}

// journal is what the handlers have written down so far.
func (c *suiteCell) journal() (all []suiteNote) {
	c.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, "journal"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) { // it is being written
			break
		}
		var n suiteNote
		if err := json.Unmarshal(line, &n); err != nil {
			c.Fatalf("line %q: %v", line, err)
		}
		all = append(all, n)
	}
	return all
}

// noted are the lines of one sort.
func (c *suiteCell) noted(what string) (all []suiteNote) {
	c.Helper()
	for _, n := range c.journal() {
		if n.What == what {
			all = append(all, n)
		}
	}
	return all
}

// awaitNoted waits until there are so many lines of one sort.
func (c *suiteCell) awaitNoted(what string, times int) {
	c.Helper()
	c.await(fmt.Sprintf("%d times %s in the journal", times, what), func() bool { return len(c.noted(what)) >= times })
}

// closeGate makes a gate at which handlers wait.
func (c *suiteCell) closeGate(name string) {
	c.Helper()
	if err := syscall.Mkfifo(filepath.Join(c.dir, name), 0o600); err != nil {
		c.Fatal(err)
	}
}

// removeGate removes a gate at which nobody waits any more.
func (c *suiteCell) removeGate(name string) {
	c.Helper()
	if err := os.Remove(filepath.Join(c.dir, name)); err != nil {
		c.Fatal(err)
	}
}

// leaveGate removes a gate after the end of the host, at which handlers wait that have not ended with it.
func (c *suiteCell) leaveGate(name string) {
	c.Helper()
	if c.receiver.address != "" {
		c.openGate(name)
	} else {
		c.removeGate(name)
	}
}

// openGate lets the handler that waits at a gate go on, and removes the gate.
func (c *suiteCell) openGate(name string) {
	c.Helper()
	path := filepath.Join(c.dir, name)
	var gate *os.File
	c.await("a handler waits at the gate "+name, func() (opens bool) {
		var err error
		gate, err = os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err == nil // there is no reader before
	})
	if err := errors.Join(os.Remove(path), gate.Close()); err != nil {
		c.Fatal(err)
	}
}
