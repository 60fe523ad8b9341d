package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/program"
)

// Programs of the contract of run --long-lived. The program is this binary, which does nothing with a change, so the
// figures are those of the contract: a message to the program and an answer for each batch. Another program, such as
// one in Node, shows what its library costs.

const (
	triggerDocs    = 100_000
	triggerBytes   = 100
	triggerLeast   = 50_000 // changes a second
	triggerLatency = 3      // milliseconds beside a handler in Go
)

// HavePrograms reports whether a benchmark measures a long-lived program.
func HavePrograms(chosen []Benchmark) bool {
	return slices.ContainsFunc(chosen, func(b Benchmark) bool { return strings.HasPrefix(b.Name, "trigger_") })
}

// startProgram starts a program that does nothing, and waits until it has handled a change: its start is no part of the
// figures.
func (s *Site) startProgram(ctx context.Context) (*program.Worker, error) {
	command := s.Plan.Program
	if len(command) == 0 {
		command = []string{s.Plan.Binary, "program", "steered"}
	}
	w, err := program.NewWorker(command, program.WorkerOptions{
		Stdout: io.Discard, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	w.Start(ctx)
	first := feed.Change{ID: "first", LSN: 1, PartitionKey: feed.Key("first"), Time: time.Now(), Body: []byte("{}")}
	err = w.Handle(ctx, &feed.Batch{
		LeaseToken: "first", Range: feed.FullRange(), Epoch: 1, Attempt: 1, Changes: []feed.Change{first},
	})
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("hand a change to %s: %w", strings.Join(command, " "), err)
	}
	return w, nil
}

// triggerProgram measures a long-lived program with a single lease, beside a handler in Go.
func triggerProgram(ctx context.Context, s *Site) (f Figure, err error) {
	a, err := s.openAisle(ctx, "trigger", docstore.Options{})
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, a.db.Close()) }()
	fill := func() error { return a.writeDocuments(ctx, triggerDocs, happyKeys, triggerBytes) }
	if err := a.fillFast(fill); err != nil {
		return f, err
	}
	w, err := s.startProgram(ctx)
	if err != nil {
		return f, err
	}
	defer w.Close()
	rate := func(handle feed.HandlerFunc) (float64, error) {
		c := newCounter(triggerDocs)
		_, err := a.runUnit(ctx, func(ctx context.Context, b *feed.Batch) error {
			c.begin()
			err := handle(ctx, b)
			if err == nil {
				c.add(len(b.Changes))
			}
			return err
		}, changefeed.Options{}, c.over)
		return c.perSecond(), err
	}
	f.Unit = "changes/s"
	err = s.compareInTurns(ctx, &f, handleRounds,
		func() (float64, error) { return rate(w.Handle) },
		func() (float64, error) { return rate(func(context.Context, *feed.Batch) error { return nil }) })
	if err != nil {
		return f, err
	}
	f.atLeast(triggerLeast)
	f.Detail = fmt.Sprintf("%d changes of %d bytes, one lease, a batch is a page; a program that is another process "+
		"answers each batch; baseline: a handler in Go that does nothing", triggerDocs, triggerBytes)
	return f, nil
}

// triggerTail measures how much later a change is handled by a program than by a handler in Go.
func triggerTail(ctx context.Context, s *Site) (f Figure, err error) {
	w, err := s.startProgram(ctx)
	if err != nil {
		return f, err
	}
	defer w.Close()
	medians, tails, err := s.measurePulse(ctx, "latency-program", w)
	if err != nil {
		return f, err
	}
	nothing := feed.HandlerFunc(func(context.Context, *feed.Batch) error { return nil })
	ownMedians, ownTails, err := s.measurePulse(ctx, "latency-go", nothing)
	if err != nil {
		return f, err
	}
	f.Unit, f.Value = "ms", max(0, median(tails)-median(ownTails))
	f.AtMost(triggerLatency)
	f.Detail = fmt.Sprintf("from the acknowledged write to the answer of a long-lived program: 99 of 100 changes within "+
		"%.2f ms, half within %.2f ms; with a handler in Go %.2f ms and %.2f ms; the figure is the difference of the "+
		"99th percentiles; %d writes/s of 1 KB, fsync, 4 leases",
		median(tails), median(medians), median(ownTails), median(ownMedians), steadyRate)
	return f, nil
}
