//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
)

// aHost is the command host in a process of its own.
type aHost struct {
	*testing.T
	file   string
	source string
	cmd    *exec.Cmd
	output *bufio.Scanner // of its programs
	said   *bufio.Scanner // its log and messages
	ends   bool           // it has been asked to end
	flags  []string
}

// startHost starts a host whose units have a source of three orders.
func startHost(t *testing.T, units string, flags ...string) *aHost {
	t.Helper()
	h := &aHost{T: t, flags: flags, file: filepath.Join(t.TempDir(), "host.yaml"), source: importOrders(t)}
	h.write(units)
	h.launch()
	return h
}

// launch starts the process.
func (h *aHost) launch() {
	h.Helper()
	h.cmd = exec.Command("changefeed", append([]string{"host", h.file, "-v"}, h.flags...)...)
	output, err := h.cmd.StdoutPipe()
	if err != nil {
		h.Fatal(err)
	}
	said, err := h.cmd.StderrPipe()
	if err != nil {
		h.Fatal(err)
	}
	h.output, h.said = bufio.NewScanner(output), bufio.NewScanner(said)
	if err := startHeeding(h.cmd, syscall.SIGHUP); err != nil {
		h.Fatal(err)
	}
	limit := time.AfterFunc(3*time.Minute, func() { _ = h.cmd.Process.Kill() }) // what is awaited does not come
	h.Cleanup(func() { limit.Stop(); _ = h.cmd.Process.Kill() })
}

// write writes the file of the host.
func (h *aHost) write(units string) {
	h.Helper()
	h.writeAfter(units, func() {})
}

// writeAfter writes the file of the host, and calls a function when the file is open.
func (h *aHost) writeAfter(units string, before func()) {
	h.Helper()
	f, err := os.OpenFile(h.file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		h.Fatal(err)
	}
	defer f.Close()
	before()
	text := fmt.Sprintf("defaults: {source: %q, create-leases: true, poll: 50ms}\nunits:\n%s", h.source, units)
	if _, err := f.WriteString(text); err != nil {
		h.Fatal(err)
	}
}

// await reads lines until one has all texts.
func (h *aHost) await(from *bufio.Scanner, texts ...string) string {
	h.Helper()
	for from.Scan() {
		found := true
		for _, text := range texts {
			found = found && strings.Contains(from.Text(), text)
		}
		if found {
			return from.Text()
		}
		if strings.Contains(from.Text(), "ending:") && !h.ends {
			h.Errorf("nobody has ended the host, which says %s", from.Text())
		}
	}
	h.Fatalf("the output ends without %q", texts)
	return ""
}

// awaitEach reads lines until each text was in one of them.
func (h *aHost) awaitEach(from *bufio.Scanner, texts ...string) {
	h.Helper()
	for len(texts) > 0 {
		if !from.Scan() {
			h.Fatalf("the output ends without %q", texts)
		}
		texts = slices.DeleteFunc(texts, func(text string) bool { return strings.Contains(from.Text(), text) })
	}
}

// signal sends a signal to the host.
func (h *aHost) signal(s syscall.Signal) {
	h.Helper()
	h.ends = h.ends || s != syscall.SIGHUP
	if err := h.cmd.Process.Signal(s); err != nil {
		h.Fatal(err)
	}
}

// A changed file is taken over at SIGHUP: a unit that stays goes on, a changed one drains and starts anew, a new one
// begins and one that is gone ends. A file with a mistake changes nothing.
func TestAHostTakesAChangedFileOver(t *testing.T) {
	t.Parallel()
	const stays = "  - {name: stays, program: [cat]}\n"
	h := startHost(t, stays+"  - {name: goes, program: [cat]}\n  - {name: changes, program: [cat]}\n")
	for range 3 {
		h.await(h.said, "lease acquired")
	}
	h.write(stays + "  - {name: changes, program: [cat], weight: many}\n")
	h.signal(syscall.SIGHUP)
	h.await(h.said, "file is not taken over", "weight is many: want a whole number")
	lost := strings.Replace(h.source, "#orders", "#lost", 1)
	h.write(stays + "  - {name: changes, program: [cat], source: \"" + lost + "\"}\n")
	h.signal(syscall.SIGHUP)
	if line := h.await(h.said, "file is "); !strings.Contains(line, "#lost: there is no such container") {
		t.Fatalf("with a container that is missing: %s", line)
	}
	h.write(stays + "  - {name: changes, program: [cat], weight: 2}\n  - {name: comes, program: [sh, -c, 'echo came']}\n")
	h.signal(syscall.SIGHUP)
	h.await(h.said, "file is taken over")
	story := map[string]string{}
	for story["comes"] == "" || story["changes"] != "released acquired " {
		fields := strings.Fields(h.await(h.said, `msg="lease `))
		name := strings.TrimPrefix(fields[4], "name=")
		story[name] += strings.Trim(fields[3], `"`) + " "
	}
	if story["stays"] != "" || story["goes"] != "released " || story["comes"] != "acquired " {
		t.Errorf("the leases: %q", story)
	}
	h.await(h.output, "came")
	h.signal(syscall.SIGTERM)
	for h.said.Scan() { // until its end
	}
	if err := h.cmd.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

// A SIGHUP during the start ends nothing: the file is read again after the start. The file is a pipe, at which the host
// waits.
func TestAHostThatStartsOutlivesSIGHUP(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "host.yaml")
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Skipf("the system makes no named pipe: %v", err)
	}
	h := &aHost{T: t, file: file, source: importOrders(t)}
	h.launch()
	h.writeAfter("  - {name: a, program: [cat]}\n", func() { h.signal(syscall.SIGHUP) })
	h.await(h.said, "lease acquired")
	h.write("  - {name: a, program: [cat]}\n")
	h.await(h.said, "file is taken over")
	h.signal(syscall.SIGTERM)
	for h.said.Scan() { // until its end
	}
	if err := h.cmd.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

// A unit that fails is started again, while the others go on.
func TestAHostStartsAFailedUnitAgain(t *testing.T) {
	t.Parallel()
	h := startHost(t, "  - {name: good, program: [cat]}\n  - {name: bad, program: [cat], dead-letters: \"/nowhere/l\", "+
		"max-attempts: 2}\n")
	h.await(h.said, "unit has failed", "unit=bad", "pause=1s", "/nowhere/l")
	h.await(h.said, "unit has failed", "unit=bad", "pause=2s")
	h.signal(syscall.SIGTERM)
	line := h.await(h.said, "lease released")
	if !strings.Contains(line, "name=good") {
		t.Errorf("at the end: %s", line)
	}
}

// The password of a broker is in a variable, and stays out of the log.
func TestTheLogOfAHostHasNoPassword(t *testing.T) {
	t.Setenv("TEST_PASSWORD", "geheim")
	h := startHost(t, "  - {name: a, relay: 'nats://u:${TEST_PASSWORD}@127.0.0.1:1'}\n")
	if line := h.await(h.said, "unit has failed", "nats://"); strings.Contains(line, "geheim") {
		t.Errorf("got %s", line)
	}
}

// Attributes of a log line, errors and texts, show no password. A message may be a line of the user's program.
func TestAttributesOfTheLogHaveNoPassword(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{ReplaceAttr: withoutSecrets}))
	const address = "nats://u:geheim@127.0.0.1:1"
	log.Info("a line", "error", errors.New(address+" does not answer"), "at", address)
	if text := said.String(); strings.Contains(text, "geheim") || strings.Count(text, "127.0.0.1:1") != 2 {
		t.Error(text)
	}
	said.Reset()
	log.Info(address)
	if !strings.Contains(said.String(), address) {
		t.Errorf("the message has changed: %s", &said)
	}
}

// A host whose output nobody reads any more ends, and not with success: changes may be left.
func TestAHostEndsWithItsReader(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "host.yaml")
	unit := fmt.Sprintf("units: [{name: a, source: %q, program: [cat], create-leases: true}]", importOrders(t))
	if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("changefeed", "host", file)
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	if !bufio.NewScanner(output).Scan() {
		t.Error("the program prints nothing")
	}
	if err := output.Close(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	code := cmd.ProcessState.ExitCode()
	if code != 1 || !strings.Contains(said.String(), "nobody reads the standard output") {
		t.Errorf("exit code %d: %s", code, &said)
	}
}

// A second interrupt ends the programs of all units at once.
func TestASecondInterruptEndsAllUnits(t *testing.T) {
	t.Parallel()
	const hangs = `[sh, -c, "trap '' TERM; echo begun; cat >/dev/null; while :; do sleep 1; done"]`
	h := startHost(t, "  - {name: a, drain: 10m, program: "+hangs+"}\n  - {name: b, drain: 10m, program: "+hangs+"}\n")
	h.await(h.output, "begun")
	h.await(h.output, "begun")
	began := time.Now()
	h.signal(syscall.SIGINT)
	h.await(h.said, "ending: the batch of -FF has 10m0s to finish")
	h.await(h.said, "ending: the batch of -FF has 10m0s to finish")
	h.signal(syscall.SIGINT)
	h.await(h.said, "ended at once")
	for h.output.Scan() { // until the programs have ended, which have the pipe
	}
	_ = h.cmd.Wait()
	if code := h.cmd.ProcessState.ExitCode(); code != exitInterrupted || time.Since(began) > time.Minute {
		t.Errorf("exit code %d after %v", code, time.Since(began))
	}
}

// A second interrupt ends a program that has no batch and ignores the end of its pipe, with the processes of its own.
func TestASecondInterruptEndsAnIdleProgram(t *testing.T) {
	t.Parallel()
	const idles = `[sh, -c, 'trap "" TERM; echo "{\"type\":\"hello\",\"version\":1}" >&4; ` +
		`cat <&3 >/dev/null; echo over; sleep 60; sleep 60']`
	h := startHost(t, "  - {name: a, from: now, drain: 20m, grace: 10m, long-lived: true, program: "+idles+"}\n")
	h.awaitEach(h.said, "the program runs", "lease acquired") // in either order
	h.signal(syscall.SIGINT)
	h.await(h.output, "over")
	began := time.Now()
	for h.signal(syscall.SIGINT); h.output.Scan(); { // until the processes have ended, which have the pipe
	}
	_ = h.cmd.Wait()
	if code := h.cmd.ProcessState.ExitCode(); code != exitInterrupted || time.Since(began) > 30*time.Second {
		t.Errorf("exit code %d after %v", code, time.Since(began))
	}
}

// Two units of one file may make the lease container and the container for dead letters at the same time.
func TestUnitsMakeTheirContainersTogether(t *testing.T) {
	t.Parallel()
	source := importOrders(t)
	letters := strings.Replace(source, "#orders", "#letters", 1)
	var units strings.Builder
	for i := range 8 {
		fmt.Fprintf(&units, "  - {name: u%d, program: [cat], once: true, create-leases: true, source: %q, "+
			"dead-letters: %q, max-attempts: 3}\n", i, source, letters)
	}
	file := filepath.Join(t.TempDir(), "host.yaml")
	if err := os.WriteFile(file, []byte("units:\n"+units.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("changefeed", "host", file, "-q").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	} else if strings.Contains(string(out), "failed") {
		t.Errorf("a unit had to start again: %s", out)
	}
}

// A unit of a host can be an Azure Functions app. A change of its files is taken over at SIGHUP, and the app drains.
func TestAHostRunsAnAppOfFunctions(t *testing.T) {
	t.Parallel()
	server, orders := serveOrders(t)
	put := func(id string) {
		body := fmt.Appendf(nil, `{"id":%q}`, id)
		if _, err := orders.Commit(t.Context(), feed.Key(id), []feed.Write{
			{Op: feed.WriteUpsert, ID: id, Body: body},
		}); err != nil {
			t.Fatal(err)
		}
	}
	handler, err := exec.LookPath("answer")
	if err != nil {
		t.Fatal(err)
	}
	app := filepath.Join(t.TempDir(), "app")
	write := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(app, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(app, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	trigger := func(more string) {
		write("Seen/function.json", `{"bindings":[{"type":"cosmosDBTrigger","name":"docs","direction":"in",
			"connection":"CosmosDB","databaseName":"shop","containerName":"orders","startFromBeginning":true,
			"feedPollDelay":50,"createLeaseContainerIfNotExists":true`+more+`}]}`)
	}
	write("host.json", fmt.Sprintf(`{"customHandler":{"description":{"defaultExecutablePath":%q}}}`, handler))
	write("local.settings.json", fmt.Sprintf(`{"Values":{"CosmosDB":%q}}`, server.ConnectionString()))
	trigger("")
	put("one")
	h := startHost(t, "  - {name: p, program: [cat]}\n  - functions: "+app+"\n")
	h.await(h.said, "unit is started", "unit=app")
	h.await(h.said, `Seen has \"one\"`)
	put("two")
	h.await(h.said, `Seen has \"two\"`)
	trigger(`,"maxItemsPerInvocation":7`)
	h.signal(syscall.SIGHUP)
	h.await(h.said, "unit ends", "unit=app")
	h.await(h.said, "unit is started", "unit=app")
	put("three")
	h.await(h.said, `Seen has \"three\"`)
	h.signal(syscall.SIGTERM)
	for h.said.Scan() {
		if strings.Contains(h.said.Text(), `\"one\"`) {
			t.Errorf("what was handled comes again: %s", h.said.Text())
		}
	}
	if err := h.cmd.Wait(); err != nil {
		t.Errorf("the host ends with %v", err)
	}
}
