//go:build unix

package function_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/function"
)

// If a program ends with several invocations in hand, none of them counts an attempt. They come again one at a time, so
// that only the one that ends the program is blamed.
func TestOfSeveralInvocationsOnlyTheBadOneIsBlamed(t *testing.T) {
	h, log := start(t, appOf(t, "good"), function.HostOptions{})
	f := h.Handler(seen(), nil)
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- f.Handle(t.Context(), batch("a", `{"do":"say","text":"first"}`, `{"do":"hang"}`)) }()
	log.await(t, "first")
	go func() { second <- f.Handle(t.Context(), batch("b", `{"do":"exit","code":9}`)) }()
	for _, err := range []error{<-first, <-second} {
		if !isOutage(err) || !strings.Contains(err.Error(), "exit status 9 (with 2 invocations in hand; they come") {
			t.Errorf("got %v, want a failure that counts no attempt", err)
		}
	}
	// Now they come one at a time: the bad one waits for the other.
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		first <- f.Handle(ctx, batch("a", `{"do":"say","text":"for the second time"}`, `{"do":"wait"}`))
	}()
	log.await(t, "for the second time")
	short, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer end()
	err := f.Handle(short, batch("b", `{"do":"exit","code":9}`))
	if !isOutage(err) || !strings.HasPrefix(err.Error(), "wait for the batch before") {
		t.Errorf("beside another batch, that of b ends with %v", err)
	}
	cancel(feed.ErrLeaseLost)
	if err := <-first; !errors.Is(err, feed.ErrLeaseLost) {
		t.Errorf("the batch of a ends with %v", err)
	}
	err = f.Handle(t.Context(), batch("b", `{"do":"exit","code":9}`))
	if err == nil || isOutage(err) || !strings.Contains(err.Error(), "exit status 9") {
		t.Errorf("the batch of b ends with %v, want a failure that counts", err)
	}
}

// A program that cannot be started, ends at once or never answers is an outage, with the reason.
func TestAProgramThatDoesNotStartIsAnOutage(t *testing.T) {
	for kind, want := range map[string]string{
		"exits": "has ended: exit status 7: no such mailbox",
		"mute":  ", the port of FUNCTIONS_CUSTOMHANDLER_PORT, within 200ms (initializationTimeout)",
	} {
		t.Run(kind, func(t *testing.T) {
			app := appOf(t, kind)
			if kind == "mute" {
				app.Program.Start = 200 * time.Millisecond
			}
			h, log := start(t, app, function.HostOptions{})
			err := h.Handler(seen(), nil).Handle(t.Context(), batch("-FF", `{}`))
			if !isOutage(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an outage with %q", err, want)
			}
			log.await(t, "in=200ms") // the second pause is longer
		})
	}
}

// A program that takes its time to start is waited for, and the log says so.
func TestASlowStartIsWaitedFor(t *testing.T) {
	app := appOf(t, "good")
	program := app.Program.Executable
	gate := filepath.Join(app.Dir, "gate")
	script := "#!/bin/sh\nread line <gate && exec " + program + "\n"
	if err := os.WriteFile(filepath.Join(app.Dir, "slow"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "mkfifo", gate).CombinedOutput(); err != nil {
		t.Skipf("there is no mkfifo: %s", out)
	}
	app.Program.Executable = "slow" // a file of the app
	h, log := start(t, app, function.HostOptions{Patience: time.Millisecond})
	outcome := make(chan error, 1)
	go func() { outcome <- h.Handler(seen(), nil).Handle(t.Context(), batch("-FF", `{}`)) }()
	log.await(t, "the program does not answer yet")
	if strings.Contains(log.String(), "the program runs") {
		t.Errorf("the program runs before its start:\n%s", log)
	}
	if err := os.WriteFile(gate, []byte("go\n"), 0); err != nil { // waits for the reader
		t.Fatal(err)
	}
	if err := <-outcome; err != nil {
		t.Error(err)
	}
}

// An invocation that takes too long has failed, and the program is ended and started again. The invocations of others
// that are not done within the grace are not at fault, and a new one goes to the next program.
func TestALateInvocationIsBlamedAlone(t *testing.T) {
	app := appOf(t, "deaf")
	app.Timeout = time.Second
	h, log := start(t, app, function.HostOptions{Grace: 100 * time.Millisecond})
	f := h.Handler(seen(), nil)
	late, other := make(chan error, 1), make(chan error, 1)
	go func() { late <- f.Handle(t.Context(), batch("a", `{"do":"hang"}`)) }()
	err := <-late
	if err == nil || isOutage(err) || !strings.Contains(err.Error(), "no answer within 1s (functionTimeout)") {
		t.Errorf("the late invocation ends with %v", err)
	}
	go func() { late <- f.Handle(t.Context(), batch("a", `{"do":"say","text":"second"}`, `{"do":"hang"}`)) }()
	log.await(t, "second")
	for begun := time.Now(); time.Since(begun) < app.Timeout/2; { // the next one is late much later
		if err := f.Handle(t.Context(), batch("c", `{}`)); err != nil {
			t.Fatal(err)
		}
	}
	go func() { other <- f.Handle(t.Context(), batch("b", `{"do":"say","text":"third"}`, `{"do":"hang"}`)) }()
	log.await(t, "third")
	if err := <-other; !isOutage(err) || !strings.Contains(err.Error(), "(functionTimeout) to an invocation of lease") {
		t.Errorf("the other invocation ends with %v", err)
	}
	if err := <-late; err == nil || isOutage(err) {
		t.Errorf("the late invocation ends with %v", err)
	}
	if err := f.Handle(t.Context(), batch("b", `{}`)); err != nil {
		t.Error(err)
	}
}

// A program that has closed its connection, and answers others, has failed on the batch; it is not started again.
func TestAProgramThatClosesAConnectionGoesOn(t *testing.T) {
	h, log := start(t, appOf(t, "good"), function.HostOptions{})
	f := h.Handler(seen(), nil)
	if err := f.Handle(t.Context(), batch("-FF", `{"do":"panic"}`)); err == nil || isOutage(err) {
		t.Errorf("got %v, want a failure that counts", err)
	}
	if err := f.Handle(t.Context(), batch("-FF", `{}`)); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "the program runs"); n != 1 {
		t.Errorf("the program was started %d times", n)
	}
}

// A program that does not listen any more is started again.
func TestAProgramThatDoesNotListenIsStartedAgain(t *testing.T) {
	h, log := start(t, appOf(t, "good"), function.HostOptions{})
	f := h.Handler(seen(), nil)
	if err := f.Handle(t.Context(), batch("-FF", `{"do":"deafen"}`)); err != nil {
		t.Fatal(err)
	}
	if err := f.Handle(t.Context(), batch("-FF", `{}`)); !isOutage(err) {
		t.Errorf("got %v, want a failure that counts no attempt", err)
	}
	if err := f.Handle(t.Context(), batch("-FF", `{}`)); err != nil {
		t.Error(err)
	}
	log.await(t, "it does not listen any more")
}

// A program ends with SIGTERM, and with SIGKILL if it is deaf. What it has started ends with it.
func TestAProgramIsAskedToEndBeforeItIsKilled(t *testing.T) {
	h, log := start(t, appOf(t, "gentle"), function.HostOptions{Grace: time.Minute})
	log.await(t, "the program runs")
	h.Close()
	log.await(t, "SIGTERM has come")
	h, log = start(t, appOf(t, "deaf"), function.HostOptions{Grace: 50 * time.Millisecond})
	log.await(t, "the program runs")
	h.Close()
	if err := h.Handler(seen(), nil).Handle(t.Context(), batch("-FF", `{}`)); !errors.Is(err, feed.ErrStopped) {
		t.Errorf("after Close: %v", err)
	}
}

// What a program has started does not go on beside the next program.
func TestAProgramThatEndsLeavesNothingBehind(t *testing.T) {
	h, _ := start(t, appOf(t, "good"), function.HostOptions{})
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { // until the last process that has the pipe has ended
		_, err := os.ReadFile(pipe)
		ended <- err
	}()
	err := h.Handler(seen(), nil).Handle(t.Context(), batch("-FF", `{"do":"leave","text":"`+pipe+`"}`,
		`{"do":"exit","code":9}`))
	if err == nil || !strings.Contains(err.Error(), "exit status 9") {
		t.Fatalf("the batch that ends the program ends with %v", err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("a child process of the program goes on")
	}
}

// Kill ends the program with its invocations, also if it is between two lives.
func TestAKilledHostStartsNothing(t *testing.T) {
	h, log := start(t, appOf(t, "deaf"), function.HostOptions{Grace: time.Minute})
	f := h.Handler(seen(), nil)
	outcome := make(chan error, 1)
	go func() { outcome <- f.Handle(t.Context(), batch("-FF", `{"do":"say","text":"begun"}`, `{"do":"hang"}`)) }()
	log.await(t, "begun")
	f.Kill()
	if err := <-outcome; !isOutage(err) {
		t.Errorf("got %v, want a failure that counts no attempt", err)
	}
	if err := f.Handle(t.Context(), batch("-FF", `{}`)); !errors.Is(err, feed.ErrStopped) {
		t.Errorf("after Kill: %v", err)
	}
	h.Close()
	if n := strings.Count(log.String(), "the program runs"); n != 1 {
		t.Errorf("the program was started %d times", n)
	}
}
