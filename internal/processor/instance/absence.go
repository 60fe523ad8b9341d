package instance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
)

// Absence remembers the reads of a monitored container that may be gone. If a read finds the container, the container
// exists. If a read fails for another reason, that proves nothing. So neither an outage nor a moved partition ends a
// unit.
type Absence struct {
	mu    sync.Mutex
	since time.Time // time of the first read that has not found the container, since no read had another result
	gone  error
}

// Disproved notes a read with another result.
func (a *Absence) Disproved() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.since = time.Time{}
}

// lastsFor notes a read without the container, and reports whether this has lasted for d.
func (a *Absence) lastsFor(d time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since.IsZero() {
		a.since = time.Now()
	}
	return time.Since(a.since) >= d
}

// Proven returns why the unit ends; nil if the unit goes on.
func (a *Absence) Proven() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.gone
}

// Note notes the error of a read, and reports whether the container is certainly gone: no read has found the container
// for the expiration of a lease, and its partitions are not found either.
func (a *Absence) Note(ctx context.Context, source feed.Source, expiration time.Duration, err error) (gone bool) {
	if !errors.Is(err, feed.ErrNotFound) {
		a.Disproved()
		return false
	}
	if !a.lastsFor(expiration) {
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

// ReadTimeout bounds a single read, as in the service's own processors.
const ReadTimeout = 65 * time.Second
