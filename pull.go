package changefeed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/keyspace"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
)

// Pulling has no leases: the caller stores the position. A single goroutine reads the ranges in turn and hands over
// each page before the next read. So the memory is bounded by a page, and a caller that stops has lost nothing.

// PullOptions say how [Pull] reads. The zero value reads the latest versions of all present items, and ends.
type PullOptions struct {
	feed.ReadOptions

	// Follow makes Pull wait for more changes at the end of the feed.
	Follow bool

	// Poll is the longest pause between reads at the end of the feed, 5 s by default. If the source is a [feed.Waiter],
	// Pull does not poll.
	Poll time.Duration
}

// Pull reads the change feed of r, after from, without leases and without a processor: the pull model. Pull yields
// pages with changes. Each page has the Range, and the position Next from which you can resume that range; ranges
// inside r take turns. Pull follows splits. An error is yielded once, as the last pair; the end of ctx is not yielded
// as an error.
//
// If a position lies after the end of the feed (Ahead of [feed.Page]), the feed has lost changes, or the position is of
// another feed, and changes up to the position would be left out. A replica that lags behind looks the same for a
// moment. So Pull reads again, also without Follow, and after 5 s the error is [feed.ErrAhead].
func Pull(ctx context.Context, source feed.Source, r feed.Range, from feed.Position, o PullOptions) iter.Seq2[feed.Page,
	error] {
	return func(yield func(feed.Page, error) bool) {
		p := puller{source: source, opts: o, poll: instance.FirstPoll}
		if p.opts.Poll <= 0 {
			p.opts.Poll = defaultPoll
		}
		p.parts = []part{{r: r, at: from}}
		if err := p.readInTurns(ctx, yield); err != nil && ctx.Err() == nil {
			yield(feed.Page{}, err)
		}
	}
}

// puller reads several ranges in turn.
type puller struct {
	source feed.Source
	opts   PullOptions
	parts  []part
	poll   time.Duration
}

// part is a part of the range, with the position up to which it has been read.
type part struct {
	r     feed.Range
	at    feed.Position
	ahead time.Time // since when the position lies after the end of the feed; zero otherwise
}

// aheadPatience is how long a position may lie after the end of the feed because a replica lags behind.
const aheadPatience = 5 * time.Second

// readInTurns reads a page of each part in turn, so that no range waits for the end of another.
func (p *puller) readInTurns(ctx context.Context, yield func(feed.Page, error) bool) error {
	for {
		found, ahead := false, false
		for i := 0; i < len(p.parts); i++ {
			page, err := p.readPart(ctx, i)
			if err != nil {
				return err
			}
			if len(page.Changes) == 0 {
				ahead = ahead || page.Ahead
				continue
			}
			found = true
			if !yield(page, nil) {
				return nil
			}
		}
		switch {
		case found:
			p.poll = instance.FirstPoll
		case ahead: // no source can wait for changes before a position
			p.pauseLonger(ctx)
		case !p.opts.Follow:
			return nil
		default:
			if err := p.waitForMore(ctx); err != nil {
				return err
			}
		}
	}
}

// readPart reads the next page of a part. If the range of the part is gone, readPart first cuts the part.
func (p *puller) readPart(ctx context.Context, i int) (feed.Page, error) {
	for ctx.Err() == nil {
		part := p.parts[i]
		page, err := p.source.Read(ctx, part.r, part.at, p.opts.ReadOptions)
		switch throttled, ok := errors.AsType[*feed.ThrottledError](err); {
		case err == nil:
			page.Range = part.r
			return page, p.moveOn(i, page)
		case errors.Is(err, feed.ErrGone):
			if err := p.cutPart(ctx, i); err != nil {
				return feed.Page{}, err
			}
			if p.parts[i] == part { // the source has not noticed the split yet
				p.pauseLonger(ctx)
			}
		case ok:
			p.pauseLonger(ctx)
			pause.For(ctx, throttled.After)
		default:
			return feed.Page{}, fmt.Errorf("read %s: %w", part.r, err)
		}
	}
	return feed.Page{}, context.Cause(ctx)
}

// moveOn moves a part to the end of a page. A part that stays ahead of the feed is an error.
func (p *puller) moveOn(i int, page feed.Page) error {
	at := &p.parts[i]
	if !page.Ahead || len(page.Changes) > 0 {
		at.at, at.ahead = page.Next, time.Time{}
		return nil
	}
	if at.ahead.IsZero() {
		at.ahead = time.Now()
	}
	if time.Since(at.ahead) < aheadPatience {
		return nil
	}
	return fmt.Errorf("read %s: %w: it is %s, and the feed ends at %d: was the container restored from a backup, or is "+
		"the position of another feed?", at.r, feed.ErrAhead, at.at.Token, page.Head)
}

// cutPart replaces a part by several, a part for each partition.
func (p *puller) cutPart(ctx context.Context, i int) error {
	partitions, err := p.source.Partitions(ctx)
	if err != nil {
		return err
	}
	whole := p.parts[i]
	ranges := keyspace.CutAt([]feed.Range{whole.r}, records.RangesOf(partitions))
	if locator, ok := p.source.(feed.Locator); ok && p.opts.Key != "" {
		place, err := locator.Locate(ctx, p.opts.Key)
		if err != nil {
			return err
		}
		if !whole.r.Holds(place) {
			return fmt.Errorf("%w: partition key %s is not in range %s", feed.ErrBadRequest, p.opts.Key, whole.r)
		}
		// the source would refuse the other ranges
		ranges = slices.DeleteFunc(ranges, func(r feed.Range) bool { return !r.Holds(place) })
	}
	var parts []part
	for _, r := range ranges {
		parts = append(parts, part{r: r, at: whole.at})
	}
	if len(parts) == 0 {
		return fmt.Errorf("%w: no partition holds %s", feed.ErrGone, whole.r)
	}
	p.parts = slices.Replace(p.parts, i, i+1, parts...)
	return nil
}

// waitForMore waits until a part may have more changes.
func (p *puller) waitForMore(ctx context.Context) error {
	waiter, ok := p.source.(feed.Waiter)
	if !ok {
		return p.pauseLonger(ctx)
	}
	// Unwanted writes wake a range too: pause, instead of a read for each of them.
	if err := pause.For(ctx, min(p.poll, instance.MaxGather)); err != nil {
		return err
	}
	p.poll = min(2*p.poll, p.opts.Poll)
	waiting, more := context.WithCancelCause(ctx)
	defer more(nil)
	var waits sync.WaitGroup
	for _, part := range p.parts {
		// the first part with more changes ends the wait of all
		waits.Go(func() { more(cmp.Or(waiter.Wait(waiting, part.r, part.at), errMore)) })
	}
	waits.Wait()
	cause := context.Cause(waiting)
	if errors.Is(cause, errors.ErrUnsupported) {
		return p.pauseLonger(ctx)
	}
	if ctx.Err() == nil && cause != errMore {
		return cause
	}
	return context.Cause(ctx)
}

// errMore ends the wait when a range has more changes.
var errMore = errors.New("a range has more")

// pauseLonger pauses, each time for longer, until a page has changes.
func (p *puller) pauseLonger(ctx context.Context) error {
	p.poll = min(2*p.poll, p.opts.Poll)
	return pause.For(ctx, p.poll)
}
