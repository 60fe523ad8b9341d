package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

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
		{[]string{"--cert", "", "--key-file", ""}, "--cert is empty: want a file"},
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
