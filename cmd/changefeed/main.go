// Changefeed is the command of the change feed processor: it fills a store, empties it,
// follows its changes, and shows who works on them.
//
// Each command is a file, and a line in root.go. Commands write what they are for to
// standard output and everything else to standard error; they exit with 0, with 1 when
// they failed or left something out, and with 2 when they were called wrongly.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

// How far the heap may grow, in percent of the live part. Commands hold little and allocate
// much, page after page: by Go's default they would collect a hundred times a second. A
// server runs for long beside other programs, so it takes less memory for a little more
// work.
const (
	commandGC = 400
	serverGC  = 200
)

// letHeapGrow sets how far the heap may grow, unless the user did.
func letHeapGrow(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// main ends the command gently at the first interrupt, and at once at the second.
func main() {
	letHeapGrow(commandGC)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process the hard way
	// A reader that went away is an error of the write, so that stores are closed. To
	// ignore the signal would have the programs that we start ignore it too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	os.Exit(execute(ctx, os.Args[1:]))
}
