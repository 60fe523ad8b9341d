package terminal

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// WithProgress runs f, and writes a line about the progress every [LineEvery], so that a long command does not seem to
// hang.
func WithProgress(w io.Writer, progress func() string, f func() error) error {
	done := make(chan error, 1)
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { done <- f() })
	tick := time.NewTicker(LineEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			fmt.Fprintln(w, progress())
		}
	}
}
