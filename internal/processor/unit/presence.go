package unit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
	"github.com/millrace/changefeed/internal/variants"
)

// The other instances give leases only to instances that they see. So each instance writes a record of its own, apart
// from the leases. When the record is no longer renewed, the others know that the instance has ended.

// presence shows this instance to the others, with a record in the lease store.
type presence struct {
	in     *instance.Instance
	record feed.Record // as last written
}

// run shows the instance until ctx ends, at the same times as leases are renewed.
func (p *presence) run(ctx context.Context) {
	rng := p.in.Random("present")
	failures := 0
	for ctx.Err() == nil {
		err := p.in.Paced(ctx, rng, "", func() error { return p.writePresence(ctx) })
		if err == nil {
			failures = 0
			pause.For(ctx, p.in.Options.Renew-time.Since(p.in.Since)%p.in.Options.Renew)
			continue
		}
		failures++
		p.in.Report(ctx, feed.OriginBalancer, "", fmt.Errorf("show presence: %w", err))
		pause.For(ctx, min(p.in.Options.Renew, p.in.Backoff(rng, failures)))
	}
}

// writePresence writes the record. The record outlives two beats: a single late write does not make the instance look
// dead. The record does not outlive the leases, so that no instance leaves free leases to a dead instance.
func (p *presence) writePresence(ctx context.Context) error {
	record := p.record
	record.Kind, record.Token = feed.KindHost, p.in.Me.Instance+"/"+p.in.Me.Epoch
	record.Owner, record.Epoch = p.in.Me.Instance, p.in.Me.Epoch
	record.Expiration = min(p.in.Options.Renew*5/2, p.in.Options.Expiration)
	record.TTL = 2 * p.in.Options.Expiration
	for name, text := range sharing(p.in) {
		records.SetProperty(&record, name, text)
	}
	variants.Show(&record, p.in.Options.Variant, p.in.Since)
	variants.ShowSlow(&record, p.in.Slow.Values(), time.Now())
	record.Timestamp = instance.Timestamp()
	got, err := p.putRecord(ctx, record)
	if err == nil {
		p.record = got
		p.in.View.Put(got)
	}
	return err
}

// putRecord creates or updates the record. After a conflict, the answer of an earlier write of ours was lost, because
// no other instance writes this record.
func (p *presence) putRecord(ctx context.Context, record feed.Record) (feed.Record, error) {
	// announceLeaving needs the ETag of a record that may have been stored
	ctx, cancel := instance.Linger(ctx, p.in.Options.Drain)
	defer cancel()
	if record.ETag != "" {
		got, err := p.in.Store.Update(ctx, record)
		if errors.Is(err, feed.ErrNotFound) {
			p.in.Relist()
		}
		if !errors.Is(err, feed.ErrConflict) && !errors.Is(err, feed.ErrNotFound) {
			return got, err
		}
	}
	record.ETag = ""
	got, err := p.in.Store.Create(ctx, record)
	if !errors.Is(err, feed.ErrConflict) {
		return got, err
	}
	if err := p.in.View.List(ctx, time.Now()); err != nil {
		return feed.Record{}, err
	}
	for _, host := range p.in.View.Kind(feed.KindHost) {
		if records.OwnerOf(host) == p.in.Me {
			record.ETag, record.ID, record.Raw = host.ETag, host.ID, host.Raw
		}
	}
	return p.in.Store.Update(ctx, record)
}

// announceLeaving announces the end of the instance. Then the record stays until the time to live ends, because the
// feed for the others shows no deleted records.
func (p *presence) announceLeaving(ctx context.Context) {
	if record := p.record; record.ETag != "" {
		record.State, record.Timestamp = feed.StateRetired, instance.Timestamp()
		_, err := p.in.Store.Update(ctx, record)
		p.in.Report(ctx, feed.OriginLeaseStore, "", err)
	}
}

// cleanPresences removes the presence of instances that are long gone, if the store's time to live does not.
func (p *presence) cleanPresences(ctx context.Context) {
	for _, host := range p.in.View.Kind(feed.KindHost) {
		if host.Err == nil && records.IsKnownState(host.State) &&
			p.in.View.Now().Sub(host.Updated) > 3*p.in.Options.Expiration && records.OwnerOf(host) != p.in.Me {
			// An error is ignored, because another instance may be faster, or may have a right which we lack.
			deleting, cancel := context.WithTimeout(ctx, p.in.Options.Renew)
			_ = p.in.Store.Delete(deleting, host)
			cancel()
			p.in.View.Drop(host.ID)
			return // the next round removes the next record
		}
	}
}
