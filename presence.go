package changefeed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/pause"
)

// An instance that holds no lease yet can be given some only if the others see it. So
// each keeps a record of its own, apart from the leases, and its absence is how they
// see that it has ended.

// presence shows this instance to the others, by a record in the lease store.
type presence struct {
	r      *run
	record feed.Record // as last written
}

// run shows the instance until ctx ends, on the same beat as leases are renewed.
func (p *presence) run(ctx context.Context) {
	rng := p.r.random("present")
	failures := 0
	for ctx.Err() == nil {
		err := p.r.paced(ctx, rng, "", func() error { return p.show(ctx) })
		if err == nil {
			failures = 0
			pause.For(ctx, p.r.opts.Renew-time.Since(p.r.phase)%p.r.opts.Renew)
			continue
		}
		failures++
		p.r.report(ctx, feed.OriginBalancer, "", fmt.Errorf("show presence: %w", err))
		pause.For(ctx, min(p.r.opts.Renew, p.r.backoff(rng, failures)))
	}
}

// show writes the record. It outlives two beats, so that one late write is no death, but not
// the leases, so that nobody leaves free leases to a dead instance.
func (p *presence) show(ctx context.Context) error {
	record := p.record
	record.Kind, record.Token = feed.KindHost, p.r.me.Instance+"/"+p.r.me.Epoch
	record.Owner, record.Epoch = p.r.me.Instance, p.r.me.Epoch
	record.Expiration = min(p.r.opts.Renew*5/2, p.r.opts.Expiration)
	record.TTL = 2 * p.r.opts.Expiration
	if most := p.r.opts.MaxLeases; most > 0 {
		setProperty(&record, notes.MostProperty, notes.PlainNumber(int64(most)))
	}
	record.Timestamp = timestamp()
	got, err := p.put(ctx, record)
	if err == nil {
		p.record = got
		p.r.view.put(got)
	}
	return err
}

// put creates or updates the record. A conflict is an earlier write of ours whose answer
// was lost, because nobody else writes this record.
func (p *presence) put(ctx context.Context, record feed.Record) (feed.Record, error) {
	ctx, cancel := linger(ctx, p.r.opts.Drain) // retire needs the ETag of a record that may have been stored
	defer cancel()
	if record.ETag != "" {
		got, err := p.r.store.Update(ctx, record)
		if errors.Is(err, feed.ErrNotFound) {
			p.r.relist()
		}
		if !errors.Is(err, feed.ErrConflict) && !errors.Is(err, feed.ErrNotFound) {
			return got, err
		}
	}
	record.ETag = ""
	got, err := p.r.store.Create(ctx, record)
	if !errors.Is(err, feed.ErrConflict) {
		return got, err
	}
	if err := p.r.view.list(ctx, time.Now()); err != nil {
		return feed.Record{}, err
	}
	for _, host := range p.r.view.kind(feed.KindHost) {
		if ownerOf(host) == p.r.me {
			record.ETag, record.ID, record.Raw = host.ETag, host.ID, host.Raw
		}
	}
	return p.r.store.Update(ctx, record)
}

// retire announces that the instance leaves. The record is then left to its time to live,
// because a deleted record does not appear in the feed that others follow.
func (p *presence) retire(ctx context.Context) {
	if record := p.record; record.ETag != "" {
		record.State, record.Timestamp = feed.StateRetired, timestamp()
		_, err := p.r.store.Update(ctx, record)
		p.r.report(ctx, feed.OriginLeaseStore, "", err)
	}
}

// clean removes the presence of instances that are long gone, where the store's time to
// live does not.
func (p *presence) clean(ctx context.Context) {
	for _, host := range p.r.view.kind(feed.KindHost) {
		if host.Err == nil && isKnownState(host.State) && p.r.view.Now().Sub(host.Updated) > 3*p.r.opts.Expiration && ownerOf(host) != p.r.me {
			// An error is ignored, because another instance may be faster or have the right that we lack.
			deleting, cancel := context.WithTimeout(ctx, p.r.opts.Renew)
			_ = p.r.store.Delete(deleting, host)
			cancel()
			p.r.view.Drop(host.ID)
			return // the next round removes the next
		}
	}
}
