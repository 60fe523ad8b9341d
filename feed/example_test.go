package feed_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/changefeed/feed"
)

// A key has the components of an item's partition key, in the order of the container's paths.
func ExampleKey() {
	fmt.Println(feed.Key("Oslo", 7))
	fmt.Println(feed.Key(nil), feed.Key(feed.Undefined))
	// Output:
	// ["Oslo",7]
	// [null] [{}]
}

// A failure names the changes that have failed. The others are done.
func ExampleFailure() {
	send := func(c feed.Change) error {
		if c.ID == "2" {
			return feed.Poison(errors.New("no address"))
		}
		return nil
	}
	handler := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
		failed := map[int]error{}
		for i, c := range b.Changes {
			if err := send(c); err != nil {
				failed[i] = err
			}
		}
		if len(failed) == 0 {
			return nil
		}
		return &feed.Failure{Items: failed, Err: errors.New("mail")}
	})
	err := handler.Handle(context.Background(), &feed.Batch{Changes: []feed.Change{{ID: "1"}, {ID: "2"}, {ID: "3"}}})
	fmt.Println(err)
	// Output: mail (1 change failed)
}

// The test of a handler that checkpoints by hand makes batches that count checkpoints.
func ExampleBatch_OnCheckpoint() {
	b := &feed.Batch{Changes: []feed.Change{{ID: "1"}}}
	fmt.Println(b.Checkpoint(context.Background()))
	checkpoints := 0
	b.OnCheckpoint(func(context.Context) error {
		checkpoints++
		return nil
	})
	fmt.Println(b.Checkpoint(context.Background()), checkpoints, b.IsManual())
	// Output:
	// checkpoint by hand needs Options.Manual
	// <nil> 1 true
}
