package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// The members of the mark that a published event receives if the event expires after the publication: the time of the
// publication, and the LSN that the event had before the mark. The write of the mark moves the event in the feed,
// behind events that were committed later; that LSN says where the event belongs.
const (
	published    = "published"
	publishedLSN = "publishedLsn"
)

// lsnBefore returns the LSN of an event before the mark; ok is false if the event has no mark. A foreign event may have
// a member with the name published.
func lsnBefore(c *feed.Change) (lsn int64, ok bool) {
	if rawjson.Text(rawjson.Lookup(c.Body, published)) == "" {
		return 0, false
	}
	lsn, err := strconv.ParseInt(string(rawjson.Lookup(c.Body, publishedLSN)), 10, 64)
	return lsn, err == nil
}

func isMarked(c *feed.Change) bool {
	_, ok := lsnBefore(c)
	return ok
}

// rightfulLSN returns the LSN of the commit of an event, even if a mark has moved the event.
func rightfulLSN(c *feed.Change) int64 {
	if lsn, ok := lsnBefore(c); ok {
		return lsn
	}
	return c.LSN
}

// LeastExpireAfter is the smallest [RelayOptions.ExpireAfter]. If an answer was lost, a unit of work can find the
// events for at least this time, published or not.
const LeastExpireAfter = time.Minute

// expirePublished lets the published events of a key expire, if the options say so. It returns the number of finished
// events.
func (r *Relay) expirePublished(ctx context.Context, chain []event) (n int, err error) {
	if r.opts.Container == nil {
		return len(chain), nil
	}
	for n < len(chain) {
		part := chain[n:min(n+service.MaxBatch, len(chain))]
		if err := r.expireBatch(ctx, part); err != nil {
			return n, fmt.Errorf("let published events of key %q expire: %w", part[0].Key, err)
		}
		n += len(part)
	}
	return n, nil
}

// isForEver reports whether an event never expires by itself. Only such events are marked.
func isForEver(c *feed.Change) bool { return ttlOf(c) == 0 }

func (r *Relay) expireBatch(ctx context.Context, chain []event) error {
	ttl := strconv.AppendInt(nil, int64(seconds(r.opts.ExpireAfter)), 10)
	now := strconv.AppendQuote(nil, time.Now().UTC().Format(time.RFC3339))
	var writes []feed.Write
	for _, e := range chain {
		if !isForEver(e.change) {
			continue
		}
		writes = append(writes, feed.Write{Op: feed.WritePatch, ID: e.change.ID, Patch: []feed.PatchOp{
			{Op: "set", Path: "/ttl", Value: ttl},
			{Op: "set", Path: "/" + published, Value: now},
			{Op: "set", Path: "/" + publishedLSN, Value: strconv.AppendInt(nil, e.change.LSN, 10)},
		}})
	}
	for len(writes) > 0 {
		_, err := r.opts.Container.Commit(ctx, chain[0].change.PartitionKey, writes)
		refused, ok := errors.AsType[*feed.WriteError](err)
		switch {
		case !ok:
			return err
		case errors.Is(err, feed.ErrNotFound): // the event was deleted
		case errors.Is(err, feed.ErrBadRequest): // the event has no room for the mark; do not publish the event again
			slog.Warn("published event will not expire", "key", chain[0].Key, "id", refused.Write.ID, "err",
				refused.Err)
		default:
			return err
		}
		writes = slices.Delete(writes, refused.Index, refused.Index+1)
	}
	return nil
}
