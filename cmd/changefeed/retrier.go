package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/usage"
)

// A retrier is how a command goes on trying while an account cannot be reached: a
// server that is started again, a network that is gone for a moment. Requests that fail
// at the same time share it.
type retrier struct {
	limit time.Duration
	say   func(format string, args ...any)

	mu    sync.Mutex
	since time.Time // when the first request failed of those that fail now
	told  bool      // that it cannot be reached
}

const (
	defaultPatience = 10 * time.Minute
	firstRetry      = 100 * time.Millisecond
	lastRetry       = 5 * time.Second
)

// patient adds the flag --patience to a command.
func (p *placeFlags) patient(cmd *cobra.Command) {
	p.retries = &retrier{say: func(format string, args ...any) {
		fmt.Fprintf(cmd.ErrOrStderr(), cmd.CommandPath()+": "+format+"\n", args...)
	}}
	cmd.Flags().DurationVar(&p.retries.limit, "patience", defaultPatience, "how long to try again when an account cannot be reached; 0s does not")
}

func (p *retrier) check() error {
	if p != nil && p.limit < 0 {
		return usage.Flag("patience", p.limit.String(), "0 or more")
	}
	return nil
}

// during calls f until it succeeds, fails for a reason that trying again cannot mend, or
// patience is at its end.
func (p *retrier) during(ctx context.Context, f func() error) error {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		err := f()
		switch {
		case err == nil:
			p.reached()
			return nil
		case ctx.Err() != nil || !isAway(err) || !p.lasts(err):
			return err
		case pause.For(ctx, wait) != nil:
			return err
		}
	}
}

// lasts notes that a request failed, and whether there is patience left.
func (p *retrier) lasts(err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		p.since = time.Now()
	}
	if time.Since(p.since) >= p.limit {
		return false
	}
	if !p.told {
		p.told = true
		p.say("%v; trying again for up to %v", err, p.limit)
	}
	return true
}

// reached notes that a request succeeded.
func (p *retrier) reached() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.told {
		p.say("going on: the account was away for %v", time.Since(p.since).Round(time.Second/10))
	}
	p.since, p.told = time.Time{}, false
}

// isAway tells the error of an account that cannot be reached, or not now. What an
// account answers otherwise it would answer again.
func isAway(err error) bool {
	if e, ok := errors.AsType[*cosmos.Error](err); ok {
		return e.Status >= http.StatusInternalServerError || e.Status == http.StatusRequestTimeout
	}
	for _, lasting := range []error{
		changefeed.ErrBadRequest, changefeed.ErrConflict, changefeed.ErrGone, changefeed.ErrThrottled, changefeed.ErrNotFound, http.ErrSchemeMismatch,
	} {
		if errors.Is(err, lasting) {
			return false
		}
	}
	return !isOf[x509.UnknownAuthorityError](err) && !isOf[x509.HostnameError](err)
}

// patientSource is the source of an account, read again while it is away.
type patientSource struct {
	changefeed.Source
	retries *retrier
}

// source makes a source patient.
func (p *retrier) source(s changefeed.Source) changefeed.Source {
	patient := patientSource{s, p}
	if w, ok := s.(changefeed.Waiter); ok {
		return patientWaiter{patient, w}
	}
	return patient
}

// Partitions implements [changefeed.Source].
func (s patientSource) Partitions(ctx context.Context) (all []changefeed.Partition, err error) {
	err = s.retries.during(ctx, func() error {
		all, err = s.Source.Partitions(ctx)
		return err
	})
	return all, err
}

// Read implements [changefeed.Source].
func (s patientSource) Read(ctx context.Context, r changefeed.Range, from changefeed.Position, o changefeed.ReadOptions) (page changefeed.Page, err error) {
	err = s.retries.during(ctx, func() error {
		page, err = s.Source.Read(ctx, r, from, o)
		return err
	})
	return page, err
}

// patientWaiter is a patientSource whose readers are pushed.
type patientWaiter struct {
	patientSource
	waiter changefeed.Waiter
}

// Wait implements [changefeed.Waiter]. When the account is away it returns, so that the
// next read finds out, and finds it again.
func (s patientWaiter) Wait(ctx context.Context, r changefeed.Range, from changefeed.Position) error {
	err := s.waiter.Wait(ctx, r, from)
	if err != nil && ctx.Err() == nil && isAway(err) {
		return nil
	}
	return err
}
