package cosmos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/millrace/changefeed/feed"
)

// countTimeout bounds a count, because the server needs more time for more pending changes.
const countTimeout = time.Minute

// Pending implements [feed.Counter]. If the server counts pending changes, as changefeed's own server does, lags are
// exact. Azure does not count: there Pending returns an [errors.ErrUnsupported], and an estimator uses the distances
// between LSNs.
func (c *Container) Pending(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Backlog,
	error,
) {
	if known, _ := c.client.regions.currentAccount(); !known.counts {
		return feed.Backlog{}, fmt.Errorf("count feed of %q: %w: the account counts no changes", c.id,
			errors.ErrUnsupported)
	}
	b, err := c.countPending(ctx, r, from, o)
	if err != nil {
		return feed.Backlog{}, fmt.Errorf("count feed of %q: %w", c.id, err)
	}
	return b, nil
}

// countPending asks for the count with a header of a feed's read, so that position, range and key are sent as in a
// read. If a server does not know the header, it answers with a page, which is no count.
func (c *Container) countPending(ctx context.Context, r feed.Range, from feed.Position,
	o feed.ReadOptions,
) (b feed.Backlog, err error) {
	if r.Empty() {
		return b, badRequest("range %v is empty: want min below max", r)
	}
	header, err := feedHeader(from, o)
	if err != nil {
		return b, err
	}
	// The server adds up the partitions of the range itself, so the request names no partition, and a split does not
	// matter.
	header.set(headerPending, "true")
	header.set(headerStartEPK, r.Min)
	header.set(headerEndEPK, r.Max)
	if o.Key != "" {
		if _, err := c.placeOf(o.Key); err != nil {
			return b, err
		}
		header.set(headerKey, c.keyHeader(string(o.Key)))
	}
	a, err := c.do(ctx, request{
		method: http.MethodGet, at: c.docs, header: header, action: actionFeed,
		within: countTimeout,
	})
	if err != nil {
		return b, tooOld(o.Mode, err)
	}
	var said struct {
		Items  *int64
		Oldest time.Time
		Ahead  bool
	}
	if err := json.Unmarshal(a.body, &said); err != nil || said.Items == nil {
		return b, fmt.Errorf("answer is %.100q: want a count", a.body)
	}
	return feed.Backlog{Items: *said.Items, Oldest: said.Oldest, Ahead: said.Ahead}, nil
}
