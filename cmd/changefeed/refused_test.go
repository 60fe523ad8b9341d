package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/contexts"
)

// What cannot be is refused with the code and the words for it, and a flag is before a store is opened.
func TestWhatCannotBeIsRefusedInItsOwnWords(t *testing.T) {
	t.Chdir(t.TempDir())
	store := storeOf(t, `{"id":"1","pk":"a"}`)
	if err := os.WriteFile("-bad.json", []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		line string
		code int
		says string
	}{
		{"serve --roles nowhere.json --jwks https://127.0.0.1:1/keys --issuer i --audience a", exitMissing, "read --roles: open nowhere.json"},
		{"serve --cert nowhere.pem --cert-key nowhere.key", exitMissing, "nowhere.pem"},
		{"bench write --load 1s", exitUsage, "--load is 1s: want serve_memory among the benchmarks"},
		{"bench write --program cat", exitUsage, "--program is cat: want trigger_program or trigger_latency"},
		{"bench trigger --program cat --against cat", exitUsage, "and no --against"},
		{"put --db " + store + " --container orders -- -bad.json", exitFailed, ": -bad.json: "},
		{"export --salvage --db " + store + " --restart", exitUsage, "restart"},
		{"create --db new --container c --pk /city --ttl -1s", exitUsage, "or -1"},
		{"leases reset --db " + store + " --name mailer --to now --wait 0s", exitUsage, "--wait is 0s: want more"},
		{"leases pause --db " + store + " --name mailer --wait 0s", exitUsage, "--wait is 0s: want more than 0"},
	} {
		var errs bytes.Buffer
		code := execute(t.Context(), strings.Fields(tt.line), io.Discard, &errs)
		if code != tt.code || !strings.Contains(errs.String(), tt.says) {
			t.Errorf("%s: exit code %d, want %d, and %q in %s", tt.line, code, tt.code, tt.says, errs.String())
		}
	}
}

// A group of benchmarks that has serve_memory in it has a load.
func TestAGroupOfBenchmarksMayHaveALoad(t *testing.T) {
	for _, names := range [][]string{nil, {"serve"}, {"serve_memory"}} {
		o := benchOptions{load: 1}
		chosen, err := o.chooseBenchmarks(names)
		if err != nil {
			t.Fatal(err)
		}
		if err := o.checkFlags(chosen); err != nil {
			t.Errorf("%q: %v", names, err)
		}
	}
}

// --context= uses no context, and the name of one is one all the same.
func TestAContextIsShownByItsNameWithoutOneInUse(t *testing.T) {
	t.Setenv(contexts.FileVariable, filepath.Join(t.TempDir(), "config.json"))
	command(t, "context", "add", "shop", "--db", "d")
	if got := command(t, "context", "show", "shop", "--context="); !strings.HasPrefix(got, "context shop\n") {
		t.Errorf("got %q, want the context shop", got)
	}
}
