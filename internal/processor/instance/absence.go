package instance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
)

// Absence is what reads have shown about a monitored container that may be gone. A read that finds it, or fails for another
// reason, shows that it is not, or nothing: so no outage ends a unit, nor a partition that has moved.
type Absence struct {
	mu    sync.Mutex
	since time.Time // of the first read that has not found the container, since which no other read has come out otherwise
	gone  error
}

// Disproved notes a read that came out otherwise.
func (a *Absence) Disproved() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.since = time.Time{}
}

// lasts notes a read that has not found the container, and reports whether that has lasted for so long.
func (a *Absence) lasts(d time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since.IsZero() {
		a.since = time.Now()
	}
	return time.Since(a.since) >= d
}

// Proven is why the unit ends; nil as long as it does not.
func (a *Absence) Proven() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.gone
}

// Note goes by the error of a read, and reports whether it proves that the container is gone: no read finds it for as long as a
// lease lives, and it has no partitions either.
func (a *Absence) Note(ctx context.Context, source feed.Source, expiration time.Duration, err error) (gone bool) {
	if !errors.Is(err, feed.ErrNotFound) {
		a.Disproved()
		return false
	}
	if !a.lasts(expiration) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, ReadTimeout)
	defer cancel()
	if _, err = source.Partitions(ctx); !errors.Is(err, feed.ErrNotFound) {
		a.Disproved()
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = fmt.Errorf("%w: %w", feed.ErrSourceGone, err)
	return true
}

// ReadTimeout bounds one read, as the service's own processors do.
const ReadTimeout = 65 * time.Second
