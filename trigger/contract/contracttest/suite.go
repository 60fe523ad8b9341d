package contracttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/program"
)

// Options are the optional settings of a test.
type Options struct {
	// Log receives what the program writes to its standard error. Nil discards it.
	Log *slog.Logger

	// Only are the names of the cases to run; none means all.
	Only []string

	// Patience is how long a program may take for each step, such as its start. The default is 10 seconds.
	Patience time.Duration
}

// Result is the result of a case.
type Result struct {
	Name    string        // what the program has to do
	Err     error         // what it does instead; nil if it does that
	Skipped string        // why the case was not run; empty if it was
	Took    time.Duration // including the start of the program
}

// String returns the result as a line.
func (r Result) String() string {
	switch {
	case r.Err != nil:
		return fmt.Sprintf("FAIL %s: %v", r.Name, r.Err)
	case r.Skipped != "":
		return fmt.Sprintf("skip %s: %s", r.Name, r.Skipped)
	}
	return "ok   " + r.Name
}

// Names returns the names of all cases.
func Names() (names []string) {
	for _, c := range cases {
		names = append(names, c.name)
	}
	return names
}

// Test runs the cases with a command, which is started anew for each of them, and reports each result. It returns the
// number of failed cases. The error is that of a command that does not exist, or of ctx.
func Test(ctx context.Context, command []string, o Options, report func(Result)) (failed int, err error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Patience == 0 {
		o.Patience = 10 * time.Second
	}
	if _, err := program.NewWorker(command, program.WorkerOptions{}); err != nil {
		return 0, err
	}
	for _, name := range o.Only {
		if !slices.Contains(Names(), name) {
			return 0, fmt.Errorf("there is no case %q", name)
		}
	}
	for _, c := range cases {
		if len(o.Only) > 0 && !slices.Contains(o.Only, c.name) {
			continue
		}
		began := time.Now()
		err := runCase(ctx, command, o, c)
		if ctx.Err() != nil {
			return failed, context.Cause(ctx)
		}
		result := Result{Name: c.name, Err: err, Took: time.Since(began)}
		if skipped, ok := errors.AsType[skip](err); ok {
			result.Err, result.Skipped = nil, string(skipped)
		}
		if result.Err != nil {
			failed++
		}
		report(result)
	}
	return failed, nil
}

// skip says why a case cannot be run with a program.
type skip string

// Error returns the reason.
func (s skip) Error() string { return string(s) }

// runCase runs a case with a new program.
func runCase(ctx context.Context, command []string, o Options, c testCase) error {
	r := &run{o: o, logged: &lineKeeper{Handler: o.Log.Handler()}}
	settings := program.WorkerOptions{
		Unit: "test", Instance: "host-1", Grace: o.Patience, Expiration: 20 * o.Patience, Drain: o.Patience,
		Start: o.Patience, Stdout: io.Discard, Log: slog.New(r.logged),
	}
	settings.Status, settings.CaughtUp = r.unit.answerStatus, r.unit.awaitCaughtUp
	if c.settings != nil {
		c.settings(&settings)
	}
	w, err := program.NewWorker(command, settings)
	if err != nil {
		return err
	}
	r.Worker = w
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.stop = cancel
	w.Start(ctx)
	err = c.run(ctx, r)
	r.calls.Wait() // each has a limit of time
	closing := time.Now()
	w.Close()
	if took := time.Since(closing); err == nil && took > o.Patience {
		err = fmt.Errorf("the program goes on for %v after the end of its input: want it to end within %v",
			took.Round(time.Millisecond), o.Patience)
	}
	return err
}

// run is a program under test.
type run struct {
	*program.Worker
	o      Options
	stop   func() // tells the program that no further batch comes
	logged *lineKeeper
	calls  sync.WaitGroup // batches in hand
	unit   unit

	mu     sync.Mutex
	nextID int64
}

// batch returns a batch of documents.
func (r *run) batch(lease string, documents ...string) *feed.Batch {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := &feed.Batch{
		LeaseToken: lease, Range: feed.FullRange(), Instance: "host-1", Epoch: 1, Attempt: 1,
		Changes: make([]feed.Change, len(documents)),
	}
	for i, text := range documents {
		r.nextID++
		b.Changes[i] = feed.Change{
			ID: fmt.Sprint(r.nextID), LSN: r.nextID, PartitionKey: feed.Key("k"), Time: time.Unix(r.nextID, 0).UTC(),
			Body: []byte(text),
		}
	}
	return b
}

// handle hands documents over, at most for the patience of the test.
func (r *run) handle(ctx context.Context, documents ...string) error {
	return r.handleBatch(ctx, r.batch("-FF", documents...))
}

func (r *run) handleBatch(ctx context.Context, b *feed.Batch) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*r.o.Patience, errLate) // the program may have to start first
	defer cancel()
	return r.Handle(ctx, b)
}

// errLate is the outcome of a batch without an answer.
var errLate = errors.New("there was no answer in time")

// lineKeeper is a handler of a log that keeps its messages.
type lineKeeper struct {
	slog.Handler

	mu    sync.Mutex
	lines []string
}

// Enabled keeps all levels.
func (k *lineKeeper) Enabled(context.Context, slog.Level) bool { return true }

// Handle keeps the message and passes the record on.
func (k *lineKeeper) Handle(ctx context.Context, record slog.Record) error {
	k.mu.Lock()
	k.lines = append(k.lines, record.Message)
	k.mu.Unlock()
	if k.Handler.Enabled(ctx, record.Level) {
		return k.Handler.Handle(ctx, record)
	}
	return nil
}
