package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
)

// The positions of the unit are lost with the lease container. Somebody must decide where it goes on, and the next
// start says what it passes over.
func TestRunEndsWhenTheLeaseContainerIsDeleted(t *testing.T) {
	server := cosmostest.NewTestServer(t)
	orders, err := server.DB.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "orders", Paths: []string{"/pk"}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 7 {
		if _, err := orders.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"%d","pk":"a"}`, i)); err != nil {
			t.Fatal(err)
		}
	}
	const passes = `level=WARN msg="the unit is new and passes over the changes before its start`
	said, code := runHasty(t, server.URL, func(*exec.Cmd) {
		if err := server.DB.DeleteContainer(t.Context(), "leases"); err != nil {
			t.Error(err)
		}
	})
	for _, want := range []string{
		passes, "start=now leases=1 passed=7", `changefeed run: unit "mailer" stands still: `,
		"the lease container is missing", "; restore " + server.URL + "/default/leases, or start again",
	} {
		if code != exitMissing || !strings.Contains(said, want) {
			t.Errorf("exit code %d, want %d, and\n%s\nwant %q", code, exitMissing, said, want)
		}
	}
	said, code = runHasty(t, server.URL, func(again *exec.Cmd) { _ = again.Process.Signal(os.Interrupt) })
	if code != 0 || !strings.Contains(said, passes) || !strings.Contains(said, "passed=7") {
		t.Errorf("exit code %d, want 0, and\n%s\nwant %q", code, said, passes)
	}
}

// A container that is deleted, and not made anew, is not waited for until somebody notices.
func TestRunEndsWhenItsContainerIsDeleted(t *testing.T) {
	server := cosmostest.NewTestServer(t)
	if _, err := server.DB.CreateContainer(t.Context(),
		docstore.ContainerSpec{ID: "orders", Paths: []string{"/pk"}}); err != nil {
		t.Fatal(err)
	}
	said, code := runHasty(t, server.URL, func(*exec.Cmd) {
		if err := server.DB.DeleteContainer(t.Context(), "orders"); err != nil {
			t.Error(err)
		}
	})
	lines := strings.Split(strings.TrimSpace(said), "\n")
	last := lines[len(lines)-1]
	const want = `changefeed run: unit "mailer" has ended: the monitored container is gone: `
	if code != exitMissing || !strings.HasPrefix(last, want) || !strings.Contains(last, "start again with --from") {
		t.Errorf("got exit code %d and %q, want %d and %q", code, last, exitMissing, want)
	}
}

// runHasty starts an instance, calls acquired at its first lease, and returns its standard error and exit code. A hasty
// instance may lose its lease on a busy machine, and acquire the lease again.
func runHasty(t *testing.T, url string, acquired func(*exec.Cmd)) (said string, code int) {
	t.Helper()
	run := hasty(t, url)
	stderr, err := run.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	hasLease := false
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		said += lines.Text() + "\n"
		if !hasLease && strings.Contains(lines.Text(), "lease acquired") {
			hasLease = true
			acquired(run)
		}
	}
	_ = run.Wait() // its exit code says how it ended
	return said, run.ProcessState.ExitCode()
}

// TestRunEndsWhenAContainerIsMadeAnew deletes a container under a processor and makes
// another of its name. The processor cannot go on, and somebody should start it again.
func TestRunEndsWhenAContainerIsMadeAnew(t *testing.T) {
	for _, name := range []string{"orders", "leases"} {
		t.Run(name, func(t *testing.T) {
			server := cosmostest.NewTestServer(t)
			specs := map[string]docstore.ContainerSpec{
				"orders": {ID: "orders", Paths: []string{"/pk"}},
				"leases": docstore.LeaseSpec("leases"),
			}
			for _, spec := range specs {
				if _, err := server.DB.CreateContainer(t.Context(), spec); err != nil {
					t.Fatal(err)
				}
			}
			run := exec.CommandContext(t.Context(), "changefeed", "run", "--source", server.URL+"/default/orders",
				"--name", "mailer", "--acquire", "200ms", "--renew", "200ms", "--expiration", "1s", "--drain", "1s",
				"--grace", "500ms",
				"-v", "--", "cat")
			stderr, err := run.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := run.Start(); err != nil {
				t.Fatal(err)
			}
			var said bytes.Buffer
			for lines := bufio.NewScanner(stderr); lines.Scan(); {
				said.WriteString(lines.Text() + "\n")
				if !strings.Contains(lines.Text(), "lease acquired") {
					continue
				}
				if err := server.DB.DeleteContainer(t.Context(), name); err != nil {
					t.Error(err)
				}
				if _, err := server.DB.CreateContainer(t.Context(), specs[name]); err != nil {
					t.Error(err)
				}
			}
			exit, ok := errors.AsType[*exec.ExitError](run.Wait())
			const want = "made anew since it was opened: start again, and decide where from"
			last := said.String()[strings.LastIndex(said.String(), "changefeed run: ")+1:]
			if !ok || exit.ExitCode() != exitMissing || !strings.Contains(last, want) {
				t.Errorf("got %v and\n%s\nwant exit code %d and %q in the last line", exit, said.String(), exitMissing,
					want)
			}
		})
	}
}

// hasty is an instance of the unit mailer whose intervals are short.
func hasty(t *testing.T, url string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), "changefeed", "run", "--source", url+"/default/orders", "--create-leases",
		"--name", "mailer", "--acquire", "200ms", "--renew", "200ms", "--expiration", "1s", "--drain", "1s", "--grace",
		"500ms", "--from", "now", "-v", "--", "cat")
}
