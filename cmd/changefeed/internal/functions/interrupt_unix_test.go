//go:build unix

package functions

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/function"
)

// A host counts the units that have killed their programs before it ends the process, so an app of several functions
// says so once.
func TestAnAppEndsTheProcessOnce(t *testing.T) {
	w := newWorld(t, 1)
	w.createLeases()
	names := []string{"Seen", "Good"}
	for _, name := range names {
		w.writeFunction(name, `,"leaseContainerPrefix":"`+name+`"`)
	}
	app, err := function.ReadApp(w.dir, function.ReadOptions{Environ: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	ready, said, exits := make(chan bool, len(names)), make(chan string, 10), atomic.Int32{}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	ctx, cancel := context.WithTimeout(t.Context(), runLimit)
	defer cancel()
	await := func(word string) {
		for range names {
			select {
			case text := <-said:
				if !strings.Contains(text, word) {
					t.Errorf("got %q, want %q", text, word)
				}
			case <-ctx.Done():
				t.Fatalf("nobody has said %q", word)
			}
		}
	}
	outcome := make(chan error, 1)
	go func() {
		outcome <- Run(ctx, app, Settings{
			Options: changefeed.Options{Instance: "one", Drain: 10 * time.Second, Hooks: feed.Hooks{
				Ready: func(context.Context) { ready <- true },
			}},
			Log: log, FunctionLog: log, Signals: []os.Signal{os.Interrupt},
			Say: func(text string) { said <- text }, Exit: func() { exits.Add(1) },
		})
	}()
	for range names {
		select {
		case <-ready:
		case err := <-outcome:
			t.Fatalf("ended with %v", err)
		}
	}
	for _, word := range []string{": ending: ", ": ended at once; "} {
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		await(word)
	}
	cancel()
	<-outcome
	if n := exits.Load(); n != 1 {
		t.Errorf("the process was ended %d times, want once", n)
	}
}
