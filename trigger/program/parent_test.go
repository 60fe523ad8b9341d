package program_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/contract"
	"github.com/millrace/changefeed/trigger/program"
)

// attached is a Parent with its program, in a bubble.
type attached struct {
	*program.Parent

	served chan error     // the result of the program
	out    io.WriteCloser // the end of the pipe that the program has
}

// attach connects a Parent with a program that has a handler.
func attach(t *testing.T, handler feed.Handler) *attached {
	t.Helper()
	fromHost, toProgram := io.Pipe()
	fromProgram, toHost := io.Pipe()
	a := &attached{served: make(chan error, 1), out: toHost}
	go func() {
		a.served <- contract.Serve(t.Context(), fromHost, toHost, handler, contract.ProgramOptions{})
		toHost.Close()
	}()
	var err error
	a.Parent, err = program.Attach(t.Context(), fromProgram, toProgram, program.WorkerOptions{
		Grace: time.Second, Expiration: time.Second, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// waiting is a handler that waits until its batch is canceled, and then for some time.
func waiting(after time.Duration) feed.Handler {
	return feed.HandlerFunc(func(ctx context.Context, _ *feed.Batch) error {
		<-ctx.Done()
		time.Sleep(after)
		return context.Cause(ctx)
	})
}

// No change is at fault if the parent process ends with a batch in hand.
func TestAParentThatEndsIsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := attach(t, waiting(0))
		outcome := make(chan error, 1)
		go func() { outcome <- a.Handle(t.Context(), oneDocument("-FF")) }()
		synctest.Wait()
		a.out.Close()
		err := <-outcome
		if f, ok := errors.AsType[*feed.Failure](err); !ok || !f.Outage || !errors.Is(err, contract.ErrEnded) {
			t.Errorf("got %v, want an outage", err)
		}
		<-a.served
	})
}

// A parent process is not killed, so its processor waits for the answer to a cancel, and keeps the connection.
func TestAParentMayBeSlowToGiveABatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := attach(t, waiting(time.Hour))
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(feed.ErrLeaseLost) })
		began := time.Now()
		err := a.Handle(ctx, oneDocument("-FF"))
		if took := time.Since(began); !errors.Is(err, feed.ErrLeaseLost) || took <= time.Hour || a.Err() != nil {
			t.Errorf("got %v after %v, want lease lost after an hour; the connection: %v", err, took, a.Err())
		}
		a.Close()
		if err := <-a.served; err != nil { // nil only after a stop
			t.Errorf("the program takes an orderly end for %v", err)
		}
	})
}

// The stop says how long the batches in hand have, and not how long the program has after them.
func TestAParentHearsHowLongItsBatchesHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fromHost, toProgram := io.Pipe()
		fromProgram, toHost := io.Pipe()
		told := make(chan string, 1)
		go func() {
			_, _ = io.WriteString(toHost, `{"type":"hello","version":1}`+"\n")
			all, _ := io.ReadAll(fromHost)
			told <- string(all)
			toHost.Close()
		}()
		ctx, stop := context.WithCancel(t.Context())
		p, err := program.Attach(ctx, fromProgram, toProgram, program.WorkerOptions{
			Grace: 5 * time.Second, Drain: 7 * time.Second, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		stop()
		synctest.Wait()
		p.Kill()
		if got := <-told; !strings.HasSuffix(got, `{"type":"stop","seconds":7}`+"\n") {
			t.Errorf("the program is told %s, want a stop with 7 s", got)
		}
	})
}

func oneDocument(lease string) *feed.Batch {
	return &feed.Batch{
		LeaseToken: lease, Range: feed.FullRange(), Attempt: 1,
		Changes: []feed.Change{{ID: "1", LSN: 1, PartitionKey: feed.Key("k"), Body: []byte(`{}`)}},
	}
}

// A watched handler knows a lease as long as it has a batch of it. The end of the context of Watch cancels nothing;
// Kill does.
func TestAWatchedHandlerKnowsItsLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		end := make(chan struct{})
		w := program.Watch(ctx, feed.HandlerFunc(func(ctx context.Context, _ *feed.Batch) error {
			select {
			case <-end:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}))
		outcomes := make(chan error, 2)
		for range 2 { // with --concurrency
			go func() { outcomes <- w.Handle(t.Context(), oneDocument("-FF")) }()
		}
		synctest.Wait()
		stop()
		end <- struct{}{}
		if err := <-outcomes; err != nil {
			t.Errorf("a batch in hand ends with %v", err)
		}
		synctest.Wait()
		if got := w.Running(); !slices.Equal(got, []string{"-FF"}) {
			t.Errorf("running: %v, want the lease of the second batch", got)
		}
		w.Kill()
		if err := <-outcomes; !errors.Is(err, feed.ErrStopped) {
			t.Errorf("a killed batch ends with %v, want stopped", err)
		}
		synctest.Wait()
		if got := w.Running(); len(got) != 0 {
			t.Errorf("running: %v, want none", got)
		}
	})
}
