// Command size builds the stripped binary of changefeed, and fails if the binary is too large, or starts too slowly.
//
//	go run ./tools/size
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// The limits.
const (
	maxBytes = 45_000_000
	maxStart = 15 * time.Millisecond
)

// starts is how often each command is started. The fastest start counts, because other work on the machine makes a
// start slower and never faster.
const starts = 20

func main() {
	if err := check(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
}

// check builds the binary and measures it.
func check(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "changefeed-size-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "changefeed")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, "./cmd/changefeed")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build: %w", err)
	}
	info, err := os.Stat(binary)
	if err != nil {
		return err
	}
	fmt.Printf("%.1f MB\n", float64(info.Size())/1e6)
	var tooMuch error
	if info.Size() > maxBytes {
		tooMuch = fmt.Errorf("the binary has %d bytes: want %d at most", info.Size(), maxBytes)
	}
	for _, command := range []string{"version", "--help"} {
		fastest, err := start(ctx, binary, command)
		if err != nil {
			return err
		}
		fmt.Printf("changefeed %s: %.1f ms\n", command, float64(fastest.Microseconds())/1000)
		if fastest > maxStart {
			tooMuch = errors.Join(tooMuch, fmt.Errorf("%s takes %v: want %v at most", command, fastest, maxStart))
		}
	}
	return tooMuch
}

// start returns the shortest time from the start to the end of a command.
func start(ctx context.Context, binary, command string) (fastest time.Duration, err error) {
	for range starts {
		begun := time.Now()
		if err := exec.CommandContext(ctx, binary, command).Run(); err != nil {
			return 0, fmt.Errorf("%s: %w", command, err)
		}
		if spent := time.Since(begun); fastest == 0 || spent < fastest {
			fastest = spent
		}
	}
	return fastest, nil
}
