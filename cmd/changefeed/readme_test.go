//go:build unix

package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// shellBlock is a fenced block of commands in a document.
var shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// A newcomer finds whatever there is: each package in a table, and each command in the tour.
func TestThePagesNameEachPackageAndCommand(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/packages.md")
	if err != nil {
		t.Fatal(err)
	}
	table := string(text)
	tour, err := os.ReadFile("../../docs/start/command.md")
	if err != nil {
		t.Fatal(err)
	}
	var packages []string
	for _, pattern := range []string{"../../*/*.go", "../../*/*/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			packages = append(packages, filepath.ToSlash(strings.TrimPrefix(filepath.Dir(f), "../../")))
		}
	}
	entries, err := os.ReadDir("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			packages = append(packages, e.Name())
		}
	}
	slices.Sort(packages)
	for _, p := range slices.Compact(packages) {
		dir, below, isBelow := strings.Cut(p, "/")
		if isBelow && slices.Contains([]string{"internal", "conformance", "tools"}, dir) || dir == "cmd" ||
			dir == "trigger" && !isBelow {
			continue // what users do not import, and directories without a package
		}
		if named := "`" + p + "`"; !strings.Contains(table, named) &&
			(!isBelow || !strings.Contains(table, "`"+below+"`")) && !strings.Contains(table, "["+p+"]") {
			t.Errorf("the table of docs/reference/packages.md lacks %s", p)
		}
	}
	for _, c := range commands() {
		if name := c.Name(); !c.Hidden && !strings.Contains(string(tour), "**"+name+"**") &&
			!strings.Contains(string(tour), "changefeed "+name) {
			t.Errorf("docs/start/command.md lacks the command %s", name)
		}
	}
}

// TestTheCommandsOfRunsPageRun adds only the ends, and a program that fails on one document.
func TestTheCommandsOfRunsPageRun(t *testing.T) {
	page, err := os.ReadFile("../../docs/run.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := shellBlock.FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 2 {
		t.Fatalf("%d blocks of commands, want 2", len(blocks))
	}
	once := strings.NewReplacer(" -- ", " --once -- ")
	said := shellOut(t, strings.ReplaceAll(`set -eu
printf '#!/bin/sh\n! grep bad-order\n' >mail.sh && chmod +x mail.sh
echo '{"id":"1","city":"Oslo"}' >in.ndjson
changefeed serve --http --listen 127.0.0.1:8081 >served.txt &
until [ -s served.txt ]; do sleep 0.1; done
changefeed import in.ndjson http://127.0.0.1:8081/shop/orders --pk /city
`+once.Replace(blocks[0][1])+`
echo '{"id":"bad-order","city":"Oslo"}' | changefeed import - http://127.0.0.1:8081/shop/orders
`+once.Replace(blocks[1][1])+"kill $!\n", "8081", freePort(t)))
	for _, want := range []string{
		`{"id":"bad-order","city":"Oslo",`, "mailer in shop/letters: 1 dead letter of 1 key",
		"./mail.sh: exit status 1",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the commands do not say %q:\n%s", want, said)
		}
	}
}

// shellOut runs a script in an empty directory and returns all that it writes.
func shellOut(t *testing.T, script string) string {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	sh := exec.Command("sh", "-c", script)
	sh.Dir, sh.Stdout, sh.Stderr = t.TempDir(), out, out
	sh.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = sh.Run()
	_ = syscall.Kill(-sh.Process.Pid, syscall.SIGKILL) // what a failed script has left
	said, rerr := os.ReadFile(out.Name())
	if err != nil || rerr != nil {
		t.Fatalf("%v, %v:\n%s", err, rerr, said)
	}
	return string(said)
}

// freePort is one that nobody had a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}
