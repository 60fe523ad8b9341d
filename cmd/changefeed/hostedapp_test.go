//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// writeAppFile writes a file, and the directories above it.
func writeAppFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// serveOrders serves an account with an empty container of orders.
func serveOrders(t *testing.T) (*cosmostest.Server, *docstore.Container) {
	t.Helper()
	server := cosmostest.StartTestServer(t, cosmostest.Options{})
	if _, err := server.DB.CreateDatabase(t.Context(), "shop", nil); err != nil {
		t.Fatal(err)
	}
	orders, err := server.DB.CreateContainer(t.Context(), docstore.ContainerSpec{
		Database: "shop", ID: "orders", Paths: []string{"/id"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return server, orders
}

// writeSettings writes the settings of an app.
func writeSettings(t *testing.T, dir, connection, more string) {
	t.Helper()
	text := fmt.Sprintf(`{"Values":{"Shop":%q%s}}`, connection, more)
	writeAppFile(t, filepath.Join(dir, "local.settings.json"), text)
}

// writeApp writes an app with a function that reads a container.
func writeApp(t *testing.T, dir, connection, container string) {
	t.Helper()
	handler, err := exec.LookPath("answer")
	if err != nil {
		t.Fatal(err)
	}
	writeAppFile(t, filepath.Join(dir, "host.json"),
		fmt.Sprintf(`{"customHandler":{"description":{"defaultExecutablePath":%q}}}`, handler))
	writeAppFile(t, filepath.Join(dir, "Seen/function.json"), fmt.Sprintf(`{"bindings":[{"type":"cosmosDBTrigger",
		"name":"docs","direction":"in","connection":"Shop","databaseName":"shop","containerName":%q,
		"startFromBeginning":true,"createLeaseContainerIfNotExists":true}]}`, container))
	writeSettings(t, dir, connection, "")
}

// nowhere is a connection that nobody opens.
const nowhere = "AccountEndpoint=http://127.0.0.1:9;AccountKey=AAAA;"

// An app that starts again has the files that were taken over, though they are being exchanged meanwhile: they may be
// half written, and the next SIGHUP compares the new ones with those that run.
func TestAnAppThatStartsAgainHasTheFilesThatWereTakenOver(t *testing.T) {
	server, orders := serveOrders(t)
	if _, err := orders.Commit(t.Context(), feed.Key("1"), []feed.Write{
		{Op: feed.WriteUpsert, ID: "1", Body: []byte(`{"id":"1"}`)},
	}); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "app")
	writeApp(t, dir, server.ConnectionString(), "orders")
	h := hostOf(t, fmt.Sprintf("units: [{functions: %q, once: true}]", dir))
	units, err := h.readUnits()
	if err != nil {
		t.Fatal(err)
	}
	app := h.fleetMembers(units)[0]
	writeAppFile(t, filepath.Join(dir, "Seen/function.json"), `{"bindings":[`)
	for range 2 {
		if err := app.Run(t.Context()); err != nil || !app.Once {
			t.Errorf("the app ends with %v, once %v", err, app.Once)
		}
	}
}

// An app is another unit if any of its settings is another one, and else the same.
func TestTheSettingsOfAnAppMakeItAnotherUnit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "app")
	writeApp(t, dir, nowhere, "orders")
	seen := map[string]string{}
	for _, more := range []string{"", `,"Level":"1"`, `,"Level":"2"`, `,"Depth":"2"`} {
		writeSettings(t, dir, nowhere, more)
		for range 2 {
			units, err := readHost(t, fmt.Sprintf("units: [{functions: %q}]", dir))
			if err != nil {
				t.Fatal(err)
			}
			id := units[0].identity()
			if before, known := seen[id]; known && before != more {
				t.Errorf("with %q the app is the same unit as with %q", more, before)
			}
			seen[id] = more
		}
	}
	if len(seen) != 4 {
		t.Errorf("%d units, want 4", len(seen))
	}
}

// Apps that read different containers may share a lease container, as in Azure. The same function runs once.
func TestAppsShareALeaseContainer(t *testing.T) {
	dir := t.TempDir()
	one, two, twin := filepath.Join(dir, "one"), filepath.Join(dir, "two"), filepath.Join(dir, "twin")
	writeApp(t, one, nowhere, "orders")
	writeApp(t, two, nowhere, "returns")
	writeApp(t, twin, nowhere, "orders")
	both := fmt.Sprintf("units:\n  - functions: %s\n  - functions: %s\n", one, two)
	if units, err := readHost(t, both); err != nil || len(units) != 2 {
		t.Errorf("%d units, %v, want 2", len(units), err)
	}
	_, err := readHost(t, both+"  - functions: "+twin+"\n")
	if err == nil || !strings.HasSuffix(err.Error(), "host.yaml:4: twin has a function with the leases of the unit of "+
		"line 2: want each function once") {
		t.Errorf("the same function twice: %v", err)
	}
	writeAppFile(t, filepath.Join(twin, "Seen/function.json"), `{"bindings":[{"type":"cosmosDBTrigger","name":"docs",
		"direction":"in","connection":"Shop","databaseName":"shop","containerName":"orders",
		"leaseContainerPrefix":"mailer"}]}`)
	_, err = readHost(t, fmt.Sprintf("units:\n  - {name: mailer, source: %q, program: cat}\n  - functions: %s\n",
		"http://127.0.0.1:9/shop/orders", twin))
	if err == nil || !strings.Contains(err.Error(), "host.yaml:3: twin has a function with the leases of the unit of line 2") {
		t.Errorf("a program and a function with the same leases: %v", err)
	}
}

// A mistake in the keys of an app names the key.
func TestAMistakeInAnAppNamesItsKey(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "app")
	writeApp(t, dir, nowhere, "orders")
	for keys, want := range map[string]string{
		fmt.Sprintf("functions: %s, grace: 10s", dir): "host.yaml:1: grace is 10s: want more than 0s and less than " +
			"drain (10s)",
		fmt.Sprintf("functions: %s, drain: 0s", dir): "host.yaml:1: drain is 0s: want a positive duration",
		`functions: ""`: "host.yaml:1: functions is empty: want the directory of an Azure Functions app",
	} {
		if _, err := readHost(t, "units: [{"+keys+"}]"); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", keys, err, want)
		}
	}
}

// A host ends for the files of an app as functions does: with 2 if they are wrong, with 3 if something does not exist.
func TestMistakesInAnAppHaveTheirExitCodes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "app")
	writeApp(t, dir, nowhere, "orders")
	wrong := func(file string, settings string) {
		writeAppFile(t, filepath.Join(dir, file, "function.json"), `{"bindings":[{"type":"cosmosDBTrigger","name":"docs",
			"direction":"in","connection":"Shop","databaseName":"shop","containerName":"orders",`+settings+`}]}`)
	}
	wrong("One", `"leaseContainerPrefix":"one","feedPolDelay":5`)
	wrong("Two", `"leaseContainerPrefix":"two","feedPolDelay":5,"maxItemPerInvocation":5`)
	for names, want := range map[string]int{
		"Nope": exitMissing, "[Seen, Nope]": exitMissing, `[Seen, ""]`: exitUsage,
		"One": exitUsage, "[Seen, Two]": exitUsage, "[One, Two]": exitUsage,
	} {
		_, err := readHost(t, fmt.Sprintf("units: [{functions: %s, function: %s}]", dir, names))
		if code := exitCode(t.Context(), err, true); code != want {
			t.Errorf("host, function: %s ends with %d, want %d: %v", names, code, want, err)
		}
		args := []string{"functions", dir, "--check"}
		for name := range strings.SplitSeq(strings.Trim(names, "[]"), ", ") {
			args = append(args, "--function", strings.Trim(name, `"`))
		}
		if _, _, err := call(t, args...); exitCode(t.Context(), err, true) != want {
			t.Errorf("%q: %v, want code %d", args, err, want)
		}
	}
}

// What an app has and does not run is said when the file is read, with its place, unless the host is quiet.
func TestAHostTellsWhatAnAppDoesNotRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "app")
	writeApp(t, dir, nowhere, "orders")
	writeAppFile(t, filepath.Join(dir, "Hello/function.json"), `{"bindings":[{"type":"httpTrigger","name":"req"}]}`)
	file := fmt.Sprintf("units:\n  - functions: %s\n", dir)
	for _, flags := range [][]string{nil, {"-q"}} {
		h := hostOf(t, file, flags...)
		var said strings.Builder
		h.cmd.SetErr(&said)
		if _, err := h.readUnits(); err != nil {
			t.Fatal(err)
		}
		want := "changefeed host: " + h.path + ":2: Hello does not run: its trigger is httpTrigger"
		if strings.Contains(strings.ReplaceAll(said.String(), "\n  ", " "), want) != (flags == nil) {
			t.Errorf("host %v says %q, want %q unless it is quiet", flags, &said, want)
		}
	}
}

// The mistakes of an app end a host with the exit code of a mistake, however many they are.
func TestAMistakeInTheFilesOfAnAppHasAnExitCode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "app")
	writeApp(t, dir, nowhere, "orders")
	unit := fmt.Sprintf("functions: %s", dir)
	for _, c := range []struct {
		keys, binding, want string
		code                int
	}{
		{unit, `"connection":"Mall","databaseName":"shop"`, "bindings[0].connection is Mall", exitUsage},
		{unit, `"connection":"Mall","databaseName":"%Town%"`, "bindings[0].databaseName is", exitUsage},
		{
			"function: Sen, " + unit, `"connection":"Shop","databaseName":"shop"`,
			"host.yaml:1: function: there is no function Sen: want Seen", exitMissing,
		},
		{"functions: " + dir + "/none", "", "there is no host.json", exitMissing},
	} {
		writeAppFile(t, filepath.Join(dir, "Seen/function.json"), fmt.Sprintf(`{"bindings":[{"type":"cosmosDBTrigger",
			"name":"docs","direction":"in","containerName":"orders",%s}]}`, c.binding))
		_, err := readHost(t, "units: [{"+c.keys+"}]")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Fatalf("%s: got %v, want %s", c.keys, err, c.want)
		}
		if code := exitCode(t.Context(), err, true); code != c.code {
			t.Errorf("%v: exit code %d, want %d", err, code, c.code)
		}
	}
}
