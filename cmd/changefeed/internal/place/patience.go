package place

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// Patience is for commands that run for hours. Patience is not part of package cosmos, which retries only a little,
// because a processor needs no more: the processor itself retries for ever, and reports.

// Patience retries while an account cannot be reached, because a server may be restarted and a network may return.
// Requests that fail at the same time share the limit.
type Patience struct {
	Limit time.Duration                    // 0 is a single try
	Say   func(format string, args ...any) // called when retries begin, and when one has succeeded

	mu     sync.Mutex
	since  time.Time // when the first of the presently failing requests failed
	failed time.Time // when the last of them failed
	said   bool      // the user knows that the account cannot be reached
}

// DefaultLimit is the limit of commands without a given limit.
const DefaultLimit = 10 * time.Minute

// awayFor is how long an account is away before the user is told. A server that ends still answers some requests and
// cuts off others, and a connection that was idle for too long is made again at once.
const awayFor = time.Second

// The pause before a retry, which doubles.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// Check refuses a negative limit, as a wrong flag --wait. A nil Patience is valid.
func (p *Patience) Check() error {
	if p != nil && p.Limit < 0 {
		return usage.Flag("wait", terminal.Exact(p.Limit), "0 or more")
	}
	return nil
}

// retryWhile calls f until f succeeds, fails for a reason that a retry cannot mend, or the limit has passed.
func (p *Patience) retryWhile(ctx context.Context, f func() error) error {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		begun := time.Now()
		err := f()
		switch {
		case err == nil:
			p.noteSuccess(begun)
			return nil
		case ctx.Err() != nil || !isAway(err) || !p.noteFailure(err):
			return err
		case pause.For(ctx, wait) != nil:
			return err
		}
	}
}

// noteFailure notes a failed request, and returns whether the limit allows a retry.
func (p *Patience) noteFailure(err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	// The limit counts from the first of all presently failing requests, and not for each: a command with ten waiting
	// requests must not wait ten times as long.
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

// noteSuccess notes a successful request. If the request began before another has failed, the success proves nothing:
// the answer may have been sent before the account went away.
func (p *Patience) noteSuccess(begun time.Time) {
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

// isAway reports whether an error says that an account cannot be reached now. Other answers of an account would be the
// same after a retry.
func isAway(err error) bool {
	if e, ok := errors.AsType[*cosmos.Error](err); ok {
		return e.Status >= http.StatusInternalServerError || e.Status == http.StatusRequestTimeout
	}
	// There are too many kinds of network errors to list them, so the list contains the errors that are no network
	// errors.
	for _, lasting := range []error{
		feed.ErrBadRequest, feed.ErrConflict, feed.ErrGone, feed.ErrThrottled, feed.ErrNotFound, http.ErrSchemeMismatch,
		errors.ErrUnsupported,
	} {
		if errors.Is(err, lasting) {
			return false
		}
	}
	_, untrusted := errors.AsType[x509.UnknownAuthorityError](err)
	_, misnamed := errors.AsType[x509.HostnameError](err)
	return !untrusted && !misnamed
}

// IsUnreachable reports whether an error says that an account or a server cannot be reached, or not without a key.
func IsUnreachable(err error) bool {
	op, network := errors.AsType[*net.OpError](err)
	network = network && op.Op != "listen" // that is an address of our own
	_, unknown := errors.AsType[*net.DNSError](err)
	_, untrusted := errors.AsType[x509.UnknownAuthorityError](err)
	_, misnamed := errors.AsType[x509.HostnameError](err)
	_, keyless := errors.AsType[*noKeyError](err)
	return network || unknown || untrusted || misnamed || keyless || errors.Is(err, http.ErrSchemeMismatch)
}

// MayPass reports whether an error may be gone at the next try: a store or an account could not be reached, was busy,
// or broke its answer off.
func MayPass(err error) bool {
	status := 0
	if e, ok := errors.AsType[*cosmos.Error](err); ok {
		status = e.Status
	} else if e, ok := errors.AsType[*callError](err); ok {
		status = e.status
	}
	if status >= http.StatusInternalServerError || status == http.StatusRequestTimeout ||
		status == http.StatusTooManyRequests {
		return true
	}
	for _, passing := range []error{
		docstore.ErrInUse, feed.ErrThrottled, io.EOF, io.ErrUnexpectedEOF, context.DeadlineExceeded,
	} {
		if errors.Is(err, passing) {
			return true
		}
	}
	late, ok := errors.AsType[net.Error](err)
	return ok && late.Timeout() || IsUnreachable(err)
}

// account is a container of an account, with all abilities of a source: those that depend on the server say
// [errors.ErrUnsupported] if the server lacks them.
type account interface {
	feed.Source
	abilities
}

// abilities are the optional abilities of a source.
type abilities interface {
	feed.Waiter
	feed.Counter
	feed.Locator
	feed.Sequencer
}

// patientSource is the source of an account, with retries while the account is away. Pending is not retried.
type patientSource struct {
	account
	retries *Patience
}

// patientSource makes a source patient.
func (p *Patience) patientSource(a account) feed.Source { return patientSource{a, p} }

// Partitions implements [feed.Source].
func (s patientSource) Partitions(ctx context.Context) (all []feed.Partition, err error) {
	err = s.retries.retryWhile(ctx, func() error {
		all, err = s.account.Partitions(ctx)
		return err
	})
	return all, err
}

// Read implements [feed.Source].
func (s patientSource) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (page feed.Page,
	err error,
) {
	err = s.retries.retryWhile(ctx, func() error {
		page, err = s.account.Read(ctx, r, from, o)
		return err
	})
	return page, err
}

// Wait implements [feed.Waiter]. If the account is away, Wait returns, so that the next read notices, and retries.
func (s patientSource) Wait(ctx context.Context, r feed.Range, from feed.Position) error {
	err := s.account.Wait(ctx, r, from)
	if err != nil && ctx.Err() == nil && isAway(err) {
		return nil
	}
	return err
}
