//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// The incidents that an operator meets, staged with a server on disk and processes: docs/incidents.md is their list.
// Each is judged only by what the processes, changefeed leases and changefeed doctor say, and within a stated time.

// stage is the place of an incident.
type stage struct {
	*shop
	within time.Duration // until when something must be said
	since  time.Time
}

// openStage opens a shop for an incident.
func openStage(t *testing.T) *stage {
	t.Helper()
	s := newStage(t)
	s.open()
	return s
}

// newStage returns the stage of an incident, whose server is not started.
func newStage(t *testing.T) *stage {
	t.Helper()
	if testing.Short() || detector.On {
		t.Skip("stages incidents with processes, for whose times the race detector is too slow")
	}
	t.Parallel()
	return &stage{shop: newShop(t, shopTimes{
		acquire: 400 * time.Millisecond, renew: 600 * time.Millisecond, expiration: 4 * time.Second, drain: time.Second,
		patience: 30 * time.Second,
	})}
}

// run starts an instance of unit mailer with a shell command as the program.
func (s *stage) run(name, command string, flags ...string) {
	s.Helper()
	s.runUnit("mailer", name, command, flags...)
}

func (s *stage) runUnit(unit, name, command string, flags ...string) {
	s.Helper()
	all := append([]string{"--name", unit, "--grace", "500ms"}, flags...)
	s.launch(name, "run", append(all, "--", "sh", "-c", command)...)
}

// write writes an order of each key.
func (s *stage) write(keys ...string) {
	s.Helper()
	for _, key := range keys {
		if !s.order(key, int(time.Now().UnixMicro())) {
			s.Fatalf("the order of %s was not written", key)
		}
	}
}

// keys are n names of keys.
func keys(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint("key", i))
	}
	return all
}

// happens begins the time in which the incident must be reported.
func (s *stage) happens(within time.Duration) { s.since, s.within = time.Now(), within }

// says waits until a text matches an expression, within the time.
func (s *stage) says(where, pattern string, text func() string) {
	s.Helper()
	expr := regexp.MustCompile(pattern)
	for {
		said := text()
		if expr.MatchString(said) {
			s.Logf("after %v %s: %s", time.Since(s.since).Round(time.Second/10), where,
				firstWords(expr.FindString(said)))
			return
		}
		if time.Since(s.since) > s.within {
			s.Fatalf("%s does not say %q within %v:\n%s", where, pattern, s.within, said)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-s.Context().Done():
			s.Fatal(context.Cause(s.Context()))
		}
	}
}

// firstWords bounds a text for the log of the test.
func firstWords(text string) string { return text[:min(len(text), 160)] }

// logOf returns what a process has written to its log.
func (s *stage) logOf(name string) string {
	log, err := os.ReadFile(filepath.Join(s.dir, name+".log"))
	if err != nil {
		s.Fatal(err)
	}
	return string(log)
}

func (s *stage) logSays(name, pattern string) {
	s.Helper()
	s.says("log of "+name, pattern, func() string { return s.logOf(name) })
}

// leasesURL is the address of the lease container.
func (s *stage) leasesURL() string { return strings.Replace(s.url, "/orders", "/leases", 1) }

// output returns what a command says, whatever its exit code.
func (s *stage) output(args ...string) func() string {
	return func() string {
		out, errs, err := call(s.T, args...)
		return fmt.Sprint(out, errs, " ", err)
	}
}

func (s *stage) leasesSay(pattern string) {
	s.Helper()
	s.says("leases", "(?s)"+pattern, s.output("leases", s.leasesURL()))
}

func (s *stage) jsonSays(pattern string) {
	s.Helper()
	s.says("leases -o json", pattern, s.output("leases", s.leasesURL(), "-o", "json"))
}

// faultIsFound waits until --fail-on finds a fault, whose exit code is 5.
func (s *stage) faultIsFound(fault string) {
	s.Helper()
	s.says("--fail-on "+fault, "^found", func() string {
		_, _, err := call(s.T, "leases", s.leasesURL(), "--fail-on", fault)
		if _, ok := errors.AsType[usage.Found](err); ok {
			return "found: " + err.Error()
		}
		return fmt.Sprint(err)
	})
}

func (s *stage) doctorSays(pattern string) {
	s.Helper()
	s.says("doctor", pattern, s.output("doctor", s.leasesURL()))
}

// handled waits until instances own all leases and have handled what was written.
func (s *stage) handled() {
	s.Helper()
	s.happens(s.times.patience)
	s.jsonSays(`"kind":"lease"`)
	s.says("leases", "^<nil>$", func() string {
		_, _, err := call(s.T, "leases", s.leasesURL(), "--fail-on", "lag>0,free,stopped,unknown")
		return fmt.Sprint(err)
	})
}

// noPoison is a program that fails if a change is of the key poison.
const noPoison = `! grep -q '"key":"poison"'`

// 1: a change fails for ever, and nothing is parked.
func TestIncidentPoisonWithoutDeadLetters(t *testing.T) {
	s := openStage(t)
	s.run("a", noPoison)
	s.write(keys(3)...)
	s.handled()
	s.happens(10 * time.Second)
	s.write("poison")
	s.write(keys(9)...)
	s.logSays("a", `level=ERROR .*exit status 1`)
	s.leasesSay(`10 changes behind.*the batch after its position has failed \d+ times`)
	s.faultIsFound("failing")
	s.doctorSays(`FAIL  leases .*the batch has failed 5 times or more; without concurrency all other keys wait`)
}

// 1b: a change fails, and is parked after the attempts that the flag says, with an attempt for each division of its
// batch.
func TestIncidentPoisonWithDeadLetters(t *testing.T) {
	s := openStage(t)
	s.run("a", noPoison, "--max-attempts", "3", "--dead-letters", s.letters(), "--create-leases", "--hold")
	s.write(keys(3)...)
	s.handled()
	s.happens(10 * time.Second)
	s.write("poison")
	s.write(keys(9)...)
	s.logSays("a", `level=WARN msg="change parked" .*poison.* attempts=[3-7] `)
	s.faultIsFound("held")
	s.leasesSay(`nothing behind but the changes of 1 held key, in dead letters.*partition keys held: 1, \["poison"\]`)
	s.doctorSays(`warn  held .*changes of 1 key wait`)
	s.doctorSays(`warn  letters .*1 dead letter`)
}

// letters is the address of a container for dead letters.
func (s *stage) letters() string { return strings.Replace(s.url, "/orders", "/letters", 1) }

// 2: what the handler needs is away, and comes back.
func TestIncidentDownstreamDown(t *testing.T) {
	s := openStage(t)
	up := filepath.Join(s.dir, "up")
	s.run("a", "test -e "+up, "--max-attempts", "3", "--dead-letters", s.letters(), "--create-leases")
	if err := os.WriteFile(up, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s.write(keys(3)...)
	s.handled()
	if err := os.Remove(up); err != nil {
		t.Fatal(err)
	}
	s.happens(15 * time.Second)
	s.write(keys(8)...)
	s.logSays("a", `level=ERROR msg="outage: several changes fail and hardly any succeeds`)
	s.faultIsFound("outage")
	s.leasesSay(`outage since `)
	s.doctorSays(`FAIL  leases .*the handler lacks what it needs`)
	if err := os.WriteFile(up, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s.happens(40 * time.Second)
	s.logSays("a", `level=WARN msg="outage is over" .*duration=`)
	s.handled()
}

// 3: the handler hangs.
func TestIncidentHandlerHangs(t *testing.T) {
	s := openStage(t)
	s.run("a", `if grep -q '"key":"poison"'; then sleep 100; fi`, "--timeout", "8s")
	s.write(keys(3)...)
	s.handled()
	s.happens(15 * time.Second)
	s.write("poison")
	s.logSays("a", `level=WARN msg="a batch has been in the handler for longer than usual" .*lease=-FF .*usual=\S+ changes=1`)
	s.faultIsFound("wait>2s")
	s.faultIsFound("slow")
	s.leasesSay(`a batch has been in the handler for \S+( \(usually \d+ms\))?: 1 change`)
	s.jsonSays(`"in_hand_seconds":[4-9]`)
	s.doctorSays(`warn  leases .*a batch is in the handler for much longer than usual`)
	s.logSays("a", `level=ERROR .*handler deadline exceeded after 8s`)
	s.leasesSay(`has failed 1 time`)
}

// 4: an instance is frozen: its lease is silent, then others take over, and say from whom.
func TestIncidentInstanceFrozen(t *testing.T) {
	s := openStage(t)
	s.run("a", "cat >/dev/null", "--min-leases", "2")
	s.run("b", "cat >/dev/null", "--min-leases", "2")
	s.awaitLeases([]string{"a", "b"})
	s.happens(s.times.expiration)
	s.signal("a", syscall.SIGSTOP)
	defer s.signal("a", syscall.SIGCONT)
	s.leasesSay(`its owner has been silent for \S+: others take over in`)
	s.happens(15 * time.Second)
	s.logSays("b", `level=WARN msg="took over leases of an instance that shows no life" .*of=a leases=1 `)
	s.doctorSays(`warn  instances .*gone without an end: a/`)
}

// 5: an instance is killed.
func TestIncidentInstanceKilled(t *testing.T) {
	s := openStage(t)
	s.run("a", "cat >/dev/null", "--min-leases", "2")
	s.run("b", "cat >/dev/null", "--min-leases", "2")
	s.awaitLeases([]string{"a", "b"})
	s.happens(15 * time.Second)
	s.signal("a", syscall.SIGKILL)
	s.logSays("b", `level=WARN msg="took over leases of an instance that shows no life" .*of=a leases=1 `)
	s.doctorSays(`warn  instances .*gone without an end: a/`)
	s.jsonSays(`"instance":"a","running":false,[^}]*"gone: it has shown no life for`)
}

// 6: the server is killed, and comes back.
func TestIncidentServerKilled(t *testing.T) {
	s := openStage(t)
	s.run("a", "cat >/dev/null")
	s.write(keys(3)...)
	s.handled()
	s.happens(20 * time.Second)
	if err := s.server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.server.Wait() // killed, as wanted
	s.logSays("a", `level=ERROR .*(refused|EOF|reset)`)
	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	s.serve(at.Host)
	s.write(keys(3)...)
	s.logSays("a", `level=WARN msg="the account is back"`)
	s.handled()
}

// 7: the key is wrong.
func TestIncidentWrongKey(t *testing.T) {
	s := openStage(t)
	s.happens(10 * time.Second)
	s.launch("a", "run", "--name", "mailer", "--grace", "500ms", "--account-key", "d3Jvbmc=", "--", "true")
	s.logSays("a", `401.*--account-key`)
	s.ends("a", exitRefused)
	s.logSays("server", `level=WARN msg="request refused" client=127.0.0.1 status=401`)
	s.says("doctor", `FAIL  read .*the server refuses to read: 401`, s.output("doctor", s.leasesURL(), "--account-key",
		"d3Jvbmc="))
}

// ends waits until a process has ended with an exit code.
func (s *stage) ends(name string, code int) {
	s.Helper()
	_ = s.fleet[name].Wait() // the code says more
	if got := s.fleet[name].ProcessState.ExitCode(); got != code {
		s.Errorf("process %s ended with %d, want %d:\n%s", name, got, code, s.logOf(name))
	}
}

// onSmallDisk runs the server on a disk of its own, which is full while the file full is there. It needs a user who may
// mount in a namespace of his own.
const onSmallDisk = `
mkdir "$1/disk" && mount -t tmpfs -o size=64m tmpfs "$1/disk" && cp -a "$1/store/." "$1/disk/" &&
	mount --bind "$1/disk" "$1/store" || exit 1
while kill -0 $$; do
	if ! test -e "$1/full"; then rm -f "$1/disk/ballast"
	elif ! test -e "$1/disk/ballast"; then dd if=/dev/zero of="$1/disk/ballast" bs=64k
	fi
	sleep 0.1
done </dev/null >/dev/null 2>&1 &
shift && exec "$@"`

// 8: the disk of the server is full, and has room again. Reads go on meanwhile, and no restart is needed.
func TestIncidentFullDisk(t *testing.T) {
	mount := exec.Command("unshare", "-rm", "sh", "-c", "mount -t tmpfs tmpfs /mnt")
	if out, err := mount.CombinedOutput(); err != nil {
		t.Skipf("fills a disk of its own, which this machine does not allow: unshare -rm: %v %s", err, out)
	}
	s := newStage(t)
	s.around = []string{"unshare", "-rm", "sh", "-c", onSmallDisk, "sh", s.dir}
	s.open()
	s.run("a", "cat >/dev/null")
	s.write(keys(3)...)
	s.handled()
	full := filepath.Join(s.dir, "full")
	if err := os.WriteFile(full, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s.happens(15 * time.Second)
	s.logSays("server", `"?the disk is full: the store refuses writes until there is room; free some space`)
	s.logSays("a", `level=ERROR .*disk`)
	s.leasesSay(`owner a is silent|its owner is late|nothing behind`) // reads go on
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	s.happens(s.times.patience)
	s.write(keys(3)...)
	s.logSays("server", `the disk has room again, and the store takes writes`)
	s.handled()
	if n := strings.Count(s.logOf("server"), "the disk is full"); n != 1 {
		t.Errorf("the log of the server says %d times that the disk is full, want once:\n%s", n, s.logOf("server"))
	}
}

// 9: somebody deletes the lease container. The instances end; a new unit says which changes it passes over.
func TestIncidentLeaseContainerDeleted(t *testing.T) {
	s := openStage(t)
	s.run("a", "cat >/dev/null")
	s.write(keys(4)...)
	s.handled()
	s.happens(20 * time.Second)
	command(t, "drop", s.leasesURL(), "--yes")
	s.logSays("a", `unit "mailer" stands still: the leases of the unit are gone.*--create-leases.*--from`)
	s.ends("a", exitMissing)
	s.happens(10 * time.Second)
	s.run("b", "cat >/dev/null", "--create-leases", "--from", "now")
	s.logSays("b", `level=WARN msg="the unit is new and passes over the changes before its start.* passed=4`)
}

// 10: two handlers have one name.
func TestIncidentOneNameForTwoHandlers(t *testing.T) {
	s := openStage(t)
	s.run("a", "cat >/dev/null", "--min-leases", "3")
	s.run("b", "cat >/dev/null", "--min-leases", "3")
	s.awaitLeases([]string{"a", "b"})
	s.happens(10 * time.Second)
	s.run("c", "exit 0", "--min-leases", "3")
	const differ = `a, b run sh \w{8}; c runs sh \w{8}`
	for _, name := range []string{"a", "b", "c"} {
		s.logSays(name, `level=WARN msg="instances of the unit differ.* instances="`+differ)
	}
	s.leasesSay(`warning: instances differ: ` + differ)
	s.faultIsFound("differ")
	s.jsonSays(`"instance":"c","running":true,[^}]*"handler":"sh \w{8}"`)
	s.doctorSays(`warn  instances .*instances differ: ` + differ)
	s.happens(10 * time.Second)
	s.close("c")
	s.logSays("a", `level=WARN msg="instances of the unit no longer differ"`)
}

// 11: there is a backlog.
func TestIncidentBacklog(t *testing.T) {
	s := openStage(t)
	s.write(keys(40)...)
	s.happens(15 * time.Second)
	s.run("a", "sleep 1", "--batch-size", "1")
	s.leasesSay(`\d\d changes behind, the oldest for`)
	s.faultIsFound("lag>9")
	s.faultIsFound("wait>1s")
	s.jsonSays(`"lag":\d\d,"lag_exact":true`)
}

// 12: the webhook of a relay refuses one event, and takes the others.
func TestIncidentWebhookRefuses(t *testing.T) {
	s := openStage(t)
	var status atomic.Int64
	status.Store(http.StatusInternalServerError)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(status.Load()))
	}))
	t.Cleanup(hook.Close)
	s.event("c1")
	s.happens(15 * time.Second)
	s.launch("a", "relay", "--name", "hook", "--to", hook.URL)
	s.logSays("a", `level=ERROR .*500`)
	s.faultIsFound("wait>2s")
	s.leasesSay(`1 change behind, the oldest for`)
	status.Store(http.StatusOK)
	s.handled()
}

// event writes an event of a key.
func (s *stage) event(key string) {
	s.Helper()
	file := filepath.Join(s.dir, "event.ndjson")
	body := fmt.Sprintf(`{"id":"e-%[1]s","key":%[1]q,"type":%[2]q,"seq":1,"data":{"id":"e-%[1]s","action":"Made"}}`, key,
		"domainEvent")
	if err := os.WriteFile(file, []byte(body), 0o644); err != nil {
		s.Fatal(err)
	}
	command(s.T, "import", file, s.url)
}

// 13: the name of a unit is mistyped.
func TestIncidentMistypedName(t *testing.T) {
	s := openStage(t)
	s.run("a", "cat >/dev/null")
	s.write(keys(3)...)
	s.handled()
	s.happens(10 * time.Second)
	s.runUnit("maler", "b", "cat >/dev/null")
	s.logSays("b", `level=WARN msg="the unit is new, and another unit on the same container has a similar name`+
		`.* name=maler .*other=mailer`)
	s.leasesSay(`warning: unit mailer has a similar name`)
	s.faultIsFound("alike")
	s.doctorSays(`warn  names .*mailer and maler are two units, and each handles every change|maler and mailer`)
}

// 14: the clock of a machine is 20 minutes ahead. A proxy sets the clock of the server instead, which is the same for
// whoever compares the two.
func TestIncidentWrongClock(t *testing.T) {
	s := openStage(t)
	to, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: to.Scheme, Host: to.Host})
			r.Out.Host = r.In.Host
		},
		ModifyResponse: func(r *http.Response) error {
			r.Header.Set("Date", time.Now().Add(-20*time.Minute).UTC().Format(http.TimeFormat))
			return nil
		},
	})
	t.Cleanup(proxy.Close)
	s.happens(10 * time.Second)
	s.says("doctor", `FAIL  clock .*this clock is (20m|19m59s) ahead of the server's; set the clock`,
		s.output("doctor", proxy.URL+"/shop/leases"))
}

// 15: there are more instances than leases.
func TestIncidentIdleInstances(t *testing.T) {
	s := openStage(t)
	for _, name := range []string{"a", "b", "c"} {
		s.run(name, "cat >/dev/null", "--min-leases", "2")
	}
	s.happens(15 * time.Second)
	s.leasesSay(`2 leases, 3 instances.*warning: 1 of 3 instances idle: \w; stop some, split a partition`)
	s.faultIsFound("idle")
	s.jsonSays(`"leases":0,`)
	s.doctorSays(`warn  instances .*1 of 3 are idle, with 2 leases`)
}

// 16: a unit is to handle its changes again.
func TestIncidentReplay(t *testing.T) {
	s := openStage(t)
	out := filepath.Join(s.dir, "seen")
	s.run("a", "cat >>"+out)
	s.write(keys(5)...)
	s.handled()
	s.happens(20 * time.Second)
	s.says("run with another --from", `--from is now, but unit "mailer" began from`, s.output("run", "--source", s.url,
		"--name", "mailer", "--from", "now", "--", "true"))
	command(t, "leases", "reset", s.leasesURL(), "--name", "mailer", "--to", "beginning", "--yes", "--reason", "replay")
	s.says("the file of the handler", `(.*\n){10}`, func() string {
		text, err := os.ReadFile(out)
		if err != nil {
			s.Fatal(err)
		}
		return string(text)
	})
	s.says("leases history", `reset.*replay`, s.output("leases", "history", s.leasesURL(), "--name", "mailer"))
}

// 17: of two instances only one was upgraded, and has dead letters.
func TestIncidentHalfUpgrade(t *testing.T) {
	s := openStage(t)
	s.run("a", "cat >/dev/null", "--min-leases", "2")
	s.run("b", "cat >/dev/null", "--min-leases", "2", "--max-attempts", "5", "--dead-letters", s.letters(),
		"--create-leases")
	s.happens(10 * time.Second)
	const differ = `a runs timeout=10m0s; b runs timeout=10m0s max-attempts=5 dead-letters`
	s.logSays("a", `level=WARN msg="instances of the unit differ.* instances="`+differ)
	s.leasesSay(`warning: instances differ: ` + differ)
	s.faultIsFound("differ")
}
