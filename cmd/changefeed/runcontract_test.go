//go:build unix

package main

import (
	"cmp"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/contract"
	"github.com/millrace/changefeed/trigger/contract/contracttest"
	"github.com/millrace/changefeed/trigger/program"
	"github.com/millrace/changefeed/trigger/webhook"
)

// child is a processor whose program is this process.
type child struct {
	*exec.Cmd

	in   io.ReadCloser  // from the processor
	out  io.WriteCloser // to the processor
	said strings.Builder
}

// startChild starts a processor with --stdio.
func startChild(t *testing.T, orders string, flags ...string) *child {
	t.Helper()
	c := &child{Cmd: exec.Command("changefeed", append([]string{
		"run", "--source", orders, "--name", "mailer", "--create-leases", "--from", "beginning", "--stdio",
	}, flags...)...)}
	c.Stderr = &c.said
	var errs [3]error
	c.in, errs[0] = c.StdoutPipe()
	c.out, errs[1] = c.StdinPipe()
	errs[2] = c.Start()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	return c
}

// A parent process is the program of its processor, and confirms by hand.
func TestAParentIsTheProgramOfItsProcessor(t *testing.T) {
	c := startChild(t, importOrders(t), "--once", "--manual")
	var mu sync.Mutex
	var got []string
	err := contract.Serve(t.Context(), c.in, c.out, feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
		for _, change := range b.Changes {
			mu.Lock()
			got = append(got, change.ID)
			mu.Unlock()
		}
		return b.Checkpoint(ctx)
	}), contract.ProgramOptions{})
	ended := c.Wait()
	if slices.Sort(got); !slices.Equal(got, []string{"1", "2", "3"}) || err != nil || ended != nil {
		t.Errorf("got %v; Serve: %v; the processor: %v, %s", got, err, ended, &c.said)
	}
}

// The processor ends in order when its program says stop, and when its program has died: the leases are free at once.
func TestAProcessorEndsWithItsParent(t *testing.T) {
	for name, end := range map[string]func(*child){
		"stop": func(c *child) { _, _ = io.WriteString(c.out, `{"type":"stop"}`+"\n") },
		"died": func(c *child) { c.out.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			orders := importOrders(t)
			c := startChild(t, orders, "--drain", "1s", "--grace", "500ms")
			inHand := make(chan struct{})
			served := make(chan error, 1)
			handler := feed.HandlerFunc(func(ctx context.Context, _ *feed.Batch) error {
				close(inHand)
				<-ctx.Done()
				return context.Cause(ctx)
			})
			go func() { served <- contract.Serve(t.Context(), c.in, c.out, handler, contract.ProgramOptions{}) }()
			select {
			case <-inHand:
			case err := <-served:
				t.Fatal(err, &c.said)
			}
			end(c)
			if name == "died" {
				c.in.Close()
			}
			if err := c.Wait(); err != nil {
				t.Errorf("the processor ends with %v: %s", err, &c.said)
			}
			<-served
			listed := command(t, "leases", strings.Replace(orders, "#orders", "#leases", 1), "-o", "json")
			if !strings.Contains(listed, `"owner":null`) {
				t.Errorf("the lease is not free:\n%s", listed)
			}
		})
	}
}

// A parent that breaks the contract ends its processor with an error, which says how. One that says stop ends it in
// order. Both may come while the processor opens its stores.
func TestWhatAParentSaysFirstEndsTheProcessor(t *testing.T) {
	for message, want := range map[string]string{
		`{"type":"handled"}`: `the program has broken the contract: type is "handled": want hello, done`,
		`{"type":"stop"}`:    "",
	} {
		c := startChild(t, importOrders(t))
		if _, err := io.WriteString(c.out, `{"type":"hello","version":1}`+"\n"+message+"\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c.in); err != nil {
			t.Error(err)
		}
		if err := c.Wait(); (err == nil) != (want == "") || !strings.Contains(c.said.String(), want) {
			t.Errorf("after %s the processor ends with %v: %s", message, err, &c.said)
		}
	}
}

// The flags reach the program and the requests.
func TestFlagsReachTheHandler(t *testing.T) {
	var o runOptions
	cmd := &cobra.Command{}
	o.register(cmd)
	err := cmd.ParseFlags(strings.Fields("--name mailer --manual --timeout 8s --drain 7s --grace 3s --expiration 6s " +
		"--post lines --meta"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := o.workerOptions("one"), (program.WorkerOptions{
		Unit: "mailer", Instance: "one", Manual: true, Timeout: 8 * time.Second, Drain: 7 * time.Second,
		Grace: 3 * time.Second, Expiration: 6 * time.Second,
	}); !reflect.DeepEqual(got, want) {
		t.Errorf("a program has %+v, want %+v", got, want)
	}
	if got, want := o.webhookOptions(), (webhook.Options{
		Form: webhook.FormLines, Meta: true, Timeout: 16 * time.Second,
	}); !reflect.DeepEqual(got, want) {
		t.Errorf("a URL has %+v, want %+v", got, want)
	}
}

// The processor ends a request that takes too long, and divides its batch. With a limit of the same length, the sender
// would now and then be faster, and the whole batch would come again.
func TestTheLimitOfARequestIsThatOfTheProcessor(t *testing.T) {
	for _, timeout := range []time.Duration{time.Second, time.Hour, 0} { // 0 is the default of the processor
		var o runOptions
		o.Options.HandlerTimeout = timeout
		if got := o.webhookOptions().Timeout; got < 2*cmp.Or(timeout, 10*time.Minute) {
			t.Errorf("--timeout %v: a request has %v", timeout, got)
		}
	}
}

// A case that does not fit a program is no passed one.
func TestASkippedCaseIsNotOk(t *testing.T) {
	c := caseOf(contracttest.Result{Name: "several at once", Skipped: "one batch at once"})
	if c.Verdict != "skip" || c.Reason == nil || *c.Reason != "one batch at once" {
		t.Errorf("got %+v", c)
	}
}

// The program in a shell on the page about the contract runs as it is written there.
func TestTheShellProgramOfThePageRuns(t *testing.T) {
	for _, needed := range []string{"bash", "jq"} {
		if _, err := exec.LookPath(needed); err != nil {
			t.Skipf("the program needs %s, which is not here", needed)
		}
	}
	page, err := os.ReadFile("../../docs/program.md")
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, block := range shellBlock.FindAllStringSubmatch(string(page), -1) {
		if strings.HasPrefix(block[1], "#!/bin/bash") {
			text = block[1]
		}
	}
	dir := t.TempDir()
	file, orders := filepath.Join(dir, "ids.sh"), "docstore:"+filepath.Join(dir, "data")+"#orders"
	documents := `{"id":"1","city":"Oslo"}` + "\n" + `{"id":"2"}` + "\n" + `{"id":"3","city":"Rome"}` + "\n"
	for name, text := range map[string]string{file: text, filepath.Join(dir, "in"): documents} {
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	command(t, "import", filepath.Join(dir, "in"), orders, "--pk", "/id")
	out, said, err := call(t, "run", "--source", orders, "--name", "ids", "--create-leases", "--once", "--long-lived",
		"--max-attempts", "1", "--dead-letters", filepath.Join(dir, "letters"), "--", file)
	ids := strings.Fields(out)
	slices.Sort(ids)
	if err != nil || !slices.Equal(slices.Compact(ids), []string{"1", "3"}) ||
		!strings.Contains(said, "a document has no city") {
		t.Errorf("the program prints %q and says %s, %v: want 1 and 3, and 2 parked", out, said, err)
	}
}

// With --until-stdin-closes a command ends in order when its parent has closed the pipe.
func TestACommandEndsWithItsStandardInput(t *testing.T) {
	orders := importOrders(t)
	for name, args := range map[string][]string{
		"serve": {"serve", "--http", "--listen", "127.0.0.1:0"},
		"run":   {"run", "--source", orders, "--name", "one", "--create-leases", "--", "cat"},
		"relay": {"relay", "--source", orders, "--name", "two", "--create-leases", "--to", "embedded:nats"},
	} {
		args = append([]string{args[0], "--until-stdin-closes"}, args[1:]...)
		early := exec.Command("changefeed", args...) // its input is empty
		early.Dir = t.TempDir()
		if said, err := early.CombinedOutput(); err != nil {
			t.Errorf("%s, whose parent has gone during the start, ends with %v: %s", name, err, said)
		}
		cmd := exec.Command("changefeed", args...)
		cmd.Dir = t.TempDir()
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(in, "not the end\n") // fails only if the command has ended
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case err := <-ended:
			t.Errorf("%s ends with %v beside its parent", name, err)
			continue
		case <-time.After(300 * time.Millisecond):
		}
		in.Close()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("%s ends with %v", name, err)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s goes on without its parent", name)
			_ = cmd.Process.Signal(syscall.SIGKILL)
			<-ended
		}
	}
}
