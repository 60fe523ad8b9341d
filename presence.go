package changefeed

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// presence shows this instance to the others, by a record of its own.
type presence struct {
	r      *run
	record Record // as last written
}

// run shows the instance until ctx ends, on the same beat as its leases are renewed.
func (p *presence) run(ctx context.Context) {
	rng := p.r.random("present")
	failures := 0
	for ctx.Err() == nil {
		err := p.r.paced(ctx, rng, "", func() error { return p.show(ctx) })
		if err == nil {
			failures = 0
			pause(ctx, p.r.opts.Renew-time.Since(p.r.phase)%p.r.opts.Renew)
			continue
		}
		failures++
		p.r.report(ctx, OriginBalancer, "", fmt.Errorf("show presence: %w", err))
		pause(ctx, min(p.r.opts.Renew, p.r.backoff(rng, failures)))
	}
}

// show writes the record. It outlives two beats, and not the leases, so that nobody waits
// for a dead instance to take what is free.
func (p *presence) show(ctx context.Context) error {
	l := p.record
	l.Kind, l.Token = KindHost, p.r.me.Instance+"/"+p.r.me.Epoch
	l.Owner, l.Epoch = p.r.me.Instance, p.r.me.Epoch
	l.Expiration = min(p.r.opts.Renew*5/2, p.r.opts.Expiration)
	l.TTL = 2 * p.r.opts.Expiration
	l.Timestamp = timestamp()
	got, err := p.put(ctx, l)
	if err == nil {
		p.record = got
		p.r.view.put(got)
	}
	return err
}

// put creates or updates the record. A conflict is an earlier write of ours whose answer
// was lost, for nobody else writes it.
func (p *presence) put(ctx context.Context, l Record) (Record, error) {
	ctx, cancel := linger(ctx, p.r.opts.Drain) // a record that is cut off half-way would haunt the others
	defer cancel()
	if l.ETag != "" {
		got, err := p.r.store.Update(ctx, l)
		if !errors.Is(err, ErrConflict) && !errors.Is(err, ErrNotFound) {
			return got, err
		}
	}
	l.ETag = ""
	got, err := p.r.store.Create(ctx, l)
	if !errors.Is(err, ErrConflict) {
		return got, err
	}
	if err := p.r.view.list(ctx, time.Now()); err != nil {
		return Record{}, err
	}
	for _, h := range p.r.view.kind(KindHost) {
		if h.owner() == p.r.me {
			l.ETag, l.ID, l.Raw = h.ETag, h.ID, h.Raw
		}
	}
	return p.r.store.Update(ctx, l)
}

// retire says that the instance leaves. The record is then left to its time to live: one
// that is deleted does not appear in the feed that others follow.
func (p *presence) retire(ctx context.Context) {
	if l := p.record; l.ETag != "" {
		l.State, l.Timestamp = StateRetired, timestamp()
		_, err := p.r.store.Update(ctx, l)
		p.r.report(ctx, OriginLeaseStore, "", err)
	}
}

// clean removes the presence of instances that are long gone, where the store's time to
// live does not.
func (p *presence) clean(ctx context.Context) {
	for _, h := range p.r.view.kind(KindHost) {
		if h.Err == nil && h.State.isKnown() && p.r.view.now().Sub(h.Updated) > 3*p.r.opts.Expiration && h.owner() != p.r.me {
			// Somebody else may have been faster, or have the right that we lack.
			deleting, cancel := context.WithTimeout(ctx, p.r.opts.Renew)
			_ = p.r.store.Delete(deleting, h)
			cancel()
			p.r.view.drop(h.ID)
			return // one a round is enough
		}
	}
}
