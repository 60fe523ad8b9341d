package cosmos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
	"github.com/millrace/changefeed/internal/pause"
)

// How a range is read
//
// A request names a physical partition by its id. If a range is part of the partition, because the lease was cut finer
// or because partitions were merged, the request also names the range, and the service then returns the changes of that
// part alone. Without the range, the service would read the whole partition, and two leases of a partition would both
// deliver all changes.
//
// A range across several partitions is gone: leases of the parts must replace the lease. The client finds the partition
// of a range in the last list of the container's partitions. If an id no longer exists, the service answers 410, and
// the client reads the list again.

// The values of the header A-IM.
const (
	feedLatest = "Incremental Feed"
	feedAll    = "Full-Fidelity Feed"
)

// wireFormat is the version of the feed of all versions that separates metadata from the item.
const wireFormat = "2021-09-15"

// mostFields is the largest number of headers specific to a read of a feed.
const mostFields = 10

// maxMoves limits how often the partitions are read again for a read: during a split the list and the service disagree
// for a while.
const maxMoves = 4

// Read implements [feed.Source]. If MaxItems is 0, the service chooses the size of a page, about 4 MB. The bodies of a
// page share memory: to keep a single body, clone the body.
func (c *Container) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
	page, err := c.readPage(ctx, r, from, o, 0)
	if err != nil {
		return feed.Page{}, fmt.Errorf("read feed of %q: %w", c.id, err)
	}
	return page, nil
}

// readPage reads a page. If there is no change yet, the server holds the request for at most hold.
func (c *Container) readPage(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions,
	hold time.Duration,
) (feed.Page, error) {
	a, err := c.feedAnswer(ctx, r, from, o, hold)
	if err != nil {
		return feed.Page{}, err
	}
	return c.pageOf(a, from, o.Mode)
}

// feedAnswer returns the answer that contains the page.
func (c *Container) feedAnswer(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions,
	hold time.Duration,
) (*answer, error) {
	header, err := feedHeader(from, o)
	if err != nil {
		return nil, err
	}
	if hold > 0 {
		header.set(headerPolling, strconv.FormatInt(hold.Milliseconds(), 10))
	}
	if o.Key != "" {
		place, err := c.placeOf(o.Key)
		if err != nil {
			return nil, err
		}
		// A read by key names no range, so the service would answer for any range, and every lease would deliver the
		// key's changes.
		if !r.Holds(place) {
			return nil, badRequest("range %v does not hold partition key %s, whose place is %s", r, o.Key, place)
		}
		header.set(headerKey, c.keyHeader(string(o.Key)))
	}
	a, err := c.sendRouted(ctx, r, request{
		method: http.MethodGet, at: c.docs, header: header, hold: hold, action: actionFeed, moves: true,
	})
	return a, tooOld(o.Mode, err)
}

// feedHeader returns the headers for the start position and the amount of a read.
func feedHeader(from feed.Position, o feed.ReadOptions) (fields, error) {
	h := make(fields, 0, mostFields)
	h = append(h, field{headerAIM, feedLatest}, field{headerMaxItems, "-1"})
	if o.MaxItems > 0 {
		h.set(headerMaxItems, strconv.Itoa(o.MaxItems))
	}
	if o.Mode == feed.AllVersionsAndDeletes {
		h.set(headerAIM, feedAll)
		h.set(headerWireFormat, wireFormat)
		if from.Token == "" && !from.Start.IsNow() {
			return nil, badRequest("start of all versions and deletes is %v: want now, or a continuation token",
				from.Start)
		}
	}
	switch {
	case !isHeader(from.Token):
		return nil, badRequest("continuation token is %.64q: want one that the service gave", from.Token)
	case from.Token != "":
		h.set(headerIfNoneMatch, from.Token)
	case from.Start.IsNow():
		h.set(headerIfNoneMatch, "*")
	}
	// The client sends the time together with a token too, because after a merge older items may follow the token. The
	// header has whole seconds and excludes its own second, so the client sends the second before, and page drops
	// changes that are too old.
	if t := from.Start.Time(); !t.IsZero() && o.Mode == feed.LatestVersion {
		h.set(headerIfModified, t.UTC().Add(-time.Second).Format(http.TimeFormat))
	}
	return h, nil
}

// sendRouted sends a read of a range to the partition that contains the range. If the service says that the partition
// has moved, or the list has no such partition, the client reads the list again: only if a fresh list has none, there
// was a split.
func (c *Container) sendRouted(ctx context.Context, r feed.Range, req request) (*answer, error) {
	if r.Empty() {
		return nil, badRequest("range %v is empty: want min below max", r)
	}
	set, err := c.partitions(ctx, func(*rangeSet) bool { return true })
	for moves := 0; err == nil; moves++ {
		part, held := set.holder(r)
		if !held && moves > 0 {
			return nil, fmt.Errorf("range %v: %w", r, feed.ErrGone)
		}
		if held {
			a, err := c.do(ctx, req.addressedTo(part, r))
			if e, ok := errors.AsType[*Error](err); !ok || !e.movedRange() || moves == maxMoves {
				return a, err
			}
		}
		if moves > 0 { // during a split or merge
			if err := pause.For(ctx, backoff(moves)); err != nil {
				return nil, err
			}
		}
		stale := set
		set, err = c.partitions(ctx, func(last *rangeSet) bool { return last != stale })
	}
	return nil, err
}

// addressedTo addresses a request to a range of a partition. If the request names a logical partition, that is address
// enough: the service finds the partition.
func (q request) addressedTo(partition feed.Partition, r feed.Range) request {
	if q.header.has(headerKey) {
		return q
	}
	h := append(make(fields, 0, mostFields), q.header...)
	h.set(headerRangeID, partition.ID)
	if r != partition.Range {
		h.set(headerKeyType, "EffectivePartitionKeyRange")
		h.set(headerStartEPK, r.Min)
		h.set(headerEndEPK, r.Max)
	}
	q.header = h
	return q
}

// tooOld distinguishes a position before the retention from other bad requests, by the message, because the service has
// no status for this case.
func tooOld(m feed.Mode, err error) error {
	e, ok := errors.AsType[*Error](err)
	if ok && m == feed.AllVersionsAndDeletes && e.Status == http.StatusBadRequest && saysTooOld(e.Message) {
		e.reason = feed.ErrTooOld
	}
	return err
}

// saysTooOld searches for words and not for a sentence, because texts of the service change.
func saysTooOld(message string) bool {
	message = strings.ToLower(message)
	return strings.Contains(message, "retention") && (strings.Contains(message, "older") ||
		strings.Contains(message, "outside"))
}

// pageOf reads an answer of the feed.
func (c *Container) pageOf(a *answer, from feed.Position, m feed.Mode) (page feed.Page, err error) {
	page.Next = from
	if etag := a.header.Get(headerETag); etag != "" {
		page.Next.Token = etag
	}
	if page.Next.Token == "" {
		return feed.Page{}, errors.New("answer of the feed has no etag")
	}
	page.Session = a.header.Get(headerSession)
	_, page.Head, _ = service.Session(page.Session)
	page.Charge = a.charge()
	if a.is(http.StatusOK) {
		page.Changes, err = c.readChanges(a.body, m)
	}
	if end, ok := service.LSN(a.header.Get(headerLSN)); ok && len(page.Changes) == 0 {
		if at, ok := service.LSN(from.Token); ok && at > end {
			page.Ahead, page.Head = true, end
		}
	}
	if since := from.Start.Time().Truncate(time.Second); !since.IsZero() { // the header asked for a second more
		page.Changes = slices.DeleteFunc(page.Changes, func(ch feed.Change) bool { return ch.Time.Before(since) })
	}
	return page, err
}

// ascii escapes the characters of a JSON text that a header cannot contain. The service reads the header as JSON, so
// escapes have the same meaning.
func ascii(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r < 0x7F:
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		}
	}
	return b.String()
}
