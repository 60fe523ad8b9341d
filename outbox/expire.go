package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/internal/rawjson"
	"github.com/millrace/changefeed/internal/service"
)

// published is the member that an event has once it is published, when it expires after that: the time. The write of
// it comes back in the feed, where it must not look like an event to the relay that has made it.
const published = "published"

func isMarked(c *changefeed.Change) bool {
	return rawjson.Text(rawjson.Lookup(c.Body, published)) != ""
}

// expire lets the events of a key expire that are published, where the options want that. It returns how many of
// them are done with.
func (r *Relay) expire(ctx context.Context, chain []event) (n int, err error) {
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

func (r *Relay) expireBatch(ctx context.Context, chain []event) error {
	patch := []changefeed.PatchOp{
		{Op: "set", Path: "/ttl", Value: strconv.AppendInt(nil, int64(seconds(r.opts.ExpireAfter)), 10)},
		{Op: "set", Path: "/" + published, Value: strconv.AppendQuote(nil, time.Now().UTC().Format(time.RFC3339))},
	}
	writes := make([]changefeed.Write, len(chain))
	for i, e := range chain {
		writes[i] = changefeed.Write{Op: changefeed.WritePatch, ID: e.change.ID, Patch: patch}
	}
	for len(writes) > 0 {
		_, err := r.opts.Container.Commit(ctx, chain[0].change.PartitionKey, writes)
		refused, ok := errors.AsType[*changefeed.WriteError](err)
		switch {
		case !ok:
			return err
		case errors.Is(err, changefeed.ErrNotFound): // somebody has deleted it
		case errors.Is(err, changefeed.ErrBadRequest): // it has no room for this; it is published, and not to be published again
			slog.Warn("published event will not expire", "key", chain[0].Key, "id", refused.Write.ID, "err", refused.Err)
		default:
			return err
		}
		writes = slices.Delete(writes, refused.Index, refused.Index+1)
	}
	return nil
}
