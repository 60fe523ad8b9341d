//go:build unix

package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/feed"
)

// A running instance obeys: it delivers nothing of a pause, and everything again after a reset.
func TestARunningUnitIsSteered(t *testing.T) {
	server := cosmostest.NewTestServer(t)
	t.Setenv("COSMOS_KEY", server.Key)
	orders, leases := server.URL+"/shop/orders", server.URL+"/shop/leases"
	put := func(id string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), id+".ndjson")
		if err := os.WriteFile(file, []byte(`{"id":"`+id+`","city":"London"}`), 0o644); err != nil {
			t.Fatal(err)
		}
		command(t, "import", file, orders, "--pk", "/city", "-q")
	}
	put("1")
	ctx, stop := context.WithCancel(t.Context())
	out := &said{}
	log, ended := begin(ctx, out, "run", "--source", orders, "--name", "mailer", "--create-leases", "--poll", "100ms",
		"--acquire", "500ms", "--", "cat")
	await := func(documents int) {
		t.Helper()
		awaitText(t, out, `"city"`, documents)
	}
	await(1)
	steer := func(want string, args ...string) {
		t.Helper()
		args = append(append([]string{"leases"}, args...), "--name", "mailer")
		if got := command(t, args...); !strings.HasPrefix(got, want) {
			t.Errorf("%q: got %s, want %s", args, got, want)
		}
	}
	steer("paused lease -FF\n", "pause", leases, "--reason", "test")
	put("2")
	if table := command(t, "leases", leases); !strings.Contains(table, " paused ") {
		t.Errorf("the leases are\n%s", table)
	}
	if n := strings.Count(out.String(), `"city"`); n != 1 {
		t.Errorf("%d deliveries during the pause", n-1)
	}
	steer("resumed lease -FF\n", "resume", leases)
	await(2)
	steer("reset lease -FF from ", "reset", leases, "--to", "beginning", "--yes")
	await(4)
	stop()
	if err := <-ended; err != nil {
		t.Error(err, log)
	}
}

// A person sees which leases were reset before a failure, and a program sees which were not.
func TestStepsBeforeAFailureAreReported(t *testing.T) {
	half := feed.FullRange().Cut(2)
	steps := make([]admin.Step, len(half))
	for i, r := range half {
		steps[i] = admin.Step{
			Action: admin.ActionReset, Lease: feed.Lease{Token: r.String(), Range: r, Updated: time.Unix(1, 0)},
			To: feed.At(`"1"`), Done: i == 0,
		}
	}
	for form, want := range map[string][]string{
		"table": {"reset lease " + half[0].String()},
		"json":  {`"lease":"` + half[0].String(), `"lease":"` + half[1].String()},
	} {
		var out bytes.Buffer
		cmd := &cobra.Command{Use: "reset", RunE: func(*cobra.Command, []string) error { return nil }}
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"-o", form, "--name", "mailer"})
		var o steerOptions
		o.registerSteps(cmd)
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		o.report.Out = &out
		if err := o.writeSteps(steps, feed.ErrConflict); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != len(want) {
			t.Fatalf("%s: %q, want %d lines", form, lines, len(want))
		}
		for i, line := range lines {
			if !strings.Contains(line, want[i]) {
				t.Errorf("%s: line %d is %q, want %s", form, i, line, want[i])
			}
		}
	}
}

// A lease is called what the instance of somebody else calls it.
func TestAStepControlsNoTerminal(t *testing.T) {
	const bad = "a\n\x1b[2J\u009b5mb"
	var out bytes.Buffer
	o := steerOptions{report: &report.Report{Form: report.Table, Out: &out}}
	err := o.writeStep(admin.Step{
		Action: admin.ActionReset, Lease: feed.Lease{Token: bad, Position: feed.At(bad)}, To: feed.At(bad),
	})
	if got := out.String(); err != nil || strings.ContainsAny(got, "\x1b\u009b") || strings.Count(got, "\n") != 1 {
		t.Errorf("got %q, %v, want a line without control characters", got, err)
	}
}

// A server that takes connections and does not answer holds a command up no longer than --wait.
func TestWaitBoundsTheOpening(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	leases := "http://" + l.Addr().String() + "/shop/leases"
	_, _, err = call(t, "leases", "pause", leases, "--name", "mailer", "--wait", "200ms")
	if err == nil || !strings.Contains(err.Error(), "within --wait 200ms") {
		t.Errorf("got %v, want that --wait is over", err)
	}
}
