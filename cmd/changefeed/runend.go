package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// How run ends
//
// The first Ctrl-C or SIGTERM ends the processor, which waits for the batches in hand. The
// second one ends the process, and the programs with it: they are in groups of their own,
// so the terminal's signal does not reach them.

// exitInterrupted is the exit code of shells for a process that SIGINT has ended.
const exitInterrupted = 130

// An ending is what is said and done about the signals that end run.
type ending struct {
	to         io.Writer
	program    *program
	drain      time.Duration
	expiration time.Duration
	exit       func(code int)
}

// watch follows the signals of the process until the function that it returns is called.
func (e *ending) watch() (stop func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { e.follow(signals, over) })
	return func() {
		signal.Stop(signals)
		close(over)
		watching.Wait()
	}
}

// follow takes the first signal as what has ended the processor, and the second as an order.
func (e *ending) follow(signals <-chan os.Signal, over <-chan struct{}) {
	select {
	case <-signals:
	case <-over:
		return
	}
	fmt.Fprintln(e.to, e.waits())
	select {
	case <-signals:
	case <-over:
		return
	}
	cut := e.program.atWork()
	e.program.killAll()
	fmt.Fprintf(e.to, "changefeed run: ended at once; its leases are free in %v", e.expiration)
	if len(cut) > 0 {
		fmt.Fprintf(e.to, ", and the batches of %s come again", strings.Join(shortened(cut), ", "))
	}
	fmt.Fprintln(e.to)
	e.exit(exitInterrupted)
}

// waits says what the end waits for.
func (e *ending) waits() string {
	leases := e.program.atWork()
	if len(leases) == 0 {
		return "changefeed run: ending: no batch is in hand, the leases are freed; Ctrl-C again ends at once"
	}
	batches, have := "the batch", "has"
	if len(leases) > 1 {
		batches, have = "the batches", "have"
	}
	return fmt.Sprintf("changefeed run: ending: %s of %s %s %v to finish (--drain); Ctrl-C again ends at once",
		batches, strings.Join(shortened(leases), ", "), have, e.drain)
}

// shortened are tokens of leases, a few of them, for people.
func shortened(leases []string) (names []string) {
	const most = 3
	for _, token := range leases[:min(len(leases), most)] {
		names = append(names, short(token))
	}
	if n := len(leases) - most; n > 0 {
		names = append(names, fmt.Sprintf("%d more", n))
	}
	return names
}
