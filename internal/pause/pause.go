// Package pause waits, in a way that the end of a context cuts short.
package pause

import (
	"context"
	"time"
)

// For waits for d, or returns the cause of the end of ctx when that comes first.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
