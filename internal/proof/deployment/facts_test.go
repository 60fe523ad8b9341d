package deployment_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/changefeed/dashboard"
)

// shutdown is how many times the drain an end may take: Options.Drain promises this.
const shutdown = 4

// drains returns the drain of each unit in the host's file, and the default one.
func drains(t *testing.T) (all []time.Duration) {
	t.Helper()
	var host struct {
		Defaults struct{ Drain time.Duration }
		Units    []struct{ Drain time.Duration }
	}
	if err := yaml.Unmarshal([]byte(read(t, hostFile)), &host); err != nil {
		t.Fatal(err)
	}
	source := read(t, "../options.go")
	found := regexp.MustCompile(`defaultDrain += (\d+) \* time\.Second`).FindStringSubmatch(source)
	if found == nil || !strings.Contains(source, "Run returns within four times Drain") {
		t.Fatal("options.go says no default of the drain, or no bound of an end")
	}
	all = append(all, host.Defaults.Drain, time.Duration(number(t, found[1]))*time.Second)
	for _, u := range host.Units {
		all = append(all, u.Drain)
	}
	return all
}

// Who is told to end has the time that an end takes, whatever hangs. There is a reserve of a quarter.
func TestTheTimeToEndIsLongerThanAnEnd(t *testing.T) {
	longest := slices.Max(drains(t)) * shutdown
	if longest == 0 {
		t.Fatal("there is no drain")
	}
	given := map[string]int{
		processorFile: pods(t)[processorFile].Grace, appsFile: pods(t)[appsFile].Grace,
		unitFile: number(t, settings(t, "TimeoutStopSec")[0]),
	}
	for file, seconds := range given {
		if got := time.Duration(seconds) * time.Second; got < longest*5/4 {
			t.Errorf("%s gives %v for an end, which may take %v", file, got, longest)
		}
	}
	if kill := settings(t, "KillMode"); !slices.Equal(kill, []string{"mixed"}) {
		t.Errorf("KillMode is %q: with another one, programs get SIGTERM in the middle of a batch", kill)
	}
}

// Each port that is asked is one that the process serves, and is declared.
func TestPortsAgree(t *testing.T) {
	image := read(t, dockerFile)
	exposed := strings.Fields(regexp.MustCompile(`(?m)^EXPOSE (.*)$`).FindStringSubmatch(image)[1])
	asked := regexp.MustCompile(`"health", "http://127\.0\.0\.1:(\d+)"`).FindStringSubmatch(image)[1]
	if !slices.Contains(exposed, asked) {
		t.Errorf("HEALTHCHECK asks port %s, which is not exposed: %v", asked, exposed)
	}
	for file, p := range pods(t) {
		for _, c := range p.Containers {
			port := strings.TrimPrefix(flagOf(c.Args, "ui"), ":")
			if port != asked {
				t.Errorf("%s: --ui has port %s, and the health check of the image asks %s", file, port, asked)
			}
			named := map[string]string{port: port}
			for _, declared := range c.Ports {
				named[declared.Name] = declared.Port
				if served := []string{port, strings.TrimPrefix(flagOf(c.Args, "listen"), ":")}; !slices.Contains(served,
					declared.Port) || !slices.Contains(exposed, declared.Port) {
					t.Errorf("%s: port %s is not served by %v, or not exposed by the image", file, declared.Port, c.Args)
				}
			}
			for what, asks := range c.probes() {
				if got := named[asks.HTTPGet.Port]; got != port {
					t.Errorf("%s: the %s probe asks port %q, want %s", file, what, asks.HTTPGet.Port, port)
				}
			}
		}
	}
	for _, e := range the(t, "PodMonitor", monitorFile).Spec.Endpoints {
		if e.Port != "ui" || e.Path != "/metrics" {
			t.Errorf("%s scrapes %s at port %s, want /metrics at ui", monitorFile, e.Path, e.Port)
		}
	}
}

func (c *container) probes() map[string]*probe {
	all := map[string]*probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe}
	maps.DeleteFunc(all, func(_ string, p *probe) bool { return p == nil })
	return all
}

// A probe has no key, and a dashboard that others can reach wants one: so each probe asks what needs none.
func TestProbesNeedNoKey(t *testing.T) {
	d := dashboard.New(dashboard.Options{Key: "0123456789abcdef0123"})
	defer d.Close()
	status := func(path string) int {
		answer := httptest.NewRecorder()
		d.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "http://10.0.0.7:8090"+path, nil))
		return answer.Code
	}
	for file, p := range pods(t) {
		for _, c := range p.Containers {
			all := c.probes()
			for what, asks := range all {
				if got := status(asks.HTTPGet.Path); got != http.StatusOK {
					t.Errorf("%s: the %s probe asks %s, which answers %d", file, what, asks.HTTPGet.Path, got)
				}
			}
			if all["readiness"] == nil || all["startup"] == nil {
				t.Errorf("%s lacks a readiness or a startup probe", file)
			}
			// docs/dashboard.md: no restart of a processor mends what /healthz reports.
			if isServer := c.Args[0] == "serve"; (all["liveness"] != nil) != isServer {
				t.Errorf("%s: a liveness probe, which a server has and a processor has not: %v", file, all["liveness"])
			}
			if !slices.ContainsFunc(c.Env, func(v variable) bool { return v.Name == "CHANGEFEED_UI_KEY" }) {
				t.Errorf("%s: --ui %s needs a key", file, flagOf(c.Args, "ui"))
			}
		}
	}
	for _, path := range []string{"/metrics", "/", "/status"} {
		if got := status(path); got != http.StatusUnauthorized {
			t.Errorf("%s answers %d without a key, want 401", path, got)
		}
	}
}

// Nobody is root, writes to the image, or gets more rights.
func TestPodsAreConfined(t *testing.T) {
	user := regexp.MustCompile(`(?m)^USER (\d+):\d+$`).FindStringSubmatch(read(t, dockerFile))
	if user == nil || user[1] == "0" {
		t.Fatalf("the user of the image is %v, want a number other than 0", user)
	}
	for _, file := range []string{processorFile, serveFile} {
		p := pods(t)[file]
		if s := p.SecurityContext; !s.RunAsNonRoot || strconv.Itoa(s.RunAsUser) != user[1] {
			t.Errorf("%s runs as %d, want %s as in the image", file, s.RunAsUser, user[1])
		}
		for _, c := range p.Containers {
			s := c.SecurityContext
			if s.Escalation == nil || *s.Escalation || !s.ReadOnly || !slices.Equal(s.Drop.Drop, []string{"ALL"}) {
				t.Errorf("%s: %s may do too much: %+v", file, c.Name, s)
			}
			if c.Resources.Requests["memory"] == "" || c.Resources.Requests["cpu"] == "" ||
				c.Resources.Limits["memory"] == "" {
				t.Errorf("%s: %s lacks resources: %+v", file, c.Name, c.Resources)
			}
		}
	}
}

// systemd's own tools read the unit, and score it.
func TestTheServiceIsHardened(t *testing.T) {
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze here")
	}
	copied := filepath.Join(t.TempDir(), "changefeed@.service")
	program, err := os.Executable() // verify wants a program that exists
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(read(t, unitFile), "/usr/bin/changefeed", program)
	if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.CommandContext(t.Context(), tool, "verify", copied).CombinedOutput(); err != nil ||
		strings.Contains(string(said), copied) {
		t.Errorf("systemd-analyze verify: %v\n%s", err, said)
	}
	const most = 1.5 // of 10, and 0 is the safest; docs/deployment.md has the score
	scoring := exec.CommandContext(t.Context(), tool, "security", "--offline=true", "--no-pager", copied)
	said, err := scoring.CombinedOutput()
	found := regexp.MustCompile(`Overall exposure level for \S+: ([\d.]+)`).FindSubmatch(said)
	if err != nil || found == nil {
		t.Skipf("systemd-analyze security cannot score a file here: %v\n%s", err, said)
	}
	score, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil || score > most {
		t.Errorf("the exposure is %s, %v: want %g at most", found[1], err, most)
	}
}

// A restart must not begin a unit again whose leases are gone: that wants a person.
func TestTheServiceStaysDownIfLeasesAreGone(t *testing.T) {
	if got := settings(t, "RestartPreventExitStatus"); !slices.Equal(got, []string{"2 3"}) {
		t.Errorf("RestartPreventExitStatus is %q: want usage and missing", got)
	}
	if strings.Contains(read(t, hostFile), "create-leases: true") {
		t.Errorf("%s makes the lease container: then a pod that Kubernetes restarts begins a unit again", hostFile)
	}
}
