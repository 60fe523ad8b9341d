package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/outbox"
)

// Random scripts on a unit with lost requests and answers: model check of stored iff Commit said so.
func TestStrangerModel(t *testing.T) {
	for seed := range 200 {
		contacts, _ := open(t)
		rnd := uint64(seed)*2654435761 + 12345
		next := func(n int) int {
			rnd = rnd*6364136223846793005 + 1442695040888963407
			return int(rnd >> 33 % uint64(n))
		}
		flaky := committerFunc(func(ctx context.Context, key changefeed.PartitionKey, w []changefeed.Write) ([]changefeed.Result, error) {
			switch next(5) {
			case 0:
				return nil, errLost
			case 1:
				contacts.Commit(ctx, key, w)
				return nil, errLost
			case 2:
				if next(3) == 0 {
					return nil, changefeed.ErrThrottled
				}
			}
			return contacts.Commit(ctx, key, w)
		})
		d := docOf("c1", newContact("A"))
		u := outbox.NewUnit(flaky, outbox.Options{})
		u.Create(d)
		done := 0
		for i := range 8 {
			if i > 0 {
				d.Data.RecordAlso(nameUpdated{fmt.Sprint(i)})
				d.Data.Name = fmt.Sprint(i)
				u.Replace(d)
			}
			var err error
			for range 100 {
				if err = u.Commit(t.Context()); err == nil || !errors.Is(err, errLost) && !errors.Is(err, changefeed.ErrThrottled) {
					break
				}
			}
			if err != nil {
				t.Logf("seed %d step %d: %v", seed, i, err)
				break
			}
			done++
		}
		if n := len(actions(stored(t, contacts, "c1"))); done == 8 && n != 8 || done < 8 {
			t.Errorf("seed %d: %d commits, %d events", seed, done, n)
		}
	}
}
