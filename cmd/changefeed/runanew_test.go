package main

import (
	"bufio"
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
)

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
				"--name", "mailer", "--acquire", "200ms", "--renew", "200ms", "--expiration", "1s", "--drain", "1s", "--grace", "500ms",
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
			if !ok || exit.ExitCode() != exitFailed || !strings.Contains(last, want) {
				t.Errorf("got %v and\n%s\nwant exit code %d and %q in the last line", exit, said.String(), exitFailed, want)
			}
		})
	}
}
