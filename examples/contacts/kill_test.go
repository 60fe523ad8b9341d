package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const killData = "CONTACTS_DATA" // the directory of the process that is killed

func TestMain(m *testing.M) {
	data := os.Getenv(killData)
	if data == "" {
		os.Exit(m.Run())
	}
	o, err := parseOptions([]string{"--listen", "127.0.0.1:0", "-o", "json", "--data", data, "--consumer", "test"})
	if err == nil {
		err = o.runSystem(context.Background(), os.Stdout, os.Stderr)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// startProcess starts the example in a process of its own.
func startProcess(t *testing.T, data string) (p *program, kill func()) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), killData+"="+data)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(stderr)
	first, err := said.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(io.Discard, said)
	}()
	p = &program{
		TB: t, lines: json.NewDecoder(stdout),
		url: strings.TrimSuffix(strings.TrimSpace(strings.TrimPrefix(first, "contacts")), "/"),
	}
	return p, func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		<-read
		if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
			t.Error(err)
		}
	}
}

// A process that was killed has left leases behind, which nobody else may take before they expire.
func TestAKilledProcessGoesOnSoon(t *testing.T) {
	data := t.TempDir()
	p, kill := startProcess(t, data)
	first := p.send("POST", root, ada)
	if got := p.next(1)[0]; got != first+" ContactCreatedEvent" {
		t.Errorf("got %s", got)
	}
	kill()
	p, kill = startProcess(t, data)
	defer kill()
	begun := time.Now()
	second := p.send("POST", root, ada)
	got := p.next(1)[0]
	if got == first+" ContactCreatedEvent" { // its acknowledgement may have been on its way
		got = p.next(1)[0]
	}
	if got != second+" ContactCreatedEvent" {
		t.Errorf("got %s, want the event of the second contact", got)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("the event came after %v, want about 4 s", took)
	} else {
		t.Log(took)
	}
}
