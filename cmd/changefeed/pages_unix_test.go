//go:build unix

package main

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/changefeed/internal/proof/detector"
)

var networkPages = flag.Bool("pages.network", false, "run also the commands of documents that fetch something")

// pagePatience is how long the commands of a page may take.
const pagePatience = 2 * time.Minute

// generatedPages have lines of commands as an explanation, and no commands to run.
var generatedPages = []string{"docs/reference/commands.md", "docs/reference/options.md", "docs/README.md"}

// TestTheCommandsOfEachDocumentRun runs the fenced commands of the README and of each page of the documentation. One
// shell runs those of a page, in order, in an empty folder. What a block says about itself is in comments that readers
// do not see: blocksOf explains them.
func TestTheCommandsOfEachDocumentRun(t *testing.T) {
	if detector.On {
		t.Skip("what works here are processes of their own, in which the race detector sees nothing")
	}
	t.Parallel()
	for _, page := range documents(t) {
		text, err := os.ReadFile(filepath.Join("../..", page))
		if err != nil {
			t.Fatal(err)
		}
		blocks, err := blocksOf(string(text))
		if err != nil {
			t.Errorf("%s: %v", page, err)
			continue
		}
		if !slices.ContainsFunc(blocks, func(b block) bool { return b.lang == "sh" || b.lang == "console" }) {
			continue
		}
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			runPage(t, page, blocks)
		})
	}
}

// documents returns the README and every page below docs.
func documents(t *testing.T) []string {
	t.Helper()
	all := []string{"README.md"}
	err := filepath.WalkDir("../../docs", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return fs.SkipDir
		}
		page := strings.TrimPrefix(filepath.ToSlash(p), "../../")
		if strings.HasSuffix(page, ".md") && !slices.Contains(generatedPages, page) {
			all = append(all, page)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A pageRun is the script of a page.
type pageRun struct {
	t       *testing.T
	dir     string
	script  strings.Builder
	console []transcript
	run     int
	skipped []string // why blocks are not run
}

// A transcript is what a command says according to a page.
type transcript struct {
	file string
	line int
	want []string
}

// prelude has what the scripts need: await waits until a file contains a text, as long as a process runs.
const prelude = `set -eu
await() {
	n=0
	until grep -qF -e "$2" "$1" 2>/dev/null; do
		n=$((n + 1))
		if [ $n -gt 600 ] || ! kill -0 "$3" 2>/dev/null; then
			echo "it has not said: $2"; cat "$1"; exit 1
		fi
		sleep 0.1
	done
}
running=
`

// runPage runs the commands of a page, and compares what commands of consoles say.
func runPage(t *testing.T, page string, blocks []block) {
	ports := map[string]string{}
	p := &pageRun{t: t, dir: t.TempDir()}
	p.script.WriteString(prelude)
	for i, b := range blocks {
		b.text = otherPorts(t, b.text, ports)
		if b.network != "" && !*networkPages {
			p.skipped = append(p.skipped, fmt.Sprintf("line %d and %d blocks after it: %s (-pages.network runs them)",
				b.line, len(blocks)-i-1, b.network))
			break
		}
		p.add(b)
	}
	p.script.WriteString("echo '== the end'\n")
	said := p.play(page, ports)
	t.Logf("%d blocks run, %d not run: %s", p.run, len(p.skipped), strings.Join(p.skipped, "; "))
	for _, c := range p.console {
		if err := c.compare(); err != nil {
			t.Errorf("%s:%d: %v\n%s", page, c.line, err, said)
		}
	}
}

// add adds a block to the script.
func (p *pageRun) add(b block) {
	switch {
	case b.notRun != "":
		p.skipped = append(p.skipped, fmt.Sprintf("line %d: %s", b.line, b.notRun))
		return
	case b.file != "":
		fmt.Fprintf(&p.script, "cat >%s <<'end of the file'\n%send of the file\n", b.file, b.text)
		return
	case b.lang == "stop":
		p.script.WriteString("kill $running; wait $running || :; running=\n")
		return
	case b.lang != "sh" && b.lang != "console" && b.lang != "setup":
		return
	}
	p.run++
	fmt.Fprintf(&p.script, "echo '== line %d'\n", b.line)
	switch {
	case b.lang == "console":
		p.addConsole(b)
	case b.until != "":
		out := fmt.Sprintf("%s/out-%d", p.t.TempDir(), b.line)
		fmt.Fprintf(&p.script, "exec_%d() { exec %s\n}\n", b.line, strings.TrimSpace(b.text))
		fmt.Fprintf(&p.script, "exec_%d >%s 2>&1 &\n", b.line, out)
		fmt.Fprintf(&p.script, "running=\"$running $!\"\nawait %s '%s' $!\n", out, b.until)
	default:
		p.script.WriteString(b.text)
	}
}

// addConsole adds the commands of a console: the lines after a dollar, with those that continue them.
func (p *pageRun) addConsole(b block) {
	var command string
	continues := false
	flush := func() {
		if command == "" {
			return
		}
		c := &p.console[len(p.console)-1]
		fmt.Fprintf(&p.script, "{ %s\n} >%s 2>&1 || :\ncat %s\n", command, c.file, c.file)
		command = ""
	}
	for i, line := range strings.Split(strings.TrimSuffix(b.text, "\n"), "\n") {
		begins, is := strings.CutPrefix(line, "$ ")
		switch {
		case is:
			flush()
			command = begins
			file := filepath.Join(p.t.TempDir(), fmt.Sprint("said-", b.line+i))
			p.console = append(p.console, transcript{file: file, line: b.line + i + 1})
		case continues:
			command += "\n" + line
		case len(p.console) > 0:
			c := &p.console[len(p.console)-1]
			c.want = append(c.want, line)
		}
		continues = (is || continues) && strings.HasSuffix(line, `\`)
	}
	flush()
}

// compare says what a command has said else than the page. An ellipsis stands for any text in a line, or, alone in a
// line, for any lines.
func (c transcript) compare() error {
	text, err := os.ReadFile(c.file)
	if err != nil {
		return fmt.Errorf("the command has not run: %w", err)
	}
	var pattern strings.Builder
	pattern.WriteString(`(?s)^`)
	for _, line := range c.want {
		if strings.TrimSpace(line) == "…" {
			pattern.WriteString(`(?:.*\n)?`)
			continue
		}
		said := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimRight(line, " ")), "…", `[^\n]*`)
		pattern.WriteString(said + ` *\n`)
	}
	if !regexp.MustCompile(pattern.String() + `$`).Match(text) {
		return fmt.Errorf("the command says\n%s\nthe page says\n%s", text, strings.Join(c.want, "\n"))
	}
	return nil
}

var loopbackPort = regexp.MustCompile(`\b(127\.0\.0\.1|localhost):(\d{4,5})\b`)

// otherPorts replaces the ports of a text by free ones, so that pages can be run at the same time.
func otherPorts(t *testing.T, text string, ports map[string]string) string {
	t.Helper()
	return loopbackPort.ReplaceAllStringFunc(text, func(found string) string {
		m := loopbackPort.FindStringSubmatch(found)
		if ports[m[2]] == "" {
			ports[m[2]] = freePort(t)
		}
		return m[1] + ":" + ports[m[2]]
	})
}

// play runs the script and returns all that it says. What still runs at the end is ended.
func (p *pageRun) play(page string, ports map[string]string) string {
	t := p.t
	t.Helper()
	tools := t.TempDir()
	real, err := exec.LookPath("changefeed")
	if err != nil {
		t.Fatal(err)
	}
	// A server listens on the port of the page's addresses.
	wrapper := fmt.Sprintf(`#!/bin/sh
case "$1 $*" in
*--listen*) ;;
'serve '*) exec %[1]s "$@" --listen 127.0.0.1:%[2]s ;;
esac
exec %[1]s "$@"
`, real, portOr(t, ports, "8081"))
	if err := os.WriteFile(filepath.Join(tools, "changefeed"), []byte(wrapper), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	patience := pagePatience
	if *networkPages {
		patience *= 10
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	sh := exec.CommandContext(ctx, "sh", "-c", p.script.String())
	sh.Dir, sh.Stdout, sh.Stderr = p.dir, out, out
	sh.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"), "CI=true")
	if *networkPages {
		sh.Env = append(sh.Env, localClone(t)...)
	}
	sh.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	sh.Cancel = func() error { return syscall.Kill(-sh.Process.Pid, syscall.SIGKILL) }
	sh.WaitDelay = time.Second
	err = sh.Run()
	_ = syscall.Kill(-sh.Process.Pid, syscall.SIGKILL) // what runs until Ctrl-C
	said, rerr := os.ReadFile(out.Name())
	if err != nil || rerr != nil {
		t.Fatalf("%s: %v, %v:\n%s", page, err, rerr, said)
	}
	return string(said)
}

func portOr(t *testing.T, ports map[string]string, port string) string {
	t.Helper()
	if ports[port] == "" {
		return freePort(t)
	}
	return ports[port]
}

// localClone lets git and go take this repository in place of the one on the code host.
func localClone(t *testing.T) []string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "changefeed.git")
	for _, args := range [][]string{
		{"clone", "--quiet", "--bare", "../..", dir},
		{"-C", dir, "branch", "-f", "main", "HEAD"},
		{"-C", dir, "symbolic-ref", "HEAD", "refs/heads/main"},
	} {
		if said, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, said)
		}
	}
	return []string{
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://" + dir + ".insteadOf",
		"GIT_CONFIG_VALUE_0=https://github.com/millrace/changefeed", "GOPRIVATE=github.com/millrace/*",
		"GIT_ALLOW_PROTOCOL=file:https", "GOBIN=" + t.TempDir(),
	}
}
