package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// A kill after the drain would come when the processor has given the handler up.
func TestTheGraceEndsBeforeTheDrain(t *testing.T) {
	for _, tt := range []struct {
		grace time.Duration
		taken bool
	}{
		{0, false},
		{time.Second, true},
		{10*time.Second - 1, true},
		{10 * time.Second, false},
		{11 * time.Second, false},
	} {
		o := runOptions{grace: tt.grace}
		o.Options.Drain = 10 * time.Second
		if err := o.checkFlags(); (err == nil) != tt.taken || err != nil && !errors.As(err, new(usage.Error)) {
			t.Errorf("a grace of %v beside a drain of 10s: %v", tt.grace, err)
		}
	}
}

// With --stdio nobody is killed, so the default of --grace must not refuse a short --drain.
func TestThereIsNoGraceForAParentProcess(t *testing.T) {
	for _, stdio := range []bool{false, true} {
		o := runOptions{grace: 5 * time.Second, stdio: stdio}
		o.Options.Drain = time.Second
		if err := o.checkFlags(); (err == nil) != stdio {
			t.Errorf("a drain of 1s beside the default grace of 5s, with --stdio=%v: %v", stdio, err)
		}
	}
}

// A receiver of requests is not killed either, and its unit has no --grace in the file of a host.
func TestThereIsNoGraceForAReceiver(t *testing.T) {
	for command, want := range map[string]bool{"http://127.0.0.1:1/orders": true, "cat": false} {
		o := &runOptions{}
		cmd := o.command()
		under("changefeed", cmd)
		if err := cmd.ParseFlags(strings.Fields("--source docstore:d#c --name n --drain 1s")); err != nil {
			t.Fatal(err)
		}
		if _, err := o.prepare(cmd, []string{command}); (err == nil) != want {
			t.Errorf("a drain of 1s beside the default grace of 5s, with %s: %v", command, err)
		}
	}
}

// A drain that is no time is named itself, and not the grace, which has its default.
func TestADrainThatIsNoTimeIsNamed(t *testing.T) {
	for _, drain := range []time.Duration{0, -time.Second} {
		o := runOptions{grace: time.Second}
		o.Options.Drain = drain
		if err := o.checkFlags(); !errors.As(err, new(usage.Error)) ||
			!strings.HasPrefix(err.Error(), "--drain is "+drain.String()) {
			t.Errorf("a drain of %v: %v", drain, err)
		}
	}
}

// Letters may be removed for good, so nothing is guessed.
func TestLettersAreNamedOrAllOfThem(t *testing.T) {
	for _, tt := range []struct {
		all   bool
		ids   []string
		taken bool
	}{{false, nil, false}, {true, nil, true}, {false, []string{"12.0"}, true}, {true, []string{"12.0"}, false}} {
		o := letterOptions{all: tt.all}
		o.query.IDs = tt.ids
		err := o.checkIDs()
		if (err == nil) != tt.taken || err != nil && !errors.As(err, new(usage.Error)) {
			t.Errorf("--all (%v) and IDs %v: %v", tt.all, tt.ids, err)
		}
		if missing := err != nil && strings.Contains(err.Error(), "is missing"); missing != (!tt.taken && !tt.all) {
			t.Errorf("--all (%v) and IDs %v: %v", tt.all, tt.ids, err)
		}
	}
}

// A least value is taken, and what is less is an error of usage.
func TestTheLeastValuesAreTaken(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	nowhere := []string{
		"relay", "--source", "docstore:" + t.TempDir() + "#none", "--name", "x", "--to", "embedded:" + t.TempDir(),
		"--expire-after",
	}
	for _, tt := range []struct {
		args  []string
		taken bool
	}{
		{append(nowhere, "1m"), true},
		{append(nowhere, "59s"), false},
		{[]string{"serve", "--listen", "127.0.0.1:0", "--http", "--memory", "84MB"}, true},
		{[]string{"serve", "--listen", "127.0.0.1:0", "--http", "--memory", "83MB"}, false},
	} {
		root := rootCommand(new(bool))
		root.SetArgs(tt.args)
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		if err := root.ExecuteContext(ended); errors.As(err, new(usage.Error)) == tt.taken {
			t.Errorf("%q: %v", tt.args, err)
		}
	}
}

// What is too much of a command line is never ignored: it could be what was meant.
func TestAMergeTakesTwoIDs(t *testing.T) {
	for _, tt := range []struct {
		args  []string
		taken bool
	}{
		{[]string{"1"}, false},
		{[]string{"1", "2"}, true},
		{[]string{"docstore:d#c", "1"}, false},
		{[]string{"docstore:d#c", "1", "2"}, true},
		{[]string{"0", "docstore:d#c", "1", "2"}, false},
	} {
		if err := mergeArgs(nil, tt.args); (err == nil) != tt.taken {
			t.Errorf("%q: %v", tt.args, err)
		}
	}
}

// A flag of a variable that is not set would be another server, such as one in memory.
func TestAnEmptyFlagOfAServerIsRefused(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"--db", ""}, "--db is empty: want a directory, or leave --db out for a store in memory"},
		{[]string{"--cert", "", "--cert-key", ""}, "--cert is empty: want a file"},
		{[]string{"--dedicated-gateway", ""}, "--dedicated-gateway is empty: want an address"},
		{[]string{"--roles", "", "--jwks", "", "--issuer", "", "--audience", ""}, "--roles is empty: want a file"},
	} {
		root := rootCommand(new(bool))
		root.SetArgs(append([]string{"serve", "--listen", "127.0.0.1:0"}, tt.args...))
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		if err := root.ExecuteContext(ended); !errors.As(err, new(usage.Error)) ||
			!strings.HasPrefix(err.Error(), tt.says) {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.says)
		}
	}
}

// A relay that cannot work says so before the relay makes a container or the directory of a broker.
func TestFlagsOfARelayAreCheckedFirst(t *testing.T) {
	dir, in := t.TempDir(), filepath.Join(t.TempDir(), "in.ndjson")
	if err := os.WriteFile(in, []byte(`{"id":"1","pk":"a"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "import", in, "docstore:"+dir+"#contacts", "--pk", "/pk")
	broker := filepath.Join(t.TempDir(), "nats")
	for _, tt := range [][3]string{
		{"origin", "://x%zz", `--origin is "://x%zz": want a URI reference`},
		{"origin", "a b", `--origin is "a b": want a URI reference`},
		{"origin", "", "--origin is empty: want URI"},
		{"sync", "-5s", "--sync is -5s: want a positive duration"},
		{"alarm", "-1s", "--alarm is -1s: want a positive duration"},
		{"broker-listen", "foo", "--broker-listen is foo: want a loopback address with a port"},
		{"broker-listen", "0.0.0.0:4222", "--broker-listen is 0.0.0.0:4222: want a loopback address with a port"},
	} {
		_, _, err := call(t, "relay", "--source", "docstore:"+dir+"#contacts", "--name", "r", "--create-leases",
			"--to", "embedded:"+broker, "--"+tt[0], tt[1])
		if !errors.As(err, new(usage.Error)) || !strings.HasPrefix(err.Error(), tt[2]) {
			t.Errorf("--%s %q: got %v, want %s", tt[0], tt[1], err, tt[2])
		}
		if _, err := os.Stat(broker); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("--%s %q: the broker's directory: %v", tt[0], tt[1], err)
		}
	}
}

// A mistake in another flag leaves no lease container behind, which would hide that the unit has never run.
func TestAnInstanceThatCannotBeginMakesNoLeases(t *testing.T) {
	dir, in := t.TempDir(), filepath.Join(t.TempDir(), "in.ndjson")
	if err := os.WriteFile(in, []byte(`{"id":"1","pk":"a"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "import", in, "docstore:"+dir+"#orders", "--pk", "/pk")
	for _, letters := range []string{
		filepath.Join(dir, "none", "letters"), "docstore:" + dir + "#orders", "docstore:" + dir + "/none#letters",
	} {
		_, _, err := call(t, "run", "--source", "docstore:"+dir+"#orders", "--name", "one", "--create-leases", "--once",
			"--max-attempts", "2", "--dead-letters", letters, "--", "cat")
		if err == nil || !strings.HasPrefix(err.Error(), "--dead-letters is ") {
			t.Errorf("letters in %s: got %v, want an error of --dead-letters", letters, err)
		}
		if _, _, err := call(t, "leases", "--db", dir); !errors.Is(err, place.ErrNoContainer) {
			t.Errorf("letters in %s: the leases: %v, want that there is no container", letters, err)
		}
	}
}

// A benchmark fills its store for a while, so another build is looked for before.
func TestABenchmarkLooksForTheOtherBuildFirst(t *testing.T) {
	dir := t.TempDir()
	for against, want := range map[string]string{
		filepath.Join(dir, "none"): ": there is no such file: want the binary",
		"no-such-command":          ": there is no such file",
		dir:                        ": want the binary of another build",
	} {
		_, said, err := call(t, "bench", "serve_upsert", "--against", against)
		_, missing := errors.AsType[usage.Missing](err)
		if missing != (against != dir) || !strings.HasPrefix(err.Error(), "--against is "+against+want) || said != "" {
			t.Errorf("got %v after %q", err, said)
		}
	}
}
