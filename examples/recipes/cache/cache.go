package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// put replaces a copy (KEYS[1]) if the version is newer than the version in the mark (KEYS[2]). ARGV: the LSN, the item
// or nothing if the item was deleted, and when the copy and the mark expire, in milliseconds, 0 for never.
var put = redis.NewScript(`
	if tonumber(ARGV[1]) <= tonumber(redis.call('GET', KEYS[2]) or '-1') then return 0 end
	redis.call('DEL', KEYS[1])
	redis.call('SET', KEYS[2], ARGV[1])
	if ARGV[2] ~= '' then redis.call('SET', KEYS[1], ARGV[2]) end
	if ARGV[3] ~= '0' then redis.call('PEXPIREAT', KEYS[1], ARGV[3]) end
	if ARGV[4] ~= '0' then redis.call('PEXPIREAT', KEYS[2], ARGV[4]) end
	return 1`)

// keepMark is how long the mark of a deleted item stays: longer than an old owner can be frozen within a batch.
const keepMark = 24 * time.Hour

type cache struct{ redis *redis.Client }

// handle writes the last version of each item of a batch. A transaction is never cut between batches, so no other
// version has the LSN of this one.
func (c cache) handle(ctx context.Context, b *feed.Batch) error {
	last := map[string]feed.Change{}
	for _, change := range b.Changes {
		last[fmt.Sprintf("product:{%s/%s}", change.PartitionKey, change.ID)] = change
	}
	done, err := c.redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for name, change := range last {
			var item struct{ TTL int }
			if err := json.Unmarshal(change.Body, &item); err != nil && change.Op != feed.OpDelete {
				return err
			}
			ends, markEnds := int64(0), int64(0)
			if item.TTL > 0 || change.Op == feed.OpDelete {
				expiry := change.Time.Add(time.Duration(item.TTL) * time.Second)
				ends = expiry.UnixMilli()
				markEnds = max(ends, time.Now().UnixMilli()) + keepMark.Milliseconds()
			}
			put.Eval(ctx, pipe, []string{name, name + ":lsn"}, change.LSN, []byte(change.Body), ends, markEnds)
		}
		return nil
	})
	fmt.Printf("%d changes of %d items up to LSN %d\n", len(b.Changes), len(done), b.Changes[len(b.Changes)-1].LSN)
	return err
}

// fill copies the items that exist when the unit begins: all versions and deletes shows only changes from then on. If
// an item has changed meanwhile, the newer version stays.
func (c cache) fill(ctx context.Context, products feed.Source) {
	filled, err := c.redis.Exists(ctx, "filled").Result()
	from := feed.Position{Start: feed.FromBeginning()}
	for page, wrong := range changefeed.Pull(ctx, products, feed.FullRange(), from, changefeed.PullOptions{}) {
		if filled == 1 || err != nil {
			break
		} else if err = wrong; err == nil {
			err = c.handle(ctx, &feed.Batch{Changes: page.Changes})
		}
	}
	if err == nil && ctx.Err() == nil {
		err = c.redis.Set(ctx, "filled", 1, 0).Err()
	}
	if err != nil && ctx.Err() == nil {
		log.Fatal("fill: ", err)
	}
}
