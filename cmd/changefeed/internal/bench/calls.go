package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// A handler whose cost is that of a call, for example of a program or a web service: a batch of many keys costs as
// much as a batch of a single key.

const (
	callKeys    = 500
	callDocs    = 100_000
	callTime    = 5 * time.Millisecond // duration of a call in a handler
	callsAtOnce = 16
	callRatio   = 20
	// Calling the handler for each key is slow, but the rate of a part of the changes is the same as that of all
	// changes.
	callDocsByKey = 10_000
	smallBytes    = 128
)

// concurrencyKeys compares batches of many keys with calls for a single key. There is no backlog: each key has a
// single change, and the next changes come when these are done. If several changes of a key were in memory, a call
// for a single key would contain all of them, so batches would gain less.
func concurrencyKeys(ctx context.Context, s *Site) (f Figure, err error) {
	a, err := s.openAisle(ctx, "keys", docstore.Options{})
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, a.db.Close()) }()
	if err := a.fillFast(func() error { return a.writeDocuments(ctx, callDocs, callKeys, smallBytes) }); err != nil {
		return f, err
	}
	var sizes []float64
	rate := func(n int64, handler func(c *counter) feed.HandlerFunc) (float64, error) {
		c := newCounter(n)
		o := changefeed.Options{Concurrency: callsAtOnce, MaxItems: callKeys}
		_, err := a.workFrom(ctx, &inRounds{a.documents, c}, handler(c), o, c.over)
		sizes = append(sizes, float64(n)/float64(max(1, c.calls.Load())))
		return c.perSecond(), err
	}
	f.Unit = "changes/s"
	value, each, err := s.inTurns(ctx, handleRounds, f.Unit,
		func() (float64, error) {
			return rate(callDocs, func(c *counter) feed.HandlerFunc { return c.countCall })
		},
		func() (float64, error) {
			return rate(callDocsByKey, func(c *counter) feed.HandlerFunc { return byKey(c.countCall) })
		})
	if err != nil {
		return f, err
	}
	f.Value = value
	f.Against(each)
	f.ratioOf(callRatio)
	f.Detail = fmt.Sprintf("%d changes of %d keys, one of each at a time, one lease, a handler that takes %v for a "+
		"call, Concurrency %d, %.0f changes a call; baseline: a call for each key of a batch, %.1f changes each; the "+
		"most that is possible is a ratio of %d",
		callDocs, callKeys, callTime, callsAtOnce, sizes[len(sizes)-2], sizes[len(sizes)-1], callKeys/callsAtOnce)
	return f, nil
}

// inRounds is a source that returns new changes when the previous changes have been handled. Each change is a new
// document, so the LSN of a position is the number of changes before it.
type inRounds struct {
	*docstore.Container
	c *counter
}

// Read implements [feed.Source].
func (s *inRounds) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
	before, _ := strconv.ParseInt(strings.Trim(from.Token, `"`), 10, 64) // 0 at the beginning, where there is no token
	for s.c.handled.Load() < before {
		if err := pause.For(ctx, callTime/50); err != nil {
			return feed.Page{}, err
		}
	}
	return s.Container.Read(ctx, r, from, o)
}

// countCall is a handler that takes the same time for many changes as for a single change.
func (c *counter) countCall(ctx context.Context, b *feed.Batch) error {
	c.begin()
	if err := pause.For(ctx, callTime); err != nil {
		return err
	}
	c.calls.Add(1)
	c.add(len(b.Changes))
	return nil
}

// byKey returns a handler that calls handler for each key of a batch, in turn.
func byKey(handler feed.HandlerFunc) feed.HandlerFunc {
	return func(ctx context.Context, b *feed.Batch) error {
		for n, changes := 0, b.Changes; len(changes) > 0; changes = changes[n:] {
			n = slices.IndexFunc(changes, func(c feed.Change) bool { return c.PartitionKey != changes[0].PartitionKey })
			if n < 0 {
				n = len(changes)
			}
			one := *b
			one.Changes = changes[:n]
			if err := handler(ctx, &one); err != nil {
				return err
			}
		}
		return nil
	}
}
