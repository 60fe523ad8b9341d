// Package parallel does several things at once, but not too many.
package parallel

import (
	"context"
	"sync"
)

// Each calls f for each number below n, at most so many at once, and waits for the calls. It
// begins no further one when ctx has ended.
func Each(ctx context.Context, n, atOnce int, f func(i int)) {
	slots := make(chan struct{}, atOnce)
	var calls sync.WaitGroup
	defer calls.Wait()
	for i := range n {
		if slots <- struct{}{}; ctx.Err() != nil {
			return
		}
		calls.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
}
