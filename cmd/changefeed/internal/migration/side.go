package migration

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
	"github.com/millrace/changefeed/internal/pause"
)

// A side is one of the two containers, with reads of single items.
type side struct {
	*place.Container

	paths     []pkey.Path
	ttl       bool // documents can expire
	retention time.Duration
	sources   feed.Source // reads pages; retries while an account is away
}

// document is a version of an item; the zero value is no item.
type document struct {
	body []byte
	etag string
	time time.Time // of the write
}

// exists reports whether there is an item.
func (d document) exists() bool { return d.body != nil }

// newSide describes an open container.
func newSide(ctx context.Context, o *place.Opener, c *place.Container) (*side, error) {
	s := &side{Container: c, sources: c.Source}
	for _, path := range c.Concrete().(interface{ KeyPaths() [][]string }).KeyPaths() {
		s.paths = append(s.paths, path)
	}
	spec, err := o.Spec(ctx, c)
	if err != nil {
		return nil, err
	}
	s.ttl, s.retention = spec.DefaultTTL != nil, spec.Retention
	return s, nil
}

// keyOf returns the partition key that a document has in this container.
func (s *side) keyOf(body []byte) (feed.PartitionKey, error) { return keyAt(s.paths, body) }

// keyAt returns the partition key of a document by its paths.
func keyAt(paths []pkey.Path, body []byte) (feed.PartitionKey, error) {
	values := make([][]byte, len(paths))
	for i, path := range paths {
		values[i] = rawjson.Lookup(body, path...)
	}
	return pkey.Of(paths, values)
}

// read reads an item as it is now. A read of an account is at least as new as a session token. isTarget reads with a
// batch, which an account answers with the newest version, and which takes every id, but needs the right to write.
func (s *side) read(ctx context.Context, key feed.PartitionKey, id, session string, isTarget bool) (d document,
	err error,
) {
	err = unthrottled(ctx, func() error {
		switch {
		case s.Local != nil:
			d, err = s.readLocal(ctx, key, id)
		case isTarget || strings.ContainsAny(id, `%/\#?`) || strings.HasSuffix(id, " "):
			d, err = s.readInBatch(ctx, key, id)
		default:
			d, err = s.get(ctx, key, id, session)
		}
		return err
	})
	if errors.Is(err, feed.ErrNotFound) && !errors.Is(err, place.ErrNoContainer) {
		return document{}, nil
	}
	return d, err
}

// readLocal reads an item of a store.
func (s *side) readLocal(ctx context.Context, key feed.PartitionKey, id string) (document, error) {
	i, err := s.Local.Item(ctx, key, id)
	return document{i.Body, i.ETag, i.Time}, err
}

// readInBatch reads an item with a transaction of one read.
func (s *side) readInBatch(ctx context.Context, key feed.PartitionKey, id string) (document, error) {
	results, err := s.Concrete().Commit(ctx, key, []feed.Write{{Op: feed.WriteRead, ID: id}})
	if err != nil {
		return document{}, err
	}
	return document{results[0].Body, results[0].ETag, writtenAt(results[0].Body)}, nil
}

// get reads an item with a request of its own.
func (s *side) get(ctx context.Context, key feed.PartitionKey, id, session string) (document, error) {
	name, value := place.KeyHeader(key)
	reply, err := s.Account.Send(ctx, place.Request{
		Method:   http.MethodGet,
		Resource: []string{"dbs", s.Address.Database, "colls", s.Address.Container, "docs", id},
		Header:   map[string]string{name: value, "X-Ms-Session-Token": session}, Want: []string{"id", "_etag"},
	})
	if place.Status(err) == http.StatusNotFound {
		return document{}, nil
	}
	if err != nil {
		return document{}, err
	}
	return document{reply.Body, rawjson.Text(rawjson.Lookup(reply.Body, "_etag")), writtenAt(reply.Body)}, nil
}

// idOf returns the id of a document.
func idOf(body []byte) string { return rawjson.Text(rawjson.Lookup(body, "id")) }

// writtenAt returns the time of a document's last write, in whole seconds.
func writtenAt(body []byte) time.Time {
	seconds, err := strconv.ParseInt(string(rawjson.Lookup(body, "_ts")), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// commit writes to a partition key, and waits while the container throttles.
func (s *side) commit(ctx context.Context, key feed.PartitionKey, writes []feed.Write) error {
	return unthrottled(ctx, func() error {
		_, err := s.Concrete().Commit(ctx, key, writes)
		return err
	})
}

const firstThrottle = 10 * time.Millisecond

// unthrottled sends a request again as often as the container throttles it.
func unthrottled(ctx context.Context, send func() error) error {
	for {
		err := send()
		wait, throttled := place.ThrottledFor(err)
		if !throttled {
			return err
		}
		if err := pause.For(ctx, max(wait, firstThrottle)); err != nil {
			return err
		}
	}
}
