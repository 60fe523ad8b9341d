package terminal

import (
	"context"
	"os"
	"sync"
	"syscall"
)

// Input is standard input; where the system allows it, so opened that the end of
// ctx ends a read.
func Input(ctx context.Context) *os.File {
	info, err := os.Stdin.Stat()
	if err != nil || info.Mode().IsRegular() {
		return os.Stdin
	}
	f, err := os.OpenFile("/proc/self/fd/0", os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return os.Stdin
	}
	context.AfterFunc(ctx, func() { f.Close() })
	return f
}

// WhileRead is a context that ends, with [syscall.EPIPE] as its cause, when nobody reads standard output any more, where the
// system can tell: a follower may have nothing to write for a long time, and would not
// find out.
func WhileRead(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	cancel := func() { end(nil) }
	info, err := os.Stdout.Stat()
	if err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return ctx, cancel
	}
	// Another opening of the same pipe, which the runtime can poll.
	f, err := os.OpenFile("/proc/self/fd/1", os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ctx, cancel
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		if pipe, err := f.SyscallConn(); err == nil && awaitReadable(pipe) == nil {
			end(syscall.EPIPE)
		}
	})
	return ctx, func() {
		cancel()
		f.Close()
		watching.Wait()
	}
}

// awaitReadable waits for what a pipe's writing end can be readable by only: the reading
// end has been closed. The error is that of a pipe that was closed on our side.
func awaitReadable(pipe syscall.RawConn) error {
	again := false
	return pipe.Read(func(uintptr) bool {
		defer func() { again = true }()
		return again
	})
}
