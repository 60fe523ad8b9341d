package changeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// FollowLast writes the last n changes of a feed, in the order of their times, and then follows the feed as Follow
// does. No source can be read backwards, so FollowLast first reads the whole feed, and keeps n changes in memory.
func (f Form) FollowLast(ctx context.Context, to io.Writer, source feed.Source, r feed.Range, n int,
	o changefeed.PullOptions,
) error {
	follow := o.Follow
	o.Follow = false
	beginning := feed.Position{Start: feed.FromBeginning()}
	last, places := lastChanges{most: n}, map[feed.Range]string{}
	for page, err := range changefeed.Pull(ctx, source, r, beginning, o) {
		if err != nil {
			return fmt.Errorf("look for the last changes: %w", err)
		}
		last.addPage(page)
		advance(places, page.Range, page.Next.Token, o.Key != "")
	}
	if ctx.Err() != nil { // the changes so far are not the last
		return nil
	}
	w := NewWriter(to)
	for _, c := range last.ordered() {
		if err := f.Write(w, c.of, c.Change, c.next); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil || !follow {
		return err
	}
	o.Follow = true
	return f.Follow(ctx, to, resume(source, places), r, beginning, o)
}

// placed is a change with its range, and with the position after it if the source knows the position.
type placed struct {
	feed.Change
	of   feed.Range
	next string
}

// lastChanges are the newest changes of a feed.
type lastChanges struct {
	most int
	all  []placed // at most twice as many
}

// addPage adds the changes of a page.
func (l *lastChanges) addPage(page feed.Page) {
	for i, change := range page.Changes {
		c := placed{Change: change, of: page.Range}
		if i == len(page.Changes)-1 {
			c.next = page.Next.Token
		}
		if l.all = append(l.all, c); len(l.all) >= 2*l.most {
			l.all = l.ordered()
		}
	}
}

// ordered returns the newest changes, the oldest of them first. The pages of several ranges take turns, so they do not
// come in the order of their times.
func (l *lastChanges) ordered() []placed {
	slices.SortStableFunc(l.all, func(a, b placed) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.LSN, b.LSN))
	})
	return slices.Clone(l.all[max(len(l.all)-l.most, 0):])
}

// resumed is a source whose ranges begin where they were read to before.
type resumed struct {
	feed.Source
	places map[feed.Range]string
}

// resume returns a source whose ranges begin at their places.
func resume(source feed.Source, places map[feed.Range]string) feed.Source {
	s := resumed{source, places}
	if locator, ok := source.(feed.Locator); ok {
		return struct {
			resumed
			feed.Locator
		}{s, locator}
	}
	return s
}

// from returns the place of a range, in place of the beginning.
func (s resumed) from(r feed.Range, from feed.Position) feed.Position {
	if from.Token != "" {
		return from
	}
	for whole, token := range s.places {
		if whole.Contains(r) {
			return feed.At(token)
		}
	}
	return from // nothing was read of this range
}

// Read implements [feed.Source].
func (s resumed) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
	return s.Source.Read(ctx, r, s.from(r, from), o)
}

// Wait implements [feed.Waiter].
func (s resumed) Wait(ctx context.Context, r feed.Range, from feed.Position) error {
	if waiter, ok := s.Source.(feed.Waiter); ok {
		return waiter.Wait(ctx, r, s.from(r, from))
	}
	return errors.ErrUnsupported
}
