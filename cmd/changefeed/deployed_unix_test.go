//go:build unix

package main

import (
	"bufio"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/changefeed/cmd/changefeed/internal/web"
	"github.com/millrace/changefeed/internal/proof/detector"
)

const (
	deployedHost      = "../../deploy/kubernetes/processor/host.yaml"
	deployedProcessor = "../../deploy/kubernetes/processor/deployment.yaml"
	deployedServer    = "../../deploy/kubernetes/serve/stateful-set.yaml"
	deployedApp       = "../../deploy/container-apps/changefeed.yaml"
	deployedService   = "../../deploy/systemd/changefeed@.service"

	deployedUIKey = "0123456789abcdef0123456789abcdef"
)

// aPod is what a manifest says of the process in a pod.
type aPod struct {
	Grace      int `yaml:"terminationGracePeriodSeconds"`
	Containers []struct {
		Args []string
		Env  []struct{ Name, Value string }
	}
}

// podOf reads the pod of a manifest.
func podOf(t *testing.T, file string) aPod {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Spec       struct{ Template struct{ Spec aPod } }
		Properties struct{ Template aPod } // of a container app
	}
	if err := yaml.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	if len(m.Properties.Template.Containers) > 0 {
		return m.Properties.Template
	}
	return m.Spec.Template.Spec
}

// The arguments and the variables of the manifests are those of this command.
func TestDeployedProcessesAreCalledRightly(t *testing.T) {
	host, err := os.ReadFile(deployedHost)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"AZURE_CLIENT_ID": true} // which azidentity reads
	for _, v := range environment {
		known[v.name] = true
	}
	for _, m := range regexp.MustCompile(`\$\{(\w+)\}`).FindAllSubmatch(host, -1) {
		known[string(m[1])] = true
	}
	for _, file := range []string{deployedProcessor, deployedServer, deployedApp} {
		c := podOf(t, file).Containers[0]
		cmd, args, err := rootCommand(new(bool)).Find(c.Args)
		if err != nil || cmd.ParseFlags(args) != nil || cmd.Name() != c.Args[0] {
			t.Errorf("%s calls changefeed %q: %v", file, c.Args, cmp.Or(err, cmd.ParseFlags(args)))
		}
		for _, v := range c.Env {
			if !known[v.Name] {
				t.Errorf("%s sets %s, which nobody reads", file, v.Name)
			}
		}
	}
	service, err := os.ReadFile(deployedService)
	if err != nil {
		t.Fatal(err)
	}
	start := regexp.MustCompile(`(?m)^ExecStart=/usr/bin/changefeed (.*)$`).FindSubmatch(service)
	args := strings.Fields(string(start[1]))
	if cmd, _, err := rootCommand(new(bool)).Find(args); err != nil || cmd.Name() != "host" {
		t.Errorf("%s calls changefeed %s: %v", deployedService, start[1], err)
	}
}

// aDeployed is a process that runs as a manifest says, on this machine.
type aDeployed struct {
	*testing.T
	cmd       *exec.Cmd
	dashboard string
	grace     time.Duration
	said      *said
	ended     chan error
}

// deploy runs the process of a manifest, with other places for its ports and files, and with these variables.
func deploy(t *testing.T, file string, places *strings.Replacer, variables ...string) (d *aDeployed, out io.Reader) {
	t.Helper()
	pod := podOf(t, file)
	var args []string
	for _, arg := range pod.Containers[0].Args {
		args = append(args, places.Replace(arg))
	}
	d = &aDeployed{T: t, said: &said{}, grace: time.Duration(pod.Grace) * time.Second, ended: make(chan error, 1)}
	d.cmd = exec.Command("changefeed", append(args, "-o", "json")...)
	d.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, variables...)
	d.cmd.Dir = t.TempDir()
	d.cmd.Stderr = d.said
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	limit := time.AfterFunc(2*time.Minute, func() { _ = d.cmd.Process.Kill() }) // what is awaited does not come
	t.Cleanup(func() { limit.Stop(); _ = d.cmd.Process.Kill() })
	return d, out
}

// awaitDashboard waits until the process has said where its dashboard is.
func (d *aDeployed) awaitDashboard() {
	d.Helper()
	d.await("the process says where the dashboard is", func() bool {
		found := regexp.MustCompile(`dashboard at (http://[^/"]+)`).FindStringSubmatch(d.said.String())
		if found != nil {
			d.dashboard = found[1]
		}
		return found != nil
	})
}

func (d *aDeployed) await(what string, is func() bool) {
	d.Helper()
	for begun := time.Now(); !is(); time.Sleep(20 * time.Millisecond) { // between two looks at another process
		if time.Since(begun) > time.Minute {
			d.Fatalf("waited a minute for this: %s\n%s", what, d.said)
		}
	}
}

// asks returns the status of a path of the dashboard, with a key if there is one.
func (d *aDeployed) asks(path, key string) int {
	d.Helper()
	r, err := http.NewRequestWithContext(d.Context(), http.MethodGet, d.dashboard+path, nil)
	if err != nil {
		d.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		d.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

// end sends SIGTERM, as Kubernetes does, and expects that the process ends in order within its time.
func (d *aDeployed) end() (took time.Duration) {
	d.Helper()
	begun := time.Now()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		d.Fatal(err)
	}
	go func() { d.ended <- d.cmd.Wait() }()
	select {
	case err := <-d.ended:
		if err != nil {
			d.Errorf("the process ends with %v\n%s", err, d.said)
		}
	case <-time.After(d.grace):
		d.Fatalf("the process does not end within %v\n%s", d.grace, d.said)
	}
	return time.Since(begun)
}

// slowReceiver is the handler of the deployed unit. It keeps the first batch until it is let go.
type slowReceiver struct {
	mu     sync.Mutex
	ids    []string
	inHand chan struct{}
	letGo  chan struct{}
	first  sync.Once
}

func (s *slowReceiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var batch []struct{ ID string }
	if err := json.NewDecoder(r.Body).Decode(&batch); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.first.Do(func() {
		close(s.inHand)
		<-s.letGo
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range batch {
		s.ids = append(s.ids, c.ID)
	}
}

func (s *slowReceiver) handled() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ids)
}

// deployedWorld is the server of its manifest, with the containers of the host's file.
type deployedWorld struct {
	*testing.T
	dir, key, account string
	places            *strings.Replacer
	receiver          string
	server            *aDeployed
}

// newDeployedWorld starts the server, and makes the containers as docs/deployment.md says.
func newDeployedWorld(t *testing.T, receiver string) *deployedWorld {
	t.Helper()
	host, err := filepath.Abs(deployedHost)
	if err != nil {
		t.Fatal(err)
	}
	w := &deployedWorld{
		T: t, dir: t.TempDir(), receiver: receiver,
		key: base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 64))),
	}
	w.places = strings.NewReplacer(":8081", "127.0.0.1:0", ":8090", "127.0.0.1:0",
		"/data/store", filepath.Join(w.dir, "store"), "/etc/changefeed/host.yaml", host)
	var out io.Reader
	w.server, out = deploy(t, deployedServer, w.places, "CHANGEFEED_KEY="+w.key, "CHANGEFEED_UI_KEY="+deployedUIKey)
	w.server.awaitDashboard()
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var told web.Endpoints
	if err := json.Unmarshal(line, &told); err != nil {
		t.Fatal(err)
	}
	w.account = strings.TrimSuffix(told.Endpoint, "/")
	for _, made := range [][]string{{"orders", "/city"}, {"leases", "/id", "--ttl", "-1"}, {"letters", "/key"}} {
		of := []string{"create", w.account + "/shop/" + made[0], "--account-key", w.key, "--pk"}
		command(t, append(of, made[1:]...)...)
	}
	return w
}

// start starts a pod of the processor, and waits until it is ready.
func (w *deployedWorld) start(pod string) *aDeployed {
	w.Helper()
	d, _ := deploy(w.T, deployedProcessor, w.places, "POD_NAME="+pod, "COSMOS_ENDPOINT="+w.account, "COSMOS_KEY="+w.key,
		"CHANGEFEED_UI_KEY="+deployedUIKey, "MAILER_URL="+w.receiver)
	d.awaitDashboard()
	d.await("the pod is ready", func() bool { return d.asks("/readyz", "") == http.StatusOK })
	return d
}

// write writes an order.
func (w *deployedWorld) write(id string) {
	w.Helper()
	file := filepath.Join(w.dir, id)
	if err := os.WriteFile(file, fmt.Appendf(nil, `{"id":%q,"city":"Oslo"}`, id), 0o600); err != nil {
		w.Fatal(err)
	}
	command(w.T, "put", w.account+"/shop/orders", file, "--account-key", w.key)
}

// leases is what the command leases says of the unit.
func (w *deployedWorld) leases() string {
	w.Helper()
	return command(w.T, "leases", w.account+"/shop/leases", "--name", "mailer", "--account-key", w.key, "-o", "json")
}

// TestDeployedPodsKeepTheirPromises runs the command lines of the manifests as plain processes: a server, and a
// processor that is told to end while a batch is in hand. Probes pass, the batch is finished, the lease is free at
// once, and the next pod goes on behind the batch.
func TestDeployedPodsKeepTheirPromises(t *testing.T) {
	if detector.On {
		t.Skip("what works here are processes of their own, in which the race detector sees nothing")
	}
	handler := &slowReceiver{inHand: make(chan struct{}), letGo: make(chan struct{})}
	receiver := httptest.NewServer(handler)
	defer receiver.Close()
	w := newDeployedWorld(t, receiver.URL+"/orders")
	if got := w.server.asks("/healthz", ""); got != http.StatusOK {
		t.Errorf("the probe of the server gets %d", got)
	}
	first := w.start("changefeed-0")
	if got := w.leases(); !strings.Contains(got, `"owner":"changefeed-0"`) {
		t.Errorf("the instance has not the name of the pod: %s", got)
	}
	if said := command(t, "health", first.dashboard); said != "" {
		t.Errorf("the health check says %q", said)
	}
	without, with := first.asks("/metrics", ""), first.asks("/metrics", deployedUIKey)
	if without != http.StatusUnauthorized || with != http.StatusOK {
		t.Errorf("metrics answer %d without the key and %d with it", without, with)
	}
	w.write("1")
	<-handler.inHand
	time.AfterFunc(500*time.Millisecond, func() { close(handler.letGo) }) // after SIGTERM, and before the drain is over
	if took := first.end(); took > 10*time.Second {
		t.Errorf("the end took %v, want less than the drain", took)
	}
	select {
	case <-handler.letGo:
	default:
		t.Error("the process has ended before its batch")
	}
	if got := w.leases(); !strings.Contains(got, `"owner":null`) {
		t.Errorf("the lease has an owner after the end: %s", got)
	}
	w.write("2")
	second := w.start("changefeed-1")
	second.await("the second change is handled", func() bool { return len(handler.handled()) >= 2 })
	second.end()
	if got := handler.handled(); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("handled %q, want each change once", got)
	}
	w.server.end()
}

// A process says what is wrong with it by its exit code alone, as a health check of a container wants.
func TestHealthIsAnExitCode(t *testing.T) {
	status := http.StatusServiceUnavailable
	body := `{"ok":false,"checks":[{"name":"store","ok":false,"why":"disk full"}],"units":[{"name":"mailer","why":"outage"},` +
		`{"name":"audit","ready":false,"waiting":"the leases of the unit do not exist yet"}]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			status, body = http.StatusNotFound, "nothing here"
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	for _, tt := range []struct{ url, want string }{
		{server.URL, "store: disk full; mailer: outage; audit: the leases of the unit do not exist yet"},
		{server.URL + "/readyz", "answers 404 Not Found, and is no dashboard"},
		{"127.0.0.1:8090", "URL is 127.0.0.1:8090: want that of a dashboard, such as http://127.0.0.1:8090"},
		{"http://127.0.0.1:1", "no process answers at http://127.0.0.1:1/healthz"},
	} {
		if _, _, err := call(t, "health", tt.url); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.url, err, tt.want)
		}
	}
}
