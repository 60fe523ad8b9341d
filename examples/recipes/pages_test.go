//go:build unix

package recipes

import (
	"context"
	"flag"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

var pages = flag.Bool("pages", false, "run the commands of the pages, with changefeed from the PATH or built")

var (
	shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")
	port       = regexp.MustCompile(`127\.0\.0\.1:(8\d\d\d)\b`)
)

const clone = "git clone -q https://github.com/millrace/changefeed\n"

// The commands of each page run from top to bottom, as one script, in a copy of this module.
func TestTheCommandsOfThePagesRun(t *testing.T) {
	if !*pages {
		t.Skip("the commands link programs and wait: run them with -pages")
	}
	bin := t.TempDir()
	if _, err := exec.LookPath("changefeed"); err != nil {
		build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./cmd/changefeed")
		build.Dir = "../.."
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for page, want := range map[string][]string{
		"leaderboard":   {" 1. ", "Ada     75"},
		"cache":         {"changes of 1 items"},
		"search":        {"changes indexed", "1 green lamp", "v2"},
		"archive":       {"changes in date=", ".ndjson", "delete", "served-files/date="},
		"fanout":        {"stock", "fanout-data/audit.txt", "paused", "the order has no address"},
		"eventsourcing": {"balances: account-", "balances2: account-"},
		"softdelete":    {"soft: ", "marker: true", "expired: true"},
		"from-dotnet":   {"170 net/handled.txt", "170 function/handled.txt", "java/handled.txt"},
	} {
		t.Run(page, func(t *testing.T) {
			folder := t.TempDir()
			said := runPage(t, folder, page, bin, miniredis.RunT(t).Addr())
			for _, text := range want {
				if !strings.Contains(said, text) {
					t.Errorf("the commands do not say %q:\n%s", text, said)
				}
			}
		})
	}
}

func runPage(t *testing.T, folder, page, bin, redis string) (said string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/recipes/" + page + ".md")
	if err != nil {
		t.Fatal(err)
	}
	script := "set -eu\n"
	for _, block := range shellBlock.FindAllStringSubmatch(string(text), -1) {
		script += block[1]
	}
	if !strings.Contains(script, clone) {
		t.Fatalf("the page does not begin with %s", clone)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	copied := "mkdir -p changefeed/examples && cp -r " + root + "/examples/recipes changefeed/examples/\n" +
		"(cd changefeed/examples/recipes && go mod edit -replace github.com/millrace/changefeed=" + root + ")\n"
	script = strings.Replace(script, clone, copied, 1)
	for _, found := range port.FindAllStringSubmatch(script, -1) {
		script = strings.ReplaceAll(script, found[1], freePort(t))
	}
	ctx, stop := context.WithTimeout(t.Context(), 9*time.Minute)
	defer stop()
	command := exec.CommandContext(ctx, "bash", "-c", script)
	command.Dir = folder
	command.Env = append(os.Environ(), "REDIS="+redis, "PATH="+bin+":"+os.Getenv("PATH"))
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	out, err := command.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s\n%s", err, script, out)
	}
	return string(out)
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
}
