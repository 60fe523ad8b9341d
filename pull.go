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
)

// Pulling has no leases: the position is the caller's to keep. One goroutine reads the
// ranges in turn and hands over a page before it reads the next, so memory is bounded
// by one page and a caller that stops has lost nothing.

// PullOptions say how [Pull] reads. The zero value reads the latest versions of
// everything that is there, and ends.
type PullOptions struct {
	ReadOptions

	// Follow goes on waiting for changes at the end of the feed.
	Follow bool

	// Poll is the longest pause between reads at the end of the feed, 5 s by default.
	// A source that is a [Waiter] is not polled.
	Poll time.Duration
}

// Pull reads the change feed of r, after from, without leases and without a processor:
// the pull model. It yields pages that have changes, each with the Range that it came
// from and the position Next from which that range can be resumed; ranges inside r take
// turns. Splits are followed. An error is yielded once, as the last pair; it does not
// yield when ctx ends.
func Pull(ctx context.Context, source Source, r Range, from Position, o PullOptions) iter.Seq2[Page, error] {
	return func(yield func(Page, error) bool) {
		p := puller{source: source, opts: o, poll: firstPoll}
		if p.opts.Poll <= 0 {
			p.opts.Poll = defaultPoll
		}
		p.lanes = []lane{{r, from}}
		if err := p.run(ctx, yield); err != nil && ctx.Err() == nil {
			yield(Page{}, err)
		}
	}
}

// puller reads several ranges in turn.
type puller struct {
	source Source
	opts   PullOptions
	lanes  []lane
	poll   time.Duration
}

// lane is a range and how far it has been read.
type lane struct {
	r  Range
	at Position
}

// run reads the lanes in turns, a page of each, so that no range waits for the end of
// another.
func (p *puller) run(ctx context.Context, yield func(Page, error) bool) error {
	for {
		any := false
		for i := 0; i < len(p.lanes); i++ {
			page, err := p.read(ctx, i)
			if err != nil {
				return err
			}
			if len(page.Changes) == 0 {
				continue
			}
			any = true
			if !yield(page, nil) {
				return nil
			}
		}
		switch {
		case any:
			p.poll = firstPoll
		case !p.opts.Follow:
			return nil
		default:
			if err := p.wait(ctx); err != nil {
				return err
			}
		}
	}
}

// read reads the next page of a lane; a lane whose range is gone is cut first.
func (p *puller) read(ctx context.Context, i int) (Page, error) {
	for {
		l := p.lanes[i]
		page, err := p.source.Read(ctx, l.r, l.at, p.opts.ReadOptions)
		switch throttled, ok := errors.AsType[*ThrottledError](err); {
		case err == nil:
			p.lanes[i].at = page.Next
			page.Range = l.r
			return page, nil
		case errors.Is(err, ErrGone):
			if err := p.cut(ctx, i); err != nil {
				return Page{}, err
			}
			if p.lanes[i] == l && !p.rest(ctx) { // the source does not know its own partitions yet
				return Page{}, context.Cause(ctx)
			}
		case ok:
			if !p.rest(ctx) || !pause(ctx, throttled.After) {
				return Page{}, context.Cause(ctx)
			}
		default:
			return Page{}, fmt.Errorf("read %s: %w", l.r, err)
		}
	}
}

// cut replaces a lane by a lane for each partition.
func (p *puller) cut(ctx context.Context, i int) error {
	partitions, err := p.source.Partitions(ctx)
	if err != nil {
		return err
	}
	l := p.lanes[i]
	ranges := cutAt([]Range{l.r}, rangesOf(partitions))
	if locator, ok := p.source.(Locator); ok && p.opts.Key != "" {
		place, err := locator.Locate(ctx, p.opts.Key)
		if err != nil {
			return err
		}
		if !l.r.Holds(place) {
			return fmt.Errorf("%w: partition key %s is not in range %s", ErrBadRequest, p.opts.Key, l.r)
		}
		ranges = slices.DeleteFunc(ranges, func(r Range) bool { return !r.Holds(place) }) // the source would refuse them
	}
	var parts []lane
	for _, r := range ranges {
		parts = append(parts, lane{r, l.at})
	}
	if len(parts) == 0 {
		return fmt.Errorf("%w: no partition holds %s", ErrGone, l.r)
	}
	p.lanes = append(p.lanes[:i], append(parts, p.lanes[i+1:]...)...)
	return nil
}

// wait waits until some lane may have more.
func (p *puller) wait(ctx context.Context) error {
	waiter, ok := p.source.(Waiter)
	if !ok {
		if !p.rest(ctx) {
			return context.Cause(ctx)
		}
		return nil
	}
	// Writes that were not asked for wake a range too: pause, rather than read for each of them.
	if !pause(ctx, min(p.poll, maxGather)) {
		return context.Cause(ctx)
	}
	p.poll = min(2*p.poll, p.opts.Poll)
	waiting, more := context.WithCancelCause(ctx)
	defer more(nil)
	var lanes sync.WaitGroup
	for _, l := range p.lanes {
		lanes.Go(func() { more(cmp.Or(waiter.Wait(waiting, l.r, l.at), errMore)) }) // the first lane that has more ends the wait of all
	}
	lanes.Wait()
	if cause := context.Cause(waiting); ctx.Err() == nil && cause != errMore {
		return cause
	}
	return context.Cause(ctx)
}

// errMore ends the wait for news when there is some.
var errMore = errors.New("a range has more")

// rest pauses for longer each time, until a page comes.
func (p *puller) rest(ctx context.Context) bool {
	p.poll = min(2*p.poll, p.opts.Poll)
	return pause(ctx, p.poll)
}
