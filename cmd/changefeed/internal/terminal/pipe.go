package terminal

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
)

// Input returns standard input. If the system allows it, the end of ctx ends a read.
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

// Open opens a file for reading. The end of ctx ends the opening of a pipe that nobody writes to, and a read from it.
func Open(ctx context.Context, path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return os.Open(path)
	}
	type opened struct {
		file *os.File
		err  error
	}
	done := make(chan opened, 1)
	var opening sync.WaitGroup
	opening.Go(func() {
		f, err := os.Open(path)
		done <- opened{f, err}
	})
	select {
	case o := <-done:
		if o.err == nil {
			context.AfterFunc(ctx, func() { o.file.Close() })
		}
		return o.file, o.err
	case <-ctx.Done(): // the process ends, and the goroutine with it
		return nil, fmt.Errorf("open %s: %w", path, context.Cause(ctx))
	}
}

// WhileRead returns a context that ends, with [syscall.EPIPE] as the cause, when standard output has no reader any
// more, if the system can tell. Otherwise a follower without output for a long time would not notice.
func WhileRead(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	cancel := func() { end(nil) }
	info, err := os.Stdout.Stat()
	if err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return ctx, cancel
	}
	// Open the same pipe again in a form that the runtime can poll.
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

// awaitReadable waits until a pipe's writing end is readable, which happens only when the reading end has been closed.
// The error is that of a pipe closed on our side. The runtime reports a change, so a reading end that was closed before
// is looked for first.
func awaitReadable(pipe syscall.RawConn) error {
	again := false
	return pipe.Read(func(writing uintptr) bool {
		defer func() { again = true }()
		return again || hasNoReader(writing)
	})
}
