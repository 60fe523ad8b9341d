package cosmos

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/millrace/changefeed"
)

// probeTTL is how many seconds the probe of a self-test outlives a test that was cut off.
const probeTTL = 60

// SelfTest tries everything that a processor does, once, so that a missing right is
// found at the start and not at the first split: it reads the metadata and the feed of
// the monitored container, lists and follows the leases, and creates, replaces and
// deletes a document of its own among them.
//
// The error joins all refusals; each names the data action that the credential lacks.
// Without the right to delete the processor works all the same, and leaves records
// behind: that is logged as a warning.
func (s *Leases) SelfTest(ctx context.Context, monitored *Container, mode changefeed.Mode) error {
	_, _, listing := s.List(ctx)
	_, _, _, following := s.present(ctx)
	if err := errors.Join(monitored.testFeed(ctx, mode), listing, following, s.testWrites(ctx)); err != nil {
		return fmt.Errorf("self-test: %w", err)
	}
	return nil
}

// testFeed reads the feed of one partition from now.
func (c *Container) testFeed(ctx context.Context, mode changefeed.Mode) error {
	parts, err := c.Partitions(ctx)
	if err != nil {
		return err
	}
	_, err = c.Read(ctx, parts[0].Range, changefeed.Position{}, changefeed.ReadOptions{Mode: mode, MaxItems: 1})
	return err
}

// testWrites writes a document that is no record of the unit, as a record is written.
func (s *Leases) testWrites(ctx context.Context) error {
	id := s.prefix + ".probe." + newActivity()
	key := changefeed.Key(id)
	doc := fmt.Appendf(nil, `{"id":%q,"partitionKey":%q,"ttl":%d}`, id, id, probeTTL)
	stored, err := s.put(ctx, changefeed.Write{Op: changefeed.WriteCreate, ID: id, Body: doc}, key)
	if err != nil {
		return fmt.Errorf("create a lease: %w", err)
	}
	if stored, err = s.put(ctx, changefeed.Write{Op: changefeed.WriteReplace, ID: id, Body: doc, IfMatch: etagOf(stored)}, key); err != nil {
		return fmt.Errorf("update a lease: %w", err)
	}
	_, err = s.put(ctx, changefeed.Write{Op: changefeed.WriteDelete, ID: id, IfMatch: etagOf(stored)}, key)
	if e, ok := errors.AsType[*Error](err); ok && e.Status == http.StatusForbidden {
		s.c.client.log.WarnContext(ctx, "leases cannot be deleted: those of partitions that were split stay behind", "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete a lease: %w", err)
	}
	return nil
}

func etagOf(doc []byte) (etag string) {
	s := scanner{text: doc}
	s.object(func(m member) {
		if m.is("_etag") {
			etag = unquote(m.value)
		}
	})
	return etag
}
