package place

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/host/usage"
	"github.com/millrace/changefeed/internal/pause"
)

// Patience is for commands that run for hours. It stands outside package cosmos, whose
// own retries are few, because a processor needs none: it tries for ever, and reports.

// Patience goes on trying while an account cannot be reached, because a server may be started again and a network may
// come back. Requests that fail at the same time share its limit.
type Patience struct {
	Limit time.Duration                    // 0 tries once
	Say   func(format string, args ...any) // called when it begins to try again, and when it has succeeded

	mu     sync.Mutex
	since  time.Time // when the first request failed of those that fail now
	failed time.Time // when the last of them failed
	said   bool      // that the account cannot be reached
}

// DefaultLimit is the limit of commands that were given none.
const DefaultLimit = 10 * time.Minute

// awayFor is how long an account is away before anybody hears of it: one that ends answers some requests still and cuts off
// others, and a connection that was idle for too long is made again at once.
const awayFor = time.Second

// The pause before a retry, which doubles.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// Check refuses a limit below zero, as a wrong flag --patience. A nil Patience is right.
func (p *Patience) Check() error {
	if p != nil && p.Limit < 0 {
		return usage.Flag("patience", p.Limit.String(), "0 or more")
	}
	return nil
}

// during calls f until it succeeds, fails for a reason that trying again cannot mend, or
// patience is at its end.
func (p *Patience) during(ctx context.Context, f func() error) error {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		begun := time.Now()
		err := f()
		switch {
		case err == nil:
			p.reached(begun)
			return nil
		case ctx.Err() != nil || !isAway(err) || !p.lasts(err):
			return err
		case pause.For(ctx, wait) != nil:
			return err
		}
	}
}

// lasts notes that a request failed, and whether there is patience left.
func (p *Patience) lasts(err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	// The limit counts from the first of all requests that fail now, and not for each:
	// a command that waits with ten requests must not wait ten times as long.
	p.failed = time.Now()
	if p.since.IsZero() {
		p.since = p.failed
	}
	if time.Since(p.since) >= p.Limit {
		return false
	}
	if !p.said && time.Since(p.since) >= awayFor {
		p.said = true
		p.Say("the account is away (%v); trying for up to %v", err, p.Limit)
	}
	return true
}

// reached notes that a request succeeded. One that was begun before another has failed shows nothing: the answer may have
// been on its way when the account went away.
func (p *Patience) reached(begun time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if begun.Before(p.failed) {
		return
	}
	if p.said {
		p.Say("the account is back after %v", time.Since(p.since).Round(time.Second/10))
	}
	p.since, p.said = time.Time{}, false
}

// isAway reports whether an error is that of an account that cannot be reached now. Other answers of an account would be
// the same a second time.
func isAway(err error) bool {
	if e, ok := errors.AsType[*cosmos.Error](err); ok {
		return e.Status >= http.StatusInternalServerError || e.Status == http.StatusRequestTimeout
	}
	// Errors of the network come in too many kinds to be listed, so those are listed
	// that are no errors of the network.
	for _, lasting := range []error{
		feed.ErrBadRequest, feed.ErrConflict, feed.ErrGone, feed.ErrThrottled, feed.ErrNotFound, http.ErrSchemeMismatch, errors.ErrUnsupported,
	} {
		if errors.Is(err, lasting) {
			return false
		}
	}
	_, untrusted := errors.AsType[x509.UnknownAuthorityError](err)
	_, misnamed := errors.AsType[x509.HostnameError](err)
	return !untrusted && !misnamed
}

// patientSource is the source of an account, read again while it is away.
type patientSource struct {
	feed.Source
	feed.Locator
	retries *Patience
}

// source makes a source patient. To locate a key takes no request.
func (p *Patience) source(s feed.Source, l feed.Locator) feed.Source {
	patient := patientSource{s, l, p}
	if w, ok := s.(feed.Waiter); ok {
		return patientWaiter{patient, w}
	}
	return patient
}

// Partitions implements [feed.Source].
func (s patientSource) Partitions(ctx context.Context) (all []feed.Partition, err error) {
	err = s.retries.during(ctx, func() error {
		all, err = s.Source.Partitions(ctx)
		return err
	})
	return all, err
}

// Read implements [feed.Source].
func (s patientSource) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (page feed.Page, err error) {
	err = s.retries.during(ctx, func() error {
		page, err = s.Source.Read(ctx, r, from, o)
		return err
	})
	return page, err
}

// patientWaiter is a patientSource whose readers are pushed.
type patientWaiter struct {
	patientSource
	waiter feed.Waiter
}

// Wait implements [feed.Waiter]. When the account is away it returns, so that the
// next read finds out, and finds it again.
func (s patientWaiter) Wait(ctx context.Context, r feed.Range, from feed.Position) error {
	err := s.waiter.Wait(ctx, r, from)
	if err != nil && ctx.Err() == nil && isAway(err) {
		return nil
	}
	return err
}
