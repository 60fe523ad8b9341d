package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/changefeed/docstore"
)

// storeOf makes a store with the container orders.
func storeOf(t *testing.T, documents string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	in := filepath.Join(t.TempDir(), "in.ndjson")
	if err := os.WriteFile(in, []byte(documents), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "import", in, "docstore:"+dir+"#orders", "--pk", "/pk")
	return dir
}

// adviceOf runs a command, and returns the advice that its output must contain: the group of a pattern.
func adviceOf(t *testing.T, pattern string, args ...string) string {
	t.Helper()
	out, said, err := call(t, args...)
	all := out + said
	if err != nil {
		all += err.Error()
	}
	found := regexp.MustCompile(pattern).FindStringSubmatch(all)
	if found == nil {
		t.Fatalf("changefeed %v: got %q, want advice like %s", args, all, pattern)
	}
	return found[1]
}

// The address that an error recommends for a served store is accepted by the same command.
func TestTheAdviceForAServedStoreWorks(t *testing.T) {
	dir := storeOf(t, `{"id":"1","pk":"a"}`)
	ctx, end := context.WithCancel(t.Context())
	out, in := io.Pipe()
	said, ended := begin(ctx, in, "serve", "--db", dir, "--http", "--listen", "127.0.0.1:0", "-o", "json")
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v: %s", err, said)
		}
	})
	var server struct{ Endpoint string }
	if err := json.NewDecoder(out).Decode(&server); err != nil {
		t.Fatal(err, said)
	}
	const address = `want its address, such as (http://127\.0\.0\.1:8081\S*)$`
	for _, args := range [][]string{
		{"check", dir},
		{"backup", dir, filepath.Join(t.TempDir(), "copy")},
		{"export", "docstore:" + dir + "#orders"},
		{"tail", "docstore:" + dir + "#orders", "--once"},
		{"ranges", "docstore:" + dir + "#orders"},
	} {
		advice := adviceOf(t, address, args...)
		args[1] = strings.Replace(advice, "http://127.0.0.1:8081", strings.TrimSuffix(server.Endpoint, "/"), 1)
		command(t, args...)
	}
}

// Each command that a message recommends does what the message says.
func TestTheAdviceOfAUnitWorks(t *testing.T) {
	dir := storeOf(t, `{"id":"1","pk":"a"}`)
	letters := filepath.Join(t.TempDir(), "letters.ndjson")
	run := func(more ...string) []string {
		return append([]string{"run", "--source", "docstore:" + dir + "#orders", "--name", "one", "--once"}, more...)
	}
	flag := adviceOf(t, `(--create-leases) makes the lease container`, run("--", "true")...)
	list := adviceOf(t, `see changefeed (dlq list .*)`, run(flag, "--from", "beginning", "--max-attempts", "1",
		"--dead-letters", letters, "--", "false")...)
	if got := command(t, strings.Fields(list)...); !strings.Contains(got, "1 dead letter of 1 key") {
		t.Errorf("changefeed %s: got %s", list, got)
	}
	remove := adviceOf(t, `first delete its leases: changefeed (leases .*)`, run("--from", "now", "--", "true")...)
	command(t, append(strings.Fields(remove), "--yes")...)
	command(t, run("--from", "now", "--", "true")...)
}

// A damaged store says how to read what is left.
func TestTheAdviceForADamagedStoreWorks(t *testing.T) {
	dir := damagedStore(t)
	salvage := adviceOf(t, `read what is left with changefeed (export --salvage)`, "check", dir)
	_, said, err := call(t, append(strings.Fields(salvage), "--db", dir)...)
	if err == nil || !strings.Contains(said, "container c: ") {
		t.Errorf("changefeed %s: got %v and %s, want the losses", salvage, err, said)
	}
}

// A directory that cannot be used is no damage: the error is about the cause.
func TestNothingIntactIsCalledCorrupt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	data := storeOf(t, `{"id":"1","pk":"a"}`)
	for _, dir := range []string{file, filepath.Join(file, "below"), "/proc/none"} {
		for _, args := range [][]string{
			{"serve", "--db", dir, "--http", "--listen", "127.0.0.1:0"},
			{"check", dir},
			{"import", file, "docstore:" + dir + "#orders", "--pk", "/pk"},
			{"backup", data, filepath.Join(dir, "copy")},
			{"backup", dir, filepath.Join(t.TempDir(), "copy")},
			{"export", "docstore:" + dir + "#orders"},
			{"demo", "--dir", dir},
			{"bench", "feed_read", "--dir", filepath.Join(dir, "none")},
		} {
			if _, _, err := call(t, args...); err == nil || errors.Is(err, docstore.ErrCorrupt) ||
				strings.Contains(err.Error(), "corrupt") {
				t.Errorf("changefeed %v: got %v, want the cause", args, err)
			}
		}
	}
}
