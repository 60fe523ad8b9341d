package cosmos

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
	"github.com/millrace/changefeed/internal/pause"
)

// probeTTL is the lifetime of a self-test's probe in seconds, in case the test ends before it deletes the probe.
const probeTTL = 60

// SelfTest tries each operation of a processor once, so that you find a missing right at the start and not at the first
// split, perhaps at night. SelfTest reads metadata and feed of the monitored container, lists and follows the leases,
// and creates, replaces and deletes a document of its own among them.
//
// The error joins all refusals; each names the data action that the credential lacks. If only the right to delete is
// missing, the processor works and leaves records behind: SelfTest logs a warning. If the service throttles, SelfTest
// waits, up to about a minute, because other instances may be starting on the same small container.
func (s *Leases) SelfTest(ctx context.Context, monitored *Container, mode feed.Mode) error {
	err := errors.Join(
		unthrottled(ctx, func() error { return monitored.testFeed(ctx, mode) }),
		unthrottled(ctx, func() error { _, _, err := s.List(ctx); return err }),
		unthrottled(ctx, func() error { _, _, _, err := s.presentCursor(ctx); return err }),
		s.testWrites(ctx),
	)
	if err != nil {
		return fmt.Errorf("self-test: %w", err)
	}
	return nil
}

// throttledTries limits the tries of a step of a self-test; each try is several requests, with up to a second between
// them.
const throttledTries = 20

// unthrottled repeats do while the service throttles.
func unthrottled(ctx context.Context, do func() error) error {
	for n := 1; ; n++ {
		err := do()
		throttled, ok := errors.AsType[*feed.ThrottledError](err)
		if !ok || n == throttledTries {
			return err
		}
		if err := pause.For(ctx, max(throttled.After, backoff(n))); err != nil {
			return err
		}
	}
}

// testFeed reads the feed of one partition from now.
func (c *Container) testFeed(ctx context.Context, mode feed.Mode) error {
	parts, err := c.Partitions(ctx)
	if err != nil {
		return err
	}
	_, err = c.Read(ctx, parts[0].Range, feed.Position{}, feed.ReadOptions{Mode: mode, MaxItems: 1})
	return err
}

// testWrites writes a document in the same way as records, under an id that is no record.
func (s *Leases) testWrites(ctx context.Context) error {
	id := s.Prefix() + ".probe." + newActivity()
	key := feed.Key(id)
	doc := fmt.Appendf(nil, `{"id":%q,"partitionKey":%q,"ttl":%d}`, id, id, probeTTL)
	etag := ""
	put := func(op feed.WriteOp) error {
		return unthrottled(ctx, func() error {
			stored, _, err := s.putRecord(ctx, feed.Write{Op: op, ID: id, Body: doc, IfMatch: etag}, key)
			if err == nil {
				etag = rawjson.Text(rawjson.Lookup(stored, "_etag"))
			}
			return err
		})
	}
	if err := put(feed.WriteCreate); err != nil {
		return fmt.Errorf("create a lease: %w", err)
	}
	if err := put(feed.WriteReplace); err != nil {
		return fmt.Errorf("update a lease: %w", err)
	}
	doc = nil
	err := put(feed.WriteDelete)
	if e, ok := errors.AsType[*Error](err); ok && e.Status == http.StatusForbidden {
		s.c.client.log.WarnContext(ctx, "leases cannot be deleted: those of partitions that were split stay behind",
			"error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete a lease: %w", err)
	}
	return nil
}
