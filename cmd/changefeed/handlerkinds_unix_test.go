//go:build unix

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/millrace/changefeed/cosmosrest"
)

// handlerKind is a kind of handler: how its unit stands in the file of a host, and what it cannot do.
type handlerKind struct {
	name    string
	unit    func(*suiteCell) string
	prepare func(*suiteCell) // makes what unit needs, if that is anything
	late    string           // the cause of a failure at the deadline
	isKept  bool             // the host keeps a process for all batches

	// tellsAttempt says that a batch tells its handler how often it has come.
	tellsAttempt bool

	// cannot has the cases that the kind cannot have, with the reason. docs/host.md says the same.
	cannot map[string]string
}

// handlerKinds are all kinds that docs/host.md has, except for relays, which have a suite of their own.
func handlerKinds() []handlerKind {
	const deadline, away = "handler deadline exceeded", "a receiver that is away is an outage"
	const start = "the start is a part of the batch"
	const exitCode, status = "the exit code is about the whole batch", "the status is about the whole batch"
	return []handlerKind{
		{
			name: "program", unit: programUnit, tellsAttempt: true, late: deadline,
			cannot: map[string]string{
				"items": exitCode, "done": exitCode, "poison": exitCode,
				"nonsense": "every exit code has a meaning",
				"late":     start, "broken": start,
			},
		},
		{name: "long-lived", unit: longLivedUnit, isKept: true, tellsAttempt: true, late: deadline},
		{
			name: "webhook", unit: webhookUnit, prepare: startReceiver, tellsAttempt: true, late: deadline,
			cannot: map[string]string{
				"deadly": away, "beside": away,
				"orphan": "the host does not start it",
			},
		},
		{
			name: "function", unit: functionUnit, prepare: writeSuiteApp, isKept: true, late: "no answer within 3s",
			cannot: map[string]string{"items": status, "done": status, "poison": status},
		},
	}
}

func programUnit(c *suiteCell) string {
	return fmt.Sprintf("{program: [suitehandler, program, %q], %s, %s, %s}", c.dir, c.own(), c.shared(), c.patience())
}

func longLivedUnit(c *suiteCell) string {
	return fmt.Sprintf("{program: [suitehandler, long-lived, %q], long-lived: true, %s, %s, %s}", c.dir, c.own(), c.shared(),
		c.patience())
}

func webhookUnit(c *suiteCell) string {
	return fmt.Sprintf("{webhook: %q, %s, %s}", "http://"+c.receiver.address+"/orders", c.own(), c.shared())
}

// startReceiver starts a receiver of requests, which is started again when it has died, as a supervisor would do.
func startReceiver(c *suiteCell) {
	c.Helper()
	if c.receiver.address != "" {
		return
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.Fatal(err)
	}
	c.receiver.address = free.Addr().String()
	free.Close()
	c.receiver.keep(func() *exec.Cmd { return exec.Command("suitehandler", "webhook", c.dir, c.receiver.address) })
	if c.startsBadly {
		return
	}
	c.await("the receiver listens", func() bool {
		conn, err := net.Dial("tcp", c.receiver.address)
		if err == nil {
			_ = conn.Close() // it has shown what it should
		}
		return err == nil
	})
}

func functionUnit(c *suiteCell) string {
	return fmt.Sprintf("{functions: %q, %s, %s}", filepath.Join(c.dir, "app"), c.shared(), c.patience())
}

// writeSuiteApp writes an Azure Functions app, whose files have the settings that the file of the host has for others.
func writeSuiteApp(c *suiteCell) {
	c.Helper()
	program, err := exec.LookPath("suitehandler")
	if err != nil {
		c.Fatal(err)
	}
	deadline := cmp.Or(c.deadline, time.Minute)
	trigger := map[string]any{
		"type": "cosmosDBTrigger", "direction": "in", "name": "orders", "databaseName": filepath.Base(c.base),
		"containerName": "orders", "connection": "Suite", "leaseContainerPrefix": suiteUnit, "startFromBeginning": true,
		"createLeaseContainerIfNotExists": true, "feedPollDelay": 100, "leaseAcquireInterval": 300,
		"leaseRenewInterval": 400, "leaseExpirationInterval": 4000,
	}
	if c.batchSize > 0 {
		trigger["maxItemsPerInvocation"] = c.batchSize
	}
	connection := fmt.Sprintf("AccountEndpoint=%s/;AccountKey=%s;", c.endpoint, cosmosrest.EmulatorKey)
	for file, value := range map[string]any{
		"host.json": map[string]any{
			"version": "2.0", "functionTimeout": time.Time{}.Add(deadline).Format(time.TimeOnly),
			"customHandler": map[string]any{"description": map[string]any{
				"defaultExecutablePath": program, "arguments": []string{"function", c.dir},
			}},
		},
		"local.settings.json": map[string]any{"Values": map[string]string{"Suite": connection}},
		"Mail/function.json":  map[string]any{"bindings": []any{trigger}},
	} {
		text, err := json.Marshal(value)
		if err != nil {
			c.Fatal(err)
		}
		path := filepath.Join(c.dir, "app", file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			c.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			c.Fatal(err)
		}
	}
}

// suiteReceiver is a handler that the host does not start. Somebody else starts it again when it has died.
type suiteReceiver struct {
	address string

	mu      sync.Mutex
	process *exec.Cmd
	over    bool
	done    chan struct{}
}

// supervisorPause is between the end of a receiver and its next start.
const supervisorPause = 50 * time.Millisecond

// keep keeps a process running until end is called.
func (r *suiteReceiver) keep(newCommand func() *exec.Cmd) {
	r.done = make(chan struct{})
	go func() {
		defer close(r.done)
		for {
			cmd := newCommand()
			r.mu.Lock()
			if r.over {
				r.mu.Unlock()
				return
			}
			err := cmd.Start()
			r.process = cmd
			r.mu.Unlock()
			if err != nil {
				return // the cell says that nothing is handled
			}
			_ = cmd.Wait() // it dies as often as the cell wants
			<-time.After(supervisorPause)
		}
	}()
}

// end ends the process, and starts no other.
func (r *suiteReceiver) end() {
	if r.done == nil {
		return
	}
	r.mu.Lock()
	r.over = true
	if r.process != nil {
		_ = r.process.Process.Kill() // it may have ended
	}
	r.mu.Unlock()
	<-r.done
}
