// Changefeed is the command of the change feed processor: it fills, reads and follows a store, and shows which
// instances process the changes.
//
// Each command is a file, and a line in root.go. Commands write their results to standard output and everything else
// to standard error. exit.go lists their exit codes.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/scratch"
)

// How far the heap may grow, in percent of the live part. Commands hold little memory and allocate much, page after
// page; with Go's default they would collect a hundred times a second. A server runs for a long time beside other
// programs, so a server uses less memory for a little more work.
const (
	commandGC = 400
	serverGC  = 200
)

// letHeapGrow sets how far the heap may grow, unless the user has set this.
func letHeapGrow(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// exitAtOnce ends the process after a second interrupt.
func exitAtOnce() { os.Exit(exitInterrupted) }

// main ends the command gracefully at the first interrupt, and at once at the second: a second Ctrl-C at any time, and
// a second SIGTERM or SIGHUP after scratch.SameSignal.
func main() {
	letHeapGrow(commandGC)
	ctx, stopInterrupts := signal.NotifyContext(context.Background(), os.Interrupt)
	ctx, stopTerminations := signal.NotifyContext(ctx, scratch.Terminations()...)
	context.AfterFunc(ctx, func() {
		stopInterrupts()
		time.AfterFunc(scratch.SameSignal, stopTerminations)
	})
	// If the reader of the output has gone, the write returns an error, so the command closes its stores. If the
	// signal were ignored, the programs that the command starts would ignore the signal too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
