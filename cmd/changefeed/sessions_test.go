package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/millrace/changefeed/cmd/changefeed/internal/contexts"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
)

var updateSessions = flag.Bool("update-sessions", false, "write what the commands of testdata/sessions say today")

// TestSessions runs the command lines in testdata/sessions, and compares what each says and leaves behind with what
// is written there. The files are read by people too: they show how the command answers to right and wrong command
// lines.
//
//	$ COMMAND   a command line, for a shell
//	@ ACTION    what happens besides: serve, park PLACE UNIT..., hold DIR, release
//	| TEXT      a line of standard output
//	! TEXT      a line of standard error
//	= CODE      the exit code, if it is not 0
//	+ FILES     new files, without those of directories
//	- FILES     removed files
//
// All other lines are comments. Files for the session follow at the end, in the form of package txtar. What is another
// with each run, such as a time, is written in capitals.
func TestSessions(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/sessions/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	invocations := 0
	lines := newValidator(t)
	t.Cleanup(func() { lines.checkKinds(t) }) // after the sessions, which are parallel
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		invocations += bytes.Count(text, []byte("\n$ changefeed"))
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			archive := txtar.Parse(text)
			s := &session{t: t, dir: t.TempDir(), lines: lines}
			s.env = append(os.Environ(), contexts.FileVariable+"="+filepath.Join(s.dir, "contexts", "config.json"))
			for _, f := range archive.Files {
				if err := os.WriteFile(filepath.Join(s.dir, f.Name), f.Data, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got := s.play(string(archive.Comment))
			if s.release(); got == string(archive.Comment) {
				return
			}
			if *updateSessions {
				archive.Comment = []byte(got)
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("%s: the commands say something else (-update-sessions writes it):\n%s", file,
				firstDifference(string(archive.Comment), got))
		})
	}
	if invocations < leastInvocations {
		t.Errorf("%d command lines, want %d or more", invocations, leastInvocations)
	}
}

// leastInvocations is how many command lines the sessions have at least.
const leastInvocations = 720

// A session is a directory in which command lines run.
type session struct {
	t    *testing.T
	dir  string
	env  []string
	url  string       // of the server, once it is served
	held *docstore.DB // open in this process

	lines *validator
}

// play runs the command lines of a session, and returns the session with what they say now.
func (s *session) play(script string) string {
	var out strings.Builder
	before := s.files()
	for line := range strings.Lines(script) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "$ "):
			out.WriteString(line + "\n")
			s.run(&out, line[len("$ "):])
			after := s.files()
			writeChange(&out, "+ ", after, before)
			writeChange(&out, "- ", before, after)
			before = after
		case strings.HasPrefix(line, "@ "):
			out.WriteString(line + "\n")
			s.act(strings.Fields(line)[1:])
			before = s.files()
		case len(line) >= 2 && line[1] == ' ' && strings.ContainsRune("|!=+-", rune(line[0])), line == "|", line == "!":
			continue // said by an earlier version
		default:
			out.WriteString(line + "\n")
		}
	}
	return out.String()
}

// run runs a command line and writes what it says.
func (s *session) run(out *strings.Builder, line string) {
	var stdout, stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "sh", "-c", line)
	c.WaitDelay = time.Second // for what the shell has started
	c.Dir, c.Env, c.Stdout, c.Stderr = s.dir, s.env, &stdout, &stderr
	err := c.Run()
	if ctx.Err() != nil {
		s.t.Fatalf("%s: it does not end: %s%s", line, &stdout, &stderr)
	}
	exit, failed := errors.AsType[*exec.ExitError](err)
	if err != nil && !failed {
		s.t.Fatalf("%s: %v", line, err)
	}
	if !strings.Contains(line, "--fields") { // otherwise lines lack members
		s.lines.check(s.t, stdout.String()+stderr.String())
	}
	for _, said := range []struct{ sign, text string }{{"|", stdout.String()}, {"!", stderr.String()}} {
		for text := range strings.Lines(s.steady(said.text)) {
			fmt.Fprintln(out, strings.TrimRight(said.sign+" "+strings.TrimRight(text, "\n"), " "))
		}
	}
	if failed {
		fmt.Fprintf(out, "= %d\n", exit.ExitCode())
	}
}

// act does what a session needs besides commands.
func (s *session) act(action []string) {
	switch action[0] {
	case "serve":
		server := cosmostest.StartTestServer(s.t, cosmostest.Options{Options: cosmosrest.Options{Keys: cosmosrest.Keys{
			Primary: cosmosrest.EmulatorKey, PrimaryReadOnly: readOnlyKey,
		}}})
		s.url = server.URL
		s.env = append(s.env, "URL="+server.URL, "COSMOS_KEY="+server.Key, "READ_ONLY_KEY="+readOnlyKey)
	case "park":
		path, container, _ := strings.Cut(action[1], "#")
		if err := park(s.t.Context(), filepath.Join(s.dir, path), container, action[2:]...); err != nil {
			s.t.Fatal(err)
		}
	case "hold":
		db, err := docstore.Open(filepath.Join(s.dir, action[1]), docstore.Options{})
		if err != nil {
			s.t.Fatal(err)
		}
		s.held = db
	case "release":
		s.release()
	default:
		s.t.Fatalf("@ %s: want serve, park, hold or release", action[0])
	}
}

// readOnlyKey is the key with which a session may only read from the server.
const readOnlyKey = "cmVhZC1vbmx5LWtleS0wMTIzNDU2Nzg5"

// release closes the store that the session holds open.
func (s *session) release() {
	if s.held == nil {
		return
	}
	if err := s.held.Close(); err != nil {
		s.t.Error(err)
	}
	s.held = nil
}

// files returns the files of the session, and its directories.
func (s *session) files() (names []string) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() {
			name += "/"
		}
		names = append(names, name)
	}
	return names
}

// writeChange writes the files that are in one list and not in the other.
func writeChange(out *strings.Builder, sign string, there, gone []string) {
	left := slices.DeleteFunc(slices.Clone(there), func(name string) bool { return slices.Contains(gone, name) })
	if len(left) > 0 {
		out.WriteString(sign + strings.Join(left, " ") + "\n")
	}
}

// variable are the parts of an output that differ from run to run.
var variable = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`127\.0\.0\.1:\d{5}\b`), "127.0.0.1:PORT"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(ms|µs|s) ago`), "DURATION ago"},
	{regexp.MustCompile(`\bin \d+(\.\d+)? ?m?s\b`), "in DURATION"},
	{regexp.MustCompile(`\(\d[\d,]* a second\)`), "(RATE a second)"},
	{regexp.MustCompile(`("(?:seconds|documents_per_second|written_seconds_ago|lag_seconds)":)[\d.e+-]+`), "${1}NUMBER"},
	{regexp.MustCompile(`_[A-Za-z0-9+=-]{8}_[A-Za-z0-9+=-]{12}`), "_RID_RID"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(ms|µs)\b`), "DURATION"},
	{regexp.MustCompile(`\b\d+(\.\d+)? KB in \d+ files`), "SIZE in N files"},
	{regexp.MustCompile(`"bytes":\d+,"files":\d+`), `"bytes":N,"files":N`},
	{regexp.MustCompile(`"head":\d+`), `"head":N`},
	{regexp.MustCompile(`\b\d+ records`), "N records"},
	{regexp.MustCompile(`("?records"?: ?)\d+`), "${1}N"},
	{regexp.MustCompile(`RU, \d+(\.\d+)?s\b`), "RU, DURATION"},
	{regexp.MustCompile(`without progress for \d+(\.\d+)?s`), "without progress for DURATION"},
	{regexp.MustCompile(`(seconds|documents_per_second|written_seconds_ago|lag_seconds|_ts): [\d.e+-]+`), "$1: NUMBER"},
	{regexp.MustCompile(`(_rid|_self|_etag): .*`), "$1: TEXT"},
	{regexp.MustCompile(`\(activity [0-9a-f-]{36}\)`), "(activity ID)"},
	{regexp.MustCompile(`"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"`), `"ETAG"`},
	{regexp.MustCompile(`/[A-Z2-7]{12}"`), `/ID"`},
	{regexp.MustCompile(`~2F[A-Z2-7]{12}"`), `~2FID"`},
	{regexp.MustCompile(`\b/[A-Z2-7]{12}\b`), "/ID"},
	{regexp.MustCompile(`'get [a-z]{3}, [^']* gmt '`), "'get DATE '"},
	// The machine may have little room on its disk, and doctor warns of that.
	{regexp.MustCompile(`(?m)^(ok  |warn|FAIL)  disk  .*$`), "??    disk         ROOM"},
	{regexp.MustCompile(`("check":"disk","about":null,)"verdict".*}`), `${1}"verdict":"ok","known":true,"found":"ROOM","next":null}`},
	{regexp.MustCompile(`\b(\d+ checks?), \d+ warnings?, `), "$1, N warnings, "},
	{regexp.MustCompile(`("checks":\d+,"warnings":)\d+`), "${1}N"},
	{regexp.MustCompile(`the oldest for [\d.]+m?s`), "the oldest for DURATION"},
	{regexp.MustCompile(`all before \d\d:\d\d:\d\d is`), "all before TIME is"},
	{regexp.MustCompile(`"_rid":"[^"]*"`), `"_rid":"RID"`},
	{regexp.MustCompile(`"_self":"[^"]*"`), `"_self":"SELF"`},
	{regexp.MustCompile(`"_etag":"\\"[^"]*\\""`), `"_etag":"ETAG"`},
	{regexp.MustCompile(`"etag":"\\"[^"]*\\""`), `"etag":"ETAG"`},
	{regexp.MustCompile(`"_ts":\d+`), `"_ts":TIME`},
	{regexp.MustCompile(`"variant":"[0-9a-f]{8}"`), `"variant":"HASH"`},
	{regexp.MustCompile(`"handler":"(\S+) [0-9a-f]{8}"`), `"handler":"$1 HASH"`},
	{regexp.MustCompile(`"program":"[^"]*"`), `"program":"PROGRAM"`},
}

// steady returns an output with names in place of what differs from run to run.
func (s *session) steady(text string) string {
	if s.url != "" {
		text = strings.ReplaceAll(text, s.url, "URL")
		text = strings.ReplaceAll(text, strings.TrimPrefix(s.url, "http://"), "HOST")
	}
	text = strings.ReplaceAll(text, s.dir, "DIR")
	for _, v := range variable {
		text = v.pattern.ReplaceAllString(text, v.name)
	}
	return text
}

// firstDifference returns the first lines that differ.
func firstDifference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			from := max(0, i-3)
			return fmt.Sprintf("line %d, after\n  %s\nwant %s\ngot  %s", i+1, strings.Join(a[from:i], "\n  "), a[i],
				b[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(b), len(a))
}
