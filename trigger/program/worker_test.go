//go:build unix

package program_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/contract"
	"github.com/millrace/changefeed/trigger/contract/contracttest"
	"github.com/millrace/changefeed/trigger/program"
)

// The test binary itself is the program, if the environment says so.
func TestMain(m *testing.M) {
	switch os.Getenv("PROGRAM_TEST") {
	case "":
		os.Exit(m.Run())
	case "exits":
		fmt.Fprintln(os.Stderr, "no such mailbox")
		os.Exit(7)
	case "mute":
		time.Sleep(time.Minute)
	case "breaks":
		repeatMessages(`{"type":"nothing"}`)
	case "once":
		answerAndExit()
	case "hears":
		repeatEvents()
	case "listens":
		repeatMessages(`{"type":"heartbeat"}`)
	case "closes":
		os.NewFile(4, "to the host").Close()
		time.Sleep(time.Minute)
	}
	in, out := os.NewFile(3, "from the host"), os.NewFile(4, "to the host")
	var handler feed.Handler = contracttest.Handler(os.Exit, func(text string) { fmt.Fprintln(os.Stderr, text) })
	if os.Getenv("PROGRAM_TEST") == "deaf" {
		steered := handler
		handler = feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			return steered.Handle(context.Background(), b)
		})
	}
	atOnce := 8
	if os.Getenv("PROGRAM_TEST") == "single" {
		atOnce = 1
	}
	err := contract.Serve(context.Background(), in, out, handler, contract.ProgramOptions{Batches: atOnce})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// start starts a worker of a kind of program. The log is in memory.
func start(t *testing.T, kind string, o program.WorkerOptions) (*program.Worker, *lines) {
	t.Helper()
	t.Setenv("PROGRAM_TEST", kind)
	log := &lines{}
	o.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w, err := program.NewWorker([]string{os.Args[0]}, o)
	if err != nil {
		t.Fatal(err)
	}
	w.Start(t.Context())
	t.Cleanup(w.Close)
	return w, log
}

// lines is the text of a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns the text.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// batch is a batch of a lease with documents.
func batch(lease string, documents ...string) *feed.Batch {
	b := &feed.Batch{LeaseToken: lease, Range: feed.FullRange(), Instance: "one", Attempt: 1}
	for i, text := range documents {
		b.Changes = append(b.Changes, feed.Change{
			ID: fmt.Sprint(i), LSN: int64(i), PartitionKey: feed.Key("k"), Body: []byte(text),
		})
	}
	return b
}

// awaitRunning waits until a program has batches of n leases.
func awaitRunning(t *testing.T, w *program.Worker, n int) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for range 30_000 {
		if len(w.Running()) >= n {
			return
		}
		<-ticker.C
	}
	t.Fatalf("the program has batches of %v only", w.Running())
}

func isOutage(err error) bool {
	f, ok := errors.AsType[*feed.Failure](err)
	return ok && f.Outage
}

// The batch that a program has when it ends is at fault, with the exit code and the last line of standard error. The
// next batch is handled by a new program.
func TestABatchIsBlamedForTheEndOfItsProgram(t *testing.T) {
	w, log := start(t, "good", program.WorkerOptions{})
	err := w.Handle(t.Context(), batch("-FF", `{"do":"print","error":"out of memory"}`, `{"do":"exit","code":3}`))
	want := os.Args[0] + " has ended: exit status 3: out of memory"
	if err == nil || err.Error() != want || isOutage(err) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := w.Handle(t.Context(), batch("-FF", `{}`)); err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		"the program has ended and is started again", "out of memory", "exit status 3", "in=100ms", "the program runs",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, log)
		}
	}
}

// Before the next program has a batch, what the last one has handled and not confirmed is abandoned, however it ends.
func TestAnEndedProgramLeavesNothingToTheNext(t *testing.T) {
	for _, code := range []string{"0", "9"} {
		w, _ := start(t, "good", program.WorkerOptions{Manual: true})
		var abandoned []string
		handle := func(name string, documents ...string) error {
			b := batch(name, documents...)
			b.OnCheckpoint(func(context.Context) error { return nil })
			b.OnAbandon(func() { abandoned = append(abandoned, name) })
			return w.Handle(t.Context(), b)
		}
		if err := errors.Join(handle("handled", `{}`), handle("confirmed", `{"do":"checkpoint"}`)); err != nil {
			t.Fatal(err)
		}
		if err := handle("ends", `{"do":"exit","code":`+code+`}`); err == nil {
			t.Error("the batch that ends the program has not failed")
		}
		if err := handle("next", `{}`); err != nil || !slices.Equal(abandoned, []string{"handled"}) {
			t.Errorf("exit code %s: the next batch ends with %v, and %v are abandoned, want handled", code, err, abandoned)
		}
		w.Close()
	}
}

// A program that ends with 0 while it has a batch has not handled it, and is started again.
func TestAProgramThatEndsWithZeroIsStartedAgain(t *testing.T) {
	w, _ := start(t, "good", program.WorkerOptions{})
	err := w.Handle(t.Context(), batch("-FF", `{"do":"exit","code":0}`))
	if err == nil || !strings.Contains(err.Error(), "has ended: exit status 0") {
		t.Errorf("got %v", err)
	}
	if err := w.Handle(t.Context(), batch("-FF", `{}`)); err != nil {
		t.Error(err)
	}
}

// If a program ends with several batches in hand, none of them counts an attempt. They come again one at a time, so
// that only the one that ends the program is blamed.
func TestOfSeveralBatchesOnlyTheBadOneIsBlamed(t *testing.T) {
	w, _ := start(t, "good", program.WorkerOptions{})
	documents := map[string][]string{
		"a": {`{"do":"meet","n":3}`},
		"b": {`{"do":"meet","n":3}`, `{"do":"exit","code":9}`},
		"c": {`{"do":"meet","n":3}`, `{"do":"wait"}`},
	}
	outcomes := map[string]chan error{}
	for lease, all := range documents {
		outcome := make(chan error, 1)
		outcomes[lease] = outcome
		go func() { outcome <- w.Handle(t.Context(), batch(lease, all...)) }()
	}
	for lease, outcome := range outcomes {
		err := <-outcome
		if lease == "a" && err == nil {
			continue // answered before the end
		}
		if !isOutage(err) || !strings.Contains(err.Error(), "batches in hand; they come again one at a time") {
			t.Errorf("lease %s: got %v, want a failure that counts no attempt", lease, err)
		}
	}
	// Now the batches come again. They would meet if they were in the program at once, and they do not.
	again := make(chan error, 2)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { again <- w.Handle(ctx, batch("c", `{"do":"meet","n":2}`)) }()
	awaitRunning(t, w, 1)
	bad := make(chan error, 1)
	go func() { bad <- w.Handle(t.Context(), batch("b", `{"do":"exit","code":9}`)) }()
	cancel(feed.ErrLeaseLost)
	if err := <-again; !errors.Is(err, feed.ErrLeaseLost) {
		t.Errorf("the batch of c ends with %v", err)
	}
	if err := <-bad; err == nil || isOutage(err) || !strings.Contains(err.Error(), "exit status 9") {
		t.Errorf("the batch of b ends with %v, want a failure that counts", err)
	}
	// The suspects are cleared when they have come: batches are in the program at once again.
	for _, lease := range []string{"a", "b", "c"} {
		if err := w.Handle(t.Context(), batch(lease, `{}`)); err != nil {
			t.Error(err)
		}
	}
	for _, lease := range []string{"a", "b"} {
		go func() { again <- w.Handle(t.Context(), batch(lease, `{"do":"meet","n":2}`)) }()
	}
	for range 2 {
		if err := <-again; err != nil {
			t.Error(err)
		}
	}
}

// A program that cannot start, or says no hello, parks nothing: the failure counts no attempt.
func TestAProgramThatDoesNotStartIsAnOutage(t *testing.T) {
	for kind, want := range map[string]string{
		"exits": "has ended before its hello: exit status 7: no such mailbox",
		"mute": "wait for the hello of the program: not within 200ms: want it as a line, written to the descriptor in " +
			"$CHANGEFEED_WRITE_FD",
		"closes": "has closed a pipe of the contract, and did not end within 10ms: it was killed",
	} {
		o := program.WorkerOptions{Grace: 10 * time.Millisecond}
		if kind == "mute" { // the others end by themselves, as soon as the machine lets them
			o.Start = 200 * time.Millisecond
		}
		w, _ := start(t, kind, o)
		err := w.Handle(t.Context(), batch("-FF", `{}`))
		if !isOutage(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an outage with %q", kind, err, want)
		}
	}
}

// A batch whose time is over while its program starts is not at fault.
func TestABatchThatWaitsForItsProgramIsNotAtFault(t *testing.T) {
	w, _ := start(t, "mute", program.WorkerOptions{Grace: 10 * time.Millisecond})
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, feed.ErrHandlerTimeout)
	defer cancel()
	if err := w.Handle(ctx, batch("-FF", `{}`)); !isOutage(err) || !errors.Is(err, feed.ErrHandlerTimeout) {
		t.Errorf("got %v, want an outage by the timeout", err)
	}
}

// A program that does not give a batch of a lost lease up is killed after a twentieth of the expiration: another
// instance begins after a tenth.
func TestAProgramThatKeepsALostLeaseIsKilled(t *testing.T) {
	w, log := start(t, "deaf", program.WorkerOptions{Grace: time.Minute, Expiration: 4 * time.Second})
	ctx, cancel := context.WithCancelCause(t.Context())
	outcome := make(chan error, 1)
	go func() {
		outcome <- w.Handle(ctx, batch("-FF", `{"do":"print","error":"begun"}`, `{"do":"sleep","seconds":50}`))
	}()
	awaitLine(t, log, "begun") // a batch that was not sent would only be dropped
	began := time.Now()
	cancel(feed.ErrLeaseLost)
	if err := <-outcome; !errors.Is(err, feed.ErrLeaseLost) || time.Since(began) > 10*time.Second {
		t.Errorf("got %v after %v, want lease lost", err, time.Since(began))
	}
	if err := w.Handle(t.Context(), batch("-FF", `{}`)); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), contract.ErrNotHeeded.Error()) {
		t.Errorf("the log does not say why the program was killed:\n%s", log)
	}
}

// After a stop the batches in hand are finished, and a batch that is not is named.
func TestAStopFinishesTheBatchesInHand(t *testing.T) {
	t.Setenv("PROGRAM_TEST", "good")
	w, err := program.NewWorker([]string{os.Args[0]}, program.WorkerOptions{
		Grace: 5 * time.Second, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	w.Start(ctx)
	drained, give := context.WithCancelCause(t.Context())
	outcomes := [2]chan error{make(chan error, 1), make(chan error, 1)}
	go func() { outcomes[0] <- w.Handle(t.Context(), batch("good", `{"do":"sleep","seconds":0.3}`)) }()
	go func() { outcomes[1] <- w.Handle(drained, batch("slow", `{"do":"wait"}`)) }()
	awaitRunning(t, w, 2)
	stop()
	if err := <-outcomes[0]; err != nil {
		t.Error(err)
	}
	give(feed.ErrStopped)
	if err := <-outcomes[1]; !errors.Is(err, feed.ErrStopped) {
		t.Errorf("got %v, want stopped", err)
	}
	if got := w.Unfinished(); len(got) != 1 || got[0] != "slow" {
		t.Errorf("unfinished: %v, want slow", got)
	}
	w.Close()
}

// Kill ends the program at once, and no batch is handled after that.
func TestAKilledWorkerStartsNothing(t *testing.T) {
	w, _ := start(t, "good", program.WorkerOptions{})
	outcome := make(chan error, 1)
	go func() { outcome <- w.Handle(t.Context(), batch("-FF", `{"do":"wait"}`)) }()
	awaitRunning(t, w, 1)
	w.Kill()
	if err := <-outcome; err == nil {
		t.Error("a batch of a killed program is done")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := w.Handle(ctx, batch("-FF", `{}`)); !errors.Is(err, feed.ErrStopped) {
		t.Errorf("got %v, want stopped", err)
	}
}
