package instance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
)

// Reports about failures: about retries, about the end of an outage, and about parked changes in the end.

// The pauses between attempts: the processor's defaults, for the log.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// repeats reports a repeated failure of a batch, and the time of the retry: after the second failure, the fourth, the
// eighth and so on. The log of errors has only a line a minute, and a person who waits for the end would take the
// silence for work.
type repeats struct {
	mu   sync.Mutex
	said int // the last reported attempt, of any batch
}

// hooks watch the failures of the handler.
func (r *repeats) hooks(log *slog.Logger, o changefeed.Options) changefeed.Hooks {
	return changefeed.Hooks{
		Error: func(_ context.Context, err *feed.Error) {
			failed, ok := errors.AsType[*feed.BatchError](err.Err)
			// then the batch is divided, or parked
			last := o.OnFailure.MaxAttempts > 0 && ok && failed.Attempt >= o.OnFailure.MaxAttempts
			if ok && !last && r.isNews(failed.Attempt) {
				log.Warn("a batch fails again and is tried again", "lease", err.Lease, "attempt", failed.Attempt,
					"next", pauseAfter(failed.Attempt, o).String())
			}
		},
		BatchDone: func(_ context.Context, d feed.BatchDone) {
			if d.Err == nil && d.Batch.Attempt > 1 { // the failing changes no longer fail
				r.mu.Lock()
				defer r.mu.Unlock()
				r.said = 0
			}
		},
	}
}

// isNews reports whether an attempt must be reported, and notes the report.
func (r *repeats) isNews(attempt int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if attempt < 2 || attempt&(attempt-1) != 0 || attempt <= r.said {
		return false
	}
	r.said = attempt
	return true
}

// pauseAfter returns approximately how long the processor waits after this many failures.
func pauseAfter(failures int, o changefeed.Options) time.Duration {
	wait := o.RetryMin
	for range failures - 1 {
		if wait = 2 * wait; wait >= o.RetryMax {
			return o.RetryMax
		}
	}
	return wait
}

// absence reports that an account that could not be reached is back. The log of errors has the beginning.
type absence struct {
	mu    sync.Mutex
	since time.Time // zero if the account can be reached
}

// hooks watch the requests for changes, the writes of leases, and the reports of other requests that have failed.
func (a *absence) hooks(log *slog.Logger) changefeed.Hooks {
	return changefeed.Hooks{
		ReadDone:  func(_ context.Context, d feed.ReadDone) { a.noteEnd(log, d.Err) },
		WaitDone:  func(_ context.Context, d feed.WaitDone) { a.noteEnd(log, d.Err) },
		StoreDone: func(_ context.Context, d feed.StoreDone) { a.noteEnd(log, d.Err) },
		Error: func(_ context.Context, err *feed.Error) {
			if err.Origin != feed.OriginHandler { // what a handler cannot reach is not the account
				a.noteEnd(log, err)
			}
		},
	}
}

// noteEnd notes the end of a request. Any error other than of the network does not say whether the account is there.
func (a *absence) noteEnd(log *slog.Logger, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err != nil && a.since.IsZero() && place.IsUnreachable(err):
		a.since = time.Now()
	case err == nil && !a.since.IsZero():
		log.Warn("the account is back", "after", time.Since(a.since).Round(time.Second/10).String())
		a.since = time.Time{}
	}
}

// parkedChanges counts the changes that an instance has parked.
type parkedChanges struct {
	mu                    sync.Mutex
	changes, held, redone int
}

// hooks count parked and redriven changes.
func (p *parkedChanges) hooks() changefeed.Hooks {
	return changefeed.Hooks{
		Parked: func(_ context.Context, l feed.DeadLetter) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.changes++
			if l.Disposition == feed.DispositionHeld {
				p.held++
			}
		},
		Redriven: func(_ context.Context, r feed.Redriven) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if r.Err == nil {
				p.redone++
			}
		},
	}
}

// reportParked says how many changes were parked, and where to find them.
func (p *parkedChanges) reportParked(say func(string), letters, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changes == 0 {
		return
	}
	text := terminal.Count(p.changes, "change") + " parked"
	if p.held > 0 {
		text += fmt.Sprintf(" (%d because an earlier change of the same key is parked)", p.held)
	}
	if p.redone > 0 {
		text += fmt.Sprintf("; %s handled again", terminal.Count(p.redone, "letter"))
	}
	say(fmt.Sprintf("ended: %s: see changefeed dlq list %s --name %s", text, letters, name))
}
