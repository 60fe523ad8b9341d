package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/ui"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/dashboard"
)

// A dashboard at an address that others can reach needs a key, and a wrong address is a mistake of usage, before
// anything is opened.
func TestTheAddressOfADashboardIsChecked(t *testing.T) {
	t.Setenv(ui.KeyVariable, "")
	none := "docstore:" + filepath.Join(t.TempDir(), "none") + "#orders"
	file := filepath.Join(t.TempDir(), "host.yaml")
	text := fmt.Sprintf("units:\n- {name: a, source: %q, program: [cat]}\n", none)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"serve", "--http", "--listen", "127.0.0.1:0"},
		{"run", "--source", none, "--name", "a", "--", "cat"},
		{"relay", "--source", none, "--name", "a", "--to", "embedded:" + t.TempDir()},
		{"host", file},
		{"demo"},
	} {
		for address, want := range map[string]string{
			"8090":            "--ui is 8090: want host:port",
			"127.0.0.1:none":  "want host:port",
			"127.0.0.1:70000": "want host:port",
			":8090":           "or a key in $CHANGEFEED_UI_KEY",
			"10.0.0.7:8090":   "or a key in $CHANGEFEED_UI_KEY",
		} {
			with := slices.Insert(slices.Clone(args), 1, "--ui", address)
			_, _, err := call(t, with...)
			if _, isUsage := errors.AsType[usage.Error](err); !isUsage || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v, want %q", with, err, want)
			}
		}
	}
}

// asked asks for JSON at an address of a dashboard until a condition holds.
func asked[T any](t *testing.T, url string, is func(code int, answer T) bool) {
	t.Helper()
	var last string
	// time.Sleep is the pause between two questions to another process
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		response, err := http.Get(url)
		if err != nil {
			last = err.Error()
			continue
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		var answer T
		if err = errors.Join(err, json.Unmarshal(text, &answer)); err == nil && is(response.StatusCode, answer) {
			return
		}
		last = fmt.Sprintf("%d %s %v", response.StatusCode, text, err)
	}
	t.Fatalf("%s: %s", url, last)
}

// One dashboard of a host shows the units of all kinds of handlers, also those that come later, and counts them.
func TestAHostShowsAllItsUnits(t *testing.T) {
	t.Parallel()
	server, _ := serveOrders(t)
	handler, err := exec.LookPath("answer")
	if err != nil {
		t.Fatal(err)
	}
	app := filepath.Join(t.TempDir(), "app")
	writeAppFile(t, filepath.Join(app, "host.json"),
		fmt.Sprintf(`{"customHandler":{"description":{"defaultExecutablePath":%q}}}`, handler))
	writeAppFile(t, filepath.Join(app, "local.settings.json"),
		fmt.Sprintf(`{"Values":{"CosmosDB":%q}}`, server.ConnectionString()))
	writeAppFile(t, filepath.Join(app, "Seen", "function.json"), `{"bindings":[{"type":"cosmosDBTrigger","name":"docs",
		"direction":"in","connection":"CosmosDB","databaseName":"shop","containerName":"orders",
		"createLeaseContainerIfNotExists":true}]}`)
	units := "  - {name: p, program: [cat]}\n  - functions: " + app + "\n"
	h := startHost(t, units, "--ui", "127.0.0.1:0")
	_, url, _ := strings.Cut(h.await(h.said, "dashboard at "), "dashboard at ")
	names := func(want ...string) func(int, dashboard.Status) bool {
		return func(_ int, s dashboard.Status) bool {
			var got []string
			for _, u := range s.Units {
				if u.IsHere && u.Error == nil && len(u.Leases) > 0 {
					got = append(got, u.Name+" on "+u.Container)
				}
			}
			return slices.Equal(got, want)
		}
	}
	asked(t, url+"status", names("Seen on shop/orders", "p on orders"))
	h.write(units + "  - {name: r, relay: \"embedded:" + t.TempDir() + "\"}\n")
	h.signal(syscall.SIGHUP)
	asked(t, url+"status", names("Seen on shop/orders", "p on orders", "r on orders"))
	asked(t, url+"status", func(_ int, s dashboard.Status) bool { // what a relay says, and commands that can be pasted
		return len(s.Units) == 3 && slices.Contains(s.Units[2].Says, "The broker has accepted 0 messages.")
	})
	asked(t, url+"readyz", func(code int, a dashboard.Health) bool {
		return code == http.StatusOK && len(a.Units) == 3
	})
	asked(t, url+"healthz", func(code int, a dashboard.Health) bool { return code == http.StatusOK && a.OK })
	response, err := http.Get(url + "metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	for _, want := range []string{
		`changefeed_instance_leases{messaging_consumer_group_name="p",messaging_destination_name="orders"} 1`,
		`changefeed_instance_leases{messaging_consumer_group_name="Seen",messaging_destination_name="shop/orders"} 1`,
		`changefeed_outbox_waiting{messaging_consumer_group_name="r",messaging_destination_name="orders"} 0`,
		`messaging_client_consumed_messages_total{messaging_consumer_group_name="p",`,
		`service_instance_id="host.yaml"`,
		"\ngo_goroutines ", "\ngo_memstats_heap_inuse_bytes ",
		"\nprocess_open_fds ", "\nprocess_resident_memory_bytes ",
	} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("the metrics lack %s, %v", want, err)
		}
	}
	h.write("  - {name: p, program: [cat]}\n")
	h.signal(syscall.SIGHUP)
	asked(t, url+"status", names("p on orders"))
	h.signal(syscall.SIGTERM)
	for h.said.Scan() { // until its end
	}
	if err := h.cmd.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
	if _, err := http.Get(url); err == nil {
		t.Error("the dashboard is served after the end of its process")
	}
}

// A relay and a run that end by themselves say where their dashboard was, and end it.
func TestADashboardEndsWithItsCommand(t *testing.T) {
	source := importOrders(t)
	for _, args := range [][]string{
		{"run", "--source", source, "--name", "a", "--create-leases", "--once", "--", "cat"},
		{"relay", "--source", source, "--name", "b", "--create-leases", "--once", "--to", "embedded:" + t.TempDir()},
	} {
		_, said, err := call(t, slices.Insert(slices.Clone(args), 1, "--ui", "127.0.0.1:0")...)
		_, url, found := strings.Cut(said, "dashboard at ")
		if err != nil || !found {
			t.Fatalf("%v: %q, %v", args, said, err)
		}
		if _, err := http.Get(strings.TrimSpace(url)); err == nil {
			t.Errorf("%s: the dashboard is served after the end", args[0])
		}
	}
}
